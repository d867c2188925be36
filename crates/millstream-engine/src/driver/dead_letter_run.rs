//! Running all branches of a query before anything is published: where records that a plan cannot
//! compute are put aside.
//!
//! A record is put aside for all branches or for none, so that it can be fed to the flow again once
//! the query takes it. That is known when all plans have run.

use std::collections::BTreeMap;

use millstream_store::env::Env;

use super::all_ran::AllRan;
use super::branch::{Branch, Splits};
use super::decoded::{self, Decoded};
use crate::api::dead_letter::Letter;
use crate::api::source::{Failure, Kind};
use crate::plan::StreamPlan;
use crate::plan::failing_rows::{self, RecordId};

/// Runs the plans of `branches`, which have no state, over `input` or else `splits`.
pub(super) async fn run_all(
    branches: &mut [Branch],
    env: &Env,
    input: Option<&Decoded>,
    splits: &mut Splits,
) -> Result<AllRan, Failure> {
    let sources = input.map_or(splits.len(), |input| input.splits().len());
    let mut all: BTreeMap<RecordId, Letter> = BTreeMap::new();
    let (mut results, mut counts) = (Vec::new(), Vec::new());
    for branch in branches.iter_mut() {
        let sifted = branch.run_sifting(env, decoded::input(input, splits)).await?;
        counts.push(sifted.rejected.len());
        results.push(sifted.partitions);
        for rejected in sifted.rejected {
            all.entry(rejected.id).or_insert(rejected.letter);
        }
    }
    for (index, branch) in branches.iter_mut().enumerate() {
        if counts[index] == all.len() {
            continue;
        }
        let kept = input.and_then(|input| failing_rows::kept(&input.splits()));
        let (Some(kept), StreamPlan::Stateless(plan)) = (kept, &mut branch.plan) else {
            return Err(Failure::new(Kind::Bug, "several branches, and no rows that they share"));
        };
        let sifted = plan.sift(env, kept, &all.keys().copied().collect()).await?;
        if !sifted.rejected.is_empty() {
            return Err(Failure::new(Kind::Bug, "a row that was computed cannot be any more"));
        }
        results[index] = sifted.partitions;
    }
    let mut rejected = vec![Vec::new(); sources];
    for ((source, ..), letter) in all {
        rejected[source].push(letter);
    }
    Ok(AllRan { results, rejected })
}
