//! The pairing of columns with fields: which conversions there are.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field as ArrowField, FieldRef, TimeUnit};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, Syntax, Value};

use super::mapping::{declared_fields, time_numbers, wrapped};
use super::names::proto_type;
use super::options::Options;
use super::pairing::{field_named, is_too_deep, struct_fields};
use super::plan_error::PlanError;
use super::planned::{Absent, Constant, EnumValues, Field, Message, Number, Op, Shape};
use super::wire::{DELIMITED, FIXED32, FIXED64, START_GROUP, VARINT};
use crate::types::spark_type;

/// A plan in the making.
pub(super) struct Link<'a> {
    pub(super) options: &'a Options,
    /// The columns around the current one.
    pub(super) path: Vec<String>,
}

/// The oneofs of a message that have wanted members, by name.
type Oneofs = HashMap<String, usize>;

impl Link<'_> {
    /// The plan of a message for the columns of a struct, or of the table.
    pub(super) fn message(
        &mut self,
        message: &MessageDescriptor,
        columns: &[FieldRef],
    ) -> Result<Message, PlanError> {
        let mut fields = Vec::new();
        let mut oneofs = Oneofs::new();
        for column in columns {
            self.path.push(column.name().clone());
            fields.push(self.column(message, column, &mut oneofs)?);
            self.path.pop();
        }
        let wanted = fields.len();
        for field in declared_fields(message) {
            let is_member = oneof_name(&field).is_some_and(|name| oneofs.contains_key(&name));
            let is_taken = fields.iter().any(|(number, _)| *number == Some(field.number()));
            if !is_taken && (is_member || field.is_required()) {
                fields.push((Some(field.number()), watched(&field, &oneofs)));
            }
        }
        let at = |field: &FieldDescriptor| {
            fields.iter().position(|(number, _)| *number == Some(field.number()))
        };
        let required = declared_fields(message).filter(FieldDescriptor::is_required);
        let required: Vec<usize> = required.filter_map(|field| at(&field)).collect();
        let mut message = Message::new(fields, wanted, oneofs.len());
        message.required = required;
        Ok(message)
    }

    fn column(
        &mut self,
        message: &MessageDescriptor,
        column: &ArrowField,
        oneofs: &mut Oneofs,
    ) -> Result<(Option<u32>, Field), PlanError> {
        if is_too_deep(&self.path) {
            let limit = super::wire::MAX_DEPTH;
            return Err(PlanError::TooDeep { column: self.path.join("."), limit });
        }
        let field = field_named(message, column.name()).map_err(|fields| PlanError::Ambiguous {
            column: self.path.join("."),
            message: message.full_name().to_owned(),
            fields,
        })?;
        let Some(field) = field else { return Ok((None, missing(column))) };
        let mut planned = if field.is_map() {
            self.map(&field, column)?
        } else if field.is_list() {
            self.list(&field, column)?
        } else {
            self.single(&field, column)?
        };
        if let Some(name) = oneof_name(&field) {
            let next = oneofs.len();
            planned.oneof = Some(*oneofs.entry(name).or_insert(next));
            planned.is_special = true;
        }
        planned.nullable = column.is_nullable();
        Ok((Some(field.number()), planned))
    }

    fn single(&mut self, field: &FieldDescriptor, column: &ArrowField) -> Result<Field, PlanError> {
        let op = self.value(field, column, field)?;
        // Occurrences of messages are merged. Those of all others replace each other.
        let shape = match op {
            Op::Message(_) | Op::Unwrap(_) | Op::Timestamp { .. } => Shape::Nested,
            _ => Shape::Single,
        };
        let has_default = field.field_descriptor_proto().default_value.is_some();
        let is_emitted = self.options.emit_default_values && !field.supports_presence();
        let absent = if has_default || is_emitted { default_of(field, &op) } else { Absent::Null };
        Ok(planned(field, shape, op, absent))
    }

    fn list(&mut self, field: &FieldDescriptor, column: &ArrowField) -> Result<Field, PlanError> {
        let DataType::List(item) = column.data_type() else {
            return Err(self.mismatch(field, column, None));
        };
        let mut op = self.value(field, item, field)?;
        // An element cannot be null: a wrapper that is there without its value has the default.
        if let Op::Unwrap(message) = &mut op {
            never_null(message, field);
        }
        let packable = matches!(wire_type(field), VARINT | FIXED32 | FIXED64);
        Ok(planned(field, Shape::List(packable), op, Absent::Empty))
    }

    fn map(&mut self, field: &FieldDescriptor, column: &ArrowField) -> Result<Field, PlanError> {
        let columns = match column.data_type() {
            DataType::Map(entries, _) => struct_fields(entries),
            _ => None,
        };
        let (Some([key, value]), Kind::Message(entry)) = (columns, field.kind()) else {
            return Err(self.mismatch(field, column, None));
        };
        let mut fields = Vec::new();
        for (number, part) in [(1, key), (2, value)] {
            let descriptor = entry.get_field(number).expect("checked when the schema was linked");
            self.path.push(part.name().clone());
            let mut planned = self.single(&descriptor, part)?;
            if let Op::Unwrap(message) = &mut planned.op {
                never_null(message, &descriptor);
            }
            planned.absent = default_of(&descriptor, &planned.op);
            fields.push((Some(number), planned));
            self.path.pop();
        }
        let op = Op::Message(Box::new(Message::new(fields, 2, 0)));
        Ok(planned(field, Shape::Map, op, Absent::Empty))
    }

    /// How one value of `field` becomes one of the type of `column`. `outer` is the field that an
    /// error names.
    fn value(
        &mut self,
        field: &FieldDescriptor,
        column: &ArrowField,
        outer: &FieldDescriptor,
    ) -> Result<Op, PlanError> {
        let data_type = column.data_type();
        if let Kind::Message(message) = field.kind() {
            return self.message_value(&message, column, outer);
        }
        if let Some(number) = Number::of(&field.kind()) {
            return match fits(number, data_type) {
                true => Ok(Op::Number(number)),
                false => Err(self.mismatch(outer, column, None)),
            };
        }
        let values = || EnumValues::new(field).map(Box::new);
        match (field.kind(), data_type) {
            (Kind::Float, DataType::Float32 | DataType::Float64) => Ok(Op::Float),
            (Kind::Double, DataType::Float64) => Ok(Op::Double),
            (Kind::Bool, DataType::Boolean) => Ok(Op::Bool),
            (Kind::String, DataType::Utf8) => Ok(Op::Text(is_utf8_checked(field))),
            (Kind::Bytes, DataType::Binary) => Ok(Op::Bytes),
            (Kind::Enum(_), DataType::Utf8) => Ok(values().map_or(Op::Nothing, Op::Enum)),
            (Kind::Enum(_), DataType::Int32) => Ok(values().map_or(Op::Nothing, Op::EnumNumber)),
            _ => Err(self.mismatch(outer, column, None)),
        }
    }

    fn message_value(
        &mut self,
        message: &MessageDescriptor,
        column: &ArrowField,
        outer: &FieldDescriptor,
    ) -> Result<Op, PlanError> {
        if let Some(fields) = struct_fields(column) {
            return Ok(Op::Message(Box::new(self.message(message, fields)?)));
        }
        let times = time_numbers(message, "Timestamp");
        if let (Some((seconds, nanos)), DataType::Timestamp(TimeUnit::Microsecond, Some(_))) =
            (times, column.data_type())
        {
            return Ok(Op::Timestamp { seconds, nanos });
        }
        let remedy = match (message.full_name(), wrapped(message)) {
            (_, Some(value)) => {
                let op = self.value(&value, column, outer)?;
                let is_emitted = self.options.emit_default_values;
                let absent = if is_emitted { default_of(&value, &op) } else { Absent::Null };
                let inner = Field {
                    nullable: column.is_nullable(),
                    ..planned(&value, Shape::Single, op, absent)
                };
                let inner = Message::new(vec![(Some(value.number()), inner)], 1, 0);
                return Ok(Op::Unwrap(Box::new(inner)));
            }
            ("google.protobuf.Any", _) => Some(
                "conversion to JSON is not there yet: declare \
                 STRUCT<type_url: STRING, value: BINARY>",
            ),
            _ if times.is_some() => Some("declare TIMESTAMP"),
            _ if time_numbers(message, "Duration").is_some() => {
                Some("declare STRUCT<seconds: BIGINT, nanos: INT>")
            }
            _ => None,
        };
        Err(self.mismatch(outer, column, remedy))
    }

    fn mismatch(
        &self,
        field: &FieldDescriptor,
        column: &ArrowField,
        remedy: Option<&str>,
    ) -> PlanError {
        PlanError::Type {
            column: self.path.join("."),
            column_type: spark_type(column.data_type()),
            field: field.full_name().to_owned(),
            field_type: proto_type(field),
            remedy: remedy.map_or_else(|| declare(field), str::to_owned),
        }
    }
}

/// What a column for a field can be declared as.
fn declare(field: &FieldDescriptor) -> String {
    let one = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let part = |number| entry.get_field(number).map_or("STRUCT", |part| simple(&part));
            return format!("declare MAP<{}, {}>", part(1), part(2));
        }
        _ => simple(field),
    };
    match field.is_list() {
        true => format!("declare ARRAY<{one}>"),
        false => format!("declare {one} and convert it in the query"),
    }
}

fn simple(field: &FieldDescriptor) -> &'static str {
    match field.kind() {
        Kind::Double => "DOUBLE",
        Kind::Float => "FLOAT",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "INT",
        Kind::Bool => "BOOLEAN",
        Kind::String | Kind::Enum(_) => "STRING",
        Kind::Bytes => "BINARY",
        Kind::Message(message) if time_numbers(&message, "Timestamp").is_some() => "TIMESTAMP",
        Kind::Message(_) => "STRUCT",
        _ => "BIGINT",
    }
}

/// True if every value of a number fits a type, or is checked to (TINYINT, SMALLINT), or is what
/// Spark makes of it (an unsigned number in the signed type of its size).
fn fits(number: Number, data_type: &DataType) -> bool {
    let digits = match (number.is_long(), number.is_unsigned()) {
        (false, _) => 10,
        (true, false) => 19,
        (true, true) => 20,
    };
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => !number.is_long(),
        DataType::Int64 => true,
        DataType::Decimal128(precision, 0) => *precision >= digits,
        _ => false,
    }
}

/// True for proto3, and for proto2 files with the option that asks for it.
fn is_utf8_checked(field: &FieldDescriptor) -> bool {
    let file = field.parent_file();
    let options = &file.file_descriptor_proto().options;
    file.syntax() == Syntax::Proto3
        || options.as_ref().is_some_and(|options| options.java_string_check_utf8())
}

/// The oneof that a field is a member of, unless it is an optional field's own.
fn oneof_name(field: &FieldDescriptor) -> Option<String> {
    let oneof = field.containing_oneof()?;
    (!oneof.is_synthetic() && !field.is_list()).then(|| oneof.name().to_owned())
}

fn wire_type(field: &FieldDescriptor) -> u8 {
    match field.kind() {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => FIXED64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => FIXED32,
        Kind::Message(_) if field.is_group() => START_GROUP,
        Kind::String | Kind::Bytes | Kind::Message(_) => DELIMITED,
        _ => VARINT,
    }
}

fn planned(field: &FieldDescriptor, shape: Shape, op: Op, absent: Absent) -> Field {
    let is_closed = matches!(&op, Op::Enum(v) | Op::EnumNumber(v) if v.is_closed);
    Field {
        name: field.name().into(),
        shape,
        op,
        wire: wire_type(field),
        oneof: None,
        nullable: true,
        absent,
        is_implicit: !field.supports_presence() && !field.is_list(),
        is_plain: false,
        is_special: is_closed,
    }
}

fn missing(column: &ArrowField) -> Field {
    Field {
        name: column.name().as_str().into(),
        shape: Shape::Missing,
        op: Op::Nothing,
        wire: VARINT,
        oneof: None,
        nullable: column.is_nullable(),
        absent: Absent::Null,
        is_implicit: false,
        is_plain: false,
        is_special: false,
    }
}

fn watched(field: &FieldDescriptor, oneofs: &Oneofs) -> Field {
    let oneof = oneof_name(field).and_then(|name| oneofs.get(&name).copied());
    let values = EnumValues::new(field).map(Box::new);
    let op = values.map_or(Op::Nothing, Op::EnumNumber);
    let planned = planned(field, Shape::Watched, op, Absent::Null);
    Field { oneof, is_special: planned.is_special || oneof.is_some(), ..planned }
}

/// Makes a wrapper without its value have the default one.
fn never_null(message: &mut Message, field: &FieldDescriptor) {
    if let Kind::Message(wrapper) = field.kind()
        && let Some(value) = wrapped(&wrapper)
    {
        let inner = &mut message.fields[0];
        inner.absent = default_of(&value, &inner.op);
    }
}

fn default_of(field: &FieldDescriptor, op: &Op) -> Absent {
    let value = match field.is_list() {
        true => return Absent::Empty,
        false => field.default_value(),
    };
    let number = |number: i128| Absent::Value(Constant::Number(number));
    let text = |bytes: &[u8]| Absent::Value(Constant::Text(bytes.into()));
    match value {
        Value::Bool(value) => Absent::Value(Constant::Bool(value)),
        Value::I32(value) => number(i128::from(value)),
        Value::I64(value) => number(i128::from(value)),
        Value::U32(value) => number(i128::from(value)),
        Value::U64(value) => number(i128::from(value)),
        Value::F32(value) => Absent::Value(Constant::Float(f64::from(value))),
        Value::F64(value) => Absent::Value(Constant::Float(value)),
        Value::String(value) => text(value.as_bytes()),
        Value::Bytes(value) => text(&value),
        Value::EnumNumber(value) => match op {
            Op::Enum(values) => match values.find(value) {
                Some(name) => text(name.as_bytes()),
                None => text(values.unknown(value).as_bytes()),
            },
            _ => number(i128::from(value)),
        },
        Value::Message(_) | Value::List(_) | Value::Map(_) => Absent::Empty,
    }
}
