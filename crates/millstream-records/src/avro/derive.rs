//! The Avro schema that Spark gives a table: `SchemaConverters.toAvroType`.
//!
//! The rules: the record is `topLevelRecord`; what can be null is a union with null, the type
//! first; a struct is a record named like its field, in a namespace of the enclosing records'
//! names; a DECIMAL is a fixed of the fewest bytes that hold its precision, named `fixed` in a
//! namespace that ends with its field's name; an array's items and a map's values take their
//! names from the array's or the map's own field.
//!
//! For a registry the record has a name of its own, and null comes first and is the default:
//! without a default no column could be added to a subject that is backward compatible.

use arrow::datatypes::{DataType, Fields, Schema as ArrowSchema, TimeUnit};
use serde_json::{Value, json};

use super::schema::{Schema, SchemaError, SchemaProblem};
use super::shape::MAX_DEPTH;

const TOP: &str = "topLevelRecord";

impl Schema {
    /// The schema of records that hold a value of this type, such as a row's struct.
    ///
    /// # Errors
    /// A type that Avro has nothing for; a field whose name is no Avro name.
    pub fn of(data_type: &DataType, nullable: bool) -> Result<Self, SchemaError> {
        let value = derived(data_type, nullable, TOP, "", Style { null_first: false, depth: 0 })?;
        Self::parse(&value.to_string(), &[])
    }

    /// The schema of rows for a registry: a record called `name`, whose fields that can be null
    /// have null as their default.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_columns(columns: &ArrowSchema, name: &str) -> Result<Self, SchemaError> {
        let row = DataType::Struct(columns.fields().clone());
        let value = derived(&row, false, name, "", Style { null_first: true, depth: 0 })?;
        Self::parse(&value.to_string(), &[])
    }
}

#[derive(Clone, Copy)]
struct Style {
    /// Null is a union's first branch, and a field's default.
    null_first: bool,
    depth: usize,
}

fn derived(
    data_type: &DataType,
    nullable: bool,
    name: &str,
    space: &str,
    style: Style,
) -> Result<Value, SchemaError> {
    if style.depth > MAX_DEPTH {
        return Err(SchemaProblem::TooDeep(MAX_DEPTH).at(format!("{space}.{name}")));
    }
    let style = Style { depth: style.depth + 1, ..style };
    let derived = match data_type {
        DataType::Boolean => json!("boolean"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => json!("int"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 => json!("string"),
        DataType::Binary => json!("bytes"),
        DataType::Date32 => json!({"type": "int", "logicalType": "date"}),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            json!({"type": "long", "logicalType": "timestamp-micros"})
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            json!({"type": "long", "logicalType": "local-timestamp-micros"})
        }
        DataType::Decimal128(precision, scale) => json!({
            "type": "fixed",
            "name": "fixed",
            "namespace": within(space, name),
            "size": fixed_size(*precision),
            "logicalType": "decimal",
            "precision": precision,
            "scale": scale,
        }),
        DataType::List(item) => {
            let items = self::derived(item.data_type(), item.is_nullable(), name, space, style)?;
            json!({"type": "array", "items": items})
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields)
                if fields.len() == 2 && fields[0].data_type() == &DataType::Utf8 =>
            {
                let value = &fields[1];
                let values =
                    self::derived(value.data_type(), value.is_nullable(), name, space, style)?;
                json!({"type": "map", "values": values})
            }
            _ => return Err(unknown(data_type, name, space)),
        },
        DataType::Struct(columns) => {
            let fields = fields(columns, &within(space, name), style)?;
            json!({"type": "record", "name": name, "namespace": space, "fields": fields})
        }
        _ => return Err(unknown(data_type, name, space)),
    };
    Ok(match (nullable, style.null_first) {
        (true, true) => json!(["null", derived]),
        (true, false) => json!([derived, "null"]),
        (false, _) => derived,
    })
}

fn fields(columns: &Fields, space: &str, style: Style) -> Result<Vec<Value>, SchemaError> {
    let field = |column: &arrow::datatypes::FieldRef| {
        let (name, nullable) = (column.name(), column.is_nullable());
        let of = derived(column.data_type(), nullable, name, space, style)?;
        let mut field = json!({"name": name, "type": of});
        if nullable && style.null_first {
            field["default"] = Value::Null;
        }
        Ok(field)
    };
    columns.iter().map(field).collect()
}

fn unknown(data_type: &DataType, name: &str, space: &str) -> SchemaError {
    SchemaProblem::NoAvroType(data_type.to_string()).at(within(space, name))
}

fn within(space: &str, name: &str) -> String {
    if space.is_empty() { name.to_owned() } else { format!("{space}.{name}") }
}

/// The fewest bytes whose two's complement holds every value of so many digits.
fn fixed_size(precision: u8) -> usize {
    let largest = 10u128.checked_pow(precision.into()).map_or(u128::MAX, |limit| limit - 1);
    // One bit more, for the sign.
    let bits = 128 - largest.leading_zeros() as usize + 1;
    bits.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::fixed_size;

    #[test]
    fn decimals_take_the_fewest_bytes() {
        // Spark's minBytesForPrecision.
        let sizes: Vec<_> = (1..=38).map(fixed_size).collect();
        let expected = [
            1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 9, 9, 9, 10, 10, 11, 11, 11, 12,
            12, 13, 13, 13, 14, 14, 15, 15, 16, 16, 16,
        ];
        assert_eq!(sizes, expected);
    }
}
