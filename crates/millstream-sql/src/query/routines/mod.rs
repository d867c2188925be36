//! Functions that are declared in SQL: `CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1`.
//!
//! A call becomes its function's body, with the arguments in place of the parameters, before
//! anything else looks at the query. So all that comes later, and a stream as well, sees plain
//! expressions and subqueries.
//!
//! [`declare`] reads the statements; [`template`] reads a body and, with [`bind`], finds out which
//! of its names are parameters; [`expand`] puts bodies in place of calls, and [`capture`] takes
//! care that a name in an argument means there what it means here. [`named`] are arguments by name,
//! and [`fields`] those of structs.

mod bind;
pub mod built_in;
mod calls;
mod capture;
pub mod declare;
pub(crate) mod expand;
mod fields;
mod named;
pub(crate) mod resolve;
pub(super) mod template;
