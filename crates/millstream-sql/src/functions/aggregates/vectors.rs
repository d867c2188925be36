//! `vector_sum` and `vector_avg` of vectors, which are arrays of FLOAT.
//!
//! A vector with a NULL in it does not count, as one that is NULL.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array};
use arrow::datatypes::{DataType, Float32Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Accumulator;

use super::super::vectors::is_vector;
use super::define::{Aggregate, Make, counted};
use crate::types::list_of;

pub(super) const AGGREGATES: &[Aggregate] = &[
    of_vectors(
        "vector_sum",
        |given| coerced("vector_sum", given),
        Make::Single(|_| Ok(Box::new(Vectors::new(false)))),
    ),
    of_vectors(
        "vector_avg",
        |given| coerced("vector_avg", given),
        Make::Single(|_| Ok(Box::new(Vectors::new(true)))),
    ),
];

const fn of_vectors(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: Make,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |_| Ok(list_of(DataType::Float32)),
        state: |_| vec![list_of(DataType::Float32), DataType::Int64],
        never_null: false,
        make,
        moving: None,
    }
}

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 1, 1)?;
    is_vector(&given[0])?;
    Ok(given.to_vec())
}

#[derive(Debug)]
struct Vectors {
    averages: bool,
    /// The sum, or the average so far.
    so_far: Vec<f32>,
    count: i64,
}

impl Vectors {
    const fn new(averages: bool) -> Self {
        Self { averages, so_far: Vec::new(), count: 0 }
    }

    /// Adds what stands for `count` vectors: one, or the state of several.
    fn add(&mut self, vector: &Float32Array, count: i64, is_state: bool) -> Result<()> {
        if vector.null_count() > 0 || count == 0 {
            return Ok(());
        }
        if self.count == 0 {
            self.so_far = vector.values().to_vec();
            self.count = count;
            return Ok(());
        }
        let (own, other) = (self.so_far.len(), vector.len());
        if own != other {
            return exec_err!("the vectors have {own} and {other} dimensions");
        }
        let before = self.count as f32;
        self.count += count;
        let (all, count) = (self.count as f32, count as f32);
        // Spark's order of operations, from which it follows what is rounded.
        for (so_far, value) in self.so_far.iter_mut().zip(vector.values()) {
            *so_far = match (self.averages, is_state) {
                (false, _) => *so_far + value,
                (true, false) => *so_far + (value - *so_far) * (1.0 / all),
                (true, true) => *so_far * (before / all) + value * (count / all),
            };
        }
        Ok(())
    }

    fn vector(&self) -> ScalarValue {
        let values: Vec<ScalarValue> =
            self.so_far.iter().map(|value| ScalarValue::Float32(Some(*value))).collect();
        ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float32))
    }
}

impl Accumulator for Vectors {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let vectors = values[0].as_list::<i32>();
        vectors
            .iter()
            .flatten()
            .try_for_each(|vector| self.add(vector.as_primitive::<Float32Type>(), 1, false))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let counts = states[1].as_primitive::<Int64Type>();
        let vectors = states[0].as_list::<i32>().iter().zip(counts.iter());
        for (vector, count) in vectors {
            if let (Some(vector), Some(count)) = (vector, count) {
                self.add(vector.as_primitive::<Float32Type>(), count, true)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.vector(), ScalarValue::Int64(Some(self.count))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.count {
            0 => ScalarValue::try_from(&list_of(DataType::Float32)),
            _ => Ok(self.vector()),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.so_far.capacity() * size_of::<f32>()
    }
}
