//! Queries over the lake: tables at rest, read where they are.
//!
//! A query goes this way:
//!
//! 1. [`statements`] cuts a text into statements;
//! 2. [`tables`] finds what a query reads: declared tables, and tables named by their path, as
//!    [`LakeTable`](tables::lake_table::LakeTable)s whose scans are DataFusion's own where a table
//!    is made of plain Parquet files;
//! 3. [`session`] plans the query as Spark would and runs it in this process, within a limit of
//!    memory beyond which it spills.
//!
//! With a [`cluster`] the plan runs elsewhere, in stages. By [`flight_sql`] other tools ask their
//! queries.
//!
//! Which files a scan reads is decided by the table's connector, from its log and the statistics in
//! it; what is left to be skipped within a file is DataFusion's work.

pub mod cache;
pub mod cluster;
pub mod error;
pub mod flight_sql;
mod narrow_gaps;
pub mod progress;
mod result_names;
pub mod session;
pub mod setting_statements;
pub mod spark_settings;
pub mod state;
pub mod statements;
pub mod stores;
pub mod tables;
mod yielding;
