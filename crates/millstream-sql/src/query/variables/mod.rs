//! Variables of a session: `DECLARE total INT = 5`, `SET VAR total = 6`, and `total` in a query.
//!
//! [`declare`] reads the statements. Their values are computed where the session is; a query gets
//! them as [`known`] variables. [`names`] makes names of texts in `IDENTIFIER(variable)` before the
//! query is read, and [`bind`] puts values in the places of names that are no columns, before
//! anything else is said of the query. [`markers`] puts values into the text of a statement that is
//! run by `EXECUTE IMMEDIATE`.

pub(crate) mod bind;
pub mod declare;
pub mod known;
pub mod markers;
pub(crate) mod names;
