//! XML: a text as the events that a reader meets, one after the other, or as the tree of its nodes,
//! in which paths of XPath 1.0 find some.
//!
//! Functions between XML and columns are Spark's, which reads events and not a tree: what a value
//! that cannot be read leaves behind decides what is read next. So events it is here, too. Reading
//! ends with the end of the outermost element, behind which nothing is looked at.
//!
//! Entities are the five of XML and numbers of characters. A text that declares its own is refused:
//! they could make much out of little. Elements may be nested to 1000 levels.

mod evaluate;
mod events;
mod path;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use evaluate::{Found, evaluate};
pub(crate) use events::{Attribute, Event, events, is_blank, is_name};
pub(crate) use path::{Path, parse};
pub(crate) use tree::Tree;
