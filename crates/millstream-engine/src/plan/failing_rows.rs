//! Finding the rows with which a plan fails.
//!
//! A plan runs over a micro-batch as a whole, and the error of an expression does not say which
//! row it was. So when a run fails, its records are decoded once more, and the plan runs over
//! halves of what failed until single rows are left. That costs a good micro-batch nothing but the
//! handles of its records, and a bad one about as many small runs for each bad row as its rows can
//! be halved.
//!
//! A row is bad if the plan fails with it alone. That depends on the row only and not on the rows
//! beside it: a replay finds the same ones, however the input is cut. The converse is not so, as
//! expressions are computed over many rows at once: `a <> 0 AND b / a > 1` may divide by an `a`
//! that is 0. Rows that fail only together with others are computed in smaller pieces here, and
//! give their result.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use millstream_sql::json;
use millstream_store::env::Env;
use thiserror::Error;

use super::query_plan::QueryPlan;
use super::row_error::{Remedy, RowError};
use crate::api::dead_letter::{Letter, Place};
use crate::api::error::ArrowBug;
use crate::api::settings::OnError;
use crate::api::source::{
    Classified, Failure, Kind, RecordBatches, Records, SourcePartition, Split,
};
use crate::failures::{ComputeError, is_computed};

/// Ranges of so many rows are not halved any more: with many bad rows that would double the runs.
const ROWS_ONE_BY_ONE: usize = 8;

/// The records of a micro-batch, by source of the plan.
pub(crate) type Kept = Vec<Vec<Arc<dyn Records>>>;

/// A record among those of a micro-batch: its source, the place of its [`Records`] among those of
/// the source, and its number there.
pub(crate) type RecordId = (usize, usize, u64);

/// The result of a plan's run.
#[derive(Default)]
pub struct RunOutcome {
    /// The result, by partition.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// The records that were rejected, in order.
    pub(crate) rejected: Vec<Rejected>,
}

/// A record that an expression rejected.
pub(crate) struct Rejected {
    pub(crate) id: RecordId,
    pub(crate) letter: Letter,
}

/// The records of `inputs`; `None` where a split has rows and does not know their records.
pub(crate) fn kept(inputs: &[Vec<Box<dyn Split>>]) -> Option<Kept> {
    inputs.iter().map(|splits| records_of(splits)).collect()
}

/// The records of one source's splits; `None` where a split does not know them.
pub(crate) fn records_of(splits: &[Box<dyn Split>]) -> Option<Vec<Arc<dyn Records>>> {
    let mut all = Vec::with_capacity(splits.len());
    for split in splits {
        let records = split.records();
        if records.is_empty() && split.rows() > 0 {
            return None;
        }
        all.extend(records);
    }
    Some(all)
}

/// Rows of some records, decoded once more.
struct Loaded {
    source: usize,
    /// The place of the records among those of the source.
    place: usize,
    records: Arc<dyn Records>,
    rows: RecordBatch,
    numbers: Vec<u64>,
}

/// The place of a row: the index in `loaded`, and the row there.
type RowAt = (usize, usize);

struct RejectingRun<'a> {
    plan: &'a mut QueryPlan,
    env: &'a Env,
    on_error: OnError,
    loaded: Vec<Loaded>,
    rows: Vec<RowAt>,
    outcome: RunOutcome,
    /// True once the plan has run without rows: a plan that fails even then is not failed by a row.
    is_sound: bool,
}

impl QueryPlan {
    /// As [`Self::run`]; where that fails with some rows, they are rejected, or the failure says
    /// which it is and what fails with it.
    pub(crate) async fn run_rejecting(
        &mut self,
        env: &Env,
        inputs: Vec<Vec<Box<dyn Split>>>,
    ) -> Result<RunOutcome, Failure> {
        let kept = kept(&inputs);
        match (self.run(env, inputs).await, kept) {
            (Ok(partitions), _) => Ok(RunOutcome { partitions, rejected: Vec::new() }),
            (Err(failure), Some(kept)) if is_computed(&failure) => {
                tracing::debug!(%failure, "the rows of a micro-batch are looked at one by one");
                self.run_in_pieces(env, kept, &BTreeSet::new()).await
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Runs the plan over the rows of the records `kept`, but for `without`, in as many pieces as
    /// are needed.
    pub(crate) async fn run_in_pieces(
        &mut self,
        env: &Env,
        kept: Kept,
        without: &BTreeSet<RecordId>,
    ) -> Result<RunOutcome, Failure> {
        let partitions = self.output_partitions();
        let on_error = self.on_error();
        self.forget_event_times();
        let loaded = self.load(kept)?;
        let mut rows = Vec::new();
        for (at, part) in loaded.iter().enumerate() {
            let is_wanted = |row: &usize| !without.contains(&part.id(*row));
            rows.extend((0..part.rows.num_rows()).filter(is_wanted).map(|row| (at, row)));
        }
        let outcome = RunOutcome { partitions: vec![Vec::new(); partitions], rejected: Vec::new() };
        let is_sound = false;
        let mut run = RejectingRun { plan: self, env, on_error, loaded, rows, outcome, is_sound };
        run.all().await?;
        Ok(run.outcome)
    }

    /// The place of the first record from which alone the plan makes rows that are `wanted`.
    /// Records that the plan cannot compute are passed over.
    pub(crate) async fn place_of_row(
        &mut self,
        env: &Env,
        kept: Kept,
        is_wanted: &(dyn Fn(Vec<RecordBatch>) -> bool + Sync),
    ) -> Option<Place> {
        let loaded = self.load(kept).ok()?;
        let places =
            |(at, part): (usize, &Loaded)| (0..part.rows.num_rows()).map(move |row| (at, row));
        let rows: Vec<RowAt> = loaded.iter().enumerate().flat_map(places).collect();
        let mut ranges: Vec<_> = std::iter::once(0..rows.len()).collect();
        while let Some(range) = ranges.pop().filter(|range| !range.is_empty()) {
            let inputs = inputs(self, &loaded, &rows[range.clone()]);
            let is_found = match self.run_here(env, inputs).await {
                Ok(made) => {
                    if !is_wanted(made) {
                        continue;
                    }
                    true
                }
                Err(failure) if is_computed(&failure) => false,
                Err(_) => return None,
            };
            if range.len() == 1 {
                if is_found {
                    let (at, row) = rows[range.start];
                    let letter = loaded[at].records.letter(loaded[at].numbers[row]);
                    return letter.ok()?.place;
                }
                continue;
            }
            let middle = range.start + range.len() / 2;
            ranges.push(middle..range.end);
            ranges.push(range.start..middle);
        }
        None
    }

    /// Decodes the records of the sources that the plan reads.
    fn load(&self, kept: Kept) -> Result<Vec<Loaded>, Failure> {
        let mut loaded = Vec::new();
        for (source, (all, columns)) in kept.into_iter().zip(self.columns_read()).enumerate() {
            let Some(columns) = columns else { continue };
            for (place, records) in all.into_iter().enumerate() {
                for traced in records.read(&columns, false)? {
                    let (rows, numbers) = (traced.rows, traced.numbers);
                    if rows.num_rows() != numbers.len() {
                        return Err(RereadError::Records.into());
                    }
                    let records = Arc::clone(&records);
                    loaded.push(Loaded { source, place, records, rows, numbers });
                }
            }
        }
        Ok(loaded)
    }
}

impl Loaded {
    fn id(&self, row: usize) -> RecordId {
        (self.source, self.place, self.numbers[row])
    }
}

impl RejectingRun<'_> {
    /// Halves what fails until it is one row, in order.
    async fn all(&mut self) -> Result<(), Failure> {
        let mut ranges = Vec::new();
        ranges.push(0..self.rows.len());
        while let Some(range) = ranges.pop().filter(|range| !range.is_empty()) {
            let Err(failure) = self.run(range.clone()).await else { continue };
            if !is_computed(&failure) {
                return Err(failure);
            }
            match range.len() {
                1 => self.reject(range.start, failure).await?,
                2..=ROWS_ONE_BY_ONE => ranges.extend(range.rev().map(|row| row..row + 1)),
                rows => {
                    let middle = range.start + rows / 2;
                    ranges.push(middle..range.end);
                    ranges.push(range.start..middle);
                }
            }
        }
        Ok(())
    }

    /// Runs the plan over some rows, and keeps the result.
    async fn run(&mut self, range: Range<usize>) -> Result<(), Failure> {
        let seen = self.plan.take_event_times();
        let inputs = self.inputs(range);
        let ran = self.plan.run_here(self.env, inputs).await;
        // The times of a run that failed must not move the watermark: its rows run again in
        // halves, and those that are rejected do not count.
        if ran.is_err() {
            self.plan.forget_event_times();
        }
        self.plan.put_back_event_times(seen);
        // All into one partition: runs follow each other in the order of the rows, which several
        // partitions would lose.
        self.outcome.partitions[0].extend(ran?);
        Ok(())
    }

    fn inputs(&self, range: Range<usize>) -> Vec<Vec<Box<dyn Split>>> {
        inputs(self.plan, &self.loaded, &self.rows[range])
    }

    /// Rejects a row that fails by itself, or returns its error.
    async fn reject(&mut self, row: usize, failure: Failure) -> Result<(), Failure> {
        if !self.is_sound {
            let seen = self.plan.take_event_times();
            let nothing = self.plan.scans().iter().map(|_| Vec::new()).collect();
            let ran = self.plan.run_here(self.env, nothing).await;
            self.plan.put_back_event_times(seen);
            ran?;
            self.is_sound = true;
        }
        let error = self.explain(row, failure).await;
        let (at, row) = self.rows[row];
        let of = &self.loaded[at];
        if self.on_error == OnError::Fail || error.place.is_none() {
            return Err(error.into());
        }
        let mut letter = of.records.letter(of.numbers[row])?;
        if letter.payload.is_none() && letter.key.is_none() {
            letter.payload = self.shown(at, row).map(String::into_bytes);
        }
        letter.error = error.in_short();
        self.outcome.rejected.push(Rejected { id: of.id(row), letter });
        Ok(())
    }

    /// A row as JSON.
    fn shown(&self, at: usize, row: usize) -> Option<String> {
        let of = &self.loaded[at];
        let mut rows = of.rows.clone();
        if let Some(names) = of.records.names() {
            let columns = self.plan.columns_read()[of.source].clone()?;
            let fields = columns.iter().zip(rows.schema_ref().fields()).map(|(column, field)| {
                field.as_ref().clone().with_name(names.get(*column).unwrap_or(field.name()))
            });
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            rows = RecordBatch::try_new(schema, rows.columns().to_vec()).ok()?;
        }
        json::row(&rows, row).ok()
    }

    /// The error that names the row, and the part of the query that fails with it.
    async fn explain(&mut self, row: usize, failure: Failure) -> RowError {
        let seen = self.plan.take_event_times();
        let culprit = self.plan.culprit(|| self.inputs(row..row + 1)).await;
        self.plan.forget_event_times();
        self.plan.put_back_event_times(seen);
        let (at, row) = self.rows[row];
        let of = &self.loaded[at];
        let letter = of.records.letter(of.numbers[row]);
        let place = letter.ok().and_then(|letter| letter.place);
        let names = of.records.names();
        let computed = failure.cause().downcast_ref::<ComputeError>();
        let problem = computed.map_or_else(|| failure.to_string(), |error| error.problem.clone());
        RowError {
            problem,
            row: place.is_none().then(|| self.shown(at, row)).flatten(),
            place,
            in_sql: culprit.as_ref().map(|culprit| self.plan.place_of(culprit)),
            values: culprit.map(|culprit| named(culprit.values, names)).unwrap_or_default(),
            remedy: match self.on_error {
                OnError::Fail => Remedy::OfStream,
                OnError::DeadLetter => Remedy::OfStreamWithDeadLetters,
            },
        }
    }
}

/// `rows` of what was `loaded` as input of the plan.
fn inputs(plan: &QueryPlan, loaded: &[Loaded], rows: &[RowAt]) -> Vec<Vec<Box<dyn Split>>> {
    let mut inputs: Vec<Vec<Box<dyn Split>>> = plan.scans().iter().map(|_| Vec::new()).collect();
    let columns = plan.columns_read();
    for piece in rows.chunk_by(|one, next| *next == (one.0, one.1 + 1)) {
        let (at, first) = piece[0];
        let of = &loaded[at];
        let Some(columns) = &columns[of.source] else { continue };
        inputs[of.source].push(Box::new(InputRows {
            columns: columns.clone(),
            rows: of.rows.slice(first, piece.len()),
            partition: of.records.partition(),
        }));
    }
    inputs
}

/// Values by columns of an operator's output, under the names that these have in the query.
fn named(values: Vec<(String, String)>, names: Option<&[String]>) -> Vec<(String, String)> {
    let name = |plain: String| {
        let index: Option<usize> = plain.strip_prefix('c').and_then(|index| index.parse().ok());
        let known = index.and_then(|index| names?.get(index));
        known.cloned().unwrap_or(plain)
    };
    values.into_iter().map(|(plain, value)| (name(plain), value)).collect()
}

/// Why records cannot be looked at one by one: each is a fault of this program.
#[derive(Debug, Error)]
enum RereadError {
    /// A source gives rows without saying of which records.
    #[error("rows and their records differ")]
    Records,
    /// A plan is run again, and reads more than at first.
    #[error("a plan asks for a column that it did not read before")]
    Column,
}

impl Classified for RereadError {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}

/// Some rows as input.
struct InputRows {
    /// Which columns of the source they have, ascending or not.
    columns: Vec<usize>,
    rows: RecordBatch,
    partition: Option<SourcePartition>,
}

impl Split for InputRows {
    fn rows(&self) -> u64 {
        self.rows.num_rows() as u64
    }

    fn partition(&self) -> Option<SourcePartition> {
        self.partition
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let place = |column: &usize| self.columns.iter().position(|own| own == column);
        let places: Option<Vec<usize>> = projection.iter().map(place).collect();
        let picked = match places {
            Some(places) => self.rows.project(&places).map_err(|error| ArrowBug(error).into()),
            None => Err(RereadError::Column.into()),
        };
        Box::new(std::iter::once(picked))
    }
}
