//! The pipeline file: from its text to tables, and flows between them.
//!
//! A pipeline file declares tables (`CREATE TABLE ... USING kafka`) and flows between them
//! (`INSERT INTO sink SELECT ... FROM STREAM source`), in Spark's words. Reading one goes:
//!
//! 1. [`parse`] makes statements of its tokens;
//! 2. [`flows`] resolves connectors and options, and checks both without touching anything; each
//!    query is read by `millstream-sql`;
//! 3. a branch's plan is made by `Branch::plan`, with columns for its [`constraints`].
//!
//! Whatever is wrong becomes a [`Diagnostic`](millstream_sql::diagnostic::Diagnostic) that points
//! into the file.

mod branches;
pub mod checkpoints;
mod constraints;
mod create_table;
pub mod dead_letters;
mod declarations;
mod flows;
mod options;
mod orders;
mod parse;

pub use constraints::{ConstraintDeclaration, OnViolation};
pub use declarations::{
    BranchDeclaration, ColumnDeclaration, FlowDeclaration, OptionDeclaration, TableDeclaration,
};
pub use flows::{Branch, Flow, Pipeline};
pub use options::{DeclaredTable, WRITER_OPTIONS, WriterOptions};

#[cfg(test)]
mod tests;
