//! Which values of a query a column of Cassandra takes, and what they are there.
//!
//! | query | table |
//! |---|---|
//! | BOOLEAN | boolean |
//! | TINYINT, SMALLINT, INT, BIGINT | integers of that size or a larger one, varint, decimal |
//! | BIGINT | time, as nanoseconds of the day |
//! | FLOAT, DOUBLE | float (of FLOAT only), double |
//! | DECIMAL | decimal; varint where nothing is behind the point |
//! | STRING | text, varchar, ascii, uuid, timeuuid, inet |
//! | BINARY | blob |
//! | DATE | date |
//! | TIMESTAMP, TIMESTAMP_NTZ | timestamp, in milliseconds |
//! | ARRAY | list, set, vector of numbers |
//! | MAP | map |
//! | STRUCT | a user-defined type, field by field and by name; tuple, in order |
//!
//! [`fit`] decides before anything is written; [`encode`] makes bytes of values, and finds those
//! that do not fit although their type does: text that is no UUID, say. [`read`] is the way back.

mod encode;
pub(crate) mod read;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use millstream_sql::types::spark_type;
use scylla::frame::response::result::{CollectionType, ColumnType, NativeType};

pub(crate) use self::encode::{ValueProblem, append_cell};
pub(crate) use self::read::check_readable;

/// Why a column cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// What is wrong with it, without its name.
    pub(crate) problem: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Mismatch {
    pub(crate) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

/// How values become the bytes of a column, as the native protocol (version 4, section 6) has them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Encoding {
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    /// Of BIGINT.
    Varint,
    /// Of DECIMAL; varint where the number is the whole value.
    Decimal {
        scale: i32,
        is_varint: bool,
    },
    Text,
    Ascii,
    Uuid {
        is_time: bool,
    },
    Inet,
    Blob,
    Date,
    Timestamp,
    Time,
    /// Elements, for list and set.
    Elements(Box<Encoding>),
    Map(Box<Encoding>, Box<Encoding>),
    /// Numbers of a fixed size, one behind the other.
    Vector(Box<Encoding>, usize),
    /// For each field of a user-defined type, or of a tuple, that of the struct it is made of.
    Fields(Vec<Option<(usize, Encoding)>>),
}

/// A column that fits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fit {
    /// What its values are cast to first; [`Encoding`] reads just this.
    pub(crate) cast: DataType,
    pub(crate) encoding: Encoding,
}

fn plain(cast: DataType, encoding: Encoding) -> Option<Fit> {
    Some(Fit { cast, encoding })
}

/// How values of `found` are written to a column of type `wanted`.
///
/// # Errors
/// They cannot be, or not without loss.
pub(crate) fn fit(found: &DataType, wanted: &ColumnType<'_>) -> Result<Fit, Mismatch> {
    let found = match found {
        DataType::Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    if *found == DataType::Null {
        return always_null(wanted);
    }
    let fit = match wanted {
        ColumnType::Native(native) => fit_native(found, native),
        ColumnType::Collection { typ, .. } => return fit_collection(found, wanted, typ),
        ColumnType::Vector { typ, dimensions } => {
            return fit_vector(found, wanted, typ, *dimensions);
        }
        ColumnType::UserDefinedType { definition, .. } => {
            let fields = definition.field_types.iter();
            let fields = fields.map(|(name, typ)| (Some(name.as_ref()), typ));
            return fit_fields(found, wanted, fields.collect());
        }
        ColumnType::Tuple(types) => {
            return fit_fields(found, wanted, types.iter().map(|typ| (None, typ)).collect());
        }
        _ => None,
    };
    fit.ok_or_else(|| refused(found, wanted))
}

/// Nothing is ever encoded of it, so any type of that kind will do.
fn always_null(wanted: &ColumnType<'_>) -> Result<Fit, Mismatch> {
    match wanted {
        ColumnType::Native(NativeType::Counter) => Err(refused(&DataType::Null, wanted)),
        _ => Ok(Fit { cast: DataType::Null, encoding: Encoding::Blob }),
    }
}

fn fit_native(found: &DataType, wanted: &NativeType) -> Option<Fit> {
    use NativeType as Cql;
    let width = integer_bytes(found);
    let at_most = |bytes| width.is_some_and(|width| width <= bytes);
    match wanted {
        Cql::Boolean if *found == DataType::Boolean => plain(DataType::Boolean, Encoding::Boolean),
        Cql::TinyInt if at_most(1) => plain(DataType::Int8, Encoding::TinyInt),
        Cql::SmallInt if at_most(2) => plain(DataType::Int16, Encoding::SmallInt),
        Cql::Int if at_most(4) => plain(DataType::Int32, Encoding::Int),
        Cql::BigInt if at_most(8) => plain(DataType::Int64, Encoding::BigInt),
        Cql::Varint if at_most(8) => plain(DataType::Int64, Encoding::Varint),
        Cql::Time if width == Some(8) => plain(DataType::Int64, Encoding::Time),
        Cql::Decimal if at_most(8) => {
            let encoding = Encoding::Decimal { scale: 0, is_varint: false };
            plain(DataType::Decimal128(20, 0), encoding)
        }
        Cql::Decimal | Cql::Varint => fit_decimal(found, *wanted == Cql::Varint),
        Cql::Float if *found == DataType::Float32 => plain(DataType::Float32, Encoding::Float),
        Cql::Double if matches!(found, DataType::Float32 | DataType::Float64) => {
            plain(DataType::Float64, Encoding::Double)
        }
        Cql::Text if is_text(found) => plain(DataType::Utf8, Encoding::Text),
        Cql::Ascii if is_text(found) => plain(DataType::Utf8, Encoding::Ascii),
        Cql::Uuid if is_text(found) => plain(DataType::Utf8, Encoding::Uuid { is_time: false }),
        Cql::Timeuuid if is_text(found) => plain(DataType::Utf8, Encoding::Uuid { is_time: true }),
        Cql::Inet if is_text(found) => plain(DataType::Utf8, Encoding::Inet),
        Cql::Blob if is_binary(found) => plain(DataType::Binary, Encoding::Blob),
        Cql::Date if *found == DataType::Date32 => plain(DataType::Date32, Encoding::Date),
        Cql::Timestamp if matches!(found, DataType::Timestamp(..)) => {
            plain(DataType::Timestamp(TimeUnit::Microsecond, None), Encoding::Timestamp)
        }
        _ => None,
    }
}

fn fit_decimal(found: &DataType, is_varint: bool) -> Option<Fit> {
    let (precision, scale) = match found {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => (*precision, *scale),
        _ => return None,
    };
    if is_varint && scale != 0 {
        return None;
    }
    let encoding = Encoding::Decimal { scale: i32::from(scale), is_varint };
    plain(DataType::Decimal128(precision, scale), encoding)
}

fn fit_collection(
    found: &DataType,
    wanted: &ColumnType<'_>,
    typ: &CollectionType<'_>,
) -> Result<Fit, Mismatch> {
    match (typ, found) {
        (CollectionType::List(element) | CollectionType::Set(element), _) => {
            let Some(inner) = element_of(found) else { return Err(refused(found, wanted)) };
            let inner = fit(inner, element)?;
            let cast = list_of(inner.cast);
            Ok(Fit { cast, encoding: Encoding::Elements(Box::new(inner.encoding)) })
        }
        (CollectionType::Map(key, value), DataType::Map(entries, is_sorted)) => {
            let DataType::Struct(entry) = entries.data_type() else {
                unreachable!("the entries of a map are a struct of two")
            };
            let key = fit(entry[0].data_type(), key)?;
            let value = fit(entry[1].data_type(), value)?;
            let fields = [
                Field::new(entry[0].name(), key.cast, false),
                Field::new(entry[1].name(), value.cast, true),
            ];
            let entry = DataType::Struct(Fields::from(fields.to_vec()));
            let cast =
                DataType::Map(Arc::new(Field::new(entries.name(), entry, false)), *is_sorted);
            let encoding = Encoding::Map(Box::new(key.encoding), Box::new(value.encoding));
            Ok(Fit { cast, encoding })
        }
        _ => Err(refused(found, wanted)),
    }
}

fn fit_vector(
    found: &DataType,
    wanted: &ColumnType<'_>,
    element: &ColumnType<'_>,
    dimensions: u16,
) -> Result<Fit, Mismatch> {
    use NativeType as Cql;
    let is_fixed =
        matches!(element, ColumnType::Native(Cql::Float | Cql::Double | Cql::Int | Cql::BigInt));
    let Some(inner) = element_of(found).filter(|_| is_fixed) else {
        return Err(refused(found, wanted));
    };
    let inner = fit(inner, element)?;
    let encoding = Encoding::Vector(Box::new(inner.encoding), usize::from(dimensions));
    Ok(Fit { cast: list_of(inner.cast), encoding })
}

/// `wanted` has these fields, with a name each, or in order.
fn fit_fields(
    found: &DataType,
    wanted: &ColumnType<'_>,
    parts: Vec<(Option<&str>, &ColumnType<'_>)>,
) -> Result<Fit, Mismatch> {
    let DataType::Struct(fields) = found else { return Err(refused(found, wanted)) };
    let is_tuple = parts.iter().all(|(name, _)| name.is_none());
    if is_tuple && fields.len() != parts.len() {
        return Err(refused(found, wanted));
    }
    let mut casts: Vec<Field> = fields.iter().map(|field| field.as_ref().clone()).collect();
    let mut used = vec![false; fields.len()];
    let mut encodings = Vec::with_capacity(parts.len());
    for (position, (name, typ)) in parts.into_iter().enumerate() {
        let is_it =
            |field: &Arc<Field>| name.is_some_and(|name| field.name().eq_ignore_ascii_case(name));
        let index = if is_tuple { Some(position) } else { fields.iter().position(is_it) };
        let Some(index) = index else {
            encodings.push(None);
            continue;
        };
        let inner = fit(fields[index].data_type(), typ).map_err(|mismatch| {
            let problem = format!("in its field {}, {}", fields[index].name(), mismatch.problem);
            Mismatch { problem, ..mismatch }
        })?;
        casts[index] = Field::new(fields[index].name(), inner.cast, true);
        used[index] = true;
        encodings.push(Some((index, inner.encoding)));
    }
    if let Some(surplus) = used.iter().position(|used| !used) {
        let problem = format!("{} has no field '{}'", shown(wanted), fields[surplus].name());
        return Err(Mismatch::new(problem, "leave that field out of the STRUCT"));
    }
    let cast = DataType::Struct(casts.into());
    Ok(Fit { cast, encoding: Encoding::Fields(encodings) })
}

fn refused(found: &DataType, wanted: &ColumnType<'_>) -> Mismatch {
    let problem =
        format!("it is {} in the query and {} in the table", spark_type(found), shown(wanted));
    Mismatch::new(problem, remedy(wanted))
}

/// The type of Spark whose values are those of `native`; `None` where there is none.
fn spark_name(native: &NativeType) -> Option<&'static str> {
    use NativeType as Cql;
    Some(match native {
        Cql::Boolean => "BOOLEAN",
        Cql::TinyInt => "TINYINT",
        Cql::SmallInt => "SMALLINT",
        Cql::Int => "INT",
        Cql::BigInt | Cql::Time => "BIGINT",
        Cql::Varint => "DECIMAL(38,0)",
        Cql::Decimal => "DECIMAL(38,18)",
        Cql::Float => "FLOAT",
        Cql::Double => "DOUBLE",
        Cql::Text | Cql::Ascii | Cql::Uuid | Cql::Timeuuid | Cql::Inet => "STRING",
        Cql::Blob => "BINARY",
        Cql::Date => "DATE",
        Cql::Timestamp => "TIMESTAMP",
        _ => return None,
    })
}

fn remedy(wanted: &ColumnType<'_>) -> String {
    let spark = match wanted {
        ColumnType::Native(native) => match spark_name(native) {
            Some(name) => name,
            None => {
                return "leave the column out; values of that type cannot be written".to_owned();
            }
        },
        ColumnType::Collection { typ: CollectionType::Map(..), .. } => {
            return "select a MAP with keys and values of the column's types".to_owned();
        }
        ColumnType::Collection { .. } => {
            return "select an ARRAY with elements of the column's type".to_owned();
        }
        ColumnType::Vector { .. } => {
            return "select an ARRAY of FLOAT, DOUBLE, INT or BIGINT, as its elements are"
                .to_owned();
        }
        _ => return "select a STRUCT with fields of its types".to_owned(),
    };
    format!("write CAST(... AS {spark}), or change the table's column")
}

/// The type as CQL writes it.
pub(crate) fn shown(typ: &ColumnType<'_>) -> String {
    match typ {
        ColumnType::Native(native) => format!("{native:?}").to_ascii_lowercase(),
        ColumnType::Collection { frozen, typ } => {
            let inner = match typ {
                CollectionType::List(element) => format!("list<{}>", shown(element)),
                CollectionType::Set(element) => format!("set<{}>", shown(element)),
                CollectionType::Map(key, value) => {
                    format!("map<{}, {}>", shown(key), shown(value))
                }
                _ => "a collection".to_owned(),
            };
            if *frozen { format!("frozen<{inner}>") } else { inner }
        }
        ColumnType::Vector { typ, dimensions } => format!("vector<{}, {dimensions}>", shown(typ)),
        ColumnType::UserDefinedType { definition, .. } => definition.name.to_string(),
        ColumnType::Tuple(types) => {
            let types: Vec<String> = types.iter().map(shown).collect();
            format!("tuple<{}>", types.join(", "))
        }
        _ => "a type that is not known here".to_owned(),
    }
}

/// Bytes of an integer type; unsigned ones need more.
fn integer_bytes(found: &DataType) -> Option<usize> {
    Some(match found {
        DataType::Int8 => 1,
        DataType::Int16 | DataType::UInt8 => 2,
        DataType::Int32 | DataType::UInt16 => 4,
        DataType::Int64 | DataType::UInt32 => 8,
        _ => return None,
    })
}

fn is_text(found: &DataType) -> bool {
    matches!(found, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(found: &DataType) -> bool {
    matches!(
        found,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

fn element_of(found: &DataType) -> Option<&DataType> {
    match found {
        DataType::List(element) | DataType::LargeList(element) => Some(element.data_type()),
        _ => None,
    }
}

fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

#[cfg(test)]
mod tests;
