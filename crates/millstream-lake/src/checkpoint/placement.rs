//! Which part of a multi-part checkpoint a row belongs to.
//!
//! Parts are clustered by the hash that Spark's `repartition` uses, so that two writers with the
//! same number of parts write the same parts. The key is the path exactly as the action stores it,
//! which is URI-encoded; every action that is not about a file has a null key, whose hash is the
//! seed.
//!
//! Origin: protocol, "Multi-part checkpoint"; Spark's `Murmur3_x86_32`.

const SEED: u32 = 42;

/// The part, counted from zero, of the file action at `path`, among `parts`.
///
/// # Panics
/// With no parts.
pub fn part_of(path: &str, parts: u32) -> u32 {
    part_of_hash(spark_hash(path.as_bytes()), parts)
}

/// The part, counted from zero, that holds every action that is not about a file.
///
/// # Panics
/// With no parts.
pub fn part_of_other_actions(parts: u32) -> u32 {
    SEED % parts
}

/// The part of a path with this hash.
pub(super) fn part_of_hash(hash: i32, parts: u32) -> u32 {
    assert!(parts > 0, "a checkpoint has a part");
    let part = i64::from(hash).rem_euclid(i64::from(parts));
    u32::try_from(part).expect("a remainder is less than its divisor")
}

/// Spark's hash of a string. It is MurmurHash3 x86 32 with seed 42, but for the tail: each byte
/// left over after the words is mixed as a word of its own, with its sign.
pub fn spark_hash(bytes: &[u8]) -> i32 {
    let mut words = bytes.chunks_exact(4);
    let mut hash = SEED;
    for word in &mut words {
        let word = word.try_into().expect("a chunk of four bytes");
        hash = mix(hash, u32::from_le_bytes(word));
    }
    for byte in words.remainder() {
        hash = mix(hash, i32::from(byte.cast_signed()).cast_unsigned());
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    (hash ^ (hash >> 16)).cast_signed()
}

fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_like_spark() {
        let long = "part-00000-3f6e2c1a-0b1d-4a53-9a7e-000000000000-c000.snappy.parquet";
        let vectors = [
            ("", 142_593_372, [0, 12, 28]),
            ("a", 1_485_273_170, [2, 2, 18]),
            ("abc", 1_322_437_556, [2, 4, 52]),
            ("abcd", -396_302_900, [1, 12, 12]),
            ("hello", -1_008_564_952, [2, 8, 40]),
            ("Spark", 228_093_765, [0, 5, 5]),
            (long, -1_189_039_607, [1, 9, 9]),
            ("day=2026-01-01/part-0.parquet", -672_572_659, [2, 13, 13]),
            ("a%20b.parquet", 521_159_922, [0, 2, 50]),
            ("café", -1_360_878_028, [2, 4, 52]),
            ("abcdé", 1_633_936_390, [1, 6, 6]),
            ("ü", -1_098_725_648, [1, 0, 48]),
        ];
        for (path, hash, parts) in vectors {
            assert_eq!(spark_hash(path.as_bytes()), hash, "{path}");
            assert_eq!([3, 16, 64].map(|count| part_of(path, count)), parts, "{path}");
        }
        assert_eq!([3, 16, 64].map(part_of_other_actions), [0, 10, 42]);
    }

    #[test]
    fn doubling_splits_a_part_in_two() {
        for name in 0..1_000 {
            let path = format!("part-{name}.parquet");
            let (before, after) = (part_of(&path, 8), part_of(&path, 16));
            assert!(after == before || after == before + 8);
        }
    }
}
