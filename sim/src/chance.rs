//! Everything that a seed decides, drawn one after the other.

use std::ops::RangeInclusive;
use std::time::Duration;

use millstream_store::env::{Rng, SeededRng};

/// Draws that follow from a seed.
pub struct Chance(SeededRng);

impl Chance {
    /// The draws of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        self.0.next_u64()
    }

    /// A number of `range`, each as likely.
    pub fn among(&self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = range.into_inner();
        first + self.bits() % (last - first + 1)
    }

    /// True in `percent` of a hundred cases. Draws nothing where the answer is clear.
    pub fn percent(&self, percent: u64) -> bool {
        percent > 0 && self.bits() % 100 < percent
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&self, items: &[T]) -> T {
        items[self.among(0..=items.len() as u64 - 1) as usize]
    }

    /// Up to `max`, in microseconds; draws nothing if that is zero.
    pub fn up_to(&self, max: Duration) -> Duration {
        match max.as_micros() as u64 {
            0 => Duration::ZERO,
            us => Duration::from_micros(self.among(0..=us)),
        }
    }
}
