//! How much of what has arrived one micro-batch takes.

use std::time::Duration;

/// Limits of one micro-batch, from the table's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `maxOffsetsPerTrigger`: take about this many rows at most.
    pub rows_max: Option<u64>,
    /// `minOffsetsPerTrigger`: wait until this many rows are there ...
    pub rows_min: Option<u64>,
    /// `maxTriggerDelay`: ... but not longer than this.
    pub delay_max: Duration,
}

/// Spark's default of `maxTriggerDelay`.
pub const DELAY_MAX_DEFAULT: Duration = Duration::from_secs(15 * 60);

impl Default for Limits {
    fn default() -> Self {
        Self { rows_max: None, rows_min: None, delay_max: DELAY_MAX_DEFAULT }
    }
}

/// Divides `rows_max` over partitions in proportion to what each has, at least one row for each
/// that has any: no partition starves, and with more partitions than rows the limit gives way.
/// Origin: the rule of Spark's Kafka source.
pub fn shares(rows_max: u64, available: &[u64]) -> Vec<u64> {
    let total: u64 = available.iter().sum();
    if total <= rows_max {
        return available.to_vec();
    }
    let share = |rows: u64| {
        // The product of two 64-bit counts may not fit into 64 bits.
        let exact = u128::from(rows_max) * u128::from(rows) / u128::from(total);
        u64::try_from(exact).expect("a share of rows_max is not above it").max(1).min(rows)
    };
    available.iter().map(|rows| share(*rows)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_proportional() {
        assert_eq!(shares(100, &[300, 100, 0]), [75, 25, 0]);
        assert_eq!(shares(10, &[3, 4]), [3, 4]);
        assert_eq!(shares(2, &[1_000_000, 1, 1]), [1, 1, 1]);
        assert_eq!(shares(0, &[5, 0]), [1, 0]);
        assert_eq!(shares(5, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn shares_fit(rows_max in 0..10_000_u64,
                      available in proptest::collection::vec(0..5_000_u64, 0..20)) {
            let shares = shares(rows_max, &available);
            let busy = available.iter().filter(|rows| **rows > 0).count() as u64;
            prop_assert!(shares.iter().sum::<u64>() <= rows_max + busy);
            for (share, rows) in shares.iter().zip(&available) {
                prop_assert!(share <= rows);
                prop_assert_eq!(*share == 0, *rows == 0);
            }
        }
    }
}
