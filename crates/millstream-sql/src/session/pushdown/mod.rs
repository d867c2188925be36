//! Where DataFusion moves conditions to, where it must not.
//!
//! Of its rules two move conditions towards the tables: one in logical plans, which [`conditions`]
//! keeps from moving those that would have another effect there, and one in physical plans, also
//! for conditions that joins find out as they run. The latter finds columns by their names alone,
//! so that [`names`] keeps it from plans in which two columns have the same.
//!
//! Another rule makes two aggregations of one, and lets [`sums`] keep their types. Four others
//! leave out what follows from other columns, and [`dependencies`] takes away what they would go
//! by.

mod conditions;
mod dependencies;
mod names;
mod sums;

use std::sync::Arc;

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use conditions::Held;
use dependencies::{Forget, Forgetful};
use names::OfUniqueNames;
use sums::OfSameTypes;

/// DataFusion's rules, of which those that move conditions do so only where it has no effect on the
/// rows. Rules that are added must be added after this.
pub(super) fn limited(builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut logical = Optimizer::new().rules;
    for rule in logical.iter_mut().filter(|rule| rule.name() == conditions::RULE) {
        *rule = Arc::new(Held(Arc::clone(rule)));
    }
    for rule in logical.iter_mut().filter(|rule| rule.name() == sums::RULE) {
        *rule = Arc::new(OfSameTypes(Arc::clone(rule)));
    }
    let logical = logical.into_iter().flat_map(|rule| {
        let asks = dependencies::RULES.contains(&rule.name());
        let before = asks.then(|| Arc::new(Forget) as Arc<dyn OptimizerRule + Send + Sync>);
        before.into_iter().chain([rule])
    });
    let logical = logical.collect();
    let mut physical = PhysicalOptimizer::new().rules;
    for rule in physical.iter_mut().filter(|rule| names::RULES.contains(&rule.name())) {
        *rule = Arc::new(OfUniqueNames(Arc::clone(rule)));
    }
    let builder = builder.with_relation_planners(vec![Arc::new(Forgetful)]);
    builder.with_optimizer_rules(logical).with_physical_optimizer_rules(physical)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::functions::BatchClock;
    use crate::session;

    use super::*;

    /// A version of DataFusion that names its rules otherwise would bring the wrong answers back.
    #[test]
    fn the_rules_have_these_names() {
        let logical = Optimizer::new().rules;
        assert_eq!(logical.iter().filter(|rule| rule.name() == conditions::RULE).count(), 1);
        assert_eq!(logical.iter().filter(|rule| rule.name() == sums::RULE).count(), 1);
        for name in dependencies::RULES {
            assert!(logical.iter().any(|rule| rule.name() == name), "{name}");
        }
        let physical = PhysicalOptimizer::new().rules;
        let found = physical.iter().filter(|rule| names::RULES.contains(&rule.name()));
        assert_eq!(found.count(), names::RULES.len());
    }

    #[test]
    fn sessions_have_the_rules_of_datafusion_in_their_order() {
        let clock = BatchClock::default();
        let state = session::state(SessionConfig::new(), Arc::default(), &clock);
        let ours = state.optimizers().iter().map(|rule| rule.name());
        let ours: Vec<_> = ours.filter(|name| *name != Forget.name()).collect();
        let theirs = Optimizer::new().rules;
        assert_eq!(ours, theirs.iter().map(|rule| rule.name()).collect::<Vec<_>>());
        let ours: Vec<_> = state.physical_optimizers().iter().map(|rule| rule.name()).collect();
        let theirs = PhysicalOptimizer::new().rules;
        assert!(ours.starts_with(&theirs.iter().map(|rule| rule.name()).collect::<Vec<_>>()));
    }
}
