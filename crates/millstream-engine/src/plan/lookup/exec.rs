//! Looking up the rows of a micro-batch.
//!
//! ```text
//! rows of the input ──▶ distinct keys ──▶ the cache knows some ──▶ the table is asked for the rest
//!         └──────────────────────────── a row for each, in order ◀──────────────┘
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{cast, concat, interleave, take};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream, StatisticsArgs,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use thiserror::Error;

use super::cache::Cache;
use super::table::{Opened, PlannedLookup};
use crate::api::source::{Classified, Kind};
use crate::failures::into_datafusion;
use crate::plan::stream_scan::{BYTES_PRETENDED, ROWS_PRETENDED};

/// What is looked up, and where.
#[derive(Clone)]
pub(super) struct LookUp {
    /// By key column, what it is compared with.
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) table: Arc<PlannedLookup>,
    /// What is asked of the table, as indices into its columns.
    pub(super) columns: Vec<usize>,
    pub(super) cache: Option<Arc<Mutex<Cache>>>,
}

/// What must not happen.
#[derive(Debug, Error)]
enum LookUpBug {
    #[error("the look-up table '{table}' was not opened before the plan ran")]
    NotOpened { table: String },
    #[error("the look-up table '{table}' was asked for {asked} keys and answered for {answered}")]
    Answer { table: String, asked: usize, answered: usize },
}

impl Classified for LookUpBug {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}

/// No distinct key: a part of the key is NULL, which equals nothing.
const NO_KEY: u32 = u32::MAX;

/// The keys of a micro-batch.
struct Asked {
    /// Each distinct key's first row among those of all record batches.
    first: Vec<u32>,
    /// By row, its key's place among the distinct ones, or [`NO_KEY`].
    of_row: Vec<u32>,
    /// The key columns of all rows.
    columns: Vec<ArrayRef>,
    /// The same in Arrow's row format.
    rows: Rows,
}

/// What is known of the keys: rows in pieces, of which the first is one row of NULLs.
struct Known {
    pieces: Vec<RecordBatch>,
    /// By distinct key, the piece and the row there.
    at: Vec<Option<(usize, usize)>>,
}

impl LookUp {
    /// `batches` with the columns of the table behind their own, and whether there is a row.
    async fn rows(
        &self,
        batches: Vec<RecordBatch>,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        if batches.is_empty() {
            return Ok(batches);
        }
        let asked = self.asked(&batches)?;
        let known = self.known(&asked).await?;
        let mut begin = 0;
        let widened = batches.into_iter().map(|rows| {
            let end = begin + rows.num_rows();
            let keys = &asked.of_row[begin..end];
            begin = end;
            known.append(&rows, keys, schema)
        });
        widened.collect()
    }

    fn asked(&self, batches: &[RecordBatch]) -> Result<Asked> {
        let mut columns = Vec::with_capacity(self.keys.len());
        for (key, column) in self.keys.iter().zip(self.table.key()) {
            let wanted = self.table.columns().field(*column).data_type();
            let values = batches.iter().map(|rows| {
                let values = key.evaluate(rows)?.into_array(rows.num_rows())?;
                Ok(if values.data_type() == wanted { values } else { cast(&values, wanted)? })
            });
            let values = values.collect::<Result<Vec<_>>>()?;
            let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&values)?);
        }
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
        let rows = RowConverter::new(fields.collect())?.convert_columns(&columns)?;
        let (mut first, mut of_row) = (Vec::new(), Vec::with_capacity(rows.num_rows()));
        let mut distinct = HashMap::new();
        for at in 0..rows.num_rows() {
            if columns.iter().any(|column| column.is_null(at)) {
                of_row.push(NO_KEY);
                continue;
            }
            let row = rows.row(at);
            let next = place(first.len())?;
            let known = *distinct.entry(row).or_insert(next);
            if known == next {
                first.push(place(at)?);
            }
            of_row.push(known);
        }
        drop(distinct);
        Ok(Asked { first, of_row, columns, rows })
    }

    async fn known(&self, asked: &Asked) -> Result<Known> {
        let bug = |bug: LookUpBug| into_datafusion(bug.into());
        let not_opened = || bug(LookUpBug::NotOpened { table: self.table.name().to_owned() });
        let Opened { table, env } = self.table.opened().ok_or_else(not_opened)?;
        let schema = Arc::new(self.table.columns().project(&self.columns)?);
        let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1));
        let nulls = batch(&schema, nulls.collect(), 1)?;
        let mut known = Known { pieces: vec![nulls], at: vec![None; asked.first.len()] };
        // Before the question: what changes meanwhile may be in the answer or not.
        let now = env.monotonic();
        let unknown = self.add_cached(asked, &mut known, &schema, now)?;
        for keys in unknown.chunks(table.keys_max().max(1)) {
            let rows = keys.iter().map(|key| asked.first[*key as usize]);
            let rows = UInt32Array::from_iter_values(rows);
            let columns = asked.columns.iter().map(|column| take(column, &rows, None));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let answer = table.look_up(&columns, &self.columns).await.map_err(into_datafusion)?;
            let answered = answer.rows.num_rows();
            if answered != keys.len() || answer.found.len() != answered {
                let (table, asked) = (self.table.name().to_owned(), keys.len());
                return Err(bug(LookUpBug::Answer { table, asked, answered }));
            }
            let rows = batch(&schema, answer.rows.columns().to_vec(), answered)?;
            self.remember(asked, keys, &rows, &answer.found, now)?;
            for (row, key) in keys.iter().enumerate() {
                if answer.found.value(row) {
                    known.at[*key as usize] = Some((known.pieces.len(), row));
                }
            }
            known.pieces.push(rows);
        }
        Ok(known)
    }

    /// Adds what the cache knows to `known`; gives the distinct keys that it does not know.
    fn add_cached(
        &self,
        asked: &Asked,
        known: &mut Known,
        schema: &SchemaRef,
        now: std::time::Duration,
    ) -> Result<Vec<u32>> {
        let all = || (0..).take(asked.first.len());
        let Some(cache) = &self.cache else { return Ok(all().collect()) };
        let converter = converter(schema)?;
        let parser = converter.parser();
        let (mut unknown, mut rows) = (Vec::new(), Vec::new());
        let mut cache = cache.lock();
        cache.expire(now);
        for (key, first) in all().zip(&asked.first) {
            match cache.get(asked.rows.row(*first as usize).data(), now) {
                None => unknown.push(key),
                Some(None) => {}
                Some(Some(row)) => {
                    known.at[key as usize] = Some((known.pieces.len(), rows.len()));
                    rows.push(row);
                }
            }
        }
        drop(cache);
        if !rows.is_empty() {
            let columns = match schema.fields().is_empty() {
                true => Vec::new(),
                false => converter.convert_rows(rows.iter().map(|row| parser.parse(row)))?,
            };
            known.pieces.push(batch(schema, columns, rows.len())?);
        }
        Ok(unknown)
    }

    fn remember(
        &self,
        asked: &Asked,
        keys: &[u32],
        rows: &RecordBatch,
        found: &arrow::buffer::BooleanBuffer,
        now: std::time::Duration,
    ) -> Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let columns = rows.columns();
        let encoded = match columns.is_empty() {
            true => None,
            false => Some(converter(&rows.schema())?.convert_columns(columns)?),
        };
        let mut cache = cache.lock();
        for (row, key) in keys.iter().enumerate() {
            let key = asked.rows.row(asked.first[*key as usize] as usize);
            let encoded = encoded.as_ref().map(|encoded| encoded.row(row));
            let value = encoded.as_ref().map_or(&[][..], |encoded| encoded.data());
            cache.put(key.data(), found.value(row).then_some(value), now);
        }
        Ok(())
    }
}

impl Known {
    fn append(&self, rows: &RecordBatch, keys: &[u32], schema: &SchemaRef) -> Result<RecordBatch> {
        let at = keys.iter().map(|key| match key {
            &NO_KEY => None,
            key => self.at[*key as usize],
        });
        let at: Vec<Option<(usize, usize)>> = at.collect();
        let found: BooleanArray = at.iter().map(|at| Some(at.is_some())).collect();
        let at: Vec<(usize, usize)> = at.into_iter().map(Option::unwrap_or_default).collect();
        let mut columns = rows.columns().to_vec();
        for column in 0..self.pieces[0].num_columns() {
            let pieces = self.pieces.iter().map(|piece| piece.column(column).as_ref());
            let pieces: Vec<&dyn Array> = pieces.collect();
            columns.push(interleave(&pieces, &at)?);
        }
        columns.push(Arc::new(found));
        batch(schema, columns, rows.num_rows())
    }
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn converter(schema: &SchemaRef) -> Result<RowConverter> {
    let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

fn place(at: usize) -> Result<u32> {
    let place = u32::try_from(at).ok().filter(|place| *place != NO_KEY);
    place.ok_or_else(|| DataFusionError::Execution("a micro-batch has too many rows".to_owned()))
}

/// The plan's node; see the module's head.
pub(super) struct LookUpExec {
    input: Arc<dyn ExecutionPlan>,
    look_up: LookUp,
    properties: Arc<PlanProperties>,
}

impl LookUpExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, look_up: LookUp, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, look_up, properties: Arc::new(properties) }
    }
}

impl fmt::Debug for LookUpExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LookUpExec({})", self.look_up.table.name())
    }
}

impl DisplayAs for LookUpExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.look_up.keys.iter().map(ToString::to_string).collect();
        write!(f, "LookUpExec: {} by {}", self.look_up.table.name(), keys.join(", "))
    }
}

impl ExecutionPlan for LookUpExec {
    fn name(&self) -> &str {
        "LookUpExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut recursion = TreeNodeRecursion::Continue;
        for key in &self.look_up.keys {
            recursion = visit(key)?;
            if recursion == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(recursion)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(input, self.look_up.clone(), self.schema())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(input, self.look_up.clone(), self.schema())))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (look_up, schema) = (self.look_up.clone(), self.schema());
        let rows = stream::once(async move {
            let filled = input.try_filter(|rows| futures::future::ready(rows.num_rows() > 0));
            // All of the partition's rows: their keys are asked for together, each once.
            let rows = look_up.rows(filled.try_collect().await?, &schema).await?;
            Ok::<_, DataFusionError>(stream::iter(rows).map(Ok))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.try_flatten())))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        // As its input, a stream: a join above collects its other side.
        let statistics = Statistics::new_unknown(&self.schema())
            .with_num_rows(Precision::Inexact(ROWS_PRETENDED))
            .with_total_byte_size(Precision::Inexact(BYTES_PRETENDED));
        Ok(Arc::new(statistics))
    }
}
