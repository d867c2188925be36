//! Latency quantiles with little memory and no allocation per value.

use std::time::Duration;

/// Each power of two is divided into this many buckets: values are kept to within 1.6 %.
const BUCKETS_PER_DOUBLING: usize = 64;
const PRECISION_BITS: u32 = BUCKETS_PER_DOUBLING.trailing_zeros();
/// Longer values count as this one: 19 hours.
const VALUE_US_MAX: u64 = (1 << 36) - 1;
const BUCKETS: usize = (36 - PRECISION_BITS as usize + 1) * BUCKETS_PER_DOUBLING;

/// Counts of durations in buckets whose width grows with the value.
///
/// Values below 64 µs have a bucket for each microsecond; above, a bucket is 1/64 to 1/128 of its
/// value wide. (Gil Tene, HdrHistogram, has the same shape.)
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0, max_us: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: Duration) {
        let us = u64::try_from(value.as_micros()).unwrap_or(VALUE_US_MAX).min(VALUE_US_MAX);
        self.counts[bucket(us)] += 1;
        self.total += 1;
        self.max_us = self.max_us.max(us);
    }

    /// Adds what `other` has counted.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.total += other.total;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.max_us = 0;
    }

    /// The smallest kept value that at least `share` (0 to 1) of all values do not exceed; `None`
    /// without values.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        if self.total == 0 {
            return None;
        }
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        let counted = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        let bucket = counted.expect("the counts add up to the total");
        Some(Duration::from_micros(bucket_end_us(bucket).min(self.max_us)))
    }
}

fn bucket(us: u64) -> usize {
    let doublings = (u64::BITS - us.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    let within = (us >> doublings) as usize;
    doublings as usize * BUCKETS_PER_DOUBLING + within
}

/// The largest value that falls into a bucket.
fn bucket_end_us(bucket: usize) -> u64 {
    let doublings = (bucket / BUCKETS_PER_DOUBLING).saturating_sub(1);
    let within = (bucket - doublings * BUCKETS_PER_DOUBLING) as u64;
    ((within + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_hold_their_values() {
        let mut previous = 0;
        let values = (0..4_096).chain((12..36).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + power / 3]
        }));
        for us in values.chain([VALUE_US_MAX]) {
            let found = bucket(us);
            assert!(found >= previous, "{us} falls back from bucket {previous} to {found}");
            assert!(found < BUCKETS, "{us} is beyond the last bucket");
            let end = bucket_end_us(found);
            assert!(end >= us && end - us <= us / 64, "{us} is reported as {end}");
            previous = found;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for ms in 1..=1_000 {
            histogram.record(Duration::from_millis(ms));
        }
        for (share, ms) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = histogram.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!((found - ms).abs() <= ms * 0.016, "{share}: {found} instead of {ms}");
        }
    }

    #[test]
    fn sums_are_as_if_counted_together() {
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        left.record(Duration::from_micros(10));
        right.record(Duration::from_micros(30));
        left.add(&right);
        assert_eq!(left.quantile(0.5), Some(Duration::from_micros(10)));
        assert_eq!(left.quantile(1.0), Some(Duration::from_micros(30)));
        left.clear();
        assert_eq!(left.quantile(1.0), None);
    }
}
