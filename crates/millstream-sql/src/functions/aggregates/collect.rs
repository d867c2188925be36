//! `collect_list`, `array_agg` and `collect_set`: the values that are not null, as an array.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::define::{Aggregate, Make, counted};

pub(super) const AGGREGATES: &[Aggregate] = &[
    collecting(
        "collect_list",
        &["array_agg"],
        Make::Groups(|args| {
            let args = array_agg_args(args, false);
            Ok(Box::new(Lists(array_agg_udaf().create_groups_accumulator(args)?)))
        }),
    ),
    collecting(
        "collect_set",
        &[],
        Make::Single(|args| {
            let args = array_agg_args(args, true);
            Ok(Box::new(List(array_agg_udaf().accumulator(args)?)))
        }),
    ),
];

const fn collecting(name: &'static str, aliases: &'static [&'static str], make: Make) -> Aggregate {
    Aggregate {
        name,
        aliases,
        coerce: |given| {
            counted("collect_list", given, 1, 1)?;
            Ok(given.to_vec())
        },
        returns: |args| Ok(DataType::new_list(args[0].clone(), true)),
        state: |args| vec![DataType::new_list(args[0].clone(), true)],
        never_null: true,
        make,
        moving: None,
    }
}

fn array_agg_args<'a>(args: &AccumulatorArgs<'a>, is_distinct: bool) -> AccumulatorArgs<'a> {
    AccumulatorArgs { ignore_nulls: true, is_distinct, ..args.clone() }
}

/// Replaces null lists by empty ones.
fn never_null(lists: &ListArray) -> ArrayRef {
    let DataType::List(element) = lists.data_type() else { return Arc::new(lists.clone()) };
    let (offsets, values) = (lists.offsets().clone(), Arc::clone(lists.values()));
    let no_gaps = (0..lists.len()).all(|row| lists.is_valid(row) || lists.value_length(row) == 0);
    debug_assert!(no_gaps, "a list that is not there has no elements");
    Arc::new(ListArray::new(Arc::clone(element), offsets, values, None))
}

/// DataFusion's lists of many groups, never null.
struct Lists(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for Lists {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.0.merge_batch(states, groups, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(never_null(self.0.evaluate(emit_to)?.as_list::<i32>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// DataFusion's list of one group, never null.
#[derive(Debug)]
struct List(Box<dyn Accumulator>);

impl Accumulator for List {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.0.evaluate()? {
            ScalarValue::List(lists) => ScalarValue::try_from_array(&never_null(&lists), 0),
            other => Ok(other),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
