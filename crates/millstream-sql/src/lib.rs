//! Spark SQL: from text to DataFusion's logical plan, and the functions, types and JSON of its
//! queries.
//!
//! A query goes this way:
//!
//! 1. [`syntax`] makes tokens of the text, and has sqlparser read them within limits;
//! 2. [`query`] finds the tables that are read, as a stream or as a batch, and says in DataFusion's
//!    words what Spark says in others;
//! 3. [`plan`] plans the result in a [`session`] that has Spark's [`functions`] and [`types`].
//!
//! Whatever is wrong becomes a [`Diagnostic`](diagnostic::Diagnostic) that points into the text and
//! says what to write instead. One spelling is accepted, Spark's; other systems' get an error that
//! shows it.
//!
//! Records of text are read in [`json`] and [`csv`], for functions and for sources alike, and in
//! `xml` for functions. Values of the type VARIANT are read and made in [`variant`].
//!
//! This crate knows no connector, no stream and no checkpoint, and of our other crates only
//! `millstream-records`, for functions that read and write Avro and Protobuf. `FROM STREAM` is read
//! here and becomes a mark on the table; what to do with it is the caller's.

pub mod csv;
pub mod diagnostic;
pub mod functions;
pub mod json;
pub mod lines;
pub mod nearest;
pub mod plan;
pub mod query;
mod recursion;
pub mod session;
pub mod syntax;
pub mod types;
pub mod values;
pub mod variant;
mod xml;
