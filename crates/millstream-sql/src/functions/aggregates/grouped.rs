//! Adapts accumulators of many groups to a single group.

use std::fmt;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, BooleanArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use parking_lot::Mutex;

/// True for a row that a call's FILTER lets through.
pub(super) fn is_let_through(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Does something with the group and the value of each row that has one and is let through.
#[inline]
pub(super) fn try_for_each<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    groups: &[usize],
    filter: Option<&BooleanArray>,
    mut work: impl FnMut(usize, T::Native) -> Result<()>,
) -> Result<()> {
    if values.null_count() == 0 && filter.is_none() {
        // Most columns: a loop without questions is several times as fast.
        let mut rows = groups.iter().zip(values.values());
        return rows.try_for_each(|(group, value)| work(*group, *value));
    }
    for (row, group) in groups.iter().enumerate() {
        if values.is_valid(row) && is_let_through(filter, row) {
            work(*group, values.value(row))?;
        }
    }
    Ok(())
}

/// The partial states of rows that are each a group of their own, from an accumulator without
/// rows.
pub(super) fn states_of_rows(
    mut empty: impl GroupsAccumulator,
    values: &[ArrayRef],
    filter: Option<&BooleanArray>,
) -> Result<Vec<ArrayRef>> {
    let groups: Vec<usize> = (0..values[0].len()).collect();
    empty.update_batch(values, &groups, filter, groups.len())?;
    empty.state(EmitTo::All)
}

/// An accumulator of many groups, used for a single group.
///
/// Over the rows of a window frame that grows, the result is asked for again and again. An
/// accumulator of many groups is empty once it has given its result, so its partial state is kept
/// and merged back when the next rows arrive.
pub(super) struct OneGroup {
    /// An `Accumulator` must be `Sync` and a `GroupsAccumulator` need not be. The lock makes up for
    /// that; it is taken only to ask for the size.
    groups: Mutex<Box<dyn GroupsAccumulator>>,
    /// An accumulator of many groups expects a row in each, so without rows it is not asked.
    has_rows: bool,
    /// The partial state, where `groups` has given it away.
    kept: Option<Vec<ArrayRef>>,
    /// The result of `kept`, if it was asked for.
    result: Option<ScalarValue>,
    empty: ScalarValue,
    states: Vec<DataType>,
}

impl OneGroup {
    /// `empty` is the result without rows; `states` are the types of the partial state.
    pub fn new(
        groups: Box<dyn GroupsAccumulator>,
        empty: ScalarValue,
        states: Vec<DataType>,
    ) -> Self {
        let groups = Mutex::new(groups);
        Self { groups, has_rows: false, kept: None, result: None, empty, states }
    }

    /// Makes `groups` ready for rows.
    fn wake(&mut self) -> Result<&mut Box<dyn GroupsAccumulator>> {
        self.has_rows = true;
        self.result = None;
        let groups = self.groups.get_mut();
        if let Some(state) = self.kept.take() {
            groups.merge_batch(&state, &[0], 1)?;
        }
        Ok(groups)
    }

    /// The partial state, which `groups` may have given away already.
    fn keep(&mut self) -> Result<Vec<ArrayRef>> {
        let state = match self.kept.take() {
            Some(state) => state,
            None => self.groups.get_mut().state(EmitTo::All)?,
        };
        Ok(self.kept.insert(state).clone())
    }
}

impl fmt::Debug for OneGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneGroup")
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; values[0].len()];
        if groups.is_empty() { Ok(()) } else { self.wake()?.update_batch(values, &groups, None, 1) }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        if groups.is_empty() { Ok(()) } else { self.wake()?.merge_batch(states, &groups, 1) }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if !self.has_rows {
            return self.states.iter().map(ScalarValue::try_from).collect();
        }
        self.keep()?.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if !self.has_rows {
            return Ok(self.empty.clone());
        }
        if let Some(result) = &self.result {
            return Ok(result.clone());
        }
        let state = self.keep()?;
        let groups = self.groups.get_mut();
        groups.merge_batch(&state, &[0], 1)?;
        let result = ScalarValue::try_from_array(&groups.evaluate(EmitTo::All)?, 0)?;
        Ok(self.result.insert(result).clone())
    }

    fn size(&self) -> usize {
        let kept = self.kept.iter().flatten().map(|state| state.get_array_memory_size());
        let result = self.result.as_ref().map_or(0, ScalarValue::size);
        size_of_val(self) + kept.sum::<usize>() + result + self.groups.lock().size()
    }
}
