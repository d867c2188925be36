//! `retention`: which conditions the rows of a group meet, if they meet the first one.
//!
//! A group is one number, whatever its rows: a bit for each condition.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::super::define::{Aggregate, Make};
use super::super::grouped::{is_let_through, states_of_rows};
use super::{check_conditions, conditions_met};

const NAME: &str = "retention";

pub(super) const AGGREGATES: &[Aggregate] = &[Aggregate {
    name: NAME,
    aliases: &[],
    coerce: |given| {
        check_conditions(NAME, given)?;
        Ok(vec![DataType::Boolean; given.len()])
    },
    returns: |_| Ok(DataType::new_list(DataType::Boolean, true)),
    state: |_| vec![DataType::Int32],
    never_null: false,
    make: Make::GroupsOrNone(|args| {
        if args.is_distinct {
            return plan_err!("function '{NAME}' takes no DISTINCT");
        }
        Ok(Box::new(Retention { groups: Vec::new(), conditions: args.exprs.len() }))
    }),
    moving: None,
}];

struct Retention {
    /// By group, the conditions that its rows meet.
    groups: Vec<u32>,
    conditions: usize,
}

impl GroupsAccumulator for Retention {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize(count, 0);
        let met = conditions_met(values, groups.len());
        for (row, group) in
            groups.iter().enumerate().filter(|(row, _)| is_let_through(filter, *row))
        {
            self.groups[*group] |= met[row];
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.groups.resize(count, 0);
        let met = states[0].as_primitive::<Int32Type>();
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| met.is_valid(*row)) {
            self.groups[*group] |= met.value(row).cast_unsigned();
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let bits = groups.iter().flat_map(|met| {
            (0..self.conditions).map(move |bit| met & 1 != 0 && met & (1 << bit) != 0)
        });
        let values = BooleanArray::from(bits.collect::<Vec<bool>>());
        let offsets = OffsetBuffer::from_lengths(groups.iter().map(|_| self.conditions));
        let item = Arc::new(Field::new_list_field(DataType::Boolean, true));
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(values), None)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.groups);
        let met = groups.iter().map(|met| met.cast_signed());
        Ok(vec![Arc::new(Int32Array::from_iter_values(met))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        states_of_rows(Self { groups: Vec::new(), conditions: self.conditions }, values, filter)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<u32>()
    }
}
