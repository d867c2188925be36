//! Maps FLOAT and DOUBLE to whole numbers of the same order, NaN the greatest, as Spark orders
//! them.
//!
//! DataFusion's accumulators of many groups compare floats so that NaN is in no order with the
//! rest, and its sketch of distinct values takes no floats at all. They get whole numbers in the
//! order of the floats instead, and the least or greatest of those is mapped back to a float.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Int32Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// The kind of result of an aggregate: one of its values, or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Gives {
    OneOfThem,
    ACount,
}

/// The type of the whole numbers for a float type; `None` for other types.
pub(super) fn key_type(floats: &DataType) -> Option<DataType> {
    match floats {
        DataType::Float32 => Some(DataType::Int32),
        DataType::Float64 => Some(DataType::Int64),
        _ => None,
    }
}

/// Maps floats to whole numbers, their keys, in the same order.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    values: DataType,
    keys: DataType,
    gives: Gives,
}

/// The bits of a float, read as a whole number, ascend with it; those of negative floats do once
/// all bits but the sign are inverted. The mapping is its own inverse.
fn ordered_64(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

fn ordered_32(bits: i32) -> i32 {
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

impl Keys {
    /// The mapping for the values of a call; `None` if they are not floats.
    pub fn for_call(args: &AccumulatorArgs<'_>, gives: Gives) -> Option<Self> {
        let values = args.expr_fields[0].data_type().clone();
        let keys = key_type(&values)?;
        Some(Self { values, keys, gives })
    }

    /// An accumulator of one group, which `make` makes for the same call over keys.
    pub fn one(
        self,
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
    ) -> Result<Box<dyn Accumulator>> {
        let inner = self.over_keys(args, make)?;
        Ok(Box::new(OneKeyed { inner, keys: self }))
    }

    /// An accumulator of many groups, in the same way.
    pub fn many(
        self,
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let inner = self.over_keys(args, make)?;
        Ok(Box::new(Keyed { inner, keys: self }))
    }

    fn over_keys<T>(
        &self,
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> Result<T>,
    ) -> Result<T> {
        let key = |field: &FieldRef| -> FieldRef {
            Arc::new(Field::clone(field).with_data_type(self.keys.clone()))
        };
        let expr_fields: Vec<FieldRef> = args.expr_fields.iter().map(key).collect();
        let return_field = match self.gives {
            Gives::OneOfThem => key(&args.return_field),
            Gives::ACount => Arc::clone(&args.return_field),
        };
        make(AccumulatorArgs { return_field, expr_fields: &expr_fields, ..args.clone() })
    }

    /// The keys of floats. For counting, both zeros are one value; as results they stay distinct.
    fn of(&self, values: &ArrayRef) -> ArrayRef {
        // Every NaN becomes the same one; adding 0 turns -0.0 into 0.0.
        let is_counted = self.gives == Gives::ACount;
        match &self.values {
            DataType::Float32 => {
                let key = |value: f32| {
                    let value = if is_counted { value + 0.0 } else { value };
                    let value = if value.is_nan() { f32::NAN } else { value };
                    ordered_32(value.to_bits().cast_signed())
                };
                Arc::new(values.as_primitive::<Float32Type>().unary::<_, Int32Type>(key))
            }
            _ => {
                let key = |value: f64| {
                    let value = if is_counted { value + 0.0 } else { value };
                    let value = if value.is_nan() { f64::NAN } else { value };
                    ordered_64(value.to_bits().cast_signed())
                };
                Arc::new(values.as_primitive::<Float64Type>().unary::<_, Int64Type>(key))
            }
        }
    }

    fn of_all(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        columns.iter().map(|column| self.of(column)).collect()
    }

    /// A partial state with floats in it, with their keys instead.
    fn of_states(&self, states: &[ArrayRef]) -> Vec<ArrayRef> {
        match self.gives {
            Gives::OneOfThem => self.of_all(states),
            Gives::ACount => states.to_vec(),
        }
    }

    /// A result or a partial state with floats in the place of their keys.
    fn floats(&self, keys: ArrayRef) -> ArrayRef {
        match (self.gives, &self.values) {
            (Gives::ACount, _) => keys,
            (Gives::OneOfThem, DataType::Float32) => {
                let float = |key| f32::from_bits(ordered_32(key).cast_unsigned());
                Arc::new(keys.as_primitive::<Int32Type>().unary::<_, Float32Type>(float))
            }
            (Gives::OneOfThem, _) => {
                let float = |key| f64::from_bits(ordered_64(key).cast_unsigned());
                Arc::new(keys.as_primitive::<Int64Type>().unary::<_, Float64Type>(float))
            }
        }
    }

    fn float(&self, key: ScalarValue) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.floats(key.to_array()?), 0)
    }
}

/// DataFusion's accumulator of one group, over keys.
#[derive(Debug)]
struct OneKeyed {
    inner: Box<dyn Accumulator>,
    keys: Keys,
}

impl Accumulator for OneKeyed {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.keys.of_all(values))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.keys.of_all(values))
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(&self.keys.of_states(states))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()?.into_iter().map(|key| self.keys.float(key)).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.keys.float(self.inner.evaluate()?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

/// DataFusion's accumulator of many groups, over keys.
struct Keyed {
    inner: Box<dyn GroupsAccumulator>,
    keys: Keys,
}

impl GroupsAccumulator for Keyed {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.inner.update_batch(&self.keys.of_all(values), groups, filter, count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.inner.merge_batch(&self.keys.of_states(states), groups, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.keys.floats(self.inner.evaluate(emit_to)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.inner.state(emit_to)?.into_iter();
        Ok(states.map(|keys| self.keys.floats(keys)).collect())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let states = self.inner.convert_to_state(&self.keys.of_all(values), filter)?;
        Ok(states.into_iter().map(|keys| self.keys.floats(keys)).collect())
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
