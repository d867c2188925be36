//! How the values of a type are written by a schema.
//!
//! The encoder makes a tree of them once, and writing follows it for each row.

use std::collections::HashMap;

/// How a value is written.
pub(super) struct Value {
    /// The branch of a union that the value is, if it is in one.
    pub branch: Option<i64>,
    /// The branch that null is. Without one, null is an error.
    pub null: Option<i64>,
    pub form: Form,
}

pub(super) enum Form {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Date,
    /// A timestamp, in units of so many microseconds.
    Timestamp(i64),
    Text,
    Enum(HashMap<String, i64>),
    Binary,
    Fixed(usize),
    Decimal,
    FixedDecimal(usize),
    List(Box<Value>),
    Map(Box<Value>),
    Record(Vec<Part>),
    /// One member of the struct, of those that stand for the branches: the one that is not null.
    Choice(Vec<Value>),
}

/// A field of a record.
pub(super) enum Part {
    /// A column of the struct, and its name.
    Column(usize, String, Value),
    /// A field that no column is for: null, by this branch. Without one the field's type is null,
    /// which takes no bytes.
    Null(Option<i64>),
}
