//! From a query that was read to DataFusion's logical plan, with Spark's types and meaning.
//!
//! [`logical`] plans the query against registered tables, [`windows`] makes columns of its windows
//! of time, and [`project`] fits its columns to those of a sink. [`optimize`] makes a plan ready to
//! run, [`short_circuit`] its conditions. [`row_test`] holds a condition against rows at hand. What
//! DataFusion refuses is said in the words of the text ([`blame`]).

pub mod blame;
pub mod condition;
mod lateral;
pub mod logical;
pub mod optimize;
pub mod project;
pub mod row_test;
pub mod short_circuit;
pub mod windows;
