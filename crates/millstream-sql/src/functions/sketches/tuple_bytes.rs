//! Tuple sketches, which are theta sketches with a number beside each hash, as bytes.
//!
//! The crate of DataSketches has them with summaries of its user's, but takes no fewer than 32
//! hashes where Java takes 16; so what they do is in [`retained`](super::retained), and their bytes
//! are here.

use datafusion::common::Result;

use super::hashing::SEED_HASH;
use super::no_sketch;
use super::retained::{ALL, Retained};
use super::summaries::{Number, Summary};

/// A set of hashes with numbers.
pub(in crate::functions) type Tuple<N> = Retained<Summary<N>>;

/// The version of the form, and what says that it is a tuple sketch and a compact one.
const FORM: [u8; 3] = [3, 9, 1];

/// Read-only and compact.
const FLAGS: u8 = 0b1010;
const IS_EMPTY: u8 = 0b0100;
const IS_BIG_ENDIAN: u8 = 0b0001;

/// Reads a tuple sketch for `function`.
pub(in crate::functions) fn read<N: Number>(function: &str, bytes: &[u8]) -> Result<Tuple<N>> {
    match parsed(bytes) {
        Ok(sketch) => Ok(sketch),
        Err(why) => no_sketch(function, "tuple", N::MAKER, why),
    }
}

const TOO_SHORT: &str = "it is shorter than it says";

fn parsed<N: Number>(bytes: &[u8]) -> std::result::Result<Tuple<N>, &'static str> {
    let [longs, form @ .., flags, seed, more_of_seed] = bytes.get(..8).ok_or(TOO_SHORT)? else {
        return Err(TOO_SHORT);
    };
    if form[..3] != FORM || flags & IS_BIG_ENDIAN != 0 {
        return Err("its first bytes are those of something else");
    }
    // Earlier versions of Java's library have no seed there.
    if ![0, SEED_HASH].contains(&u16::from_le_bytes([*seed, *more_of_seed])) {
        return Err("it has another seed");
    }
    if flags & IS_EMPTY != 0 {
        return Ok(Retained::empty());
    }
    let count = if *longs == 1 { 1 } else { word(bytes, 8)? & u64::from(u32::MAX) };
    let theta = if *longs == 3 { word(bytes, 16)? } else { ALL };
    if !(1..=3).contains(longs) || !(1..=ALL).contains(&theta) {
        return Err("its first bytes do not fit together");
    }
    let each = 8 + Summary::<N>::SIZE;
    let entries = &bytes[8 * usize::from(*longs)..];
    if count.checked_mul(each as u64) != Some(entries.len() as u64) {
        return Err("its length is not that of as many values with such numbers");
    }
    let mut entries = entries
        .chunks_exact(each)
        .map(|entry| {
            let hash = word(entry, 0)?;
            let summary = Summary::<N>::read(&entry[8..]).ok_or("a number has no known mode")?;
            let is_kept = hash > 0 && hash < theta;
            if is_kept { Ok((hash, summary)) } else { Err("a hash is not among those kept") }
        })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    entries.sort_unstable_by_key(|(hash, _)| *hash);
    if !entries.is_sorted_by(|one, next| one.0 < next.0) {
        return Err("it has a hash twice");
    }
    Ok(Retained { theta, is_empty: false, entries })
}

/// Eight bytes as a number.
fn word(bytes: &[u8], at: usize) -> std::result::Result<u64, &'static str> {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).ok_or(TOO_SHORT)?;
    Ok(u64::from_le_bytes(word))
}

/// The bytes of a tuple sketch, as Java's `toByteArray` makes them.
pub(in crate::functions) fn written<N: Number>(sketch: &Tuple<N>) -> Vec<u8> {
    let count = sketch.entries.len();
    let (longs, flags): (u8, u8) = match (sketch.is_empty, count, sketch.is_estimate()) {
        (true, ..) => (1, FLAGS | IS_EMPTY),
        (_, 1, false) => (1, FLAGS),
        (.., true) => (3, FLAGS),
        (.., false) => (2, FLAGS),
    };
    let mut bytes = Vec::with_capacity(24 + count * (8 + Summary::<N>::SIZE));
    bytes.push(longs);
    bytes.extend(FORM);
    bytes.extend([0, flags]);
    bytes.extend(SEED_HASH.to_le_bytes());
    if longs > 1 {
        bytes.extend((count as u64).to_le_bytes());
    }
    if longs > 2 {
        bytes.extend(sketch.theta.to_le_bytes());
    }
    for (hash, summary) in &sketch.entries {
        bytes.extend(hash.to_le_bytes());
        summary.write(&mut bytes);
    }
    bytes
}
