//! One group of an accumulator for many.

use std::fmt;
use std::mem::size_of_val;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use parking_lot::Mutex;

/// An accumulator of many groups in the place of one for a single group.
pub(super) struct OneGroup {
    /// Accumulators of one group can be shared between threads, those of many need not; a lock
    /// that is hardly ever taken makes up for it.
    groups: Mutex<Box<dyn GroupsAccumulator>>,
    /// An accumulator of many groups takes it that each has a row, so it is not asked without.
    has_rows: bool,
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
        Self { groups: Mutex::new(groups), has_rows: false, empty, states }
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
        self.has_rows |= !groups.is_empty();
        if groups.is_empty() {
            return Ok(());
        }
        self.groups.get_mut().update_batch(values, &groups, None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        self.has_rows |= !groups.is_empty();
        if groups.is_empty() {
            return Ok(());
        }
        self.groups.get_mut().merge_batch(states, &groups, 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if !self.has_rows {
            return self.states.iter().map(ScalarValue::try_from).collect();
        }
        let states = self.groups.get_mut().state(EmitTo::All)?;
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if !self.has_rows {
            return Ok(self.empty.clone());
        }
        let result = self.groups.get_mut().evaluate(EmitTo::All)?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.groups.lock().size()
    }
}
