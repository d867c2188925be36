//! `first_touch` and `last_touch`: to which value of a group's rows its conversion is attributed.
//!
//! The conversion is the first row that meets the condition. Of the rows up to it, and no longer
//! before it than the look-back window, the first or the last one with a value counts. Of rows of
//! one time, `first_touch` takes the least value and `last_touch` the greatest, so that the result
//! does not depend on the order of rows.

use std::cmp::Ordering;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::super::define::{Aggregate, Make, MakeOne, counted, input, refused};
use super::{length, length_type, time_type, times};

pub(super) const AGGREGATES: &[Aggregate] = &[
    touch(
        "first_touch",
        |given| coerced("first_touch", given),
        |args| made("first_touch", Ordering::Less, args),
    ),
    touch(
        "last_touch",
        |given| coerced("last_touch", given),
        |args| made("last_touch", Ordering::Greater, args),
    ),
];

const fn touch(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: MakeOne,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |args| Ok(args[0].clone()),
        // Values, their times, and the time of the conversion.
        state: |args| {
            vec![
                DataType::new_list(args[0].clone(), true),
                DataType::new_list(DataType::Int64, true),
                DataType::Int64,
            ]
        },
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 4, 4)?;
    if given[0].is_nested() {
        return refused(name, "a value that can be ordered", &given[0]);
    }
    if !matches!(given[2], DataType::Boolean | DataType::Null) {
        return refused(name, "a BOOLEAN as its condition", &given[2]);
    }
    let time = time_type(name, &given[1])?;
    Ok(vec![given[0].clone(), time, DataType::Boolean, length_type(name, &given[3])?])
}

fn made(name: &str, wanted: Ordering, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    let look_back = length(name, args, 3, &input(args, 1))?.cast_unsigned();
    let of = input(args, 0);
    Ok(Box::new(Touches { wanted, look_back, touches: Vec::new(), bytes: 0, conversion: None, of }))
}

#[derive(Debug)]
struct Touches {
    /// The order of the wanted touch to all others.
    wanted: Ordering,
    look_back: u64,
    /// Rows with a value, none of them after the first conversion known so far.
    touches: Vec<(i64, ScalarValue)>,
    /// Of the values in `touches`: the size is asked for with each record batch.
    bytes: usize,
    conversion: Option<i64>,
    of: DataType,
}

impl Touches {
    fn convert(&mut self, time: i64) {
        if self.conversion.is_none_or(|known| time < known) {
            self.conversion = Some(time);
            self.touches.retain(|(touched, _)| *touched <= time);
            self.bytes = self.touches.iter().map(|(_, value)| value.size()).sum();
        }
    }

    fn touch(&mut self, time: i64, value: impl FnOnce() -> Result<ScalarValue>) -> Result<()> {
        if self.conversion.is_none_or(|conversion| time <= conversion) {
            let value = value()?;
            self.bytes += value.size();
            self.touches.push((time, value));
        }
        Ok(())
    }

    fn is_wanted(&self, left: &(i64, ScalarValue), right: &(i64, ScalarValue)) -> bool {
        let values = || left.1.partial_cmp(&right.1).unwrap_or(Ordering::Equal);
        left.0.cmp(&right.0).then_with(values) == self.wanted
    }
}

impl Accumulator for Touches {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (times, conditions) = (times(&values[1]), values[2].as_boolean());
        let rows = || (0..times.len()).filter(|row| values[1].is_valid(*row));
        // Conversions first: what comes after them need not be kept.
        rows()
            .filter(|row| conditions.is_valid(*row) && conditions.value(*row))
            .for_each(|row| self.convert(times[row]));
        rows().filter(|row| values[0].is_valid(*row)).try_for_each(|row| {
            self.touch(times[row], || ScalarValue::try_from_array(&values[0], row))
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let conversions = states[2].as_primitive::<Int64Type>();
        conversions.iter().flatten().for_each(|time| self.convert(time));
        let lists = states[0].as_list::<i32>().iter().zip(states[1].as_list::<i32>().iter());
        for (values, times) in lists.filter_map(|(values, times)| values.zip(times)) {
            let times = times.as_primitive::<Int64Type>().values().clone();
            for (row, time) in times.iter().enumerate() {
                self.touch(*time, || ScalarValue::try_from_array(&values, row))?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (times, values): (Vec<ScalarValue>, Vec<ScalarValue>) = self
            .touches
            .iter()
            .map(|(time, value)| (ScalarValue::Int64(Some(*time)), value.clone()))
            .unzip();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.of)),
            ScalarValue::List(ScalarValue::new_list_nullable(&times, &DataType::Int64)),
            ScalarValue::Int64(self.conversion),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(conversion) = self.conversion else { return ScalarValue::try_from(&self.of) };
        let in_window = |touch: &&(i64, ScalarValue)| {
            conversion.wrapping_sub(touch.0).cast_unsigned() <= self.look_back
        };
        let found = self.touches.iter().filter(in_window);
        let found = found.reduce(|best, next| if self.is_wanted(next, best) { next } else { best });
        found.map_or_else(|| ScalarValue::try_from(&self.of), |(_, value)| Ok(value.clone()))
    }

    fn size(&self) -> usize {
        let room = self.touches.capacity() * size_of::<(i64, ScalarValue)>();
        size_of_val(self) + room + self.bytes
    }
}
