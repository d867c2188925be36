//! `bitmap_construct_agg`, `bitmap_or_agg` and `bitmap_and_agg`: bitmaps of 32,768 bits, which are
//! BINARYs of 4096 bytes.
//!
//! Numbers make several of them, by `bitmap_bucket_number` and `bitmap_bit_position`. The partial
//! state is the bitmap itself, and without rows there is one all the same.

use std::mem::size_of_val;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Accumulator;

use super::define::{Aggregate, Make, MakeOne, counted, refused};

/// How long a bitmap is.
const BYTES: usize = 4096;

const CONSTRUCT: &str = "bitmap_construct_agg";
const OR: &str = "bitmap_or_agg";
const AND: &str = "bitmap_and_agg";

pub(super) const AGGREGATES: &[Aggregate] = &[
    of_bitmaps(
        CONSTRUCT,
        |given| {
            counted(CONSTRUCT, given, 1, 1)?;
            match &given[0] {
                of if of.is_signed_integer() || of.is_string() || of.is_null() => {
                    Ok(vec![DataType::Int64])
                }
                other => refused(CONSTRUCT, "a BIGINT", other),
            }
        },
        |_| Ok(Box::new(Bitmap::new(Of::Positions))),
    ),
    of_bitmaps(OR, |given| binary(OR, given), |_| Ok(Box::new(Bitmap::new(Of::Any)))),
    of_bitmaps(AND, |given| binary(AND, given), |_| Ok(Box::new(Bitmap::new(Of::All)))),
];

const fn of_bitmaps(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: MakeOne,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |_| Ok(DataType::Binary),
        state: |_| vec![DataType::Binary],
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

/// A text is no bitmap in Spark, either.
fn binary(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 1, 1)?;
    match &given[0] {
        of if of.is_binary() || of.is_null() => Ok(vec![DataType::Binary]),
        other => refused(name, "a bitmap, which is a BINARY", other),
    }
}

/// Which bits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Those at the positions that are given.
    Positions,
    /// Those that are set in any bitmap.
    Any,
    /// Those that are set in all of them.
    All,
}

#[derive(Debug)]
struct Bitmap {
    of: Of,
    bytes: Vec<u8>,
}

impl Bitmap {
    fn new(of: Of) -> Self {
        Self { of, bytes: vec![if of == Of::All { u8::MAX } else { 0 }; BYTES] }
    }

    fn set(&mut self, position: i64) -> Result<()> {
        let byte = usize::try_from(position).ok().and_then(|at| self.bytes.get_mut(at / 8));
        match byte {
            Some(byte) => *byte |= 1 << (position % 8),
            None => {
                return exec_err!(
                    "{CONSTRUCT} takes positions from 0 to 32767, as bitmap_bit_position(x) gives \
                     them, and not {position}"
                );
            }
        }
        Ok(())
    }

    /// As in Spark bytes beyond the length of a bitmap do not count, and those that are not there
    /// are zero.
    fn join(&mut self, other: &[u8]) {
        let pairs = self.bytes.iter_mut().zip(other);
        if self.of != Of::All {
            return pairs.for_each(|(byte, other)| *byte |= other);
        }
        pairs.for_each(|(byte, other)| *byte &= other);
        if let Some(rest) = self.bytes.get_mut(other.len()..) {
            rest.fill(0);
        }
    }

    fn join_all(&mut self, bitmaps: &ArrayRef) {
        bitmaps.as_binary::<i32>().iter().flatten().for_each(|bitmap| self.join(bitmap));
    }
}

impl Accumulator for Bitmap {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.of == Of::Positions {
            let mut positions = values[0].as_primitive::<Int64Type>().iter().flatten();
            return positions.try_for_each(|position| self.set(position));
        }
        self.join_all(&values[0]);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.join_all(&states[0]);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Binary(Some(self.bytes.clone())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_joined_as_in_spark() {
        let mut any = Bitmap::new(Of::Any);
        any.join(&[0x10]);
        any.join(&[0x20, 1]);
        any.join(&[0; BYTES + 1]);
        assert_eq!((&any.bytes[..3], any.bytes.len()), (&[0x30, 1, 0][..], BYTES));
        let mut all = Bitmap::new(Of::All);
        all.join(&[u8::MAX; BYTES + 1]);
        assert!(all.bytes.iter().all(|byte| *byte == u8::MAX));
        all.join(&[0xF0, 3]);
        assert_eq!((all.bytes[..3].to_vec(), all.bytes[BYTES - 1]), (vec![0xF0, 3, 0], 0));
    }

    #[test]
    fn positions_are_those_of_a_bitmap() {
        let mut bitmap = Bitmap::new(Of::Positions);
        for position in [0, 9, 32_767] {
            bitmap.set(position).expect("it is in the bitmap");
        }
        assert_eq!((bitmap.bytes[0], bitmap.bytes[1], bitmap.bytes[BYTES - 1]), (1, 2, 0x80));
        assert!(bitmap.set(-1).is_err() && bitmap.set(32_768).is_err());
    }
}
