//! What an aggregation over a stream consists of.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StructArray, TimestampMicrosecondArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::state::keyed::Keyed;
use crate::state::shard::ShardSpec;

/// The group column by which groups are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeKey {
    /// Its place among the group columns.
    pub column: usize,
    /// The kind of time.
    pub kind: TimeKind,
}

/// What a group's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// A window of this length; the partial rows have its end.
    Window {
        /// Microseconds.
        size_us: i64,
    },
    /// A session; the partial rows have it whole.
    Session,
    /// A session that no watermark closes.
    EndlessSession,
    /// An event time itself.
    Instant,
}

impl TimeKind {
    /// Whether rows of one group may have different values of it.
    pub fn is_session(self) -> bool {
        matches!(self, Self::Session | Self::EndlessSession)
    }
}

/// An aggregation: keys, functions, and the columns of its results.
///
/// Its input are partial aggregates: rows of the group columns (a window's end in the place of a
/// window) and then the functions' states, any number of rows for a group.
pub struct AggregateSpec {
    keys: Vec<FieldRef>,
    time: Option<TimeKey>,
    functions: Vec<Arc<AggregateFunctionExpr>>,
    /// By function, how many columns its state has.
    widths: Vec<usize>,
    input: SchemaRef,
    output: SchemaRef,
    others: SchemaRef,
}

impl AggregateSpec {
    /// `input` is the schema of the partial rows, `output` of the results: group columns, then a
    /// column per function.
    pub fn new(
        keys: usize,
        time: Option<TimeKey>,
        functions: Vec<Arc<AggregateFunctionExpr>>,
        input: SchemaRef,
        output: SchemaRef,
    ) -> Result<Self> {
        let widths = functions.iter().map(|function| Ok(function.state_fields()?.len()));
        let widths = widths.collect::<Result<_>>()?;
        let keys: Vec<FieldRef> = input.fields()[..keys].to_vec();
        let time_column = time.map(|time| time.column);
        let others = keys.iter().enumerate().filter(|(index, _)| Some(*index) != time_column);
        let others = Schema::new(others.map(|(_, key)| Arc::clone(key)).collect::<Vec<_>>());
        let others = Arc::new(others);
        Ok(Self { keys, time, functions, widths, input, output, others })
    }

    /// The schema of the partial rows.
    pub fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// The group column by which groups are closed.
    pub fn time(&self) -> Option<TimeKey> {
        self.time
    }

    /// The group columns without that one.
    pub fn others(&self) -> &SchemaRef {
        &self.others
    }

    /// How many group columns there are.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The columns of [`Self::others`] among those of a partial row.
    pub fn other_columns(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        let time_column = self.time.map(|time| time.column);
        let keys = columns[..self.keys.len()].iter().enumerate();
        keys.filter(|(index, _)| Some(*index) != time_column)
            .map(|(_, key)| Arc::clone(key))
            .collect()
    }

    /// Fresh accumulators, one per function.
    pub fn accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        self.functions.iter().map(accumulator).collect()
    }

    /// Merges the partial rows of `parts`, each with the groups of its rows, into fresh
    /// accumulators. Every one of `total` groups is among them.
    pub fn merged<'a>(
        &self,
        parts: impl IntoIterator<Item = (&'a RecordBatch, &'a [usize])>,
        total: usize,
    ) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        let (rows, groups): (Vec<&RecordBatch>, Vec<&[usize]>) = parts.into_iter().unzip();
        let rows = concat_batches(&self.input, rows)?;
        let mut accumulators = self.accumulators()?;
        self.merge(&mut accumulators, rows.columns(), &groups.concat(), total)?;
        Ok(accumulators)
    }

    /// Merges partial rows into accumulators. `groups` has the group of each row, of `total`.
    /// Each new group must have a row: an accumulator that gets no row for a group would treat it
    /// as one that has values.
    pub fn merge(
        &self,
        accumulators: &mut [Box<dyn GroupsAccumulator>],
        columns: &[ArrayRef],
        groups: &[usize],
        total: usize,
    ) -> Result<()> {
        let mut states = &columns[self.keys.len()..];
        for (width, accumulator) in self.widths.iter().zip(accumulators) {
            let (own, rest) = states.split_at(*width);
            accumulator.merge_batch(own, groups, total)?;
            states = rest;
        }
        Ok(())
    }

    /// The group columns of partial rows, from the columns of [`Self::others`] and the time,
    /// which is the same for all `groups`.
    pub fn key_columns(&self, others: Vec<ArrayRef>, time_us: i64, groups: usize) -> Vec<ArrayRef> {
        let mut others = others.into_iter();
        let column = |index: usize| match self.time {
            Some(time) if time.column == index => {
                let times = TimestampMicrosecondArray::from_value(time_us, groups);
                let data_type = self.input.field(index).data_type().clone();
                Arc::new(times.with_data_type(data_type))
            }
            _ => others.next().expect("a key column each"),
        };
        (0..self.keys.len()).map(column).collect()
    }

    /// The results of all groups, which have the group columns `keys` of partial rows.
    pub fn results(
        &self,
        keys: &[ArrayRef],
        accumulators: &mut [Box<dyn GroupsAccumulator>],
    ) -> Result<RecordBatch> {
        let key = |(index, key): (usize, &ArrayRef)| match self.time {
            Some(TimeKey { column, kind: TimeKind::Window { size_us } }) if column == index => {
                windows(key, size_us, self.output.field(index).data_type())
            }
            _ => Arc::clone(key),
        };
        let mut columns: Vec<ArrayRef> = keys.iter().enumerate().map(key).collect();
        for accumulator in accumulators {
            columns.push(accumulator.evaluate(EmitTo::All)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.output), columns)?)
    }

    /// All groups as partial rows with the group columns `keys`.
    pub fn states(
        &self,
        keys: Vec<ArrayRef>,
        accumulators: &mut [Box<dyn GroupsAccumulator>],
    ) -> Result<RecordBatch> {
        let mut columns = keys;
        for accumulator in accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.input), columns)?)
    }
}

/// The results of groups whose partial rows are `states`, one each.
pub fn results_of(spec: &AggregateSpec, states: &RecordBatch) -> Result<RecordBatch> {
    let groups: Vec<usize> = (0..states.num_rows()).collect();
    let mut accumulators = spec.accumulators()?;
    spec.merge(&mut accumulators, states.columns(), &groups, groups.len())?;
    spec.results(&states.columns()[..spec.key_count()], &mut accumulators)
}

/// As [`results_of`], of everything in `states`.
pub fn results_of_all(spec: &AggregateSpec, states: &Keyed) -> Result<Vec<RecordBatch>> {
    states.all()?.iter().map(|states| results_of(spec, states)).collect()
}

impl ShardSpec for AggregateSpec {
    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn inputs(&self) -> Vec<SchemaRef> {
        vec![Arc::clone(&self.input)]
    }

    fn keys(&self, _: usize, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.other_columns(columns)
    }
}

/// The windows of a length that end at `ends`.
fn windows(ends: &ArrayRef, size_us: i64, data_type: &DataType) -> ArrayRef {
    let DataType::Struct(fields) = data_type else { return Arc::clone(ends) };
    let ends = ends.as_primitive::<TimestampMicrosecondType>();
    let starts = ends.unary::<_, TimestampMicrosecondType>(|end| end - size_us);
    let typed = |times: TimestampMicrosecondArray, index: usize| -> ArrayRef {
        Arc::new(times.with_data_type(fields[index].data_type().clone()))
    };
    let columns = vec![typed(starts, 0), typed(ends.clone(), 1)];
    Arc::new(StructArray::new(fields.clone(), columns, None))
}

fn accumulator(function: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    if function.groups_accumulator_supported() {
        return function.create_groups_accumulator();
    }
    let function = Arc::clone(function);
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || function.create_accumulator())))
}
