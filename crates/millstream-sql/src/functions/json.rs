//! Functions between JSON text and columns.

use std::sync::Arc;

use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StructArray, new_empty_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type, Schema};
use datafusion::common::{
    DataFusionError, Result, exec_err, internal_err, plan_datafusion_err, plan_err,
};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{
    Arguments, Function, Param, call, literal_text, returns_int, returns_text, returns_texts,
    within_column,
};
use super::json_formats::Formats;
use super::option_texts::{boolean, entries};
use super::types::schema_of;
use super::{json_keys, zones};
use crate::json::{
    self, DecodeOptions, Decoder, EncodeOptions, Leniency, ParseMode, Path, Readers,
};
use crate::types::{holds_variant, spark_type};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("to_json", &[Param::Any, Param::Any], returns_json, to_json).required(1),
    Function::new("get_json_object", &[Param::Text, Param::Text], returns_text, get_json_object),
    Function::new("json_array_length", &[Param::Text], returns_int, json_array_length),
    Function::new("json_object_keys", &[Param::Text], returns_texts, json_object_keys),
    Function::new("json_member", &[Param::Any, Param::Any], returns_member, json_member),
];

/// `to_json` with options or NULL, in a session of the zone that the last argument names.
pub(crate) const TO_JSON_IN_ZONE: &str = "__to_json_in_zone";

/// Functions of sessions whose time zone is not UTC.
pub(super) const IN_ZONE: &[Function] = &[Function::new(
    TO_JSON_IN_ZONE,
    &[Param::Any, Param::Any, Param::Text],
    returns_json,
    |args| {
        let (zone, id) = zones::of_last_argument(args)?;
        written(args, Formats::in_zone(zone, id))
    },
)];

fn returns_json(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        of @ (DataType::Struct(_) | DataType::Map(..) | DataType::List(_)) => {
            json_keys::check(of)?;
            let written = json_keys::as_written(&new_empty_array(of))?;
            json::check(written.data_type())
                .map_err(|error| plan_datafusion_err!("to_json: {error}"))?;
            Ok(DataType::Utf8)
        }
        other => plan_err!(
            "to_json takes a STRUCT, MAP or ARRAY and got {}; for columns, write \
             to_json(struct(a, b))",
            spark_type(other)
        ),
    }
}

fn to_json(args: &Arguments) -> Result<ArrayRef> {
    written(args, Formats::default())
}

/// Argument 0 as JSON, with the options in argument 1, if there are any.
fn written(args: &Arguments, mut formats: Formats) -> Result<ArrayRef> {
    let (mut options, mut is_pretty) = (EncodeOptions::default(), false);
    if args.len() > 1 && !args.data_type(1).is_null() {
        for (key, value) in entries(args.array(1).0)? {
            if formats.set(&key, &value)? {
                continue;
            }
            let option = match key.as_str() {
                "ignorenullfields" => &mut options.ignore_null_fields,
                "sortkeys" => &mut options.sort_keys,
                "pretty" => &mut is_pretty,
                _ => return exec_err!("to_json: there is no option {key} = {value}"),
            };
            *option = boolean("to_json", &key, &value)?;
        }
    }
    // Spark leaves them as they are written without the option.
    if is_pretty && holds_variant(args.data_type(0)) {
        return exec_err!("to_json has no option pretty for values with VARIANTs in them");
    }
    let values = json_keys::as_written(args.array(0).0)?;
    let texts = json::encode(&formats.written(&values)?, options);
    let texts = texts.map_err(|error| DataFusionError::External(error.into()))?;
    if is_pretty { laid_out(&texts) } else { Ok(Arc::new(texts)) }
}

fn laid_out(texts: &StringArray) -> Result<ArrayRef> {
    let (mut out, mut text, mut total) = (StringBuilder::new(), String::new(), 0);
    for json in texts {
        text.clear();
        match json {
            Some(json) => {
                json::pretty(json, &mut text);
                within_column(&mut total, text.len())?;
                out.append_value(&text);
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn get_json_object(args: &Arguments) -> Result<ArrayRef> {
    let (documents, paths) = (args.text(0), args.text(1));
    let mut last: Option<(&str, Option<Path>)> = None;
    args.write(|row, out| {
        let (Some(document), Some(path)) = (documents.get(row), paths.get(row)) else {
            return Ok(false);
        };
        if last.as_ref().is_none_or(|(text, _)| *text != path) {
            last = Some((path, Path::parse(path)));
        }
        let path = last.as_ref().and_then(|(_, path)| path.as_ref());
        Ok(path.is_some_and(|path| path.find(document, out)))
    })
}

fn json_array_length(args: &Arguments) -> Result<ArrayRef> {
    let documents = args.text(0);
    args.primitives::<Int32Type>(|row| Ok(documents.get(row).and_then(json::array_length)))
}

/// # Errors
/// An argument of `json_tuple` is no text; Spark does not cast it.
fn returns_member(args: &[DataType]) -> Result<DataType> {
    match args.iter().find(|arg| **arg != DataType::Utf8) {
        Some(other) => {
            plan_err!("json_tuple takes STRINGs and got {}; cast it", spark_type(other))
        }
        None => Ok(DataType::Utf8),
    }
}

/// A column of `json_tuple`.
fn json_member(args: &Arguments) -> Result<ArrayRef> {
    let (documents, keys) = (args.text(0), args.text(1));
    args.write(|row, out| {
        let (Some(document), Some(key)) = (documents.get(row), keys.get(row)) else {
            return Ok(false);
        };
        Ok(json::member(document, key, out))
    })
}

/// The keys of the outermost object; NULL for anything else.
fn json_object_keys(args: &Arguments) -> Result<ArrayRef> {
    let documents = args.text(0);
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows {
        match documents.get(row).and_then(json::object_keys) {
            Some(keys) => {
                keys.iter().for_each(|key| out.values().append_value(key));
                out.append(true);
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// `from_json(text, schema[, options])`; the type is in the schema, which must be a literal.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FromJson {
    /// Whether the last argument is the zone of the session.
    has_zone: bool,
    signature: Signature,
}

impl FromJson {
    pub fn udf() -> Arc<ScalarUDF> {
        Self::of(false)
    }

    /// The function of sessions whose time zone is not UTC.
    pub fn in_zone() -> Arc<ScalarUDF> {
        Self::of(true)
    }

    fn of(has_zone: bool) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { has_zone, signature }))
    }
}

impl ScalarUDFImpl for FromJson {
    fn name(&self) -> &str {
        if self.has_zone { "__from_json_in_zone" } else { "from_json" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            _ if self.has_zone => Ok(given.to_vec()),
            [_, _] => Ok(vec![DataType::Utf8, DataType::Utf8]),
            [_, _, options] => Ok(vec![DataType::Utf8, DataType::Utf8, options.clone()]),
            _ => plan_err!("from_json takes text, a schema and perhaps options"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("from_json has its type from return_field_from_args")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ddl = literal_text("from_json", args.scalar_arguments[1])?;
        let data_type =
            schema_of(ddl).map_err(|error| plan_datafusion_err!("from_json: {error}"))?;
        let fields = match &data_type {
            DataType::Struct(fields) => fields.clone(),
            DataType::List(_) | DataType::Map(..) => {
                vec![Field::new("value", data_type.clone(), true)].into()
            }
            other => {
                return plan_err!(
                    "from_json: the schema is a STRUCT, ARRAY or MAP, not {}",
                    spark_type(other)
                );
            }
        };
        decoder(&Schema::new(fields), DecodeOptions::default(), Readers::default())?;
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let schema = args.args[1].data_type();
        if schema != DataType::Utf8 {
            return internal_err!("the schema of from_json is text");
        }
        call(&args, |args| match self.has_zone {
            true => {
                let (zone, id) = zones::of_last_argument(args)?;
                from_json(args, args.len() - 1, Formats::in_zone(zone, id))
            }
            false => from_json(args, args.len(), Formats::default()),
        })
    }
}

/// Reads argument 0; `count` arguments are those of `from_json`.
fn from_json(args: &Arguments, count: usize, formats: Formats) -> Result<ArrayRef> {
    let texts = &without_blank(args.array(0).0.as_string::<i32>());
    let (options, readers) = match count {
        2 => (DecodeOptions::default(), of_records(formats, Leniency::of_records())),
        _ => read_options(args.array(2).0, formats)?,
    };
    let failed = |error| DataFusionError::External(Box::new(error));
    let DataType::Struct(fields) = &args.returns else {
        let texts = &as_arrays(texts, &args.returns);
        return json::decode_values(texts, &args.returns, options.mode, readers).map_err(failed);
    };
    let mut decoder = decoder(&Schema::new(fields.clone()), options, readers)?;
    let decoded = decoder.decode(texts).map_err(failed)?;
    // NULL gives NULL; any other text a struct, of nulls if it is malformed.
    let columns = decoded.rows.columns().to_vec();
    let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    let rows = StructArray::try_new_with_length(fields.clone(), columns, nulls, texts.len())?;
    Ok(Arc::new(rows))
}

/// Where an array of structs is wanted, an object is an array of itself.
fn as_arrays(texts: &StringArray, wanted: &DataType) -> StringArray {
    match wanted {
        DataType::List(item)
            if matches!(item.data_type(), DataType::Struct(_))
                && texts.iter().flatten().any(is_object) =>
        {
            // As of other texts, what stands behind the object is passed over.
            let array = |text: &str| match is_object(text) {
                true => format!("[{}]", &text[..object_end(text)]),
                false => text.to_owned(),
            };
            texts.iter().map(|text| text.map(array)).collect()
        }
        _ => texts.clone(),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Where the object that a text begins with ends; the end of the text where it does not.
fn object_end(text: &str) -> usize {
    let (mut depth, mut quote, mut is_escaped) = (0_usize, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            _ if is_escaped => is_escaped = false,
            (Some(_), b'\\') => is_escaped = true,
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'{' | b'[') => depth += 1,
            (None, b'}' | b']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            (None, _) => {}
        }
    }
    text.len()
}

/// The texts, with NULL for those that have only JSON's white space: Spark finds no record in them,
/// so that they are not malformed in any mode.
fn without_blank(texts: &StringArray) -> StringArray {
    let is_blank = |text: &str| text.bytes().all(|byte| b" \t\n\r".contains(&byte));
    if !texts.iter().flatten().any(is_blank) {
        return texts.clone();
    }
    let is_there = |text: Option<&str>| text.is_some_and(|text| !is_blank(text));
    let nulls: NullBuffer = texts.iter().map(is_there).collect();
    StringArray::new(texts.offsets().clone(), texts.values().clone(), Some(nulls))
}

fn decoder(schema: &Schema, options: DecodeOptions, readers: Readers) -> Result<Decoder> {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let options = DecodeOptions { ignore_case: false, ..options };
    Decoder::with_readers(schema, &projection, options, readers)
        .map_err(|error| plan_datafusion_err!("from_json: {error}"))
}

fn of_records(formats: Formats, lenient: Leniency) -> Readers {
    Readers { lenient: Some(lenient), ..formats.readers() }
}

fn read_options(options: &ArrayRef, mut formats: Formats) -> Result<(DecodeOptions, Readers)> {
    let mut read = DecodeOptions::default();
    let mut lenient = Leniency::of_records();
    for (key, value) in entries(options)? {
        if formats.set(&key, &value)? {
            continue;
        }
        if let Some(option) = lenient.option(&key) {
            *option = boolean("from_json", &key, &value)?;
            continue;
        }
        match (key.as_str(), value.to_uppercase().as_str()) {
            ("mode", "PERMISSIVE") => read.mode = ParseMode::Permissive,
            ("mode", "FAILFAST") => read.mode = ParseMode::FailFast,
            ("mode", other) => {
                return exec_err!("from_json: the mode is PERMISSIVE or FAILFAST, not {other}");
            }
            ("columnnameofcorruptrecord", _) => read.column_name_of_corrupt_record = Some(value),
            _ => {
                return exec_err!(
                    "from_json: there is no option {key}; there are mode, \
                     columnNameOfCorruptRecord, timeZone, the forms of dates and times, and those \
                     that begin with allow"
                );
            }
        }
    }
    formats.check_to_read()?;
    Ok((read, of_records(formats, lenient)))
}
