//! From a logical plan to rows. Steps 4 of a micro-batch.
//!
//! A streaming query is planned once and run for every micro-batch. Its leaves are [`StreamScan`]s:
//! plan nodes with a slot per partition, which the driver fills with the micro-batch's splits
//! before it runs the plan. Static tables are read when the query is planned; the query is planned
//! again only when one of them changes. Tables that are asked for rows by key are joined without
//! being read ([`lookup`]).
//!
//! A query with state is cut at its stateful operators ([`stages`]) into plans of that kind, which
//! are run one after the other with the operators between them ([`stateful_plan`]).
//!
//! Where a plan fails with a row, the row is searched for ([`failing_rows`]) and the expression
//! that fails with it ([`failing_expression`]); for tables at rest likewise
//! ([`failing_rows_at_rest`]).
//!
//! [`StreamScan`]: stream_scan::StreamScan

pub mod failing_expression;
pub mod failing_rows;
pub mod failing_rows_at_rest;
mod linear_plan;
pub mod lookup;
pub mod places;
pub mod query_plan;
mod renewal;
pub mod row_error;
pub mod scanned_table;
pub mod session;
pub mod stages;
mod state_types;
pub mod stateful_plan;
pub mod static_table;
pub mod stream_plan;
pub mod stream_scan;
mod watermark_filters;

pub use query_plan::QueryPlan;
pub use stateful_plan::StatefulPlan;
pub use stream_plan::StreamPlan;
