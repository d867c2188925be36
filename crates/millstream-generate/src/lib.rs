//! Messages made up from a template, in the language of json-data-generator 1.16.
//!
//! Google's "Streaming Data Generator" takes the same templates. Text is copied as it stands;
//! `{{integer(1,10)}}` and other calls in double braces are replaced by a value for each message:
//!
//! 1. [`repeat`] finds `'{{repeat(3)}}',` and what it repeats. The original copies that text; here
//!    it becomes a loop.
//! 2. [`scan`] finds the tokens between the braces, and [`call`] makes a [`call::Call`] of each, of
//!    the pieces that [`token`] reads. What has only constants as arguments is checked and prepared
//!    now, once.
//! 3. [`Template`] is the list of those steps; it does not change any more and may be shared.
//! 4. [`Generator`] walks the list for each message and appends bytes. It owns what outlives a
//!    message: counters, stored values, and the random numbers.
//!
//! A token that cannot be read is no error in this language: it stays in the message as it stands,
//! and [`Template::warnings`] says so. Only what would make the original fail, a repetition that is
//! wrong, is a [`TemplateError`].
//!
//! Clock and randomness come from the caller, as a number each: the same seed and the same times
//! give the same bytes. Words (names, cities, streets) are this project's own short lists.
//! `docs/reference/generator.md` is the language's reference.

mod call;
mod clock;
mod error;
mod functions;
mod generator;
mod java;
mod letters;
mod op;
mod random;
mod repeat;
mod scan;
mod state;
mod template;
mod token;
mod words;

pub use error::{TemplateError, Warning};
pub use generator::Generator;
pub use template::Template;
