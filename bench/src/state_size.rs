//! How large the state of a query was.

use serde::Serialize;

use crate::progress::Told;
use crate::report;

/// The part of a result line that says it: the most that was told at any time of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StateSize {
    /// Groups in memory.
    state_rows_max: u64,
    /// Their memory, as the engine measures it about once a second.
    state_mb_max: f64,
    /// Bytes of it in files, in millions, where its memory has a limit.
    spilled_mb_max: f64,
    /// Rows that were left out because they came late.
    rows_late: u64,
}

impl StateSize {
    /// Of a run.
    pub fn of(told: &[Told]) -> Self {
        let mb = |bytes: fn(&Told) -> u64| {
            report::rounded(told.iter().map(bytes).max().unwrap_or(0) as f64 / 1e6, 1)
        };
        Self {
            state_rows_max: told.iter().map(|told| told.state_rows).max().unwrap_or(0),
            state_mb_max: mb(|told| told.state_bytes),
            spilled_mb_max: mb(|told| told.spilled_bytes),
            rows_late: told.iter().map(|told| told.rows_late).sum(),
        }
    }

    /// Million bytes of memory.
    pub fn mb(&self) -> f64 {
        self.state_mb_max
    }
}
