//! `hash`, Murmur3 with 32 bits, and `xxhash64`, XXH64: of each argument with the hash of those
//! before it as its seed.
//!
//! What Spark hashes of a value are its bytes in memory: an INT is hashed otherwise than the BIGINT
//! that it equals. A NULL leaves the hash as it is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, DurationSecondType, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalUnit, IntervalYearMonthType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_err, plan_err};

use super::define::{Arguments, Function, Param, returns_int, returns_long};
use super::xxhash;
use crate::types::spark_type;
use crate::values::calendar::SECOND_US;

use Param::Any;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("hash", &[Any], hash_type, |args| {
        let hashes = hashes(args, &Murmur, SEED)?.into_iter().map(u32::cast_signed);
        Ok(Arc::new(hashes.collect::<Int32Array>()))
    })
    .variadic(),
    Function::new("xxhash64", &[Any], long_hash_type, |args| {
        let hashes = hashes(args, &Xxh64, u64::from(SEED))?.into_iter().map(u64::cast_signed);
        Ok(Arc::new(hashes.collect::<Int64Array>()))
    })
    .variadic()
    .keeps_nulls(),
];

/// Spark's seed.
const SEED: u32 = 42;

/// How numbers and bytes are hashed.
trait Algorithm {
    type Hash: Copy;
    fn of_int(&self, value: i32, seed: Self::Hash) -> Self::Hash;
    fn of_long(&self, value: i64, seed: Self::Hash) -> Self::Hash;
    fn of_bytes(&self, bytes: &[u8], seed: Self::Hash) -> Self::Hash;
}

struct Murmur;

impl Algorithm for Murmur {
    type Hash = u32;

    fn of_int(&self, value: i32, seed: u32) -> u32 {
        of_int(value, seed)
    }

    fn of_long(&self, value: i64, seed: u32) -> u32 {
        of_long(value, seed)
    }

    fn of_bytes(&self, bytes: &[u8], seed: u32) -> u32 {
        of_bytes(bytes, seed)
    }
}

struct Xxh64;

impl Algorithm for Xxh64 {
    type Hash = u64;

    fn of_int(&self, value: i32, seed: u64) -> u64 {
        xxhash::of_int(value, seed)
    }

    fn of_long(&self, value: i64, seed: u64) -> u64 {
        xxhash::of_long(value, seed)
    }

    fn of_bytes(&self, bytes: &[u8], seed: u64) -> u64 {
        xxhash::of_bytes(bytes, seed)
    }
}

/// The most digits of a DECIMAL that Spark keeps in 64 bits.
const LONG_DIGITS: u8 = 18;

fn hash_type(args: &[DataType]) -> Result<DataType> {
    args.iter().try_for_each(hashable)?;
    returns_int(args)
}

fn long_hash_type(args: &[DataType]) -> Result<DataType> {
    args.iter().try_for_each(hashable)?;
    returns_long(args)
}

fn hashable(of: &DataType) -> Result<()> {
    match of {
        DataType::List(item) => hashable(item.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| hashable(field.data_type())),
        DataType::Map(..) => plan_err!("equal maps may differ in their order; hash map_entries(x)"),
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(TimeUnit::Microsecond, _)
        | DataType::Duration(TimeUnit::Second | TimeUnit::Microsecond)
        | DataType::Interval(IntervalUnit::YearMonth) => Ok(()),
        other => plan_err!("hash takes no value of type {}", spark_type(other)),
    }
}

/// The hash of each row.
fn hashes<A: Algorithm>(args: &Arguments, by: &A, seed: A::Hash) -> Result<Vec<A::Hash>> {
    let columns: Vec<_> = (0..args.len()).map(|at| args.array(at)).collect();
    let of_row = |row: usize| {
        columns.iter().try_fold(seed, |hash, (values, constant)| {
            hash_of(values, if *constant { 0 } else { row }, by, hash)
        })
    };
    (0..args.rows).map(of_row).collect()
}

/// The hash of a value with `seed`.
fn hash_of<A: Algorithm>(values: &ArrayRef, row: usize, by: &A, seed: A::Hash) -> Result<A::Hash> {
    if values.is_null(row) {
        return Ok(seed);
    }
    Ok(match values.data_type() {
        DataType::Null => seed,
        DataType::Boolean => by.of_int(values.as_boolean().value(row).into(), seed),
        DataType::Int8 => by.of_int(values.as_primitive::<Int8Type>().value(row).into(), seed),
        DataType::Int16 => by.of_int(values.as_primitive::<Int16Type>().value(row).into(), seed),
        DataType::Int32 => by.of_int(values.as_primitive::<Int32Type>().value(row), seed),
        DataType::Date32 => by.of_int(values.as_primitive::<Date32Type>().value(row), seed),
        DataType::Interval(IntervalUnit::YearMonth) => {
            by.of_int(values.as_primitive::<IntervalYearMonthType>().value(row), seed)
        }
        DataType::Int64 => by.of_long(values.as_primitive::<Int64Type>().value(row), seed),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            by.of_long(values.as_primitive::<TimestampMicrosecondType>().value(row), seed)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            by.of_long(values.as_primitive::<DurationMicrosecondType>().value(row), seed)
        }
        DataType::Duration(TimeUnit::Second) => {
            let seconds = values.as_primitive::<DurationSecondType>().value(row);
            by.of_long(seconds.wrapping_mul(SECOND_US), seed)
        }
        DataType::Float32 => {
            by.of_int(float_bits(values.as_primitive::<Float32Type>().value(row)), seed)
        }
        DataType::Float64 => {
            by.of_long(double_bits(values.as_primitive::<Float64Type>().value(row)), seed)
        }
        DataType::Decimal128(precision, _) => {
            of_decimal(values.as_primitive::<Decimal128Type>().value(row), *precision, by, seed)
        }
        DataType::Utf8 => by.of_bytes(values.as_string::<i32>().value(row).as_bytes(), seed),
        DataType::Binary => by.of_bytes(values.as_binary::<i32>().value(row), seed),
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            (0..items.len()).try_fold(seed, |hash, item| hash_of(&items, item, by, hash))?
        }
        DataType::Struct(_) => {
            let columns = values.as_struct().columns();
            columns.iter().try_fold(seed, |hash, column| hash_of(column, row, by, hash))?
        }
        other => return exec_err!("hash takes no value of type {}", spark_type(other)),
    })
}

/// Of both zeros the hash is that of 0, and all NaNs have one.
fn float_bits(value: f32) -> i32 {
    let bits = match value {
        0.0 => 0,
        value if value.is_nan() => 0x7FC0_0000,
        value => value.to_bits(),
    };
    bits.cast_signed()
}

fn double_bits(value: f64) -> i64 {
    let bits = match value {
        0.0 => 0,
        value if value.is_nan() => 0x7FF8_0000_0000_0000,
        value => value.to_bits(),
    };
    bits.cast_signed()
}

/// A long one is hashed as the bytes of Java's `BigInteger`: as few as hold it and its sign.
fn of_decimal<A: Algorithm>(unscaled: i128, precision: u8, by: &A, seed: A::Hash) -> A::Hash {
    if precision <= LONG_DIGITS {
        return by.of_long(unscaled as i64, seed);
    }
    let signs = if unscaled < 0 { unscaled.leading_ones() } else { unscaled.leading_zeros() };
    let unused = (signs as usize - 1) / 8;
    by.of_bytes(&unscaled.to_be_bytes()[unused..], seed)
}

fn of_int(value: i32, seed: u32) -> u32 {
    finished(mixed(seed, value.cast_unsigned()), 4)
}

fn of_long(value: i64, seed: u32) -> u32 {
    let value = value.cast_unsigned();
    let low = mixed(seed, value as u32);
    finished(mixed(low, (value >> 32) as u32), 8)
}

/// Words of four bytes, and each byte that is left as a word of its own.
pub(super) fn of_bytes(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let hash = words.iter().fold(seed, |hash, word| mixed(hash, u32::from_le_bytes(*word)));
    let signed = |byte: &u8| i32::from(byte.cast_signed()).cast_unsigned();
    let hash = rest.iter().fold(hash, |hash, byte| mixed(hash, signed(byte)));
    finished(hash, bytes.len() as u32)
}

fn mixed(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64)
}

fn finished(hash: u32, length: u32) -> u32 {
    let hash = hash ^ length;
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_spark() {
        let hash = of_int(2, of_int(123, of_bytes(b"Spark", SEED)));
        assert_eq!(hash.cast_signed(), -1_321_691_492);
        assert_eq!(of_int(1, SEED).cast_signed(), -559_580_957);
        assert_eq!(of_long(1, SEED).cast_signed(), -1_712_319_331);
        assert_eq!(of_bytes("Größe".as_bytes(), SEED).cast_signed(), -1_028_020_278);
        assert_eq!(of_long(double_bits(1.5), SEED).cast_signed(), 1_290_763_749);
        assert_eq!(double_bits(-0.0), double_bits(0.0));
    }

    #[test]
    fn long_decimals_are_hashed_as_bytes() {
        let hash = of_decimal(12_345_678_901_234_567_890, 20, &Murmur, SEED);
        assert_eq!(hash.cast_signed(), -493_604_283);
        assert_eq!(of_decimal(0, 20, &Murmur, SEED), of_bytes(&[0], SEED));
        assert_eq!(of_decimal(-1, 20, &Murmur, SEED), of_bytes(&[0xFF], SEED));
        assert_eq!(of_decimal(128, 20, &Murmur, SEED), of_bytes(&[0, 0x80], SEED));
        assert_eq!(of_decimal(15, 2, &Murmur, SEED), of_long(15, SEED));
    }

    #[test]
    fn long_hashes_of_decimals_are_those_of_spark() {
        let hash = of_decimal(-12_345_678_901_234_567_890_125, 30, &Xxh64, 42);
        assert_eq!(hash.cast_signed(), -8_334_185_788_029_573_723);
        let hash = of_decimal(1_234, 4, &Xxh64, 42);
        assert_eq!(hash.cast_signed(), -3_802_813_071_951_760_351);
    }
}
