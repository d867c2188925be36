//! What came of a micro-batch that was handed to its sinks.

use crate::api::progress::{ConstraintProgress, SinkProgress};
use crate::api::sink::{Acknowledgement, RefusedRow};
use crate::api::source::Failure;

/// What came of a micro-batch.
pub(super) struct PublishResult {
    pub(super) acknowledgements: Acknowledgements,
    pub(super) rows_out: u64,
    /// What each sink got; empty where the query has one.
    pub(super) sinks: Vec<SinkProgress>,
    /// How many rows met each constraint.
    pub(super) constraints: Vec<ConstraintProgress>,
}

/// Completes when every sink has accepted a micro-batch.
pub(super) struct Acknowledgements {
    first: Acknowledgement,
    others: Vec<Acknowledgement>,
}

impl PublishResult {
    /// Of a query with one sink.
    pub(super) fn from_one(rows_out: u64, acknowledgement: Acknowledgement) -> Self {
        let acknowledgements = Acknowledgements { first: acknowledgement, others: Vec::new() };
        let (sinks, constraints) = (Vec::new(), Vec::new());
        Self { acknowledgements, rows_out, sinks, constraints }
    }
}

impl Acknowledgements {
    /// Sets that of the sink number `index`; those before it are set.
    pub(super) fn set(&mut self, index: usize, acknowledgement: Acknowledgement) {
        match index {
            0 => self.first = acknowledgement,
            _ => self.others.push(acknowledgement),
        }
    }

    /// Waits for all of them. Gives the moment of the last, microseconds since the epoch, and
    /// reports those of all to `each`; a sink that had accepted at once did at `handed_over_us`.
    pub(super) async fn accepted(
        self,
        handed_over_us: i64,
        mut each: impl FnMut(usize, i64),
    ) -> Result<i64, Failure> {
        let of_sink = RefusedRow::of_sink;
        let first = self.first.accepted().await.map_err(|failure| of_sink(failure, 0));
        let mut last_us = first?.unwrap_or(handed_over_us);
        each(0, last_us);
        for (index, other) in self.others.into_iter().enumerate() {
            let index = index + 1;
            let accepted = other.accepted().await.map_err(|failure| of_sink(failure, index));
            let moment_us = accepted?.unwrap_or(handed_over_us);
            each(index, moment_us);
            last_us = last_us.max(moment_us);
        }
        Ok(last_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_micro_batch_is_accepted_when_the_last_sink_accepts_it() {
        let later = |us: i64| Acknowledgement::Later(Box::pin(async move { Ok(us) }));
        let mut all = PublishResult::from_one(0, later(5)).acknowledgements;
        all.set(1, later(9));
        all.set(2, Acknowledgement::Done);
        let mut moments = Vec::new();
        let accepted = all.accepted(3, |sink, us| moments.push((sink, us))).await;
        assert_eq!(accepted.ok(), Some(9));
        assert_eq!(moments, [(0, 5), (1, 9), (2, 3)]);
    }
}
