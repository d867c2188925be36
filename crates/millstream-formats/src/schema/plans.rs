//! Plans: how the records of one writer become the columns of one query, made once for each.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_records::{avro, protobuf};
use millstream_sql::json::{self, DecodeOptions};
use parking_lot::Mutex;

use super::SchemaKind;
use super::parsed::Parsed;

/// Plans that are kept at most; a table has a handful of writers.
const PLANS_MAX: usize = 1_000;

/// Who wrote a record: the id of a schema and, for Protobuf, the path to a message in it.
pub(super) type Writer = (u32, Vec<i32>);

/// A plan, or why there is none.
pub(super) type Planned = Result<Plan, Arc<str>>;

/// How the records of one writer are decoded.
#[derive(Clone)]
pub(super) enum Plan {
    Avro(avro::Plan),
    Protobuf(Arc<protobuf::Plan>),
}

/// A set of columns, and the plans for it.
pub(super) struct Projected {
    pub columns: Columns,
    plans: Mutex<HashMap<Writer, Planned>>,
}

/// The columns, as decoders of each format need them.
pub(super) enum Columns {
    Avro(avro::Layout),
    Protobuf { schema: SchemaRef, projection: Vec<usize> },
    Json { schema: SchemaRef, projection: Vec<usize>, options: DecodeOptions },
}

impl Projected {
    /// The columns `projection` of `schema`, without plans.
    ///
    /// # Errors
    /// A type that the format does not have, in words.
    pub fn new(
        kind: SchemaKind,
        schema: &SchemaRef,
        projection: &[usize],
        options: &DecodeOptions,
    ) -> Result<Self, String> {
        let (schema, projection) = (Arc::clone(schema), projection.to_vec());
        let columns = match kind {
            SchemaKind::Avro => {
                let layout = avro::Layout::new(&schema, &projection);
                Columns::Avro(layout.map_err(|error| error.to_string())?)
            }
            SchemaKind::Protobuf => {
                let decoder = protobuf::Decoder::new(&schema, &projection);
                decoder.map_err(|error| error.to_string())?;
                Columns::Protobuf { schema, projection }
            }
            SchemaKind::Json => {
                let options = options.clone();
                let decoder = json::Decoder::new(&schema, &projection, options.clone());
                decoder.map_err(|error| error.to_string())?;
                Columns::Json { schema, projection, options }
            }
        };
        Ok(Self { columns, plans: Mutex::default() })
    }

    /// The plan for a writer; `make` is called for the first record of each.
    pub fn plan<E>(
        &self,
        writer: &Writer,
        make: impl FnOnce() -> Result<Planned, E>,
    ) -> Result<Planned, E> {
        if let Some(known) = self.plans.lock().get(writer) {
            return Ok(known.clone());
        }
        let made = make()?;
        let mut plans = self.plans.lock();
        if plans.len() >= PLANS_MAX {
            plans.clear();
        }
        plans.insert(writer.clone(), made.clone());
        Ok(made)
    }

    /// Makes a plan for the records of `writer`, read as the schema `reader` if there is one.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn plan_of(
        &self,
        writer: &Parsed,
        reader: Option<&Parsed>,
        options: &protobuf::Options,
    ) -> Result<Plan, String> {
        match (&self.columns, writer) {
            (Columns::Avro(layout), Parsed::Avro(writer)) => {
                let target = reader.map_or(avro::Target::Declared, Parsed::as_target);
                let plan = avro::Plan::new(writer, target, layout);
                plan.map(Plan::Avro).map_err(|error| error.to_string())
            }
            (Columns::Protobuf { schema, projection }, Parsed::Protobuf(writer)) => {
                let plan = protobuf::Plan::new(writer, options, schema, projection);
                let plan = plan.map_err(|error| error.to_string())?;
                Ok(Plan::Protobuf(Arc::new(plan)))
            }
            _ => Err("it is of another format than the table".to_owned()),
        }
    }
}
