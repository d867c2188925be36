//! From a query's tokens to a statement that DataFusion plans as Spark would.
//!
//! [`prepare`] is the way through; each of its steps is a module: [`streams`] takes out what
//! sqlparser does not know, [`relations`] finds the tables that are read, [`stateless`] refuses
//! what needs state over a stream, and [`rewrite`] says in DataFusion's words what Spark says in
//! others.

mod aggregates;
pub(crate) mod ast;
mod frame;
mod generators;
mod grouping;
mod lateral;
mod naming;
mod operators;
pub(crate) mod parse;
pub mod prepare;
pub mod prepared;
mod relations;
pub(crate) mod rewrite;
mod scope;
mod shapes;
mod stateless;
pub mod streams;
mod window_calls;
