//! Encodes rows as records: what Spark's `AvroSerializer` does.
//!
//! The schema is matched to the rows' type once, which makes a tree of [`Value`]s in the order of
//! the schema's fields. For a batch the tree is bound to the batch's arrays (module `write`), and
//! then each row is written by walking it.

use arrow::array::{Array, ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema};
use thiserror::Error;

use super::error::EncodeError;
use super::form::{Form, Part, Value};
use super::program::At;
use super::schema::{Kind, Logical, Record, Schema, SchemaError, TypeId};
use super::shape::MAX_DEPTH;
use super::write;

use crate::types::spark_type;

/// Writes rows of one type by one schema.
pub struct Encoder {
    data_type: DataType,
    schema: Schema,
    value: Value,
}

/// A schema by which rows cannot be written.
#[derive(Debug, Error)]
pub enum EncoderError {
    /// There is no schema for the type.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A column's type and its field's that Spark does not convert.
    #[error(
        "column `{column}`: {} cannot be written as {written}; cast it in the query",
        spark_type(data_type)
    )]
    Incompatible {
        /// The column, with dots between the levels. Empty for the row itself.
        column: String,
        /// The column's type.
        data_type: DataType,
        /// The field's type.
        written: String,
    },
    /// A time, for a field that counts it in a unit that no column type has.
    #[error(
        "column `{column}`: {} cannot be written as {written}; let the query compute the number \
         of {counts}",
        spark_type(data_type)
    )]
    Time {
        /// The column, with dots between the levels.
        column: String,
        /// The column's type.
        data_type: DataType,
        /// The field's type.
        written: String,
        /// What the field's number counts.
        counts: &'static str,
    },
    /// A column that the schema has no field for.
    #[error("column `{column}` has no field in the schema; leave it out or add a field")]
    NoField {
        /// The column.
        column: String,
    },
    /// A field that must have a value but that no column is for.
    #[error("field `{field}` of the schema cannot be null, but there is no column for it")]
    NoColumn {
        /// The field.
        field: String,
    },
    /// More than one column or field of the name, but for case.
    #[error("`{name}` matches more than one field or column, which differ in case only")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// Types nested deeper than anyone means to.
    #[error("column `{column}`: types are nested more than {limit} levels deep")]
    TooDeep {
        /// The column.
        column: String,
        /// The limit.
        limit: usize,
    },
}

impl Encoder {
    /// An encoder of values of this type. Without a schema it is the one that Spark derives:
    /// [`Schema::of`].
    ///
    /// # Errors
    /// Types that do not fit, fields without columns and columns without fields.
    pub fn new(
        data_type: &DataType,
        nullable: bool,
        schema: Option<&Schema>,
    ) -> Result<Self, EncoderError> {
        let schema = match schema {
            Some(schema) => schema.clone(),
            None => Schema::of(data_type, nullable)?,
        };
        let mut matcher = Matcher { path: Vec::new() };
        let value = matcher.value(data_type, At::root(&schema))?;
        Ok(Self { data_type: data_type.clone(), schema, value })
    }

    /// An encoder of rows of these columns.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_columns(
        columns: &ArrowSchema,
        schema: Option<&Schema>,
    ) -> Result<Self, EncoderError> {
        Self::new(&DataType::Struct(columns.fields().clone()), false, schema)
    }

    /// The schema that the records are written by.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Writes each row of a batch as a record with `prefix` before it, such as the five bytes of a
    /// schema registry's frame.
    ///
    /// # Errors
    /// The first value that the schema does not allow.
    pub fn encode_batch(
        &self,
        rows: &RecordBatch,
        prefix: &[u8],
    ) -> Result<BinaryArray, EncodeError> {
        let fields = rows.schema().fields().clone();
        let array = StructArray::try_new_with_length(
            fields,
            rows.columns().to_vec(),
            None,
            rows.num_rows(),
        );
        match array {
            Ok(array) => self.encode(&(std::sync::Arc::new(array) as ArrayRef), prefix),
            Err(error) => Err(EncodeError::Value {
                column: String::new(),
                row: 0,
                problem: error.to_string(),
            }),
        }
    }

    /// Writes each value as a record with `prefix` before it. A value that is null becomes null,
    /// as in Spark's `to_avro`.
    ///
    /// # Errors
    /// The first value that the schema does not allow.
    pub fn encode(&self, values: &ArrayRef, prefix: &[u8]) -> Result<BinaryArray, EncodeError> {
        if !same_types(values.data_type(), &self.data_type) {
            return Err(EncodeError::Type {
                expected: Box::new(self.data_type.clone()),
                found: Box::new(values.data_type().clone()),
            });
        }
        let source = write::bind(&self.value, values);
        let mut builder = BinaryBuilder::new();
        let mut record = Vec::new();
        let mut total = 0;
        for row in 0..values.len() {
            if values.is_null(row) {
                builder.append_null();
                continue;
            }
            record.clear();
            record.extend_from_slice(prefix);
            write::write(&source, row, &mut record).map_err(|fault| fault.in_row(row))?;
            total += record.len();
            if i32::try_from(total).is_err() {
                return Err(EncodeError::TooLarge { rows: values.len() });
            }
            builder.append_value(&record);
        }
        Ok(builder.finish())
    }
}

/// True if the types are the same but for nullability and the names of an array's or a map's
/// parts.
fn same_types(left: &DataType, right: &DataType) -> bool {
    let same_fields = |left: &Fields, right: &Fields| {
        let pairs = left.iter().zip(right);
        let mut pairs = pairs.map(|(l, r)| (l.name() == r.name(), l.data_type(), r.data_type()));
        left.len() == right.len() && pairs.all(|(named, l, r)| named && same_types(l, r))
    };
    match (left, right) {
        (DataType::List(l), DataType::List(r)) => same_types(l.data_type(), r.data_type()),
        (DataType::Map(l, _), DataType::Map(r, _)) => match (l.data_type(), r.data_type()) {
            (DataType::Struct(l), DataType::Struct(r)) => {
                let mut pairs = l.iter().zip(r);
                l.len() == r.len() && pairs.all(|(l, r)| same_types(l.data_type(), r.data_type()))
            }
            _ => false,
        },
        (DataType::Struct(l), DataType::Struct(r)) => same_fields(l, r),
        (DataType::Timestamp(l, zone), DataType::Timestamp(r, other)) => {
            l == r && zone.is_some() == other.is_some()
        }
        _ => left == right,
    }
}

struct Matcher {
    path: Vec<String>,
}

type Matched<T> = Result<T, EncoderError>;

impl Matcher {
    fn column(&self) -> String {
        self.path.join(".")
    }

    fn refuse(&self, data_type: &DataType, at: At<'_>) -> EncoderError {
        let (column, data_type) = (self.column(), data_type.clone());
        EncoderError::Incompatible { column, data_type, written: at.describe() }
    }

    fn within<T>(
        &mut self,
        part: &str,
        matched: impl FnOnce(&mut Self) -> Matched<T>,
    ) -> Matched<T> {
        if self.path.len() >= MAX_DEPTH {
            return Err(EncoderError::TooDeep { column: self.column(), limit: MAX_DEPTH });
        }
        self.path.push(part.to_owned());
        let result = matched(self);
        self.path.pop();
        result
    }

    fn value(&mut self, data_type: &DataType, at: At<'_>) -> Matched<Value> {
        let Kind::Union(branches) = at.kind() else {
            return Ok(Value { branch: None, null: None, form: self.form(data_type, at)? });
        };
        let is_null = |id: &TypeId| matches!(at.part(*id).kind(), Kind::Null);
        let null = branches.iter().position(is_null).map(|at| at as i64);
        let some = branches.iter().enumerate().filter(|(_, id)| !is_null(id));
        let some: Vec<(i64, At<'_>)> =
            some.map(|(index, id)| (index as i64, at.part(*id))).collect();
        if let [(branch, only)] = some[..] {
            return Ok(Value { branch: Some(branch), null, form: self.form(data_type, only)? });
        }
        // A number is written by the wider branch, as Spark hands over a long or a double.
        let wide = |from: fn(&Kind) -> bool, narrow: fn(&Kind) -> bool| match some[..] {
            [(index, one), (_, other)] if from(one.kind()) && narrow(other.kind()) => Some(index),
            [(_, other), (index, one)] if from(one.kind()) && narrow(other.kind()) => Some(index),
            _ => None,
        };
        let long = || wide(|kind| matches!(kind, Kind::Long), |kind| matches!(kind, Kind::Int));
        let double =
            || wide(|kind| matches!(kind, Kind::Double), |kind| matches!(kind, Kind::Float));
        let (branch, form) = match data_type {
            DataType::Int64 => (long(), Form::Int64),
            DataType::Float64 => (double(), Form::Float64),
            DataType::Struct(fields) => return self.choice(fields, data_type, at, &some, null),
            _ => return Err(self.refuse(data_type, at)),
        };
        match branch {
            Some(branch) => Ok(Value { branch: Some(branch), null, form }),
            None => Err(self.refuse(data_type, at)),
        }
    }

    /// A struct of the members that Spark makes of a union, by their names.
    fn choice(
        &mut self,
        fields: &Fields,
        data_type: &DataType,
        at: At<'_>,
        branches: &[(i64, At<'_>)],
        null: Option<i64>,
    ) -> Matched<Value> {
        let named =
            |(at, field): (usize, &std::sync::Arc<Field>)| *field.name() == format!("member{at}");
        if fields.len() != branches.len() || !fields.iter().enumerate().all(named) {
            return Err(self.refuse(data_type, at));
        }
        let mut members = Vec::with_capacity(branches.len());
        for (field, (branch, of)) in fields.iter().zip(branches) {
            let form = self.within(field.name(), |s| s.form(field.data_type(), *of))?;
            members.push(Value { branch: Some(*branch), null: None, form });
        }
        Ok(Value { branch: None, null, form: Form::Choice(members) })
    }

    fn form(&mut self, data_type: &DataType, at: At<'_>) -> Matched<Form> {
        let logical = at.schema.get(at.id).logical;
        let is_time = matches!(data_type, DataType::Timestamp(..) | DataType::Date32);
        if let (Some(time), true) = (at.schema.get(at.id).other_time, is_time) {
            let (column, data_type) = (self.column(), data_type.clone());
            let (written, counts) = (at.describe(), time.counts);
            return Err(EncoderError::Time { column, data_type, written, counts });
        }
        Ok(match (data_type, at.kind()) {
            (DataType::Boolean, Kind::Boolean) => Form::Boolean,
            (DataType::Int8, Kind::Int) => Form::Int8,
            (DataType::Int16, Kind::Int) => Form::Int16,
            (DataType::Int32, Kind::Int) => Form::Int32,
            (DataType::Int64, Kind::Long) => Form::Int64,
            (DataType::Float32, Kind::Float) => Form::Float32,
            (DataType::Float64, Kind::Double) => Form::Float64,
            (DataType::Date32, Kind::Int) => Form::Date,
            (DataType::Timestamp(_, zone), Kind::Long) => match (logical, zone.is_none()) {
                // Milliseconds, as in Spark.
                (None, _) => Form::Timestamp(1000),
                (Some(logical), is_local) => match logical.timestamp() {
                    Some((micros, local)) if local == is_local => Form::Timestamp(micros),
                    _ => return Err(self.refuse(data_type, at)),
                },
            },
            (DataType::Utf8, Kind::String) => Form::Text,
            (DataType::Utf8, Kind::Enum(of)) => {
                let symbols = of.symbols.iter().enumerate();
                Form::Enum(symbols.map(|(at, symbol)| (symbol.clone(), at as i64)).collect())
            }
            (DataType::Binary, Kind::Bytes) => Form::Binary,
            (DataType::Binary, Kind::Fixed(_, size)) => Form::Fixed(*size),
            (DataType::Decimal128(precision, scale), Kind::Bytes | Kind::Fixed(..)) => {
                let precision = usize::from(*precision);
                let scale = usize::try_from(*scale).unwrap_or(usize::MAX);
                match (logical, at.kind()) {
                    (Some(of), _) if of != (Logical::Decimal { precision, scale }) => {
                        return Err(self.refuse(data_type, at));
                    }
                    (Some(_), Kind::Fixed(_, size)) => Form::FixedDecimal(*size),
                    (Some(_), _) => Form::Decimal,
                    (None, _) => return Err(self.refuse(data_type, at)),
                }
            }
            (DataType::List(item), Kind::Array(of)) => {
                let value = |s: &mut Self| s.value(item.data_type(), at.part(*of));
                Form::List(Box::new(self.within("element", value)?))
            }
            (DataType::Map(entries, _), Kind::Map(of)) => match entries.data_type() {
                DataType::Struct(fields)
                    if fields.len() == 2 && fields[0].data_type() == &DataType::Utf8 =>
                {
                    let value = |s: &mut Self| s.value(fields[1].data_type(), at.part(*of));
                    Form::Map(Box::new(self.within("value", value)?))
                }
                _ => return Err(self.refuse(data_type, at)),
            },
            (DataType::Struct(columns), Kind::Record(record)) => {
                Form::Record(self.record(columns, record, at)?)
            }
            _ => return Err(self.refuse(data_type, at)),
        })
    }

    fn record(&mut self, columns: &Fields, record: &Record, at: At<'_>) -> Matched<Vec<Part>> {
        let names: Vec<&str> = record.fields.iter().map(|field| field.name.as_str()).collect();
        let mut columns_of = vec![None; names.len()];
        for (column, field) in columns.iter().enumerate() {
            let found = find(field.name(), &names);
            let found = found.map_err(|name| EncoderError::Ambiguous { name })?;
            let Some(found) = found else {
                let column = |s: &mut Self| Err(EncoderError::NoField { column: s.column() });
                return self.within(field.name(), column);
            };
            if columns_of[found].replace(column).is_some() {
                return Err(EncoderError::Ambiguous { name: field.name().clone() });
            }
        }
        let mut parts = Vec::with_capacity(names.len());
        for (field, column) in record.fields.iter().zip(columns_of) {
            let of = at.part(field.id);
            parts.push(match column {
                Some(column) => {
                    let name = columns[column].name();
                    let data_type = columns[column].data_type();
                    let value = self.within(name, |s| s.value(data_type, of))?;
                    Part::Column(column, name.clone(), value)
                }
                None => self.without_column(&field.name, of)?,
            });
        }
        Ok(parts)
    }

    fn without_column(&mut self, name: &str, at: At<'_>) -> Matched<Part> {
        let null = match at.kind() {
            Kind::Null => return Ok(Part::Null(None)),
            Kind::Union(branches) => {
                branches.iter().position(|&id| matches!(at.part(id).kind(), Kind::Null))
            }
            _ => None,
        };
        match null {
            Some(branch) => Ok(Part::Null(Some(branch as i64))),
            None => {
                let field = |s: &mut Self| Err(EncoderError::NoColumn { field: s.column() });
                self.within(name, field)
            }
        }
    }
}

/// The name itself, else the only one that differs in case.
fn find(name: &str, names: &[&str]) -> Result<Option<usize>, String> {
    if let Some(exact) = names.iter().position(|other| *other == name) {
        return Ok(Some(exact));
    }
    let lower = name.to_lowercase();
    let mut found = (0..names.len()).filter(|&at| names[at].to_lowercase() == lower);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(name.to_owned()),
        (found, None) => Ok(found),
    }
}
