//! The events of each group, kept until the result is asked for: 16 bytes each.

use std::sync::Arc;

use arrow::array::builder::{Int32Builder, Int64Builder, ListBuilder};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::super::grouped::{is_let_through, states_of_rows};
use super::{Event, conditions_met, times};

/// What a function makes of the events of a group.
pub(super) trait Question: Clone + Send + Sync + 'static {
    /// The results, of groups whose events are in order.
    fn answers(&self, groups: &[Vec<Event>]) -> Result<ArrayRef>;
}

/// The types of the partial state: the times, and the conditions met at each.
pub(super) fn state(_: &[DataType]) -> Vec<DataType> {
    vec![DataType::new_list(DataType::Int64, true), DataType::new_list(DataType::Int32, true)]
}

/// An accumulator that keeps events.
pub(super) struct Kept<Q> {
    groups: Vec<Vec<Event>>,
    /// How many events there is room for in all groups.
    room: usize,
    /// The argument that is the time; the conditions are the arguments after it.
    time_at: usize,
    /// Rows that meet no condition are kept too.
    all_rows: bool,
    question: Q,
}

impl<Q: Question> Kept<Q> {
    pub fn new(question: Q, time_at: usize, all_rows: bool) -> Self {
        Self { groups: Vec::new(), room: 0, time_at, all_rows, question }
    }

    fn add(&mut self, group: usize, events: impl Iterator<Item = Event>) {
        let kept = &mut self.groups[group];
        let before = kept.capacity();
        kept.extend(events);
        self.room += kept.capacity() - before;
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Vec<Event>> {
        let mut taken = emit_to.take_needed(&mut self.groups);
        let room: usize = taken.iter().map(Vec::capacity).sum();
        self.room = self.room.saturating_sub(room);
        taken.iter_mut().for_each(|events| events.sort_unstable());
        taken
    }
}

impl<Q: Question> GroupsAccumulator for Kept<Q> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize_with(count, Vec::new);
        let column = &values[self.time_at];
        let (times, met) =
            (times(column), conditions_met(&values[self.time_at + 1..], groups.len()));
        for (row, group) in groups.iter().enumerate() {
            let counts = column.is_valid(row) && (self.all_rows || met[row] != 0);
            if counts && is_let_through(filter, row) {
                self.add(*group, std::iter::once(Event::new(times[row], met[row])));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.groups.resize_with(count, Vec::new);
        let (times, met) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        let all_times = times.values().as_primitive::<Int64Type>().values();
        let all_met = met.values().as_primitive::<Int32Type>().values();
        let range = |list: &ListArray, row: usize| {
            list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize
        };
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| times.is_valid(*row)) {
            let events = all_times[range(times, row)].iter().zip(&all_met[range(met, row)]);
            self.add(*group, events.map(|(time, met)| Event::new(*time, met.cast_unsigned())));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit_to);
        self.question.answers(&groups)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let mut times = ListBuilder::new(Int64Builder::new());
        let mut met = ListBuilder::new(Int32Builder::new());
        for events in groups {
            for event in events {
                times.values().append_value(event.time);
                met.values().append_value(event.met.cast_signed());
            }
            times.append(true);
            met.append(true);
        }
        Ok(vec![Arc::new(times.finish()), Arc::new(met.finish())])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let empty = Self::new(self.question.clone(), self.time_at, self.all_rows);
        states_of_rows(empty, values, filter)
    }

    fn size(&self) -> usize {
        self.room * size_of::<Event>() + self.groups.capacity() * size_of::<Vec<Event>>()
    }
}
