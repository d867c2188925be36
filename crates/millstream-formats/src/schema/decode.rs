//! Decodes records by the schemas of their writers.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::NullBuffer;
use millstream_engine::api::source::Failure;
use millstream_records::{avro, protobuf};
use millstream_registry::{Registry, RegistryError, frame};
use millstream_sql::json::{self, ParseMode, Values};

use super::error::SchemaFailure;
use super::parsed::Parsed;
use super::plans::{Columns, Plan, Planned, Projected, Writer};
use super::writers::{Writers, by_id};
use super::{Inner, SchemaFormat};
use crate::records::{Decoded, MalformedRecord};

/// What to do about a record that may not be malformed.
const REMEDY: &str = "Repair the data, or set 'deadLetter' to keep such records, or 'mode' to \
                      PERMISSIVE or DROPMALFORMED";

/// Decodes records, many at a time.
pub struct SchemaDecoder {
    format: SchemaFormat,
    projected: Arc<Projected>,
    engine: Engine,
    /// The frame of the last record and its plan: those of a writer come in runs.
    last: Option<(Vec<u8>, Planned)>,
}

enum Engine {
    Avro(avro::Decoder),
    /// With the first column that must not be null.
    Protobuf(protobuf::Decoder, Option<String>),
    Json {
        decoder: Box<json::Decoder>,
        stripped: Stripped,
    },
}

/// Why records are not decoded.
#[derive(Debug)]
pub enum NotDecoded {
    /// One of them is malformed, and the mode does not allow that.
    Malformed(MalformedRecord),
    /// A schema is the reason.
    Failed(Failure),
}

/// Why one record is not.
enum Fault {
    Record(String),
    Failed(Failure),
}

impl From<SchemaFailure> for Fault {
    fn from(failure: SchemaFailure) -> Self {
        Self::Failed(failure.into())
    }
}

/// What becomes of a malformed record.
enum Treatment<'a> {
    Null,
    Drop,
    Fail,
    Reject(&'a mut dyn FnMut(usize, String)),
}

impl SchemaDecoder {
    pub(super) fn new(format: SchemaFormat, projected: Arc<Projected>) -> Self {
        let engine = match &projected.columns {
            Columns::Avro(layout) => {
                let decoder = avro::Decoder::with_layout(layout);
                Engine::Avro(decoder.expect("the columns were checked"))
            }
            Columns::Protobuf { schema, projection } => {
                let decoder = protobuf::Decoder::new(schema, projection);
                let mut fields = projection.iter().map(|at| schema.field(*at));
                let required = fields.find(|field| !field.is_nullable());
                let required = required.map(|field| field.name().clone());
                Engine::Protobuf(decoder.expect("the columns were checked"), required)
            }
            Columns::Json { schema, projection, options } => {
                let decoder = json::Decoder::new(schema, projection, options.clone());
                let decoder = Box::new(decoder.expect("the columns were checked"));
                Engine::Json { decoder, stripped: Stripped::default() }
            }
        };
        Self { format, projected, engine, last: None }
    }

    /// Decodes `values`; malformed ones as the mode says. Blocks where a schema has to be fetched.
    ///
    /// # Errors
    /// The first malformed record, if the mode is FAILFAST; a schema that there is not, or that
    /// does not fit.
    pub fn decode<'a>(&mut self, values: impl Into<Values<'a>>) -> Result<Decoded, NotDecoded> {
        let values = values.into();
        if let Engine::Json { decoder, stripped } = &mut self.engine {
            return match decoder.decode(stripped.strip(values)) {
                Ok(json::Decoded { rows, malformed, .. }) => Ok(Decoded { rows, malformed }),
                Err(error) => {
                    let (row, problem) = (error.row, error.to_string());
                    Err(NotDecoded::Malformed(MalformedRecord { row, problem }))
                }
            };
        }
        self.decode_all(
            values,
            match self.inner().malformed.mode {
                ParseMode::Permissive => Treatment::Null,
                ParseMode::DropMalformed => Treatment::Drop,
                ParseMode::FailFast => Treatment::Fail,
            },
        )
    }

    /// Decodes `values` but for malformed ones, whatever the mode; `reject` gets each one's row and
    /// what is wrong with it. Blocks where a schema has to be fetched.
    ///
    /// # Errors
    /// A schema cannot be fetched.
    pub fn decode_apart<'a>(
        &mut self,
        values: impl Into<Values<'a>>,
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<Decoded, Failure> {
        let values = values.into();
        if let Engine::Json { decoder, stripped } = &mut self.engine {
            let records = stripped.strip(values);
            let decoded =
                decoder.decode_apart(records, |record| reject(record.row, record.in_short()));
            return Ok(Decoded { rows: decoded.rows, malformed: decoded.malformed });
        }
        self.decode_all(values, Treatment::Reject(reject)).map_err(|error| match error {
            NotDecoded::Failed(failure) => failure,
            NotDecoded::Malformed(_) => unreachable!("malformed records are rejected"),
        })
    }

    fn inner(&self) -> &Inner {
        &self.format.0
    }

    fn decode_all(
        &mut self,
        values: Values<'_>,
        mut treatment: Treatment<'_>,
    ) -> Result<Decoded, NotDecoded> {
        let mut malformed = 0;
        for row in 0..values.len() {
            let appended = match values.get(row) {
                None => self.engine.append_null().map_err(Fault::Record),
                Some(record) => self.append(record),
            };
            let problem = match appended {
                Ok(()) => continue,
                Err(Fault::Record(problem)) => problem,
                Err(Fault::Failed(failure)) => {
                    self.engine.finish();
                    return Err(NotDecoded::Failed(failure));
                }
            };
            malformed += 1;
            match &mut treatment {
                Treatment::Null => {
                    self.engine.append_null().expect("permissive columns have nulls")
                }
                Treatment::Drop => {}
                Treatment::Reject(reject) => reject(row, problem),
                Treatment::Fail => {
                    self.engine.finish();
                    let problem = format!("{problem}. {REMEDY}");
                    return Err(NotDecoded::Malformed(MalformedRecord { row, problem }));
                }
            }
        }
        Ok(Decoded { rows: self.engine.finish(), malformed })
    }

    fn append(&mut self, record: &[u8]) -> Result<(), Fault> {
        // No frame is the beginning of another, so that equal bytes are the same frame.
        let is_last = self.last.as_ref().is_some_and(|(last, _)| record.starts_with(last));
        if !is_last {
            let (frame, planned) = self.plan(record)?;
            self.last = Some((frame.to_vec(), planned));
        }
        let Some((frame, planned)) = &self.last else { unreachable!("it was just set") };
        match planned {
            Ok(plan) => self.engine.append(plan, &record[frame.len()..]),
            Err(problem) => Err(Fault::Record(problem.to_string())),
        }
    }

    /// What is in front of a record, and the plan for its writer or why there is none.
    fn plan<'r>(&self, record: &'r [u8]) -> Result<(&'r [u8], Planned), Fault> {
        let registry = match &self.inner().writers {
            Writers::Fixed(schema) => {
                let make = || Ok::<_, Fault>(self.planned(schema).map_err(Arc::from));
                return Ok((&[], self.projected.plan(&(0, Vec::new()), make)?));
            }
            Writers::Registry(registry) => registry,
        };
        let (id, body) = frame::id(record).map_err(|error| Fault::Record(error.to_string()))?;
        let (writer, body) = self.engine.path((id, body))?;
        let frame = &record[..record.len() - body.len()];
        let planned = self.projected.plan(&writer, || self.fetched(registry, &writer));
        match planned {
            Ok(planned) => Ok((frame, planned)),
            // Not kept with the plans, as it may be registered later, but for the other records
            // in hand.
            Err(SchemaFailure::Registry(error @ RegistryError::NoSuchSchema { .. })) => {
                Ok((frame, Err(error.to_string().into())))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn fetched(&self, registry: &Registry, writer: &Writer) -> Result<Planned, SchemaFailure> {
        let (id, path) = writer;
        let registered = by_id(registry, *id)?;
        let planned = Parsed::of(self.inner().kind, &registered, None)
            .and_then(|schema| schema.at(path))
            .and_then(|schema| self.planned(&schema));
        match planned {
            Ok(plan) => Ok(Ok(plan)),
            Err(problem) if self.inner().leaves_out() => {
                Ok(Err(format!("schema {id} of the schema registry: {problem}").into()))
            }
            Err(problem) => Err(SchemaFailure::Mismatch { id: *id, problem }),
        }
    }

    fn planned(&self, writer: &Parsed) -> Result<Plan, String> {
        self.projected.plan_of(writer, self.inner().reader.as_ref(), &self.inner().protobuf)
    }
}

impl Inner {
    /// Whether malformed records are no rows, so that nobody takes their nulls for an answer.
    fn leaves_out(&self) -> bool {
        self.malformed.dead_letters || self.malformed.mode == ParseMode::DropMalformed
    }
}

impl Engine {
    /// Who wrote a record, and what is left of it behind its frame.
    fn path<'r>(&self, (id, body): (u32, &'r [u8])) -> Result<(Writer, &'r [u8]), Fault> {
        let Self::Protobuf(..) = self else { return Ok(((id, Vec::new()), body)) };
        let (path, used) = protobuf::frame::read_indexes(body)
            .map_err(|error| Fault::Record(error.to_string()))?;
        Ok(((id, path), &body[used..]))
    }

    /// A record that does not fit beside the others is not malformed, but one that fits nowhere is.
    fn append(&mut self, plan: &Plan, record: &[u8]) -> Result<(), Fault> {
        let (rows, is_full, problem) = match (self, plan) {
            (Self::Avro(decoder), Plan::Avro(plan)) => {
                let Err(error) = decoder.append(plan, record) else { return Ok(()) };
                let is_full = matches!(error, avro::RecordError::Full { .. });
                (decoder.rows(), is_full, error.to_string())
            }
            (Self::Protobuf(decoder, _), Plan::Protobuf(plan)) => {
                let Err(error) = decoder.append(plan, record) else { return Ok(()) };
                let is_full = matches!(error.fault, protobuf::Fault::TooLarge);
                (decoder.rows(), is_full, error.to_string())
            }
            _ => unreachable!("plans are made for the columns of their format"),
        };
        match is_full && rows > 0 {
            true => Err(SchemaFailure::TooLarge { rows }.into()),
            false => Err(Fault::Record(problem)),
        }
    }

    /// Errors: a column that must not be null.
    fn append_null(&mut self) -> Result<(), String> {
        match self {
            Self::Avro(decoder) => decoder.append_null().map_err(|error| error.to_string()),
            Self::Protobuf(_, Some(column)) => {
                Err(format!("it has no value, and the column {column} is NOT NULL"))
            }
            Self::Protobuf(decoder, None) => {
                decoder.append_null();
                Ok(())
            }
            Self::Json { .. } => unreachable!("JSON has a decoder for many"),
        }
    }

    fn finish(&mut self) -> RecordBatch {
        match self {
            Self::Avro(decoder) => decoder.finish(),
            Self::Protobuf(decoder, _) => decoder.finish(),
            Self::Json { .. } => unreachable!("JSON has a decoder for many"),
        }
    }
}

/// Records without the frames in front of them.
#[derive(Default)]
struct Stripped {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    nulls: Option<NullBuffer>,
}

impl Stripped {
    /// A record without a frame is taken as it is: JSON does not begin with a zero.
    fn strip(&mut self, values: Values<'_>) -> Values<'_> {
        self.bytes.clear();
        self.offsets.clear();
        self.offsets.push(0);
        for row in 0..values.len() {
            let record = values.get(row).unwrap_or_default();
            let is_framed = record.first() == Some(&0) && record.len() >= frame::LENGTH;
            let from = if is_framed { frame::LENGTH } else { 0 };
            self.bytes.extend_from_slice(&record[from..]);
            let end = i32::try_from(self.bytes.len());
            self.offsets.push(end.expect("chunks are far below 2 GiB"));
        }
        let is_there = (0..values.len()).map(|row| values.get(row).is_some());
        self.nulls = Some(NullBuffer::from_iter(is_there));
        Values::new(&self.bytes, &self.offsets, self.nulls.as_ref())
    }
}
