//! `hll_sketch_agg` and `hll_union_agg`.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datasketches::hash::value::raw_bytes::from_slice;
use datasketches::hll::{HllSketch, HllType, HllUnion};

use super::super::define::{Aggregate, constant, counted, refused};
use super::{Sketching, accumulator, binary, exactly, for_each_sketch, int, of_sketches};
use crate::functions::sketches::hll::{empty_sketch, empty_union, read, same_size, written};

const OF_VALUES: &str = "hll_sketch_agg";
const UNION: &str = "hll_union_agg";

/// The size that Spark takes where a call does not say it.
const LG_K_DEFAULT: i32 = 12;

pub(super) const AGGREGATES: &[Aggregate] = &[
    of_sketches(
        OF_VALUES,
        |given| {
            counted(OF_VALUES, given, 1, 2)?;
            let mut types = vec![value_type(&given[0])?];
            if let Some(size) = given.get(1) {
                types.push(int(OF_VALUES, size)?);
            }
            Ok(types)
        },
        |args| accumulator(OfValues::new(size_of_call(args)?)?),
    ),
    of_sketches(
        UNION,
        |given| {
            counted(UNION, given, 1, 2)?;
            let mut types = vec![binary(UNION, &given[0])?];
            if let Some(allowed) = given.get(1) {
                let wanted = "true or false behind its column";
                types.push(exactly(UNION, wanted, &DataType::Boolean, allowed)?);
            }
            Ok(types)
        },
        |args| accumulator(Union { is_other_allowed: is_other_allowed(args)?, union: None }),
    ),
];

fn value_type(given: &DataType) -> Result<DataType> {
    match given {
        DataType::Int32 | DataType::Int64 => Ok(given.clone()),
        DataType::Null => Ok(DataType::Int32),
        DataType::Dictionary(_, values) => value_type(values),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => Ok(DataType::Utf8),
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => Ok(DataType::Binary),
        other => refused(OF_VALUES, "a value of type INT, BIGINT, STRING or BINARY", other),
    }
}

/// What a call says of its size.
fn size_of_call(args: &AccumulatorArgs<'_>) -> Result<Option<i32>> {
    if args.exprs.len() < 2 {
        return Ok(Some(LG_K_DEFAULT));
    }
    match constant(OF_VALUES, args, 1)? {
        ScalarValue::Int32(size) => Ok(size),
        other => internal_err!("{OF_VALUES} with {other}"),
    }
}

fn is_other_allowed(args: &AccumulatorArgs<'_>) -> Result<bool> {
    if args.exprs.len() < 2 {
        return Ok(false);
    }
    match constant(UNION, args, 1)? {
        // Spark takes NULL for false.
        ScalarValue::Boolean(allowed) => Ok(allowed.unwrap_or(false)),
        other => plan_err!("function '{UNION}' needs true or false behind its column, not {other}"),
    }
}

/// The values of a column.
#[derive(Debug)]
pub(super) struct OfValues {
    sketch: HllSketch,
}

impl OfValues {
    /// For a call of that size.
    pub(super) fn new(lg_k: Option<i32>) -> Result<Self> {
        Ok(Self { sketch: empty_sketch(OF_VALUES, lg_k)? })
    }
}

impl Sketching for OfValues {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        let sketch = &mut self.sketch;
        let mut bytes = |value: &[u8]| {
            if !value.is_empty() {
                sketch.update(from_slice(value));
            }
        };
        let values = &values[0];
        match values.data_type() {
            DataType::Int32 => {
                let values = values.as_primitive::<Int32Type>().iter().flatten();
                values.for_each(|value| bytes(&i64::from(value).to_le_bytes()));
            }
            DataType::Int64 => {
                let values = values.as_primitive::<Int64Type>().iter().flatten();
                values.for_each(|value| bytes(&value.to_le_bytes()));
            }
            DataType::Utf8 => {
                let values = values.as_string::<i32>().iter().flatten();
                values.for_each(|value| bytes(value.as_bytes()));
            }
            DataType::Binary => values.as_binary::<i32>().iter().flatten().for_each(bytes),
            other => return internal_err!("{OF_VALUES} of {other}"),
        }
        Ok(())
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        let mut union = empty_union(self.sketch.lg_config_k())?;
        union.update(&self.sketch);
        union.update(&read(OF_VALUES, state)?);
        self.sketch = union.to_sketch(HllType::Hll8);
        Ok(())
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(Some(written(&self.sketch)))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        Ok(written(&self.sketch))
    }

    fn size(&self) -> usize {
        self.sketch.estimated_size()
    }
}

/// All sketches of a column; `None` before the first one, whose size the union has.
#[derive(Debug)]
struct Union {
    is_other_allowed: bool,
    union: Option<HllUnion>,
}

impl Union {
    fn update(&mut self, sketch: &[u8]) -> Result<()> {
        let sketch = read(UNION, sketch)?;
        let mut union = match self.union.take() {
            Some(union) => union,
            None => empty_union(sketch.lg_config_k())?,
        };
        same_size(UNION, self.is_other_allowed, union.lg_config_k(), sketch.lg_config_k())?;
        union.update(&sketch);
        self.union = Some(union);
        Ok(())
    }
}

impl Sketching for Union {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_sketch(&values[0], |sketch| self.update(sketch))
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        self.update(state)
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.union.as_ref().map(|union| written(&union.to_sketch(HllType::Hll8))))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        match self.state()? {
            Some(sketch) => Ok(sketch),
            None => Ok(written(&empty_sketch(UNION, Some(LG_K_DEFAULT))?)),
        }
    }

    fn size(&self) -> usize {
        self.union.as_ref().map_or(0, HllUnion::estimated_size)
    }
}
