//! A streaming query's plan, with state or without.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;

use super::query_plan::QueryPlan;
use super::stateful_plan::StatefulPlan;
use super::stream_scan::Slots;
use crate::api::settings::OnError;
use crate::plan::places::SqlText;

/// A streaming query's plan.
pub enum StreamPlan {
    /// A micro-batch's result depends on its own rows only.
    Stateless(QueryPlan),
    /// It depends on earlier rows too.
    Stateful(Box<StatefulPlan>),
}

impl From<QueryPlan> for StreamPlan {
    fn from(plan: QueryPlan) -> Self {
        Self::Stateless(plan)
    }
}

impl StreamPlan {
    /// As [`QueryPlan::set_on_error`].
    pub fn set_on_error(&mut self, on_error: OnError, sql: &Arc<SqlText>) {
        match self {
            Self::Stateless(plan) => plan.set_on_error(on_error, sql),
            Self::Stateful(plan) => plan.set_on_error(on_error, sql),
        }
    }

    /// Plans again, with what the static tables hold now.
    pub async fn replan(&mut self) -> Result<()> {
        match self {
            Self::Stateless(plan) => plan.replan().await,
            Self::Stateful(plan) => plan.replan().await,
        }
    }

    /// By source, the columns that it reads; `None` where it reads nothing.
    pub fn columns_read(&self) -> Vec<Option<Vec<usize>>> {
        match self {
            Self::Stateless(plan) => plan.columns_read(),
            Self::Stateful(plan) => plan.columns_read(),
        }
    }

    /// Partitions of its scans: how many cores one micro-batch may use.
    pub fn partitions(&self) -> usize {
        match self {
            Self::Stateless(plan) => plan.partitions(),
            Self::Stateful(plan) => plan.partitions(),
        }
    }

    /// By source, where its rows are put.
    pub fn scans(&self) -> &[Arc<Slots>] {
        match self {
            Self::Stateless(plan) => plan.scans(),
            Self::Stateful(plan) => plan.scans(),
        }
    }

    /// The optimised logical plans that it is made of.
    pub fn logical(&self) -> Vec<Cow<'_, LogicalPlan>> {
        match self {
            Self::Stateless(plan) => vec![Cow::Borrowed(plan.logical())],
            Self::Stateful(plan) => plan.logical().map(Cow::Borrowed).collect(),
        }
    }

    /// The plan as text: logical and physical.
    pub fn explain(&self) -> (String, String) {
        match self {
            Self::Stateless(plan) => plan.explain(),
            Self::Stateful(plan) => plan.explain(),
        }
    }

    /// The plan, where it has state.
    pub fn stateful(&self) -> Option<&StatefulPlan> {
        match self {
            Self::Stateless(_) => None,
            Self::Stateful(plan) => Some(plan),
        }
    }
}
