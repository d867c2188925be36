//! Letters run through their flow for nobody to see, before any of them is recorded as replayed.
//!
//! What a letter is recorded for is fed until it is written. Were the flow to fail with it, as with
//! FAIL UPDATE or a number that overflows, no later run could leave it out.

use std::ops::Range;

use super::replay::NotReplayed;
use super::{Body, Failure, FlowContext, PlannedFlow, load_tables};
use crate::constraints::{Checks, Remedy};
use crate::dead_letters::LetterSource;
use crate::failures::from_datafusion;
use crate::plan::StreamPlan;

impl PlannedFlow {
    /// Runs the letters that `sources` have chosen, source by source.
    ///
    /// Errors: the first letter with which the flow fails, and why.
    pub(super) async fn try_letters(
        &mut self,
        sources: &[LetterSource],
        context: &FlowContext,
    ) -> Result<(), Failure> {
        self.narrow_tables()?;
        load_tables(&self.at_rest, context).await?;
        self.batch_clock.set(self.env.now_us());
        let checks = self.checks().map(|checks| checks.with_remedy(Remedy::OfLetter));
        for branch in 0..self.branches.len() {
            if let Body::Stream(plan) = &mut self.branches[branch].body {
                plan.replan().await.map_err(from_datafusion)?;
            }
            for source in 0..sources.len() {
                self.try_source(branch, sources, source, checks.as_ref()).await?;
            }
        }
        Ok(())
    }

    /// Halves what fails until it is one letter.
    async fn try_source(
        &mut self,
        branch: usize,
        sources: &[LetterSource],
        source: usize,
        checks: Option<&Checks>,
    ) -> Result<(), Failure> {
        let mut ranges = Vec::new();
        ranges.push(0..sources[source].chosen().len());
        while let Some(range) = ranges.pop().filter(|range| !range.is_empty()) {
            let Err(problem) = self.try_range(branch, sources, source, range.clone(), checks).await
            else {
                continue;
            };
            if range.len() == 1 {
                let position = sources[source].chosen()[range.start].position.clone();
                return Err(NotReplayed::Refused { position, problem }.into());
            }
            let middle = range.start + range.len() / 2;
            ranges.push(middle..range.end);
            ranges.push(range.start..middle);
        }
        Ok(())
    }

    async fn try_range(
        &mut self,
        branch: usize,
        sources: &[LetterSource],
        source: usize,
        range: Range<usize>,
        checks: Option<&Checks>,
    ) -> Result<(), Failure> {
        let letters = &sources[source].chosen()[range];
        let mut splits: Vec<_> = sources.iter().map(|_| Vec::new()).collect();
        splits[source] = sources[source].splits(letters)?;
        let Body::Stream(plan) = &mut self.branches[branch].body else {
            unreachable!("what is read once has no letters")
        };
        let StreamPlan::Stateless(plan) = &mut **plan else {
            unreachable!("a flow with state was refused")
        };
        let rows = plan.run(&self.env, splits).await?;
        match checks {
            Some(checks) => checks.apply(rows).map(drop),
            None => Ok(()),
        }
    }
}
