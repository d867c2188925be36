//! `from_avro`, `to_avro` and `schema_of_avro`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{
    Result, exec_datafusion_err, exec_err, internal_err, plan_datafusion_err, plan_err,
};
use millstream_records::avro::{Decoder, Encoder, Layout, Plan, RecordError, Schema, Target};

use super::options::{Mode, options, unknown};
use super::prepared::{Literals, Prepared, bytes, expect_bytes, plain};
use super::rows::{Outcomes, nullable_columns};
use crate::json::nullable;
use crate::types::spark_type;

const KNOWN: &str = "mode, avroSchema and recursiveFieldMaxDepth";

/// The options of `from_avro` and `schema_of_avro`.
struct AvroOptions {
    mode: Mode,
    /// What records are read as, where that is not the schema they were written with.
    reader: Option<Schema>,
    recursion: usize,
}

impl AvroOptions {
    fn of(function: &str, literals: &Literals<'_>, at: usize) -> Result<Self> {
        let mut parsed = Self { mode: Mode::FailFast, reader: None, recursion: 0 };
        for (name, value) in options(function, literals, at)? {
            match name.as_str() {
                "mode" => parsed.mode = Mode::named(function, &value)?,
                "avroschema" => {
                    let what = "the option avroSchema";
                    parsed.reader = Some(schema(function, what, &value)?);
                }
                "recursivefieldmaxdepth" => parsed.recursion = depth(function, &value)?,
                "enablestableidentifiersforuniontype" if value.eq_ignore_ascii_case("false") => {}
                "enablestableidentifiersforuniontype" => {
                    return plan_err!(
                        "{function}: enableStableIdentifiersForUnionType is not supported; leave \
                         it out, and the members of a union are member0, member1 and so on"
                    );
                }
                _ => return unknown(function, &name, KNOWN),
            }
        }
        Ok(parsed)
    }
}

/// Spark's numbers below 1 forbid recursion, as leaving the option out does.
fn depth(function: &str, value: &str) -> Result<usize> {
    match value.trim().parse::<i32>() {
        Ok(depth) if depth <= 15 => Ok(usize::try_from(depth).unwrap_or(0)),
        _ => plan_err!("{function}: recursiveFieldMaxDepth is a number up to 15, not {value}"),
    }
}

fn schema(function: &str, what: &str, text: &str) -> Result<Schema> {
    Schema::parse(text, &[]).map_err(|error| plan_datafusion_err!("{function}: {what}: {error}"))
}

/// `from_avro(data, jsonFormatSchema [, options])`.
pub(super) struct FromAvro {
    layout: Layout,
    plan: Plan,
    /// False where the value is the only column.
    is_record: bool,
    returns: DataType,
    mode: Mode,
}

impl Prepared for FromAvro {
    const NAME: &'static str = "from_avro";
    const USAGE: &'static str = "from_avro(data, jsonFormatSchema [, options])";
    const ARGUMENTS: (usize, usize) = (2, 3);
    const TAKES_NO_ENTRIES: bool = true;

    fn data(given: &DataType) -> DataType {
        bytes(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        expect_bytes(Self::NAME, data)?;
        let text = literals.text(1, "the Avro schema")?;
        let writer = schema(Self::NAME, "the schema", text)?;
        let AvroOptions { mode, reader, recursion } = AvroOptions::of(Self::NAME, literals, 2)?;
        let reader = reader.as_ref().unwrap_or(&writer);
        let wrong = |problem: String| plan_datafusion_err!("from_avro: {problem}");
        let (data_type, _) =
            reader.data_type(recursion).map_err(|error| wrong(error.to_string()))?;
        let columns = reader.columns(recursion).map_err(|error| wrong(error.to_string()))?;
        let is_value = columns.fields().len() == 1 && columns.field(0).data_type() == &data_type;
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        let layout = Layout::new(&nullable_columns(&columns), &all)
            .map_err(|error| wrong(error.to_string()))?;
        let plan = Plan::new(&writer, Target::Reader { schema: reader, recursion }, &layout)
            .map_err(|error| wrong(error.to_string()))?;
        let returns = match mode {
            Mode::FailFast => data_type,
            Mode::Permissive => nullable(&data_type),
        };
        Ok(Self { layout, plan, is_record: !is_value, returns, mode })
    }

    fn returns(&self) -> (DataType, bool) {
        (self.returns.clone(), true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let records = data.as_binary::<i32>();
        let mut decoder = Decoder::with_layout(&self.layout)
            .map_err(|error| exec_datafusion_err!("from_avro: {error}"))?;
        let mut outcomes = Outcomes::default();
        for record in records {
            let Some(record) = record else {
                outcomes.null();
                append_null(&mut decoder)?;
                continue;
            };
            match (decoder.append_beginning(&self.plan, record), self.mode) {
                (Ok(()), _) => outcomes.decoded(),
                (Err(RecordError::Malformed { .. }), Mode::Permissive) => {
                    outcomes.malformed();
                    append_null(&mut decoder)?;
                }
                (Err(error @ RecordError::Malformed { .. }), Mode::FailFast) => {
                    return exec_err!(
                        "from_avro: {error}; map('mode', 'PERMISSIVE') makes NULLs of it"
                    );
                }
                (Err(RecordError::Full { .. }), _) => {
                    return exec_err!(
                        "from_avro: the records of a micro-batch are more than 1 GiB; read fewer \
                         at once"
                    );
                }
                (Err(error), _) => return internal_err!("from_avro: {error}"),
            }
        }
        let rows = decoder.finish();
        match self.is_record {
            true => outcomes.into_structs(&rows, &self.returns),
            false => outcomes.into_values(rows.column(0), &self.returns),
        }
    }
}

fn append_null(decoder: &mut Decoder) -> Result<()> {
    decoder.append_null().or_else(|error| internal_err!("from_avro: {error}"))
}

/// `to_avro(data [, jsonFormatSchema])`.
pub(super) struct ToAvro {
    /// Without one the schema is still to be derived: see [`super::derived`].
    encoder: Option<Result<Encoder, String>>,
    nullable: bool,
}

impl Prepared for ToAvro {
    const NAME: &'static str = "to_avro";
    const USAGE: &'static str = "to_avro(data [, jsonFormatSchema])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let nullable = data.is_nullable();
        let has_schema = match literals.get(1) {
            Ok(value) => value.is_some(),
            // The complaint about what is no literal comes below.
            Err(_) => true,
        };
        if !has_schema {
            return Ok(Self { encoder: None, nullable });
        }
        let text = literals.text(1, "the Avro schema")?;
        let schema = schema(Self::NAME, "the schema", text)?;
        let encoder = Encoder::new(data.data_type(), nullable, Some(&schema))
            .map_err(|error| error.to_string());
        Ok(Self { encoder: Some(encoder), nullable })
    }

    fn check(&self) -> Result<()> {
        match &self.encoder {
            Some(Err(problem)) => plan_err!("to_avro: {problem}"),
            _ => Ok(()),
        }
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Binary, self.nullable)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let encoder = match &self.encoder {
            Some(Ok(encoder)) => encoder,
            Some(Err(problem)) => return exec_err!("to_avro: {problem}"),
            None => return internal_err!("to_avro has got no schema when the query was planned"),
        };
        let records = encoder.encode(data, &[]);
        Ok(Arc::new(records.map_err(|error| exec_datafusion_err!("to_avro: {error}"))?))
    }
}

/// `schema_of_avro(jsonFormatSchema [, options])`.
pub(super) struct SchemaOfAvro {
    ddl: String,
}

impl Prepared for SchemaOfAvro {
    const NAME: &'static str = "schema_of_avro";
    const USAGE: &'static str = "schema_of_avro(jsonFormatSchema [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);
    const TAKES_NO_ENTRIES: bool = true;

    fn data(_: &DataType) -> DataType {
        DataType::Utf8
    }

    fn prepare(_: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let text = literals.text(0, "the Avro schema")?;
        let schema = schema(Self::NAME, "the schema", text)?;
        let options = AvroOptions::of(Self::NAME, literals, 1)?;
        let data_type = options.reader.unwrap_or(schema).data_type(options.recursion);
        let (data_type, _) =
            data_type.map_err(|error| plan_datafusion_err!("schema_of_avro: {error}"))?;
        Ok(Self { ddl: spark_type(&data_type) })
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, false)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let texts = std::iter::repeat_n(Some(self.ddl.as_str()), data.len());
        Ok(Arc::new(texts.collect::<StringArray>()))
    }
}
