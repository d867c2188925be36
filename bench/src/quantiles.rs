//! Latency quantiles.

use datasketches::common::SearchCriteria;
use datasketches::kll::KllSketch;
use serde::{Deserialize, Serialize};

/// The sketch's size. The default of 200 is off by up to 1.7 % of rank, which makes a p99 anything
/// from p97.3 to the maximum; this is off by at most 0.014 %, so that p99.9 means something. Below
/// about this many records the result is exact.
const SKETCH_K: u16 = 32_768;

/// Latencies of one run, in microseconds: an Apache DataSketches KLL sketch.
pub struct Latencies {
    sketch: KllSketch<i64>,
}

/// What a result line says about latency, in milliseconds. Zeros when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the records took at most this long.
    pub p50_ms: f64,
    /// Nine of ten.
    pub p90_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1000.
    pub p999_ms: f64,
    /// The slowest record.
    pub max_ms: f64,
}

/// What a line about a stage says, in milliseconds: the quantiles that are published for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OfStage {
    /// Half of them took at most this long.
    pub p50_ms: f64,
    /// 95 of 100.
    pub p95_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

impl Latencies {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self { sketch: KllSketch::new(SKETCH_K).expect("the sketch's size is in its range") }
    }

    /// Adds one record.
    pub fn add(&mut self, latency_us: i64) {
        self.sketch.update(latency_us);
    }

    /// How many records were added.
    pub fn count(&self) -> u64 {
        self.sketch.n()
    }

    /// The quantiles.
    pub fn quantiles(&self) -> Quantiles {
        let [p50_ms, p90_ms, p99_ms, p999_ms, max_ms] = self.ms([0.5, 0.9, 0.99, 0.999, 1.0]);
        Quantiles { p50_ms, p90_ms, p99_ms, p999_ms, max_ms }
    }

    /// The quantiles of a stage.
    pub fn of_stage(&self) -> OfStage {
        let [p50_ms, p95_ms, p99_ms, max_ms] = self.ms([0.5, 0.95, 0.99, 1.0]);
        OfStage { p50_ms, p95_ms, p99_ms, max_ms }
    }

    fn ms<const N: usize>(&self, ranks: [f64; N]) -> [f64; N] {
        let found = self.sketch.quantiles(&ranks, SearchCriteria::Inclusive);
        let found = found.expect("ranks lie between 0 and 1").unwrap_or_else(|| vec![0; N]);
        std::array::from_fn(|index| found[index] as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut latencies = Latencies::new();
        // A permutation of 1..=200_000: 77_777 and 200_000 have no common divisor.
        for index in 0..200_000_i64 {
            latencies.add(index * 77_777 % 200_000 + 1);
        }
        let quantiles = latencies.quantiles();
        assert_eq!(latencies.count(), 200_000);
        assert_eq!(quantiles.max_ms, 200.0);
        for (found, exact) in [
            (quantiles.p50_ms, 100.0),
            (quantiles.p90_ms, 180.0),
            (quantiles.p99_ms, 198.0),
            (quantiles.p999_ms, 199.8),
        ] {
            assert!((found - exact).abs() <= 0.06, "{found} is too far from {exact}");
        }
    }

    #[test]
    fn nothing_measured_is_zero() {
        assert_eq!(Latencies::new().quantiles(), Quantiles::default());
    }
}
