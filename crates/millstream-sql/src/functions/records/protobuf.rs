//! `from_protobuf` and `to_protobuf`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, Schema as Columns};
use datafusion::common::{
    DataFusionError, Result, ScalarValue, exec_datafusion_err, exec_err, internal_err,
    plan_datafusion_err, plan_err,
};
use millstream_records::protobuf::{Decoder, Encoder, Fault, Options, Plan, Schema};

use super::options::{Mode, options, unknown};
use super::prepared::{Literals, Prepared, bytes, expect_bytes, plain};
use super::rows::{Outcomes, nullable_columns};
use crate::json::nullable;
use crate::types::spark_type;

const KNOWN: &str = "mode, emit.default.values, enums.as.ints, recursive.fields.max.depth, \
                     upcast.unsigned.ints, unwrap.primitive.wrapper.types, \
                     retain.empty.message.types and convert.any.fields.to.json";

/// The largest file of descriptors. The ones of whole companies have a few megabytes.
const DESCRIPTOR_BYTES_MAX: u64 = 64 << 20;

/// Where the descriptors are among the arguments.
const DESCRIPTORS: usize = 2;

/// Reads the file of descriptors, if its path is given and not its bytes.
fn resolve(function: &str, at: usize, value: &ScalarValue) -> Result<Option<ScalarValue>> {
    match value.try_as_str() {
        Some(Some(path)) if at == DESCRIPTORS => {
            let bytes = read(Path::new(path))
                .map_err(|problem| plan_datafusion_err!("{function}: {path}: {problem}"))?;
            Ok(Some(ScalarValue::Binary(Some(bytes))))
        }
        _ => Ok(None),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    if !path.is_absolute() {
        return Err(
            "the path of a file of descriptors is absolute here, as a query does not know \
                    relative to what it would be; or write the file's bytes as X'...'"
                .to_owned(),
        );
    }
    let failed = |error| format!("the file cannot be read: {error}");
    // Opening a pipe would wait for someone who writes to it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err("this is no file".to_owned());
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(DESCRIPTOR_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > DESCRIPTOR_BYTES_MAX {
        return Err(format!("the file has more than {DESCRIPTOR_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

fn schema(function: &str, literals: &Literals<'_>) -> Result<Schema> {
    let message = literals.text(1, "the name of the message")?;
    match literals.get(DESCRIPTORS)? {
        Some(ScalarValue::Binary(Some(bytes))) => Schema::from_descriptor_set(bytes, Some(message))
            .map_err(|error| plan_datafusion_err!("{function}: {error}")),
        _ => plan_err!(
            "{function}: argument 3 says where the message is: the path of a file that protoc \
             --include_imports --descriptor_set_out=FILE writes, or its bytes as X'...'; classes \
             of Java are not known here"
        ),
    }
}

fn protobuf_options(function: &str, literals: &Literals<'_>) -> Result<(Mode, Options)> {
    let (mut mode, mut parsed) = (Mode::FailFast, Options::default());
    for (name, value) in options(function, literals, 3)? {
        if name == "mode" {
            mode = Mode::named(function, &value)?;
            continue;
        }
        match parsed.set(&name, &value) {
            Ok(true) => {}
            Ok(false) => return unknown(function, &name, KNOWN),
            Err(error) => return plan_err!("{function}: {error}"),
        }
    }
    Ok((mode, parsed))
}

/// `from_protobuf(data, messageName, descriptors [, options])`.
pub(super) struct FromProtobuf {
    columns: Columns,
    plan: Plan,
    returns: DataType,
    mode: Mode,
}

impl FromProtobuf {
    fn decoder(&self) -> Result<Decoder> {
        let all: Vec<usize> = (0..self.columns.fields().len()).collect();
        Decoder::new(&self.columns, &all)
            .map_err(|error| plan_datafusion_err!("from_protobuf: {error}"))
    }
}

impl Prepared for FromProtobuf {
    const NAME: &'static str = "from_protobuf";
    const USAGE: &'static str = "from_protobuf(data, messageName, descFilePath [, options])";
    const ARGUMENTS: (usize, usize) = (3, 4);
    const TAKES_NO_ENTRIES: bool = true;

    fn data(given: &DataType) -> DataType {
        bytes(given)
    }

    fn resolve(at: usize, value: &ScalarValue) -> Result<Option<ScalarValue>> {
        resolve(Self::NAME, at, value)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        expect_bytes(Self::NAME, data)?;
        let schema = schema(Self::NAME, literals)?;
        let (mode, options) = protobuf_options(Self::NAME, literals)?;
        let columns = schema
            .columns(&options)
            .map_err(|error| plan_datafusion_err!("from_protobuf: {error}"))?;
        if columns.fields().is_empty() {
            return plan_err!("from_protobuf: the message {} has no fields", schema.message_name());
        }
        let data_type = DataType::Struct(columns.fields().clone());
        let returns = match mode {
            Mode::FailFast => data_type,
            Mode::Permissive => nullable(&data_type),
        };
        let columns = nullable_columns(&columns);
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        let plan = Plan::new(&schema, &options, &columns, &all)
            .map_err(|error| plan_datafusion_err!("from_protobuf: {error}"))?;
        let made = Self { columns, plan, returns, mode };
        made.decoder()?;
        Ok(made)
    }

    fn returns(&self) -> (DataType, bool) {
        (self.returns.clone(), true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let mut decoder = self.decoder()?;
        let mut outcomes = Outcomes::default();
        for record in data.as_binary::<i32>() {
            let Some(record) = record else {
                outcomes.null();
                decoder.append_null();
                continue;
            };
            let Err(error) = decoder.append(&self.plan, record) else {
                outcomes.decoded();
                continue;
            };
            match (&error.fault, self.mode) {
                (Fault::TooLarge, _) => {
                    return exec_err!(
                        "from_protobuf: the records of a micro-batch are more than 2 GiB; read \
                         fewer at once"
                    );
                }
                (Fault::OtherColumns, _) => return internal_err!("from_protobuf: {error}"),
                (_, Mode::Permissive) => {
                    outcomes.malformed();
                    decoder.append_null();
                }
                (_, Mode::FailFast) => {
                    return exec_err!(
                        "from_protobuf: {error}; map('mode', 'PERMISSIVE') makes NULLs of it"
                    );
                }
            }
        }
        outcomes.into_structs(&decoder.finish(), &self.returns)
    }
}

/// `to_protobuf(data, messageName, descriptors [, options])`.
pub(super) struct ToProtobuf {
    encoder: Result<Encoder, String>,
    nullable: bool,
}

impl Prepared for ToProtobuf {
    const NAME: &'static str = "to_protobuf";
    const USAGE: &'static str = "to_protobuf(data, messageName, descFilePath [, options])";
    const ARGUMENTS: (usize, usize) = (3, 4);
    const TAKES_NO_ENTRIES: bool = true;

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn resolve(at: usize, value: &ScalarValue) -> Result<Option<ScalarValue>> {
        resolve(Self::NAME, at, value)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let DataType::Struct(fields) = data.data_type() else {
            return plan_err!(
                "to_protobuf takes a STRUCT and got {}; for columns, write \
                 to_protobuf(struct(a, b), ...)",
                spark_type(data.data_type())
            );
        };
        let schema = schema(Self::NAME, literals)?;
        // They say how records are read, and here they have no effect, as in Spark.
        protobuf_options(Self::NAME, literals)?;
        let encoder =
            Encoder::new(&schema, &Columns::new(fields.clone())).map_err(|error| error.to_string());
        Ok(Self { encoder, nullable: data.is_nullable() })
    }

    fn check(&self) -> Result<()> {
        match &self.encoder {
            Ok(_) => Ok(()),
            Err(problem) => plan_err!("to_protobuf: {problem}"),
        }
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Binary, self.nullable)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let encoder = match &self.encoder {
            Ok(encoder) => encoder,
            Err(problem) => return exec_err!("to_protobuf: {problem}"),
        };
        let records = encoder.encode_structs(data.as_struct(), &[]);
        let failed = |error| -> DataFusionError { exec_datafusion_err!("to_protobuf: {error}") };
        Ok(Arc::new(records.map_err(failed)?))
    }
}
