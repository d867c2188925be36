//! HLL sketches, which count the different values of a set in less room than theta sketches, and
//! know no intersections: their form as bytes, and the scalar functions over them.
//!
//! The crate of DataSketches counts and joins. It believes what an array of registers says of
//! itself, its sums and how many registers are 0, and has no form but the compact one; so arrays
//! are read here, which also makes those with four and six bits a register ones with eight, and
//! what Spark calls the updatable form is written here.

use arrow::array::ArrayRef;
use arrow::datatypes::Int64Type;
use datafusion::common::{Result, exec_err};
use datasketches::hll::{HllSketch, HllType, HllUnion};

use super::super::define::{Arguments, Function, Param, returns_long};
use super::{binaries, no_sketch, returns_sketch};

use Param::{OnlyBinary, OnlyBoolean};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("hll_sketch_estimate", &[OnlyBinary], returns_long, |args| {
        let sketches = args.binary(0);
        args.primitives::<Int64Type>(|row| {
            let sketch = sketches.get(row).map(|bytes| read("hll_sketch_estimate", bytes));
            Ok(sketch.transpose()?.map(|sketch| sketch.estimate().round() as i64))
        })
    }),
    Function::new("hll_union", &[OnlyBinary, OnlyBinary, OnlyBoolean], returns_sketch, union)
        .required(2),
];

fn union(args: &Arguments) -> Result<ArrayRef> {
    const NAME: &str = "hll_union";
    let (ones, others) = (args.binary(0), args.binary(1));
    let allowed = (args.len() > 2).then(|| args.boolean(2));
    binaries(args, |row| {
        let allowed = allowed.as_ref().map_or(Some(false), |allowed| allowed.get(row));
        let (Some(one), Some(other), Some(allowed)) = (ones.get(row), others.get(row), allowed)
        else {
            return Ok(None);
        };
        let (one, other) = (read(NAME, one)?, read(NAME, other)?);
        let (size, with) = (one.lg_config_k(), other.lg_config_k());
        same_size(NAME, allowed, size, with)?;
        let mut union = empty_union(size.min(with))?;
        union.update(&one);
        union.update(&other);
        Ok(Some(written(&union.to_sketch(HllType::Hll8))))
    })
}

/// Checks that two sketches are of the same size, where others are not allowed.
pub(in crate::functions) fn same_size(
    function: &str,
    is_other_allowed: bool,
    size: u8,
    other: u8,
) -> Result<()> {
    if is_other_allowed || size == other {
        return Ok(());
    }
    exec_err!(
        "function '{function}' joins sketches of the same lgConfigK, not of {size} and {other}; \
         say true behind them to join others"
    )
}

/// A sketch without values, of a size from 4 to 21.
pub(in crate::functions) fn empty_sketch(function: &str, lg_k: Option<i32>) -> Result<HllSketch> {
    let size = lg_k.and_then(|lg_k| u8::try_from(lg_k).ok());
    match size.map(|size| HllSketch::new(size, HllType::Hll8)) {
        Some(Ok(sketch)) => Ok(sketch),
        _ => {
            let given = lg_k.map_or_else(|| "NULL".to_owned(), |lg_k| lg_k.to_string());
            exec_err!("function '{function}' takes an lgConfigK from 4 to 21, not {given}")
        }
    }
}

/// A union without sketches, which takes those of a size from 4 to 21.
pub(in crate::functions) fn empty_union(size: u8) -> Result<HllUnion> {
    match HllUnion::new(size) {
        Ok(union) => Ok(union),
        Err(error) => exec_err!("{}", error.message()),
    }
}

/// Where the bytes that all forms begin with have the logarithm of the size.
const LG_K: usize = 3;
/// Where they have that of the table of coupons, which are hashes of few values.
const LG_TABLE: usize = 4;
const FLAGS: usize = 5;
/// Where an array has the least value of its registers, which those of four bits begin at, and a
/// list how many coupons it has.
const LEAST: usize = 6;
/// Two bits say what there is, and two how many bits a register has.
const MODE: usize = 7;

const IS_COMPACT: u8 = 1 << 3;
/// The order of the values is lost, so that the estimate is that of the registers.
const OUT_OF_ORDER: u8 = 1 << 4;

/// How many bytes are before a list, a table and an array.
const BEFORE_LIST: usize = 8;
const BEFORE_TABLE: usize = 12;
const BEFORE_ARRAY: usize = 40;

/// Where an array has what its values add up to in their order, a DOUBLE.
const HIP: usize = 8;
/// Where it has how many registers are not among those of four bits.
const COUNT_OF_OTHERS: usize = 36;

/// The most coupons of a list, and the size of the largest table as a power of 2.
const LIST_MAX: usize = 7;
const LG_TABLE_MAX: u8 = 18;

/// How many bits of a coupon are its place; the others are its value.
const PLACE_BITS: u32 = 26;

/// The greatest value that a register has.
const VALUE_MAX: u8 = 63;

/// Reads an HLL sketch for `function`.
pub(in crate::functions) fn read(function: &str, bytes: &[u8]) -> Result<HllSketch> {
    let refused = |why: &str| no_sketch(function, "HLL", "hll_sketch_agg", why);
    let checked = match bytes.get(MODE).map(|mode| mode & 3) {
        Some(0 | 1) => coupons(bytes).map(Some),
        Some(2) => array(bytes).map(Some),
        _ => Ok(None),
    };
    let checked = match checked {
        Ok(checked) => checked,
        Err(why) => return refused(why),
    };
    match HllSketch::deserialize(checked.as_deref().unwrap_or(bytes)) {
        Ok(sketch) => Ok(sketch),
        Err(error) => refused(error.message()),
    }
}

/// A list or a table in the compact form: the crate puts its coupons in their places then, and
/// refuses a table that has one twice.
fn coupons(bytes: &[u8]) -> std::result::Result<Vec<u8>, &'static str> {
    const OTHER_COUNT: &str = "it has another number of values";
    let is_list = bytes[MODE] & 3 == 0;
    let before = if is_list { BEFORE_LIST } else { BEFORE_TABLE };
    if bytes.len() < before || bytes[LG_TABLE] > LG_TABLE_MAX {
        return Err(TOO_SHORT);
    }
    let count = match is_list {
        true => usize::from(bytes[LEAST]),
        false => four(bytes, BEFORE_LIST) as usize,
    };
    if is_list && count > LIST_MAX {
        return Err(OTHER_COUNT);
    }
    let is_compact = bytes[FLAGS] & IS_COMPACT != 0 || (is_list && count == 0);
    let places = if is_compact { count } else { 1 << bytes[LG_TABLE] };
    let length = places.checked_mul(4).ok_or(TOO_SHORT)?;
    let table = bytes[before..].get(..length).ok_or(TOO_SHORT)?;
    let found = table.chunks_exact(4).map(|coupon| four(coupon, 0));
    let found: Vec<u32> = found.filter(|coupon| *coupon != 0).collect();
    if found.len() != count {
        return Err(OTHER_COUNT);
    }
    if found.iter().any(|coupon| coupon >> PLACE_BITS == 0) {
        return Err("a value has no register");
    }
    if is_list && found.iter().enumerate().any(|(at, coupon)| found[..at].contains(coupon)) {
        return Err("it has a value twice");
    }
    let mut out = bytes[..before].to_vec();
    out[FLAGS] |= IS_COMPACT;
    found.iter().for_each(|coupon| out.extend(coupon.to_le_bytes()));
    Ok(out)
}

/// The bytes of an array of registers with eight bits each, of an array with any number of bits,
/// with sums that are those of its registers.
fn array(bytes: &[u8]) -> std::result::Result<Vec<u8>, &'static str> {
    let lg_k = bytes[LG_K];
    if bytes[..3] != [10, 1, 7] || !(4..=21).contains(&lg_k) || bytes.len() < BEFORE_ARRAY {
        return Err("its first bytes are not those of an array of registers");
    }
    let size = 1_usize << lg_k;
    let registers = match (bytes[MODE] >> 2) & 3 {
        0 => of_four_bits(bytes, size)?,
        1 => of_six_bits(bytes, size)?,
        2 => bytes[BEFORE_ARRAY..].get(..size).ok_or(TOO_SHORT)?.to_vec(),
        _ => return Err("its registers have no known number of bits"),
    };
    if registers.iter().any(|value| *value > VALUE_MAX) {
        return Err("a register has a value above 63");
    }
    let hip = f64::from_le_bytes(eight(bytes, HIP));
    if !hip.is_finite() || hip < 0.0 {
        return Err("the number of its values is none");
    }
    let zeros = registers.iter().filter(|value| **value == 0).count();
    let (mut small, mut large) = (0.0, 0.0);
    for value in &registers {
        let share = 0.5_f64.powi(i32::from(*value));
        if *value < 32 { small += share } else { large += share }
    }
    let mut out = vec![10, 1, 7, lg_k, 0, bytes[FLAGS] & OUT_OF_ORDER, 0, 2 | (2 << 2)];
    [hip, small, large].iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend((zeros as u64).to_le_bytes());
    out.extend(registers);
    Ok(out)
}

const TOO_SHORT: &str = "it is shorter than it says";

fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    word
}

fn four(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

/// Registers of six bits, the lowest bits first.
fn of_six_bits(bytes: &[u8], size: usize) -> std::result::Result<Vec<u8>, &'static str> {
    let packed = bytes[BEFORE_ARRAY..].get(..size / 4 * 3).ok_or(TOO_SHORT)?;
    let registers = packed.chunks_exact(3).flat_map(|three| {
        let [low, middle, high] = [three[0], three[1], three[2]].map(u32::from);
        let word = low | (middle << 8) | (high << 16);
        [0, 6, 12, 18].map(|shift| ((word >> shift) & 63) as u8)
    });
    Ok(registers.collect())
}

/// Registers of four bits, which count from the least value on. Those with all bits set are among
/// coupons behind them.
fn of_four_bits(bytes: &[u8], size: usize) -> std::result::Result<Vec<u8>, &'static str> {
    let packed = bytes[BEFORE_ARRAY..].get(..size / 2).ok_or(TOO_SHORT)?;
    let least = bytes[LEAST];
    if least > VALUE_MAX {
        return Err("a register has a value above 63");
    }
    let count = four(bytes, COUNT_OF_OTHERS) as usize;
    let places = match (bytes[FLAGS] & IS_COMPACT != 0, count) {
        (_, 0) => 0,
        (true, count) => count,
        (false, _) if bytes[LG_TABLE] <= 21 => 1 << bytes[LG_TABLE],
        (false, _) => return Err(TOO_SHORT),
    };
    let length = places.checked_mul(4).ok_or(TOO_SHORT)?;
    let coupons = bytes[BEFORE_ARRAY + size / 2..].get(..length).ok_or(TOO_SHORT)?;
    let mut registers: Vec<u8> =
        packed.iter().flat_map(|two| [two & 15, two >> 4]).map(|low| low + least).collect();
    for coupon in coupons.chunks_exact(4).map(|coupon| four(coupon, 0)) {
        if coupon != 0 {
            registers[coupon as usize % size] = (coupon >> PLACE_BITS) as u8;
        }
    }
    Ok(registers)
}

/// The bytes of an HLL sketch, as Java's `toUpdatableByteArray` makes them: with room for as many
/// values as its list or table takes.
pub(in crate::functions) fn written(sketch: &HllSketch) -> Vec<u8> {
    let mut bytes = sketch.serialize();
    if bytes[MODE] & 3 == 2 {
        return bytes;
    }
    bytes[FLAGS] &= !IS_COMPACT;
    let before = if bytes[MODE] & 3 == 0 { BEFORE_LIST } else { BEFORE_TABLE };
    let lg_table = u32::from(bytes[LG_TABLE]);
    let coupons: Vec<u32> = bytes[before..].chunks_exact(4).map(|coupon| four(coupon, 0)).collect();
    bytes.truncate(before);
    let mut table = vec![0_u32; 1 << lg_table];
    for (at, coupon) in coupons.into_iter().enumerate() {
        let place = if before == BEFORE_LIST { at } else { free(&table, lg_table, coupon) };
        table[place] = coupon;
    }
    table.iter().for_each(|coupon| bytes.extend(coupon.to_le_bytes()));
    bytes
}

/// The first free place of a coupon in a table, which is never full.
fn free(table: &[u32], lg_table: u32, coupon: u32) -> usize {
    let mask = table.len() - 1;
    let stride = ((coupon & ((1 << PLACE_BITS) - 1)) >> lg_table) as usize | 1;
    let mut place = coupon as usize & mask;
    while table[place] != 0 {
        place = (place + stride) & mask;
    }
    place
}
