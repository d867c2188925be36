//! From a query's rows to a table's: columns by name, types checked, rules obeyed.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_null_array,
};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

/// How rows of a query become rows of a table.
#[derive(Clone, Debug)]
pub struct ColumnMap {
    target: SchemaRef,
    /// For each of the table's columns, the query's; `None` where the query has none.
    sources: Vec<Option<usize>>,
}

/// Why a query's columns do not fit a table's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The query has columns that the table has not.
    Unknown {
        /// Their names.
        columns: Vec<String>,
    },
    /// The same name twice.
    Twice {
        /// The name.
        column: String,
    },
    /// A type that cannot become the table's without loss.
    Type {
        /// The column.
        column: String,
        /// What the query has.
        found: DataType,
        /// What the table has.
        wanted: DataType,
    },
    /// A column that may not be null and that the query does not have.
    Required {
        /// The column.
        column: String,
    },
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { columns } => write!(
                f,
                "the table has no column {}; leave it out of the SELECT, or write \
                 'mergeSchema' = 'true' to add it to the table",
                columns.join(", ")
            ),
            Self::Twice { column } => write!(f, "the query has the column {column} twice"),
            Self::Type { column, found, wanted } => write!(
                f,
                "the column {column} is {found} in the query and {wanted} in the table; write \
                 CAST({column} AS ...) in the SELECT"
            ),
            Self::Required { column } => write!(
                f,
                "the table's column {column} may not be null, and the query does not have it"
            ),
        }
    }
}

impl ColumnMap {
    /// Maps `query`'s columns to `table`'s by name, whatever their case.
    pub fn new(query: &Schema, table: &SchemaRef) -> Result<Self, Misfit> {
        let unknown = unknown_columns(query, table);
        if !unknown.is_empty() {
            let columns = unknown.into_iter().map(|field| field.name().clone()).collect();
            return Err(Misfit::Unknown { columns });
        }
        let sources = table.fields().iter().map(|wanted| source_of(query, wanted));
        Ok(Self { target: Arc::clone(table), sources: sources.collect::<Result<_, _>>()? })
    }

    /// The table's columns.
    pub(crate) fn target(&self) -> &SchemaRef {
        &self.target
    }

    /// The rows as the table has them. Errors: which column breaks which rule.
    pub fn apply(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let columns = self.target.fields().iter().zip(&self.sources).map(|(wanted, source)| {
            let Some(source) = source else {
                return Ok(new_null_array(wanted.data_type(), rows.num_rows()));
            };
            let column = converted(rows.column(*source), wanted.data_type())
                .map_err(|error| format!("column {}: {error}", wanted.name()))?;
            check_nulls(&column, wanted, wanted.name())?;
            Ok(column)
        });
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.target), columns, &options)
            .map_err(|error| error.to_string())
    }
}

/// The query's columns that the table has not.
pub fn unknown_columns(query: &Schema, table: &Schema) -> Vec<FieldRef> {
    let is_known =
        |name: &str| table.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name));
    query.fields().iter().filter(|field| !is_known(field.name())).cloned().collect()
}

fn source_of(query: &Schema, wanted: &Field) -> Result<Option<usize>, Misfit> {
    let column = wanted.name();
    let mut found = query
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name().eq_ignore_ascii_case(column));
    let (source, again) = (found.next(), found.next());
    match (source, again) {
        (_, Some(_)) => Err(Misfit::Twice { column: column.clone() }),
        (None, _) if wanted.is_nullable() => Ok(None),
        (None, _) => Err(Misfit::Required { column: column.clone() }),
        (Some((index, field)), _) if fits(field.data_type(), wanted.data_type()) => Ok(Some(index)),
        (Some((_, field)), _) => Err(Misfit::Type {
            column: column.clone(),
            found: field.data_type().clone(),
            wanted: wanted.data_type().clone(),
        }),
    }
}

/// Whether values of `found` become `wanted` without loss. Spark's store assignment rule is wider
/// (ANSI: any number into any other, checked at run time); a stream that stops at midnight over one
/// value is not what a user wants, so what may fail is refused at the start.
fn fits(found: &DataType, wanted: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64,
        LargeBinary, LargeList, LargeUtf8, List, Map, Null, Struct, Timestamp, Utf8, Utf8View,
    };
    match (found, wanted) {
        (Null, _) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (Int8 | Int16 | Int32 | Float32, Float64) | (Int8 | Int16, Float32) => true,
        (Date32, Timestamp(_, _)) => true,
        (Timestamp(_, found), Timestamp(TimeUnit::Microsecond, wanted)) => {
            found.is_some() == wanted.is_some()
        }
        (Decimal128(precision, scale), Decimal128(wider, wanted)) => {
            wanted >= scale
                && i16::from(*wider) - i16::from(*wanted)
                    >= i16::from(*precision) - i16::from(*scale)
        }
        (Int8, Decimal128(precision, scale)) => digits(*precision, *scale) >= 3,
        (Int16, Decimal128(precision, scale)) => digits(*precision, *scale) >= 5,
        (Int32, Decimal128(precision, scale)) => digits(*precision, *scale) >= 10,
        (Int64, Decimal128(precision, scale)) => digits(*precision, *scale) >= 19,
        (List(found) | LargeList(found), List(wanted) | LargeList(wanted)) => {
            fits(found.data_type(), wanted.data_type())
        }
        (Map(found, _), Map(wanted, _)) => fits(found.data_type(), wanted.data_type()),
        (Struct(found), Struct(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| {
                    found.name().eq_ignore_ascii_case(wanted.name())
                        && fits(found.data_type(), wanted.data_type())
                })
        }
        (found, wanted) => found == wanted && can_cast_types(found, wanted),
    }
}

fn digits(precision: u8, scale: i8) -> i16 {
    i16::from(precision) - i16::from(scale)
}

fn converted(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options).map_err(|error| error.to_string())
}

/// Checks `NOT NULL`, inside structs too.
fn check_nulls(column: &ArrayRef, field: &Field, path: &str) -> Result<(), String> {
    if !field.is_nullable() && column.logical_null_count() > 0 {
        return Err(format!("{path} is null, and the table has it as NOT NULL"));
    }
    if let (DataType::Struct(fields), Some(parts)) =
        (field.data_type(), column.as_any().downcast_ref::<arrow::array::StructArray>())
        && parts.null_count() == 0
    {
        for (part, inner) in parts.columns().iter().zip(fields) {
            check_nulls(part, inner, &format!("{path}.{}", inner.name()))?;
        }
    }
    Ok(())
}

/// The same values under a type that differs in the names of nested fields only.
pub(crate) fn retyped(column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == kind {
        return Ok(Arc::clone(column));
    }
    Ok(make_array(retyped_data(column.to_data(), kind)?))
}

fn retyped_data(data: ArrayData, kind: &DataType) -> Result<ArrayData, ArrowError> {
    let kinds: Vec<&DataType> = match kind {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
            vec![field.data_type()]
        }
        _ => Vec::new(),
    };
    let children = data.child_data().iter().cloned().zip(kinds);
    let children = children.map(|(child, kind)| retyped_data(child, kind));
    let children = children.collect::<Result<Vec<_>, _>>()?;
    data.into_builder().data_type(kind.clone()).child_data(children).build()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray, StringViewArray};

    use super::*;

    fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
        let fields = fields.iter().map(|(name, kind, null)| Field::new(*name, kind.clone(), *null));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    #[test]
    fn columns_go_by_name_and_are_widened() {
        let query = schema(&[("Name", DataType::Utf8View, true), ("n", DataType::Int32, true)]);
        let table = schema(&[
            ("n", DataType::Int64, true),
            ("name", DataType::Utf8, false),
            ("more", DataType::Utf8, true),
        ]);
        let map = ColumnMap::new(&query, &table).expect("they fit");
        let rows = RecordBatch::try_new(
            query,
            vec![
                Arc::new(StringViewArray::from(vec!["a", "b"])),
                Arc::new(Int32Array::from(vec![Some(1), None])),
            ],
        );
        let rows = map.apply(&rows.expect("two columns")).expect("no rule is broken");
        assert_eq!(rows.column(0).as_ref(), &Int64Array::from(vec![Some(1), None]));
        assert_eq!(rows.column(1).as_ref(), &StringArray::from(vec!["a", "b"]));
        assert_eq!(rows.column(2).null_count(), 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let table = schema(&[("n", DataType::Int32, false)]);
        let misfit = |fields: &[(&str, DataType, bool)]| {
            ColumnMap::new(&schema(fields), &table).expect_err("it does not fit").to_string()
        };
        assert!(misfit(&[("n", DataType::Int64, true)]).contains("CAST(n AS"));
        assert!(
            misfit(&[("n", DataType::Int32, true), ("m", DataType::Int32, true)])
                .contains("no column m")
        );
        assert!(misfit(&[]).contains("may not be null"));
        assert!(
            misfit(&[("n", DataType::Int32, true), ("N", DataType::Int32, true)]).contains("twice")
        );
    }

    #[test]
    fn a_null_in_a_column_that_has_none_is_refused() {
        let query = schema(&[("n", DataType::Int32, true)]);
        let map = ColumnMap::new(&query, &schema(&[("n", DataType::Int32, false)])).expect("fits");
        let rows = RecordBatch::try_new(query, vec![Arc::new(Int32Array::from(vec![None]))]);
        let problem = map.apply(&rows.expect("a column")).expect_err("a null");
        assert!(problem.contains("NOT NULL"), "{problem}");
    }
}
