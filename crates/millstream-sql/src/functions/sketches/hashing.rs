//! The hashes by which the sketches know values: Murmur3 with 128 bits, with the seed of
//! DataSketches, of the bytes that its Java library hashes of a value.
//!
//! A sketch that is made here has to be one with a sketch of Spark's in a union, so what is hashed
//! is exactly what Spark hands over: a BIGINT for an INT, a DOUBLE for a FLOAT, the elements of an
//! ARRAY one behind the other with 0 for NULL.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int32Type, Int64Type,
};
use datafusion::common::{Result, internal_err, plan_err};

use crate::types::spark_type;

/// The seed of all sketches of DataSketches that name no other one.
const SEED: u64 = 9001;

/// What sketches of another seed would differ in: 16 bits of the hash of the seed.
pub(super) const SEED_HASH: u16 = 37_836;

/// The type to cast the keys of a theta or tuple sketch to.
pub(in crate::functions) fn key_type(function: &str, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Int32 | DataType::Int64 | DataType::Float32 | DataType::Float64 => {
            Ok(given.clone())
        }
        DataType::Null => Ok(DataType::Int32),
        DataType::Dictionary(_, values) => key_type(function, values),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => Ok(DataType::Utf8),
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => Ok(DataType::Binary),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if matches!(item.data_type(), DataType::Int32 | DataType::Int64) =>
        {
            Ok(DataType::List(std::sync::Arc::clone(item)))
        }
        other => plan_err!(
            "function '{function}' counts values of type INT, BIGINT, FLOAT, DOUBLE, STRING, \
             BINARY, ARRAY<INT> and ARRAY<BIGINT>, not {}; cast them",
            spark_type(other)
        ),
    }
}

/// Calls `work` with the row and the hash of each key that is neither NULL nor without bytes.
pub(in crate::functions) fn for_each_key(
    keys: &ArrayRef,
    mut work: impl FnMut(usize, u64) -> Result<()>,
) -> Result<()> {
    let mut bytes = Vec::new();
    for row in (0..keys.len()).filter(|row| keys.is_valid(*row)) {
        bytes.clear();
        match keys.data_type() {
            DataType::Int32 => integer(keys.as_primitive::<Int32Type>().value(row), &mut bytes),
            DataType::Int64 => integer(keys.as_primitive::<Int64Type>().value(row), &mut bytes),
            DataType::Float32 => double(keys.as_primitive::<Float32Type>().value(row), &mut bytes),
            DataType::Float64 => double(keys.as_primitive::<Float64Type>().value(row), &mut bytes),
            DataType::Utf8 => bytes.extend(keys.as_string::<i32>().value(row).as_bytes()),
            DataType::Binary => bytes.extend(keys.as_binary::<i32>().value(row)),
            DataType::List(_) => elements(&keys.as_list::<i32>().value(row), &mut bytes)?,
            other => return internal_err!("a sketch has no hash of {other}"),
        }
        if !bytes.is_empty() {
            work(row, murmur(&bytes, SEED).0 >> 1)?;
        }
    }
    Ok(())
}

fn integer(value: impl Into<i64>, bytes: &mut Vec<u8>) {
    bytes.extend(value.into().to_le_bytes());
}

/// All NaNs are one value, and so are both zeros.
fn double(value: impl Into<f64>, bytes: &mut Vec<u8>) {
    let value: f64 = value.into();
    let value = if value.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { value };
    let value = if value == 0.0 { 0.0 } else { value };
    bytes.extend(value.to_bits().to_le_bytes());
}

fn elements(values: &ArrayRef, bytes: &mut Vec<u8>) -> Result<()> {
    fn all<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>) -> impl Iterator<Item = T::Native> {
        values.iter().map(Option::unwrap_or_default)
    }
    match values.data_type() {
        DataType::Int32 => {
            all(values.as_primitive::<Int32Type>()).for_each(|one| bytes.extend(one.to_le_bytes()));
        }
        DataType::Int64 => {
            all(values.as_primitive::<Int64Type>()).for_each(|one| bytes.extend(one.to_le_bytes()));
        }
        other => return internal_err!("a sketch has no hash of an array of {other}"),
    }
    Ok(())
}

/// Murmur3 for 64-bit machines, by Austin Appleby, who gave it to the public domain.
fn murmur(bytes: &[u8], seed: u64) -> (u64, u64) {
    let (mut h1, mut h2) = (seed, seed);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 ^= mixed(word(&block[..8]), FIRST, 31, SECOND);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= mixed(word(&block[8..]), SECOND, 33, FIRST);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let rest = blocks.remainder();
    let (low, high) = rest.split_at(rest.len().min(8));
    // A word of no bytes is 0, and changes nothing.
    h2 ^= mixed(word(high), SECOND, 33, FIRST);
    h1 ^= mixed(word(low), FIRST, 31, SECOND);
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finished(h1), finished(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

const FIRST: u64 = 0x87C3_7B91_1142_53D5;
const SECOND: u64 = 0x4CF5_AD43_2745_937F;

fn mixed(word: u64, before: u64, turn: u32, after: u64) -> u64 {
    word.wrapping_mul(before).rotate_left(turn).wrapping_mul(after)
}

fn finished(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

/// Up to eight bytes, the lowest first.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DataSketches writes the hash of its seed into each sketch: 0x93CC in all of Spark's.
    #[test]
    fn the_hash_of_the_seed_is_that_of_data_sketches() {
        let (hash, _) = murmur(&SEED.to_le_bytes(), 0);
        assert_eq!(hash as u16, SEED_HASH);
    }

    /// Against an implementation of another hand, at lengths around those of words and blocks.
    #[test]
    fn murmur_is_that_of_the_crate_datasketches() {
        use datasketches::hash::value::raw_bytes::from_slice;
        use datasketches::theta::ThetaSketchBuilder;
        for length in 1..=40_u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(37) ^ 0xA5).collect();
            let mut sketch = ThetaSketchBuilder::default().build().unwrap();
            sketch.update(from_slice(&bytes));
            let hashes: Vec<u64> = sketch.iter().map(|entry| entry.hash()).collect();
            assert_eq!(hashes, [murmur(&bytes, SEED).0 >> 1], "{length} bytes");
        }
    }
}
