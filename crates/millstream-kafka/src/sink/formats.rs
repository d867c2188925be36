//! `value.format` and `key.format` of a table that is written: which columns become values and
//! keys by schemas.
//!
//! All columns are the value's, but those of the key and those that say where a record goes and
//! what it carries besides: `topic` (where the option of that name does not say it), `partition`,
//! `headers`, and `key`, unless `key.fields` says which columns the key is made of.

use arrow::datatypes::Schema;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_formats::schema::{
    Elsewhere, OPTIONS, Part, Registries, SchemaEncoder, SchemaKind, WRITE_OPTIONS,
};

use super::columns::{RecordPart, SinkColumns};

const VALUE: &str = "value.format";
const KEY: &str = "key.format";
const KEY_FIELDS: &str = "key.fields";

/// The columns of a table that is written to `topic`, if all rows are.
///
/// # Errors
/// A column that is missing or cannot be written; options that cannot be.
pub fn columns_of(
    options: &Options,
    topic: Option<&str>,
    schema: &Schema,
    registries: &Registries,
) -> Result<SinkColumns, OptionError> {
    let (value, key) = (format(options, VALUE)?, format(options, KEY)?);
    check_used(options, value, key)?;
    let key_fields = key_fields(options, key, schema)?;
    let part = |kind: SchemaKind, name: &'static str, columns: Vec<usize>, elsewhere| {
        let subject = topic.map(|topic| format!("{topic}-{name}"));
        let part = Part { options, name, subject };
        let only = schema.project(&columns).map_err(|error| {
            // The columns were found in the schema.
            OptionError::table(error.to_string(), None)
        })?;
        let encoder = SchemaEncoder::parse(kind, &part, &only, elsewhere, registries)?;
        Ok(RecordPart::Encoded(name, columns, encoder))
    };
    let mut taken = Vec::new();
    let mut of_value = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        match elsewhere(field.name(), key.is_some(), topic.is_some()) {
            Some(column) => taken.push(column),
            None if key_fields.contains(&at) => {}
            None => of_value.push(at),
        }
    }
    let value = value.map(|kind| part(kind, "value", of_value, taken)).transpose()?;
    let key = key.map(|kind| part(kind, "key", key_fields, Vec::new())).transpose()?;
    SinkColumns::with(schema, topic.is_some(), key, value)
}

/// What a column of a name is, if it is no field of the value.
fn elsewhere(name: &str, has_key_format: bool, has_topic: bool) -> Option<Elsewhere> {
    let place = "says where a record goes";
    let (what, remedy) = match name {
        "key" if !has_key_format => (
            "is the record's key",
            "set 'key.format' and 'key.fields', or give the field another name in the schema",
        ),
        "topic" if !has_topic => {
            (place, "set the option 'topic', or give the field another name in the schema")
        }
        "partition" => {
            (place, "leave the column out, or give the field another name in the schema")
        }
        "headers" => (
            "has the record's headers",
            "leave the column out, or give the field another name in the schema",
        ),
        _ => return None,
    };
    Some(Elsewhere { name: name.to_owned(), what, remedy })
}

/// The format that an option says; none is bytes as they are.
fn format(options: &Options, key: &'static str) -> Result<Option<SchemaKind>, OptionError> {
    let Some(text) = options.get(key) else { return Ok(None) };
    let name = text.trim().to_ascii_lowercase();
    let is_read = ["subscribe", "subscribePattern", "assign"];
    let is_read = is_read.iter().any(|option| options.get(option).is_some());
    match (name.as_str(), SchemaKind::named(&name)) {
        (_, Some(kind)) => Ok(Some(kind)),
        ("raw", None) => Ok(None),
        // The table is read as well, and this is how.
        ("json" | "csv", None) if is_read && key == VALUE => Ok(None),
        ("json" | "csv", None) => {
            let part = if key == VALUE { "value" } else { "key" };
            let problem = format!("rows are not written as '{name}' by this option");
            let help = format!("leave it out, and select to_{name}(struct(...)) AS {part}");
            Err(OptionError::of(key, problem, Some(help)))
        }
        _ => {
            let known = "'avro', 'protobuf', 'json-schema' or 'raw'";
            Err(OptionError::invalid(key, text, known))
        }
    }
}

/// Refuses options that nothing looks at.
fn check_used(
    options: &Options,
    value: Option<SchemaKind>,
    key: Option<SchemaKind>,
) -> Result<(), OptionError> {
    let known = OPTIONS.iter().chain(WRITE_OPTIONS).filter(|it| it.side != Side::Source);
    let given = known.filter(|it| options.get(it.name).is_some());
    let unused = |it: &OptionSpec| match it.name.split_once('.') {
        Some(("value", _)) => value.is_none().then_some(VALUE),
        Some(("key", _)) => key.is_none().then_some(KEY),
        _ => (value.is_none() && key.is_none()).then_some(VALUE),
    };
    let mut found = given.filter_map(|it| Some((it.name, unused(it)?)));
    match found.next() {
        None => Ok(()),
        Some((name, format)) => {
            let problem = format!("'{name}' is of formats that have schemas");
            let help = format!("set '{format}' = 'avro', 'protobuf' or 'json-schema'");
            Err(OptionError::of(name, problem, Some(help)))
        }
    }
}

/// The columns that `key.fields` names, in its order.
fn key_fields(
    options: &Options,
    key: Option<SchemaKind>,
    schema: &Schema,
) -> Result<Vec<usize>, OptionError> {
    let text = options.get(KEY_FIELDS);
    let names: Vec<&str> =
        text.into_iter().flat_map(|text| text.split(',')).map(str::trim).collect();
    match (key, text) {
        (None, None) => return Ok(Vec::new()),
        (Some(_), None) => {
            let help = "say which columns the key is made of, as 'key.fields' = 'a, b'";
            return Err(OptionError::missing(KEY_FIELDS, help));
        }
        (None, Some(_)) => {
            let problem = "'key.fields' is set, and no format of the key";
            let help = "set 'key.format' = 'avro', 'protobuf' or 'json-schema', or select a \
                        column 'key'";
            return Err(OptionError::of(KEY_FIELDS, problem, Some(help.to_owned())));
        }
        (Some(_), Some(_)) => {}
    }
    let mut found = Vec::new();
    for name in names {
        let at = schema.fields().iter().position(|field| field.name() == name);
        let problem = match at {
            Some(at) if found.contains(&at) => format!("the column '{name}' is named twice"),
            Some(at) => {
                found.push(at);
                continue;
            }
            None => format!("the query has no column '{name}'"),
        };
        let columns = schema.fields().iter().map(|field| field.name().as_str());
        let columns = columns.collect::<Vec<_>>().join(", ");
        let help = format!("name some of its columns once each: {columns}");
        return Err(OptionError::of(KEY_FIELDS, problem, Some(help)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::error::SinkError;

    const AVRO: &str = r#"{"type": "record", "name": "r", "fields": [
        {"name": "name", "type": "string"}]}"#;

    fn parse(
        columns: &[(&str, DataType)],
        entries: &[(&str, &str)],
    ) -> Result<SinkColumns, OptionError> {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let field = |(name, kind): &(&str, DataType)| Field::new(*name, kind.clone(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let registries = Registries::new(Path::new("."));
        columns_of(&Options::new(entries), Some("out"), &schema, &registries)
    }

    fn rows(names: &[Option<&str>]) -> RecordBatch {
        let ids: Int64Array = (0..names.len() as i64).collect();
        let columns: Vec<(&str, arrow::array::ArrayRef, bool)> = vec![
            ("id", std::sync::Arc::new(ids), true),
            ("name", std::sync::Arc::new(StringArray::from(names.to_vec())), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    const COLUMNS: [(&str, DataType); 2] = [("id", DataType::Int64), ("name", DataType::Utf8)];

    #[test]
    fn columns_are_keys_and_values() {
        let key = r#"{"type": "record", "name": "k", "fields": [
            {"name": "id", "type": ["null", "long"]}]}"#;
        let options = [
            ("value.format", "avro"),
            ("value.schema", AVRO),
            ("key.format", "avro"),
            ("key.fields", "id"),
            ("key.schema", key),
        ];
        let columns = parse(&COLUMNS, &options).unwrap();
        let written = columns.of(&rows(&[Some("a"), Some("bc")])).unwrap();
        assert_eq!(written.value(1), Some(&b"\x04bc"[..]));
        assert_eq!(written.key(1), Some(&b"\x02\x02"[..]));
        let refused = columns.of(&rows(&[Some("a"), None])).err().unwrap();
        assert!(matches!(refused, SinkError::NotEncoded { .. }));
        let text = refused.to_string();
        assert!(text.contains("the value of a record: column name: null"), "{text}");
    }

    #[test]
    fn a_key_of_bytes_stays_one() {
        let columns = [("key", DataType::Utf8), ("name", DataType::Utf8)];
        let columns = parse(&columns, &[("value.format", "avro"), ("value.schema", AVRO)]).unwrap();
        let batch = rows(&[Some("a")]);
        let names = batch.column(1).clone();
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("key", names.clone(), true),
            ("name", names, true),
        ]);
        let batch = batch.unwrap();
        let written = columns.of(&batch).unwrap();
        assert_eq!((written.key(0), written.value(0)), (Some(&b"a"[..]), Some(&b"\x02a"[..])));
    }

    #[test]
    fn options_that_mean_nothing_are_refused_with_a_remedy() {
        let avro = ("value.format", "avro");
        let url = ("schema.registry.url", "http://127.0.0.1:1");
        for (options, key) in [
            (vec![("value.format", "json")], "value.format"),
            (vec![("value.format", "xml")], "value.format"),
            (vec![avro], "schema.registry.url"),
            (vec![("value.schema", AVRO)], "value.schema"),
            (vec![url], "schema.registry.url"),
            (vec![avro, url, ("key.subject", "k")], "key.subject"),
            (vec![avro, url, ("key.fields", "id")], "key.fields"),
            (vec![avro, url, ("key.format", "avro")], "key.fields"),
            (vec![avro, url, ("key.format", "avro"), ("key.fields", "no")], "key.fields"),
            (
                vec![avro, ("value.schema", AVRO), ("use.latest.version", "true")],
                "use.latest.version",
            ),
            (vec![avro, url, ("value.message", "M")], "value.message"),
            (
                vec![avro, url, ("use.latest.version", "true"), ("auto.register.schemas", "true")],
                "auto.register.schemas",
            ),
            (
                vec![avro, url, ("value.subject.version", "2"), ("value.schema", AVRO)],
                "value.schema",
            ),
            (vec![avro, url, ("auto.register.schemas", "maybe")], "auto.register.schemas"),
        ] {
            let refused = parse(&COLUMNS, &options).unwrap_err();
            assert!(
                refused.problem.contains(key) || refused.key.as_deref() == Some(key),
                "{refused:?}"
            );
            assert!(refused.help.is_some() || refused.problem.contains("should be"), "{refused:?}");
        }
    }

    #[test]
    fn fields_called_as_columns_that_say_where_a_record_goes_are_refused() {
        let schema = |field: &str| {
            format!(
                r#"{{"type": "record", "name": "r", "fields": [
                    {{"name": "name", "type": "string"}},
                    {{"name": "{field}", "type": ["null", "int"]}}]}}"#
            )
        };
        for (field, kind, what, remedy) in [
            ("partition", DataType::Int32, "says where a record goes", "leave the column out"),
            ("key", DataType::Utf8, "is the record's key", "key.format"),
        ] {
            let schema = schema(field);
            let options = [("value.format", "avro"), ("value.schema", schema.as_str())];
            let name = ("name", DataType::Utf8);
            let refused = parse(&[name.clone(), (field, kind)], &options).unwrap_err();
            let wanted = format!(
                "the field {field} of the schema cannot be written, as a column of this name {what}"
            );
            assert!(refused.problem.contains(&wanted), "{refused:?}");
            assert!(refused.help.is_some_and(|help| help.contains(remedy)));
            // Without such a column it is null.
            parse(&[name], &options).unwrap();
        }
        // The option says the topic, so that the column is a field.
        let topic = schema("topic");
        let options = [("value.format", "avro"), ("value.schema", topic.as_str())];
        parse(&[("name", DataType::Utf8), ("topic", DataType::Int32)], &options).unwrap();
    }

    #[test]
    fn columns_that_a_schema_does_not_have_are_named() {
        let options = [("value.format", "avro"), ("value.schema", AVRO)];
        let refused = parse(&COLUMNS, &options).unwrap_err();
        assert!(refused.problem.contains("`id`"), "{refused:?}");
        let columns = [("name", DataType::Int64)];
        let refused = parse(&columns, &options).unwrap_err();
        assert!(refused.problem.contains("`name`: BIGINT"), "{refused:?}");
    }
}
