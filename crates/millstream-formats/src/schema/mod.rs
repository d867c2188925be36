//! Records that cannot be read without a schema: Avro and Protobuf, and JSON that carries the
//! number of a JSON Schema.
//!
//! ```text
//! option value.schema ───────────────────────────┐
//! registry, by a subject: columns of a table ────┼──▶ SchemaFormat ──▶ SchemaDecoder ──▶ columns
//! registry, by the id in each record: its writer ┘
//! ```
//!
//! With a registry, each record says who wrote it: five bytes in front of it have the id of its
//! schema. Schemas are fetched when their first record comes, and a plan is made once for each
//! schema and set of columns, so that a producer may go from one version of its schema to the next
//! while a query runs.
//!
//! A record that is not what its schema says is malformed, and so is one whose schema nobody knows.
//! A schema that cannot become the table's columns at all is another matter: nulls in all rows of a
//! producer would be a wrong answer, so it ends the query, unless malformed records are dropped or
//! become dead letters.
//!
//! The other way a [`SchemaEncoder`] makes records of rows, by a schema of the options, one that a
//! subject of a registry has, or one of the columns that is registered there.
//!
//! - [`options`], [`write_options`]: what a table says of it. [`writers`]: registries, and what was
//!   asked of them.
//! - [`parsed`]: schemas as decoders need them. [`plans`]: one for each writer.
//! - [`decode`]: records to columns. [`error`]: what ends a query.
//! - [`encode`]: which schema rows are written by. [`engine`]: rows to records. [`layout`]: columns
//!   as encoders want them. [`json_schema`]: schemas of JSON, which no crate of ours has.

mod decode;
mod encode;
mod engine;
mod error;
mod json_schema;
mod layout;
mod options;
mod parsed;
mod plans;
#[cfg(test)]
mod tests;
mod write_options;
mod writers;

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use millstream_engine::api::options::OptionError;
use millstream_sql::json::{DecodeOptions, ParseMode};
use parking_lot::Mutex;

pub use decode::{NotDecoded, SchemaDecoder};
pub use encode::{NotEncoded, SchemaEncoder};
pub use engine::Elsewhere;
pub use error::{SchemaFailure, WriteFailure};
pub use options::{OPTIONS, Part, needs};
use parsed::Parsed;
use plans::Projected;
pub use write_options::WRITE_OPTIONS;
pub use writers::Registries;
use writers::Writers;

use crate::records::Malformed;

/// Sets of columns whose plans are kept at most.
const PROJECTIONS_MAX: usize = 64;

/// A format that has schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// Apache Avro.
    Avro,
    /// Protocol Buffers.
    Protobuf,
    /// JSON with the id of a JSON Schema in front.
    Json,
}

impl SchemaKind {
    /// By the name that `value.format` gives it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "avro" => Some(Self::Avro),
            "protobuf" => Some(Self::Protobuf),
            "json-schema" => Some(Self::Json),
            _ => None,
        }
    }

    /// As `value.format` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avro => "avro",
            Self::Protobuf => "protobuf",
            Self::Json => "json-schema",
        }
    }
}

/// The columns of a table and how its records are decoded into them. Cheap to clone.
#[derive(Clone)]
pub struct SchemaFormat(Arc<Inner>);

struct Inner {
    kind: SchemaKind,
    /// The columns a query sees.
    schema: SchemaRef,
    malformed: Malformed,
    writers: Writers,
    /// What the columns come from, where they are not declared.
    reader: Option<Parsed>,
    protobuf: millstream_records::protobuf::Options,
    projections: Mutex<Vec<(Vec<usize>, Arc<Projected>)>>,
}

impl SchemaFormat {
    /// The format of a part of each record, as a table's options say it. Reads a file that they
    /// name, and asks the registry where columns are not declared.
    ///
    /// # Errors
    /// An option is missing or cannot be; the columns cannot be decoded; the registry gives none.
    pub fn parse(
        kind: SchemaKind,
        part: &Part<'_>,
        declared: Option<&SchemaRef>,
        malformed: Malformed,
        registries: &Registries,
    ) -> Result<Self, OptionError> {
        let options::Given { writers, reader, protobuf } =
            options::parse(kind, part, declared.is_some(), registries)?;
        let columns = match (declared, &reader) {
            (Some(columns), _) => Arc::clone(columns),
            (None, Some(reader)) => Arc::new(part.columns_of(reader, &protobuf)?),
            (None, None) => unreachable!("without columns a schema is required"),
        };
        let corrupt = columns.fields().iter().find(|field| *field.name() == malformed.column);
        if let (Some(field), true) = (corrupt, kind != SchemaKind::Json && declared.is_some()) {
            let problem = format!(
                "column {}: malformed records of {} are bytes, and no column gets them",
                field.name(),
                kind.name()
            );
            let help = "leave the column out, and set 'deadLetter' to keep such records";
            return Err(OptionError::table(problem, Some(help.to_owned())));
        }
        let schema = seen(&columns, kind, &malformed)?;
        let reader = reader.filter(|_| declared.is_none());
        let format = Inner {
            kind,
            schema,
            malformed,
            writers,
            reader,
            protobuf,
            projections: Mutex::default(),
        };
        let format = Self(Arc::new(format));
        // What no record could fill is said before anything runs.
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        Projected::new(kind, &format.0.schema, &all, &format.json_options())
            .map_err(|problem| OptionError::table(problem, None))?;
        format.check_fixed(&all)?;
        Ok(format)
    }

    /// The columns a query sees: nullable wherever a null may come out, whatever was declared.
    pub fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    /// A decoder for the columns `projection` of [`schema`](Self::schema).
    pub fn decoder(&self, projection: &[usize]) -> SchemaDecoder {
        SchemaDecoder::new(self.clone(), self.projected(projection))
    }

    fn projected(&self, projection: &[usize]) -> Arc<Projected> {
        let mut known = self.0.projections.lock();
        if let Some((_, found)) = known.iter().find(|(columns, _)| columns == projection) {
            return Arc::clone(found);
        }
        let Inner { kind, schema, .. } = &*self.0;
        let made = Projected::new(*kind, schema, projection, &self.json_options());
        let made = Arc::new(made.expect("all columns were checked"));
        if known.len() == PROJECTIONS_MAX {
            known.remove(0);
        }
        known.push((projection.to_vec(), Arc::clone(&made)));
        made
    }

    fn json_options(&self) -> DecodeOptions {
        DecodeOptions {
            mode: self.0.malformed.mode,
            column_name_of_corrupt_record: Some(self.0.malformed.column.clone()),
            ignore_case: true,
        }
    }

    /// Makes the plan of the one schema that all records have, where there is no registry.
    fn check_fixed(&self, all: &[usize]) -> Result<(), OptionError> {
        let Writers::Fixed(parsed) = &self.0.writers else { return Ok(()) };
        let projected = self.projected(all);
        let made = projected.plan_of(parsed, self.0.reader.as_ref(), &self.0.protobuf);
        let help = "declare the columns as the schema has them, or leave them out";
        made.map(drop).map_err(|problem| OptionError::table(problem, Some(help.to_owned())))
    }
}

impl std::fmt::Debug for SchemaFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} as {}", self.0.kind, self.0.schema)
    }
}

/// The columns as a query sees them: a permissive one goes on with nulls in columns that are
/// declared NOT NULL.
fn seen(
    columns: &Schema,
    kind: SchemaKind,
    malformed: &Malformed,
) -> Result<SchemaRef, OptionError> {
    if kind == SchemaKind::Json {
        let format = crate::RecordFormat::json(columns, malformed)?;
        return Ok(Arc::clone(format.schema()));
    }
    let is_permissive = malformed.mode == ParseMode::Permissive;
    let field = |field: &Arc<Field>| {
        let nullable = field.is_nullable() || is_permissive;
        field.as_ref().clone().with_nullable(nullable)
    };
    Ok(Arc::new(Schema::new(columns.fields().iter().map(field).collect::<Vec<_>>())))
}
