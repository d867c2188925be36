//! Text to tokens, and tokens to sqlparser, in bounded time and depth.
//!
//! [`lexer`] makes tokens of a text, [`limits`] counts what planning could not do in time, and
//! [`reading`] has sqlparser read an expression or a query. What sqlparser does not know is taken
//! out before, with a [`cursor`]. What cannot be read is reported at its place ([`unreadable`]).

pub(crate) mod balance;
pub mod cursor;
pub(crate) mod guard;
pub mod lexer;
pub mod limits;
pub(crate) mod reading;
pub(crate) mod unreadable;
