//! When each row is due, in whole microseconds and without rounding drift.
//!
//! With `r` rows per second and a ramp of `R` microseconds, `r·t²/2R` rows are due after `t` while
//! the ramp lasts, and from then on one every `1/r` seconds. Both directions (row to time, time to
//! rows) are computed from the start in integers wide enough to be exact, so that
//! `rows_due(due_us(n)) > n` and `rows_due(due_us(n) - 1) <= n` hold for every row however long a
//! query runs.

const SECOND_US: u128 = 1_000_000;

/// When each row is due, counted from the creation of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    rows_per_second: u64,
    ramp_up_us: u64,
    /// Rows that are due before the ramp ends.
    ramp_up_rows: u64,
}

impl Pace {
    /// `rows_per_second` rows a second, reached after a linear growth of `ramp_up_us`.
    ///
    /// # Panics
    /// When there are no rows per second.
    pub fn new(rows_per_second: u64, ramp_up_us: u64) -> Self {
        assert!(rows_per_second > 0, "a rate of no rows per second never makes progress");
        let area = u128::from(rows_per_second) * u128::from(ramp_up_us);
        let ramp_up_rows = to_u64(area.div_ceil(2 * SECOND_US));
        Self { rows_per_second, ramp_up_us, ramp_up_rows }
    }

    /// Rows in a second once the ramp is over.
    pub fn rows_per_second(self) -> u64 {
        self.rows_per_second
    }

    /// How long the rate grows.
    pub fn ramp_up_us(self) -> u64 {
        self.ramp_up_us
    }

    /// When `row` is due: microseconds after the start.
    pub fn due_us(self, row: u64) -> u64 {
        if row < self.ramp_up_rows {
            self.due_us_in_ramp(row)
        } else {
            to_u64(self.steady_dividend(row) / self.steady_divisor())
        }
    }

    /// How many rows are due `elapsed_us` after the start, the first one at 0.
    pub fn rows_due(self, elapsed_us: u64) -> u64 {
        let rate = u128::from(self.rows_per_second);
        let ramp = u128::from(self.ramp_up_us);
        let after = u128::from(elapsed_us) + 1;
        if elapsed_us < self.ramp_up_us {
            return to_u64((after * after * rate).div_ceil(2 * ramp * SECOND_US));
        }
        to_u64((rate * (2 * after - ramp)).div_ceil(2 * SECOND_US))
    }

    /// Appends the due times of `rows` to `times`, each plus `start_us`.
    pub fn extend_due_times(self, rows: std::ops::Range<u64>, start_us: i64, times: &mut Vec<i64>) {
        let steady_from = rows.start.max(self.ramp_up_rows).min(rows.end);
        let ramp = rows.start..steady_from;
        times.extend(ramp.map(|row| start_us.saturating_add_unsigned(self.due_us_in_ramp(row))));
        // One wide division for the first row; the others are small steps from there.
        let dividend = self.steady_dividend(steady_from);
        let base = start_us.saturating_add_unsigned(to_u64(dividend / self.steady_divisor()));
        let remainder = to_u64(dividend % self.steady_divisor());
        let divisor = 2 * self.rows_per_second;
        let steps = 0..rows.end - steady_from;
        times.extend(steps.map(|step| {
            base.saturating_add_unsigned((remainder + step * 2 * SECOND_US as u64) / divisor)
        }));
    }

    fn due_us_in_ramp(self, row: u64) -> u64 {
        let area = u128::from(row) * 2 * SECOND_US * u128::from(self.ramp_up_us);
        to_u64((area / u128::from(self.rows_per_second)).isqrt())
    }

    /// In the steady part row `n` is due at `n/r + R/2`: the ramp costs half its length.
    fn steady_dividend(self, row: u64) -> u128 {
        u128::from(row) * 2 * SECOND_US
            + u128::from(self.rows_per_second) * u128::from(self.ramp_up_us)
    }

    fn steady_divisor(self) -> u128 {
        2 * u128::from(self.rows_per_second)
    }
}

fn to_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
