//! Theta sketches, which count the different values of a set: their form as bytes, and the scalar
//! functions over them.
//!
//! Java writes a sketch compressed where it keeps several hashes: the differences of neighbours,
//! with as many bits as the largest one needs. That, and the forms of earlier versions, are read
//! and written by the crate of DataSketches; hashes are checked again, since it takes any order.

use arrow::array::ArrayRef;
use arrow::datatypes::Int64Type;
use datafusion::common::{Result, internal_err};
use datasketches::theta::CompactThetaSketch;

use super::super::define::{Arguments, Function, Param, returns_long};
use super::hashing::SEED_HASH;
use super::retained::{ALL, Gathering, Retained};
use super::{LG_NOMINAL_DEFAULT, binaries, lg_nominal, no_sketch, returns_sketch};

use Param::{OnlyBinary, OnlyInt};

/// A set of hashes; there is nothing to say of a value.
pub(in crate::functions) type Theta = Retained<()>;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("theta_sketch_estimate", &[OnlyBinary], returns_long, |args| {
        let sketches = args.binary(0);
        args.primitives::<Int64Type>(|row| {
            let sketch = sketches.get(row).map(|bytes| read("theta_sketch_estimate", bytes));
            Ok(sketch.transpose()?.map(|sketch| estimate(&sketch)))
        })
    }),
    Function::new("theta_union", &[OnlyBinary, OnlyBinary, OnlyInt], returns_sketch, union)
        .required(2),
    Function::new("theta_intersection", &[OnlyBinary, OnlyBinary], returns_sketch, |args| {
        of_two("theta_intersection", args, |one, other| one.intersection(other, |(), ()| ()))
    }),
    Function::new("theta_difference", &[OnlyBinary, OnlyBinary], returns_sketch, |args| {
        of_two("theta_difference", args, Retained::difference)
    }),
];

/// How many values there are, as Java computes and rounds it.
fn estimate(sketch: &Theta) -> i64 {
    let count = sketch.entries.len() as f64;
    // Rust rounds halves away from 0, Java upwards, which is the same from 0 on.
    (count * (ALL as f64 / sketch.theta as f64)).round() as i64
}

fn of_two(
    function: &str,
    args: &Arguments,
    combined: impl Fn(&Theta, &Theta) -> Theta,
) -> Result<ArrayRef> {
    let (ones, others) = (args.binary(0), args.binary(1));
    binaries(args, |row| match (ones.get(row), others.get(row)) {
        (Some(one), Some(other)) => {
            let (one, other) = (read(function, one)?, read(function, other)?);
            written(&combined(&one, &other)).map(Some)
        }
        _ => Ok(None),
    })
}

fn union(args: &Arguments) -> Result<ArrayRef> {
    const NAME: &str = "theta_union";
    let (ones, others) = (args.binary(0), args.binary(1));
    let sizes = (args.len() > 2).then(|| args.int(2));
    binaries(args, |row| {
        let default = Some(i32::from(LG_NOMINAL_DEFAULT));
        let size = sizes.as_ref().map_or(default, |sizes| sizes.get(row));
        let (Some(one), Some(other), Some(size)) = (ones.get(row), others.get(row), size) else {
            return Ok(None);
        };
        let mut union = Gathering::new(lg_nominal(NAME, Some(size))?);
        union.union(&read(NAME, one)?, |(), ()| ());
        union.union(&read(NAME, other)?, |(), ()| ());
        written(&union.trimmed()).map(Some)
    })
}

/// Reads a theta sketch for `function`.
pub(in crate::functions) fn read(function: &str, bytes: &[u8]) -> Result<Theta> {
    let refused = |why: &str| no_sketch(function, "theta", "theta_sketch_agg", why);
    let sketch = match CompactThetaSketch::deserialize(bytes) {
        Ok(sketch) => sketch,
        Err(error) => return refused(error.message()),
    };
    let (theta, is_empty) = (sketch.theta64(), sketch.is_empty());
    let mut entries: Vec<(u64, ())> = sketch.iter().map(|entry| (entry.hash(), ())).collect();
    entries.sort_unstable();
    if !entries.is_sorted_by(|one, next| one.0 < next.0) {
        return refused("it has a hash twice");
    }
    Ok(Retained { theta, is_empty, entries })
}

/// A sketch without values, which says nothing of its seed.
const EMPTY: [u8; 8] = [1, 3, 3, 0, 0, 0b0001_1110, 0, 0];

/// Read-only, compact and in order.
const FLAGS: u8 = 0b0001_1010;

/// That there is one hash, and all are kept.
const SINGLE: u8 = 0b0010_0000;

/// The bytes of a theta sketch, as Java's `toByteArrayCompressed` makes them.
pub(in crate::functions) fn written(sketch: &Theta) -> Result<Vec<u8>> {
    let count = sketch.entries.len();
    let is_empty = sketch.is_empty || (count == 0 && sketch.theta == ALL);
    if is_empty {
        return Ok(EMPTY.to_vec());
    }
    let (longs, flags): (u8, u8) = match (count, sketch.theta == ALL) {
        (1, true) => (1, FLAGS | SINGLE),
        (_, true) => (2, FLAGS),
        (_, false) => (3, FLAGS),
    };
    let mut bytes = Vec::with_capacity(8 * (3 + count));
    bytes.extend([longs, 3, 3, 0, 0, flags]);
    bytes.extend(SEED_HASH.to_le_bytes());
    if longs > 1 {
        bytes.extend((count as u64).to_le_bytes());
    }
    if longs > 2 {
        bytes.extend(sketch.theta.to_le_bytes());
    }
    sketch.entries.iter().for_each(|(hash, ())| bytes.extend(hash.to_le_bytes()));
    if count == 0 || longs == 1 {
        return Ok(bytes);
    }
    match CompactThetaSketch::deserialize(&bytes) {
        Ok(sketch) => Ok(sketch.serialize_compressed()),
        Err(error) => internal_err!("a theta sketch cannot be written: {}", error.message()),
    }
}
