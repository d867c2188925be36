//! Random messages by prost-reflect, and the rows that they must become.

use std::collections::HashMap;

use prost_reflect::{
    Cardinality, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage as _, Value,
};
use serde_json::{Value as Json, json};

use super::super::mapping::{declared_fields, time_numbers, wrapped};
use super::super::{Options, Schema};
use super::float;

/// Every kind of field there is in proto3.
pub(super) const PROTO3: &str = r#"
    syntax = "proto3";
    import "google/protobuf/any.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message All {
        int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5;
        sint64 s64 = 6; fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10;
        float fl = 11; double db = 12; bool bo = 13; string st = 14; bytes by = 15;
        Color color = 16; Inner inner = 17; optional int32 oi32 = 18; optional string ost = 19;
        repeated int32 ri32 = 20; repeated sint64 rs64 = 21 [packed = false];
        repeated double rdb = 22; repeated string rst = 23; repeated Color rcolor = 24;
        repeated Inner rinner = 25; repeated bool rbo = 26; repeated fixed32 rf32 = 27;
        map<string, int32> ms = 30; map<int64, Inner> mi = 31; map<bool, string> mb = 32;
        map<sint32, Color> mc = 33; map<fixed64, double> mf = 34;
        oneof choice { int32 ca = 40; string cb = 41; Inner cc = 42; Color cd = 43; }
        google.protobuf.Timestamp at = 50; repeated google.protobuf.Timestamp times = 51;
        google.protobuf.Duration took = 52; google.protobuf.Any any = 53;
        google.protobuf.Int32Value w32 = 60; google.protobuf.UInt64Value wu64 = 61;
        google.protobuf.StringValue wst = 62; repeated google.protobuf.BoolValue wbo = 63;
        map<string, google.protobuf.DoubleValue> wdb = 64;
        uint64 far = 70000; Inner farther = 536870911;
    }
    message Inner {
        int32 a = 1; string b = 2; Deep c = 3; repeated sint64 d = 4; map<string, Deep> e = 5;
        oneof o { int32 x = 6; Deep y = 7; string z = 8; }
    }
    message Deep { fixed32 a = 1; repeated string b = 2; google.protobuf.Timestamp t = 3; }
    enum Color { RED = 0; GREEN = 1; BLUE = 2; DARK = -5; FAR = 100000; }
"#;

/// Every kind of field that proto2 has besides.
pub(super) const PROTO2: &str = r#"
    syntax = "proto2";
    message All {
        required int32 a = 1; optional int64 b = 2 [default = -3];
        optional string c = 3 [default = "none"]; optional Color d = 4 [default = BLUE];
        optional Color e = 5; repeated int32 f = 6; repeated sfixed64 g = 7 [packed = true];
        repeated Color h = 8; optional group One = 9 { optional int32 x = 1; required bool y = 2; }
        repeated group Many = 10 { optional string x = 1; optional Inner z = 2; }
        optional Inner i = 11; map<string, Inner> j = 12;
        oneof choice { int32 k = 13; Inner l = 14; group Other = 15 { optional int32 x = 1; } }
        optional float m = 16 [default = 0.5]; optional bool n = 17; optional bytes o = 18;
    }
    message Inner { required string a = 1; optional Inner2 b = 2; repeated Inner2 c = 3; }
    message Inner2 { optional uint32 a = 1; optional uint64 b = 2; }
    enum Color { RED = 3; GREEN = 1; BLUE = 2; }
"#;

pub(super) fn schemas() -> [Schema; 2] {
    [PROTO3, PROTO2].map(|text| Schema::from_text(text, &[], None).unwrap())
}

/// Where choices come from. Zeros when all are used up, which make the simplest choice.
pub(super) struct Choices<'a>(pub(super) std::slice::Iter<'a, u8>);

impl Choices<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// A number from 0 to `end` - 1.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn number(&mut self) -> u64 {
        let bytes = std::array::from_fn(|_| self.byte());
        // Numbers of every length.
        match self.below(4) {
            0 => u64::from_le_bytes(bytes),
            1 => u64::from_le_bytes(bytes) >> 40,
            2 => u64::from(bytes[0]),
            _ => !u64::from(bytes[0]),
        }
    }

    fn text(&mut self) -> String {
        let letters = ["", "a", "ä", "日", "\u{1F600}", "zero\0", "some longer text to be copied"];
        (0..self.below(4)).map(|_| letters[self.below(letters.len())]).collect()
    }
}

/// A message with any of its fields.
pub(super) fn message(descriptor: &MessageDescriptor, choices: &mut Choices<'_>) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let is_time =
        ["Timestamp", "Duration"].iter().any(|name| time_numbers(descriptor, name).is_some());
    for field in declared_fields(descriptor) {
        if !field.is_required() && choices.below(3) == 0 {
            continue;
        }
        let value = match is_time {
            true if field.name() == "seconds" => Value::I64(choices.number() as i64 >> 24),
            true => Value::I32((choices.number() % 1_000_000_000) as i32),
            false => any_value(&field, choices),
        };
        message.set_field(&field, value);
    }
    message
}

fn any_value(field: &FieldDescriptor, choices: &mut Choices<'_>) -> Value {
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let mut map = HashMap::new();
        for _ in 0..choices.below(25) {
            let key = one(&key, choices).into_map_key().unwrap();
            map.insert(key, one(&value, choices));
        }
        return Value::Map(map);
    }
    match field.is_list() {
        true => Value::List((0..choices.below(5)).map(|_| one(field, choices)).collect()),
        false => one(field, choices),
    }
}

fn one(field: &FieldDescriptor, choices: &mut Choices<'_>) -> Value {
    let number = choices.number();
    match field.kind() {
        Kind::Double => Value::F64(f64::from_bits(number)),
        Kind::Float => Value::F32(f32::from_bits(number as u32)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number),
        Kind::Bool => Value::Bool(number % 2 == 1),
        Kind::String => Value::String(choices.text()),
        Kind::Bytes => Value::Bytes(choices.text().into_bytes().into()),
        Kind::Enum(item) => Value::EnumNumber(enum_number(&item, choices)),
        Kind::Message(descriptor) => Value::Message(message(&descriptor, choices)),
    }
}

fn enum_number(item: &EnumDescriptor, choices: &mut Choices<'_>) -> i32 {
    let values = &item.enum_descriptor_proto().value;
    let is_open = item.parent_file().syntax() == prost_reflect::Syntax::Proto3;
    match choices.below(values.len() + usize::from(is_open)) {
        at if at < values.len() => values[at].number(),
        _ => 77,
    }
}

/// The row of a message by Spark's rules.
pub(super) fn row_of(message: &DynamicMessage, options: &Options) -> Json {
    let descriptor = message.descriptor();
    let fields = declared_fields(&descriptor);
    Json::Object(
        fields.map(|field| (field.name().to_owned(), field_of(message, &field, options))).collect(),
    )
}

fn field_of(message: &DynamicMessage, field: &FieldDescriptor, options: &Options) -> Json {
    let value = message.get_field(field);
    let has_default = field.field_descriptor_proto().default_value.is_some();
    let is_emitted = options.emit_default_values && !field.supports_presence();
    let is_repeated = field.cardinality() == Cardinality::Repeated;
    match is_repeated || message.has_field(field) || has_default || is_emitted {
        true => json_of(&value, field, options, !is_repeated),
        false => Json::Null,
    }
}

fn json_of(value: &Value, field: &FieldDescriptor, options: &Options, nullable: bool) -> Json {
    let upcast = options.upcast_unsigned_ints;
    match value {
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U32(value) if upcast && field.kind() == Kind::Uint32 => json!(value),
        Value::U32(value) => json!(*value as i32),
        Value::U64(value) if upcast && field.kind() == Kind::Uint64 => json!(value.to_string()),
        Value::U64(value) => json!(*value as i64),
        Value::F32(value) => float(f64::from(*value)),
        Value::F64(value) => float(*value),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(value.to_vec()),
        Value::EnumNumber(number) if options.enums_as_ints => json!(number),
        Value::EnumNumber(number) => {
            let Kind::Enum(item) = field.kind() else { panic!("an enum") };
            let name = item.get_value(*number).map(|value| value.name().to_owned());
            json!(name.unwrap_or_else(|| format!("UNKNOWN_ENUM_VALUE_{}_{number}", item.name())))
        }
        Value::Message(message) => message_json(message, options, nullable),
        Value::List(items) => {
            items.iter().map(|item| json_of(item, field, options, false)).collect()
        }
        Value::Map(map) => {
            let Kind::Message(entry) = field.kind() else { panic!("a map") };
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            let entry = |(k, v): (&MapKey, &Value)| {
                let k = json_of(&Value::from(k.clone()), &key, options, false);
                (k.to_string(), json_of(v, &value, options, false))
            };
            json!(map.iter().map(entry).collect::<std::collections::BTreeMap<_, _>>())
        }
    }
}

fn message_json(message: &DynamicMessage, options: &Options, nullable: bool) -> Json {
    let descriptor = message.descriptor();
    if time_numbers(&descriptor, "Timestamp").is_some() {
        let part = |name| message.get_field_by_name(name).unwrap().into_owned();
        let (seconds, nanos) = (part("seconds"), part("nanos"));
        let micros = seconds.as_i64().unwrap() * 1_000_000;
        return json!(micros + i64::from(nanos.as_i32().unwrap() / 1000));
    }
    if let (true, Some(value)) = (options.unwrap_primitive_wrapper_types, wrapped(&descriptor)) {
        return match nullable {
            true => field_of(message, &value, options),
            false => json_of(&message.get_field(&value), &value, options, false),
        };
    }
    row_of(message, options)
}
