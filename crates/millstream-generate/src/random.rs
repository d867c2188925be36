//! Random numbers: xoshiro256++ 1.0, seeded by `SplitMix64`.
//!
//! Written from the published algorithms of David Blackman and Sebastiano Vigna ("Scrambled linear
//! pseudorandom number generators", 2021; public domain). Fast, and not for secrets.

/// A stream of random numbers that its seed decides.
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut mixer = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut mixer)) }
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`, each as likely as any other (Lemire, "Fast random integer
    /// generation in an interval", 2019). `bound` is at least 1.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let mut wide = u128::from(self.next()) * u128::from(bound);
        if low(wide) < bound {
            let uneven = bound.wrapping_neg() % bound;
            while low(wide) < uneven {
                wide = u128::from(self.next()) * u128::from(bound);
            }
        }
        (wide >> 64) as u64
    }

    /// An index into something of `length` elements, at least one.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of `elements`, of which there is at least one.
    pub(crate) fn pick<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.index(elements.len())]
    }

    /// One of `words`, of which there is at least one.
    pub(crate) fn word<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.index(words.len())]
    }

    /// In [0, 1), in steps of 2^-53, as Java's `nextDouble`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// In [0, 1), in steps of 2^-24, as Java's `nextFloat`.
    pub(crate) fn unit_f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u32 << 24) as f32
    }
}

fn low(wide: u128) -> u64 {
    wide as u64
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the algorithm's definition.
    #[test]
    fn the_first_numbers_are_those_of_the_algorithm() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn split_mix_is_that_of_the_algorithm() {
        assert_eq!(split_mix(&mut 0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn all_numbers_below_a_bound_come_equally_often() {
        let mut random = Random::new(1);
        let mut counts = [0_i64; 7];
        for _ in 0..70_000 {
            counts[random.index(7)] += 1;
        }
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 500), "{counts:?}");
    }
}
