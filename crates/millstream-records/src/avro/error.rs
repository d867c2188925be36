//! Why a plan cannot be made, and why a record cannot be decoded or rows cannot be written.

use arrow::datatypes::DataType;
use thiserror::Error;

use crate::types::spark_type;

/// Columns that no Avro record can fill.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// A column's type, or a part of it, that Avro values cannot become.
    #[error("column `{column}`: {} cannot be decoded from Avro", spark_type(data_type))]
    Type {
        /// The column's name.
        column: String,
        /// The type, or the part of it.
        data_type: DataType,
    },
    /// A projection that names a column twice, or one that is not there.
    #[error("the projection {projection:?} does not fit {columns} columns")]
    Projection {
        /// The projection.
        projection: Vec<usize>,
        /// How many columns there are.
        columns: usize,
    },
}

/// A writer's schema that does not fit what its records should become.
#[derive(Debug, Error)]
#[error("field `{path}`: {problem}")]
pub struct PlanError {
    /// The field or column, with dots between the levels; `element` stands for an array's items
    /// and `value` for a map's values. Empty for the record itself.
    pub path: String,
    /// What does not fit.
    pub problem: PlanProblem,
}

/// What does not fit.
#[derive(Debug, Clone, Error)]
pub enum PlanProblem {
    /// Two types that schema resolution does not bring together.
    #[error("the writer's {writer} cannot be read as the reader's {reader}")]
    Incompatible {
        /// The writer's type.
        writer: String,
        /// The reader's type.
        reader: String,
    },
    /// A field of the reader that the writer lacks and that has no default.
    #[error("the writer has no such field and the reader schema gives it no default; add one")]
    NoDefault,
    /// A default that is no value of its type.
    #[error("the reader schema's default is no {expected}: {found}")]
    Default {
        /// The type.
        expected: String,
        /// The default.
        found: String,
    },
    /// Decimals of which not every value of the writer's is one of the reader's.
    #[error("the writer's decimal({}, {}) does not fit the reader's decimal({}, {})", .writer.0,
        .writer.1, .reader.0, .reader.1)]
    Decimal {
        /// Precision and scale.
        writer: (usize, usize),
        /// Precision and scale.
        reader: (usize, usize),
    },
    /// A column declared with a type that the field's values do not become.
    #[error("the writer's {writer} does not become {}; {remedy}", spark_type(declared))]
    Declared {
        /// The writer's type.
        writer: String,
        /// The column's type.
        declared: DataType,
        /// What to do.
        remedy: &'static str,
    },
    /// A column that must not be null, of a field that the writer lacks.
    #[error("the column is NOT NULL but the writer has no such field; declare it without NOT NULL")]
    NotNull,
    /// Fields whose names differ from the column's in case only.
    #[error("the writer has {0:?}, which differ in case only; name the column exactly like one")]
    Ambiguous(Vec<String>),
    /// A column of the same name as another.
    #[error("two columns have this name")]
    Twice,
    /// The columns of the decoder are not those of the reader schema.
    #[error("the decoder has no column {expected}, which the reader schema makes here")]
    Columns {
        /// The column that the reader schema makes.
        expected: String,
    },
    /// The reader schema has no columns.
    #[error("{0}")]
    Reader(String),
    /// Schemas that are too large together, or whose unions have too many combinations.
    #[error("resolving the schemas takes more than {0} steps")]
    TooLarge(usize),
}

/// A record that was not appended. The decoder's rows are as they were before.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The bytes are no such record.
    #[error("malformed Avro record: {problem}, at byte {at} in field `{field}`")]
    Malformed {
        /// What is wrong.
        problem: RecordProblem,
        /// The writer's field, with dots between the levels. Empty for the record itself.
        field: String,
        /// Where the value that is wrong begins.
        at: usize,
    },
    /// The rows so far and this record do not fit into one batch. With no rows so far the record
    /// alone is too large; else finish the batch and append it again.
    #[error("the batch is full at {rows} rows; finish it, then append the record again")]
    Full {
        /// How many rows the batch has.
        rows: usize,
    },
    /// The plan was made for another layout.
    #[error("the plan was made for other columns than the decoder's")]
    ForeignPlan,
    /// A row of nulls where a column must not be null.
    #[error("column `{column}` is NOT NULL, so that no row of nulls can be appended")]
    NotNull {
        /// The column.
        column: String,
    },
}

/// What is wrong with a record's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordProblem {
    /// The record ends within a value.
    #[error("it ends after {have} bytes where {need} more are needed")]
    Truncated {
        /// All bytes of the record.
        have: usize,
        /// How many are missing at least.
        need: usize,
    },
    /// There are bytes after the record.
    #[error("{0} bytes are left over; is it written with another schema?")]
    LeftOver(usize),
    /// A number of more bits than its type has.
    #[error("a variable-length number of more than {0} bits")]
    Varint(u32),
    /// A negative length or count.
    #[error("a length of {0}")]
    Length(i64),
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean of {0}")]
    Boolean(u8),
    /// A union's branch that it does not have.
    #[error("branch {index} of a union of {branches}")]
    Branch {
        /// The branch.
        index: i64,
        /// How many there are.
        branches: usize,
    },
    /// An enum's symbol that it does not have.
    #[error("symbol {index} of an enum of {symbols}")]
    Symbol {
        /// The symbol.
        index: i64,
        /// How many there are.
        symbols: usize,
    },
    /// A symbol that the reader's enum lacks, and it has no default.
    #[error("symbol {0} of the writer's enum is none of the reader's, which has no default")]
    UnknownSymbol(i64),
    /// A string that is no UTF-8.
    #[error("a string that is not UTF-8")]
    Utf8,
    /// An integer outside its column's type.
    #[error("{value} does not fit {data_type}")]
    OutOfRange {
        /// The value.
        value: i64,
        /// The column's type.
        data_type: &'static str,
    },
    /// A decimal of more digits than its column has.
    #[error("a decimal of more than {0} digits")]
    Decimal(u8),
    /// A decimal of no bytes.
    #[error("a decimal of no bytes")]
    EmptyDecimal,
    /// A value of a union's branch that has no place in the column.
    #[error("{0}")]
    NoPlace(String),
    /// Values nested deeper than anyone means to.
    #[error("values are nested more than {0} levels deep")]
    TooDeep(usize),
    /// An array of so many items that take no bytes.
    #[error("more than {0} items that take no bytes")]
    Idle(usize),
}

/// Rows that were not written.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// A value that the schema does not allow.
    #[error("column `{column}`, row {row}: {problem}")]
    Value {
        /// The column, with dots between the levels.
        column: String,
        /// The row, counted from 0.
        row: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The rows are not of the type that the encoder was made for.
    #[error("the encoder writes {}, not {}", spark_type(expected), spark_type(found))]
    Type {
        /// The encoder's type.
        expected: Box<DataType>,
        /// The rows' type.
        found: Box<DataType>,
    },
    /// More bytes than one array holds.
    #[error("the records of {rows} rows take more than 2 GiB; encode fewer at once")]
    TooLarge {
        /// How many rows there are.
        rows: usize,
    },
}
