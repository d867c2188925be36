//! From a query that was read to DataFusion's logical plan, with Spark's types and meaning.
//!
//! [`logical`] plans the query against registered tables: it compares STRINGs by their
//! [`collations`], refuses what Spark refuses ([`checks`], [`variants`], [`recursion`]), makes
//! joins of subqueries ([`lateral`], [`subqueries`]), and columns of windows of time ([`windows`]);
//! [`grouping_sets`] have no rows without rows, and [`map_keys`] are equal if they have the same
//! entries, [`zeros`] whatever their signs, [`float_keys`] if they are NaN. [`project`] fits the
//! columns to those of a sink.
//! [`optimize`] makes a plan ready to run, [`short_circuit`] its conditions. [`row_test`] holds a
//! condition against rows at hand. What DataFusion refuses is said in the words of the text
//! ([`blame`]).

pub mod blame;
mod checks;
mod collations;
pub mod condition;
mod float_keys;
mod grouping_sets;
mod lateral;
pub mod logical;
mod map_keys;
pub mod optimize;
pub mod project;
pub(crate) mod recursion;
pub mod row_test;
pub mod short_circuit;
mod subqueries;
mod type_words;
mod variants;
pub mod windows;
mod zeros;
