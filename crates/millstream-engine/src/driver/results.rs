//! What a micro-batch has come to, on its way to the outputs of the query.

use super::branch::Splits;
use super::decoded::Decoded;
use super::outputs::Partitions;
use super::side_outputs::Rejected;
use super::stateful_output::Computed;
use crate::api::progress::ConstraintProgress;

/// What a micro-batch has come to so far. The outputs take their rows out of it one after the
/// other.
pub(super) struct Results {
    /// The input of branches that have not run yet: what was decoded for all of them, or else
    /// `splits`.
    pub(super) input: Option<Decoded>,
    pub(super) splits: Splits,
    /// By branch, its result; `None` where it has not run yet, or the result is taken.
    pub(super) branches: Vec<Option<Partitions>>,
    /// By side output, what was rejected.
    pub(super) rejected: Vec<Rejected>,
    /// How many rows met each constraint.
    pub(super) constraints: Vec<ConstraintProgress>,
}

impl Results {
    /// Of a query with state, whose branches have all run.
    pub(super) fn from_state(computed: Computed) -> Self {
        let Computed { results, side_outputs, .. } = computed;
        Self {
            input: None,
            splits: Splits::new(),
            branches: results.into_iter().map(Some).collect(),
            rejected: side_outputs.into_iter().map(Rejected::from_rows).collect(),
            constraints: Vec::new(),
        }
    }
}
