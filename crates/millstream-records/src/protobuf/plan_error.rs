//! Why columns cannot be filled from a message.

/// A column that a message cannot fill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Types without a conversion.
    #[error(
        "the column {column} is {column_type}, which the field {field} of the type {field_type} \
         cannot become: {remedy}"
    )]
    Type {
        /// The column, with those around it.
        column: String,
        /// Its type in Spark's terms.
        column_type: String,
        /// The field's full name.
        field: String,
        /// Its type in Protobuf's terms.
        field_type: String,
        /// What can be done.
        remedy: String,
    },
    /// Several fields whose names differ in case only.
    #[error(
        "the column {column} can be any of the fields {fields:?} of {message}: name it like one \
         of them, in the same case"
    )]
    Ambiguous {
        /// The column, with those around it.
        column: String,
        /// The message's full name.
        message: String,
        /// The fields' names.
        fields: Vec<String>,
    },
    /// Columns nested too deep.
    #[error("the column {column} is nested deeper than {limit} levels")]
    TooDeep {
        /// The column, with those around it.
        column: String,
        /// How deep it may be.
        limit: usize,
    },
}
