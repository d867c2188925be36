//! `kll_sketch_agg_*` and `kll_merge_agg_*`, of BIGINTs, FLOATs and DOUBLEs.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datasketches::kll::{KllFloat, KllSketch};

use super::super::define::{Aggregate, constant, counted, refused};
use super::{Sketching, accumulator, binary, for_each_sketch, int, of_sketches};
use crate::functions::sketches::kll::{join, read};
use crate::functions::sketches::kll_items::Item;

/// The size that Spark takes where a call does not say it.
const K_DEFAULT: u16 = 200;

macro_rules! of_items {
    ($item:ty, $of_values:literal, $merge:literal) => {
        &[
            of_sketches(
                $of_values,
                |given| types::<$item>($of_values, given),
                |args| {
                    let k = k_of($of_values, args)?.unwrap_or(K_DEFAULT);
                    accumulator(OfValues::<$item> {
                        name: $of_values,
                        sketch: empty($of_values, k)?,
                    })
                },
            ),
            of_sketches(
                $merge,
                |given| {
                    counted($merge, given, 1, 2)?;
                    let mut types = vec![binary($merge, &given[0])?];
                    if let Some(k) = given.get(1) {
                        types.push(int($merge, k)?);
                    }
                    Ok(types)
                },
                |args| {
                    let k = k_of($merge, args)?;
                    let sketch = k.map(|k| empty($merge, k)).transpose()?;
                    accumulator(Merged::<$item> { name: $merge, sketch })
                },
            ),
        ]
    };
}

pub(super) const OF_BIGINTS: &[Aggregate] =
    of_items!(i64, "kll_sketch_agg_bigint", "kll_merge_agg_bigint");

pub(super) const OF_FLOATS: &[Aggregate] =
    of_items!(KllFloat<f32>, "kll_sketch_agg_float", "kll_merge_agg_float");

pub(super) const OF_DOUBLES: &[Aggregate] =
    of_items!(KllFloat<f64>, "kll_sketch_agg_double", "kll_merge_agg_double");

/// A column, which is only cast where no value becomes another one, and `k`.
fn types<T: Item>(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 1, 2)?;
    let of = <T::Column as ArrowPrimitiveType>::DATA_TYPE;
    let is_taken = match (&of, &given[0]) {
        (_, DataType::Null) => true,
        (DataType::Int64, given) => given.is_signed_integer(),
        (DataType::Float64, DataType::Float32) => true,
        (of, given) => *of == *given,
    };
    if !is_taken {
        let wanted = match of {
            DataType::Int64 => "a whole number",
            DataType::Float64 => "a DOUBLE or a FLOAT",
            _ => "a FLOAT",
        };
        return refused(name, wanted, &given[0]);
    }
    let mut types = vec![of];
    if let Some(k) = given.get(1) {
        types.push(int(name, k)?);
    }
    Ok(types)
}

/// What a call says of its size.
fn k_of(name: &str, args: &AccumulatorArgs<'_>) -> Result<Option<u16>> {
    if args.exprs.len() < 2 {
        return Ok(None);
    }
    let given = constant(name, args, 1)?;
    let k = match given {
        ScalarValue::Int32(Some(k)) => u16::try_from(k).ok().filter(|k| *k >= 8),
        _ => None,
    };
    match k {
        Some(k) => Ok(Some(k)),
        None => exec_err!("function '{name}' takes a k from 8 to 65535, not {given}"),
    }
}

fn empty<T: Item>(name: &str, k: u16) -> Result<KllSketch<T>> {
    match KllSketch::new(k) {
        Ok(sketch) => Ok(sketch),
        Err(error) => exec_err!("function '{name}': {}", error.message()),
    }
}

/// How many bytes of memory a sketch has about.
fn size_of_sketch<T: Item>(sketch: &KllSketch<T>) -> usize {
    sketch.num_retained() * 2 * size_of::<T>()
}

/// The values of a column.
#[derive(Debug)]
struct OfValues<T: Item> {
    name: &'static str,
    sketch: KllSketch<T>,
}

impl<T: Item> Sketching for OfValues<T> {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T::Column>().iter().flatten();
        values.filter_map(T::of).for_each(|value| self.sketch.update(value));
        Ok(())
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        join(self.name, &mut self.sketch, &read(self.name, state)?)
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(Some(self.sketch.serialize()))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        Ok(self.sketch.serialize())
    }

    fn size(&self) -> usize {
        size_of_sketch(&self.sketch)
    }
}

/// All sketches of a column; `None` before the first one, whose size it has, if a call says none.
#[derive(Debug)]
struct Merged<T: Item> {
    name: &'static str,
    sketch: Option<KllSketch<T>>,
}

impl<T: Item> Sketching for Merged<T> {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_sketch(&values[0], |sketch| self.join(sketch))
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        let other = read::<T>(self.name, state)?;
        let mut sketch = match self.sketch.take() {
            Some(sketch) => sketch,
            None => empty(self.name, other.k())?,
        };
        join(self.name, &mut sketch, &other)?;
        self.sketch = Some(sketch);
        Ok(())
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.sketch.as_ref().map(KllSketch::serialize))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        match &self.sketch {
            Some(sketch) => Ok(sketch.serialize()),
            None => Ok(empty::<T>(self.name, K_DEFAULT)?.serialize()),
        }
    }

    fn size(&self) -> usize {
        self.sketch.as_ref().map_or(0, size_of_sketch)
    }
}
