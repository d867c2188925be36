//! Running all branches of a query before anything is published: where expressions reject records.
//!
//! A record is rejected for all branches or for none, so that it can be fed to the flow again once
//! the query takes it. That is known when all plans have run.

use std::collections::BTreeMap;

use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;

use super::branch::{self, Splits};
use super::decoded::{self, Decoded};
use super::outputs::Partitions;
use crate::api::dead_letter::Letter;
use crate::api::source::Failure;
use crate::plan::StreamPlan;
use crate::plan::failing_rows::{self, RecordId};

/// What all branches of a query have made of a micro-batch.
pub(super) struct AllRan {
    /// By branch, its result.
    pub(super) results: Vec<Partitions>,
    /// By source, the records that expressions rejected, in order.
    pub(super) rejected: Vec<Vec<Letter>>,
}

/// Why branches cannot leave out the records that another one rejects.
#[derive(Debug, Error)]
enum RunAllError {
    /// The rows were not decoded for all branches together.
    #[error("several branches, and no rows that they share")]
    NothingShared,
    /// A plan rejects a record that it has computed before.
    #[error("a row that was computed cannot be any more")]
    NotRepeatable,
}

impl Classified for RunAllError {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}

/// Runs `plans`, which have no state, over `input` or else `splits`.
pub(super) async fn run_all(
    plans: &mut [StreamPlan],
    env: &Env,
    input: Option<&Decoded>,
    splits: &mut Splits,
) -> Result<AllRan, Failure> {
    let sources = input.map_or(splits.len(), |input| input.splits().len());
    let mut all: BTreeMap<RecordId, Letter> = BTreeMap::new();
    let (mut results, mut counts) = (Vec::new(), Vec::new());
    for plan in plans.iter_mut() {
        let ran = branch::run(plan, env, decoded::input(input, splits)).await?;
        counts.push(ran.rejected.len());
        results.push(ran.partitions);
        for rejected in ran.rejected {
            all.entry(rejected.id).or_insert(rejected.letter);
        }
    }
    for (index, plan) in plans.iter_mut().enumerate() {
        if counts[index] == all.len() {
            continue;
        }
        let kept = input.and_then(|input| failing_rows::kept(&input.splits()));
        let (Some(kept), StreamPlan::Stateless(plan)) = (kept, plan) else {
            return Err(RunAllError::NothingShared.into());
        };
        let ran = plan.run_in_pieces(env, kept, &all.keys().copied().collect()).await?;
        if !ran.rejected.is_empty() {
            return Err(RunAllError::NotRepeatable.into());
        }
        results[index] = ran.partitions;
    }
    let mut rejected = vec![Vec::new(); sources];
    for ((source, ..), letter) in all {
        rejected[source].push(letter);
    }
    Ok(AllRan { results, rejected })
}
