//! Random letters, many per random number: the part of a message that its speed depends on.
//!
//! Letters are made in pairs, by a table, and five pairs from one number: its product with the
//! number of pairs has the pair's index in its upper half, and its lower half is the number that
//! the next pair is made from. All 62^10 results are equally likely, since the few numbers that
//! would favour some are drawn again (Brackett-Rozinsky and Lemire, "Batched ranged random integer
//! generation", 2024).

use crate::random::Random;

/// Letters of one random number: 62^10 is below 2^64, and 62^12 is above.
const BLOCK: usize = 10;
/// More than there are pairs of letters, so that a masked index needs no check.
const TABLE: usize = 4_096;

/// Letters to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// a-z and A-Z.
    Alpha,
    /// a-z, A-Z and 0-9.
    AlphaNumeric,
}

static ALPHA: [[u8; 2]; TABLE] = pairs(52);
static ALPHA_NUMERIC: [[u8; 2]; TABLE] = pairs(62);

const fn pairs(size: usize) -> [[u8; 2]; TABLE] {
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut table = [[0; 2]; TABLE];
    let mut at = 0;
    while at < size * size {
        table[at] = [letters[at / size], letters[at % size]];
        at += 1;
    }
    table
}

/// Appends `count` letters.
pub(crate) fn append(alphabet: Alphabet, count: usize, random: &mut Random, out: &mut Vec<u8>) {
    match alphabet {
        Alphabet::Alpha => append_from::<{ 52 * 52 }>(&ALPHA, count, random, out),
        Alphabet::AlphaNumeric => append_from::<{ 62 * 62 }>(&ALPHA_NUMERIC, count, random, out),
    }
}

fn append_from<const PAIRS: u64>(
    table: &[[u8; 2]; TABLE],
    count: usize,
    random: &mut Random,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + count, 0);
    let (blocks, rest) = out[start..].as_chunks_mut();
    for block in blocks {
        *block = block_from::<PAIRS>(table, random);
    }
    // A whole block more, of which only the beginning is used: simpler than making a shorter one.
    let last = if rest.is_empty() { [0; BLOCK] } else { block_from::<PAIRS>(table, random) };
    rest.copy_from_slice(&last[..rest.len()]);
}

#[inline]
fn block_from<const PAIRS: u64>(table: &[[u8; 2]; TABLE], random: &mut Random) -> [u8; BLOCK] {
    loop {
        if let Some(block) = block_of::<PAIRS>(table, random.next()) {
            return block;
        }
    }
}

/// Ten letters of a random number, unless it is one of those that would favour some.
///
/// Arrays and not slices: copying slices is a call of its own where the compiler does not optimise
/// across units, and then takes longer than everything else.
#[inline]
fn block_of<const PAIRS: u64>(table: &[[u8; 2]; TABLE], drawn: u64) -> Option<[u8; BLOCK]> {
    // 2^64 modulo the number of results: so many numbers are more than a multiple of it.
    let uneven = const { PAIRS.pow(5).wrapping_neg() % PAIRS.pow(5) };
    let mut left = drawn;
    let mut pair = || {
        // A multiplication in the place of a division with remainder, which takes many times
        // longer.
        let wide = u128::from(left) * u128::from(PAIRS);
        left = wide as u64;
        table[(wide >> 64) as usize % TABLE]
    };
    let ([a, b], [c, d], [e, f], [g, h], [i, j]) = (pair(), pair(), pair(), pair(), pair());
    (left >= uneven).then_some([a, b, c, d, e, f, g, h, i, j])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(alphabet: Alphabet) -> Vec<(u8, usize)> {
        let mut out = Vec::new();
        append(alphabet, 620_007, &mut Random::new(7), &mut out);
        assert_eq!(out.len(), 620_007);
        let of = |letter| out.iter().filter(|found| **found == letter).count();
        (0..=u8::MAX).map(|letter| (letter, of(letter))).filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn letters_come_equally_often() {
        for (alphabet, size) in [(Alphabet::Alpha, 52), (Alphabet::AlphaNumeric, 62)] {
            let counts = counts(alphabet);
            assert_eq!(counts.len(), size, "{alphabet:?}");
            let expected = 620_007 / size;
            for (letter, count) in counts {
                assert!(letter.is_ascii_alphanumeric());
                assert!(count.abs_diff(expected) < expected / 20, "{letter}: {count}");
            }
        }
    }

    /// Each of the ten places of a block, since each is made differently.
    #[test]
    fn letters_come_equally_often_at_each_place() {
        let mut out = Vec::new();
        append(Alphabet::AlphaNumeric, 620_000, &mut Random::new(3), &mut out);
        for place in 0..BLOCK {
            let mut counts = [0_i64; 256];
            for letter in out.iter().skip(place).step_by(BLOCK) {
                counts[usize::from(*letter)] += 1;
            }
            let squares: f64 = counts.iter().filter(|count| **count > 0).map(square).sum();
            // Chi-square with 61 degrees of freedom: above 110 less often than once in 10,000.
            assert!(squares < 110.0, "place {place}: {squares}");
        }
    }

    /// Of 2^64 numbers, so many more than a multiple of 62^10 are refused; 0 is the first of them.
    #[test]
    fn numbers_that_would_favour_some_letters_are_refused() {
        assert_eq!(block_of::<{ 62 * 62 }>(&ALPHA_NUMERIC, 0), None);
        assert_eq!(block_of::<{ 62 * 62 }>(&ALPHA_NUMERIC, 1), Some(*b"aaaaaaaaaa"));
        assert_eq!(block_of::<{ 62 * 62 }>(&ALPHA_NUMERIC, u64::MAX), Some(*b"9999999999"));
        let refused = |number: &u64| block_of::<{ 62 * 62 }>(&ALPHA_NUMERIC, *number).is_none();
        let mut random = Random::new(2);
        let count = (0..100_000).map(|_| random.next()).filter(refused).count();
        let expected = ((1_u128 << 64) % 62_u128.pow(10)) as f64 / 2.0_f64.powi(64) * 100_000.0;
        assert!((count as f64 - expected).abs() < 400.0, "{count}, not {expected}");
    }

    fn square(count: &i64) -> f64 {
        let off = (count - 1_000) as f64;
        off * off / 1_000.0
    }
}
