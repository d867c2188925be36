//! The SQL of a pipeline file: from text to a plan per flow.
//!
//! A pipeline file declares tables (`CREATE TABLE ... USING kafka`) and flows between them
//! (`INSERT INTO sink SELECT ... FROM STREAM source`), in Spark's words. Reading one goes:
//!
//! 1. `lexer` makes tokens of the whole file, `parse` statements of tokens;
//! 2. [`pipeline`] resolves connectors and options, and checks both without touching anything;
//! 3. [`prepare`] reads each query: which tables, as a stream or as a batch, and what Spark's
//!    words are in DataFusion's;
//! 4. [`logical`] plans the query against registered tables, [`windows`] makes columns of its
//!    windows of time, and [`project`] fits its columns to the sink's.
//!
//! Whatever is wrong becomes a [`Diagnostic`] that points into the file and says what to write
//! instead. One spelling is accepted, Spark's; other systems' get an error that shows it.

mod aggregates;
mod balance;
mod blame;
mod branches;
pub mod checkpoints;
mod constraints;
mod create_table;
mod cursor;
pub mod dead_letters;
pub mod diagnostic;
mod generators;
mod grouping;
mod lateral;
mod lexer;
mod limits;
pub mod logical;
mod naming;
pub mod nearest;
mod operators;
mod options;
mod parse;
pub mod pipeline;
pub mod places;
pub mod prepare;
pub mod project;
mod reading;
pub(crate) mod relations;
mod rewrite;
mod scope;
pub(crate) mod semantics;
mod shapes;
mod stateless;
mod streams;
pub mod trigger;
pub mod types;
mod window_calls;
pub mod windows;

pub(crate) use constraints::condition;
pub use constraints::{ConstraintDeclaration, OnViolation};
pub use cursor::Name;
pub use diagnostic::{Diagnostic, Diagnostics, Note, Span};
pub use logical::to_logical;
pub use options::WRITER_OPTIONS;
pub use parse::{
    BranchDeclaration, ColumnDeclaration, FlowDeclaration, OptionDeclaration, TableDeclaration,
};
pub use pipeline::{Branch, Flow, Pipeline, WriterOptions};
pub use prepare::{PreparedQuery, TableCatalog, TableRead, Watermark, prepare_query};
pub use project::{Target, project_to_sink};
pub use trigger::Trigger;
pub use types::{parse_schema_ddl, parse_type_ddl, spark_schema, spark_type};

#[cfg(test)]
mod tests;
