//! Cutting a query's plan at its stateful operators.
//!
//! DataFusion would compute an aggregate over the rows of one run of a plan; over a stream it must
//! be computed over all micro-batches. So each such node is taken out of the logical plan: what
//! is below it becomes a plan of its own, which ends in the operator's input rows, and in its place
//! comes a leaf that gives the operator's output. The pieces are stateless, and are optimised and
//! run like any other plan ([`super::stateful_plan`]).
//!
//! [`lineage`] follows event times through the plan: which columns are bound to a watermark, and so
//! let the operators close what is complete.

mod aggregate;
mod computed_times;
mod deduplicate;
mod group_keys;
mod grouping_sets;
mod having;
mod in_words;
mod join;
mod lineage;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col};
use millstream_sql::query::streams::SUBQUERY_PREFIX;
use thiserror::Error;

use super::stream_scan::{Slots, StreamTable};
use crate::api::settings::OutputMode;
use crate::state::aggregate::spec::TimeKey;
pub use aggregate::PartialAggregate;
pub use computed_times::{ComputedTime, computed_time};
pub use deduplicate::{Deduplication, is_within_watermark};
pub use group_keys::groups_beside;
pub use join::{JoinSide, StreamedJoin};
pub use lineage::{EventTime, Lineage};

/// Why a query cannot be run over a stream.
#[derive(Debug, Error)]
pub enum CutError {
    /// Nothing says when groups are complete.
    #[error(
        "with outputMode 'append' a group is published when it is complete, but no GROUP BY \
         expression is an event time with a watermark"
    )]
    NeverComplete,
    /// A second operator needs rows that do not change any more.
    #[error(
        "outputMode '{mode}' is for a query with one operator that keeps state, and this one has \
         several"
    )]
    Several {
        /// The mode's name.
        mode: &'static str,
    },
    /// There is no event time by which keys could be evicted.
    #[error("DISTINCT ON (...) WITHIN WATERMARK needs an event time with a watermark")]
    NoWatermark,
    /// Every row of one stream would have to be compared with every row of the other.
    #[error("a join of two streams needs an equality between them in its condition")]
    NoJoinKey,
    /// Nothing says when a row of an outer join can have no more partners.
    #[error(
        "an outer join publishes a row of the {side} stream without a partner when none can come \
         any more, but nothing says when that is"
    )]
    NeverAlone {
        /// Which side is kept.
        side: &'static str,
    },
    /// A session never ends.
    #[error(
        "with outputMode 'append' session_window needs a watermark, without which no session ever \
         ends"
    )]
    NeverEnds,
    /// Only an aggregation gives all its rows again.
    #[error("outputMode 'complete' is for aggregations, and this query has none")]
    NothingToComplete,
    /// Something that is not possible over one stream or two, in words.
    #[error("{what} is not supported")]
    Unsupported {
        /// What, as it may begin a sentence.
        what: String,
        /// What to write instead.
        help: String,
    },
    /// DataFusion could not put the pieces together.
    #[error(transparent)]
    Plan(#[from] DataFusionError),
}

impl CutError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::NeverComplete => "write FROM STREAM t WATERMARK ts DELAY OF INTERVAL 10 SECONDS \
                and group by window(ts, '1 minute'), or set outputMode to 'update'"
                .to_owned(),
            Self::NeverEnds => "write FROM STREAM t WATERMARK ts DELAY OF INTERVAL 10 SECONDS and \
                take session_window of that column, or set outputMode to 'complete'"
                .to_owned(),
            Self::NoWatermark => {
                "write FROM STREAM t WATERMARK ts DELAY OF INTERVAL 10 SECONDS".to_owned()
            }
            Self::NoJoinKey => "write JOIN ... ON a.id = b.id".to_owned(),
            Self::NeverAlone { .. } => "give both streams a WATERMARK, and add bounds such as \
                AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS to ON (...)"
                .to_owned(),
            Self::Several { .. } => "leave outputMode out: rows are appended".to_owned(),
            Self::NothingToComplete => "leave outputMode out, or set it to 'update'".to_owned(),
            Self::Unsupported { help, .. } => help.clone(),
            Self::Plan(_) => "please report this query".to_owned(),
        }
    }
}

/// A stateful operator, and the plans of its inputs.
pub struct Stage {
    /// What it does.
    pub kind: StageKind,
    /// By input, the plan below.
    pub inputs: Vec<LogicalPlan>,
    /// The columns of its output.
    pub output: SchemaRef,
    /// What these are called in the query.
    pub names: Vec<String>,
    /// Where its output rows are put for the plan above.
    pub slots: Arc<Slots>,
    /// By how much its input may be behind the query's watermark, microseconds.
    pub delay_us: i64,
}

/// What a stateful operator does.
pub enum StageKind {
    /// Groups rows.
    Aggregate {
        /// Group columns, and the functions.
        partial: PartialAggregate,
        /// How groups are closed; `None` where they never are.
        time: Option<TimeKey>,
    },
    /// Lets the first row of each key through.
    Deduplicate(Deduplication),
    /// Joins two streams.
    Join(StreamedJoin),
}

/// A plan in pieces.
pub struct Cut {
    /// From the sources upwards.
    pub stages: Vec<Stage>,
    /// What is above the last one.
    pub top: LogicalPlan,
}

/// The facts of a query that the cut needs.
pub struct Context<'a> {
    /// The prefix of the names under which plans know streams.
    pub stream_prefix: &'a str,
    /// By such a name, or that of a subquery with a watermark, the watermark.
    pub watermarks: &'a HashMap<String, Watermarked>,
    /// The query's output mode.
    pub mode: OutputMode,
    /// How many cores a micro-batch may use.
    pub partitions: usize,
}

/// A watermark in a plan.
#[derive(Clone, Debug)]
pub struct Watermarked {
    /// The column with the event time.
    pub column: String,
    /// How far it stays behind the newest event time, microseconds.
    pub delay_us: i64,
}

/// Tables that stand for operators begin with this.
const OPERATOR_PREFIX: &str = "__operator_";

/// Whether `plan` reads a stream.
pub fn reads_stream(plan: &LogicalPlan, stream_prefix: &str) -> bool {
    scans(plan)
        .iter()
        .any(|name| name.starts_with(stream_prefix) || name.starts_with(OPERATOR_PREFIX))
}

/// The tables that `plan` reads, and its subqueries with a watermark.
fn scans(plan: &LogicalPlan) -> Vec<String> {
    let mut scans = Vec::new();
    let visited = plan.apply(|node| {
        match node {
            LogicalPlan::TableScan(scan) => scans.push(scan.table_name.table().to_owned()),
            LogicalPlan::SubqueryAlias(alias)
                if alias.alias.table().starts_with(SUBQUERY_PREFIX) =>
            {
                scans.push(alias.alias.table().to_owned());
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "nothing fails on the way");
    scans
}

/// Whether `node` itself needs rows of earlier micro-batches.
fn is_stateful(node: &LogicalPlan, stream_prefix: &str) -> bool {
    match node {
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => reads_stream(node, stream_prefix),
        LogicalPlan::Join(join) => join::joins_streams(join, stream_prefix),
        _ => false,
    }
}

/// Whether `plan` has an operator that needs rows of earlier micro-batches.
pub fn has_state(plan: &LogicalPlan, stream_prefix: &str) -> bool {
    plan.exists(|node| Ok(is_stateful(node, stream_prefix))).unwrap_or(false)
}

/// Cuts `plan`, which is analysed and not optimised.
pub fn cut(plan: LogicalPlan, context: &Context<'_>) -> Result<Cut, CutError> {
    let mut cutter = Cutter { context, stages: Vec::new(), operators: HashMap::new() };
    let mut refused = None;
    let plan = join::conditions_into_joins(plan, context.stream_prefix)?;
    let plan = having::keys_below(plan, context.stream_prefix)?;
    let cut = plan.transform_up(|node| {
        if !is_stateful(&node, context.stream_prefix) {
            return Ok(Transformed::no(node));
        }
        match cutter.take_out(node) {
            Ok(leaf) => Ok(Transformed::yes(leaf)),
            Err(error) => {
                refused = Some(error);
                Err(DataFusionError::Plan("the cut was refused".to_owned()))
            }
        }
    });
    if let Some(refused) = refused {
        return Err(refused);
    }
    let (top, stages) = (cut?.data, cutter.stages);
    if stages.len() > 1 && context.mode != OutputMode::Append {
        return Err(CutError::Several { mode: context.mode.name() });
    }
    let aggregates = stages.iter().any(|stage| matches!(stage.kind, StageKind::Aggregate { .. }));
    if context.mode == OutputMode::Complete && !aggregates {
        return Err(CutError::NothingToComplete);
    }
    Ok(Cut { stages, top })
}

struct Cutter<'a> {
    context: &'a Context<'a>,
    stages: Vec<Stage>,
    /// By the name of an operator's table, what is known of its rows.
    operators: HashMap<String, OperatorTable>,
}

/// What is known of an operator's output.
pub struct OperatorTable {
    /// The event times among its columns.
    times: Vec<Option<EventTime>>,
    /// By how much its event times may be behind the query's watermark, microseconds.
    delay_us: i64,
}

impl Cutter<'_> {
    fn lineage(&self) -> Lineage<'_> {
        Lineage { streams: self.context.watermarks, operators: &self.operators }
    }

    /// Makes `node` a stage, and gives the leaf that takes its place.
    fn take_out(&mut self, node: LogicalPlan) -> Result<LogicalPlan, CutError> {
        match node {
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Distinct(node) => self.deduplicate(node),
            LogicalPlan::Join(node) => self.join(node),
            other => Err(CutError::Unsupported {
                what: format!("{} over a stream", other.display()),
                help: "without STREAM the same query runs as a batch query".to_owned(),
            }),
        }
    }

    /// By how much the rows of `input` may be behind the query's watermark, microseconds.
    fn delay_below(&self, input: &LogicalPlan) -> i64 {
        let operators = scans(input).into_iter().filter_map(|name| self.operators.get(&name));
        operators.map(|operator| operator.delay_us).max().unwrap_or(0)
    }

    /// The greatest delay of the watermarks below, microseconds.
    fn delay_us(&self, input: &LogicalPlan) -> i64 {
        let streams = self.context.watermarks;
        let delays = scans(input).into_iter().filter_map(|name| streams.get(&name));
        let operators = self.stages.iter().flat_map(|stage| &stage.inputs);
        let below = operators.flat_map(scans).filter_map(|name| streams.get(&name));
        delays.chain(below).map(|watermark| watermark.delay_us).max().unwrap_or(0)
    }

    /// Adds to the delay of the last operator's rows.
    fn wait_longer(&mut self, us: i64) {
        let last = format!("{OPERATOR_PREFIX}{}", self.stages.len() - 1);
        if let Some(operator) = self.operators.get_mut(&last) {
            operator.delay_us += us;
        }
    }

    /// A leaf with the columns of `schema` under their names, read from an operator's output of
    /// plain names; `times` are the event times among them.
    fn leaf(
        &mut self,
        kind: StageKind,
        inputs: Vec<LogicalPlan>,
        schema: &datafusion::common::DFSchema,
        times: Vec<Option<EventTime>>,
        delay_us: i64,
    ) -> Result<LogicalPlan, CutError> {
        let name = format!("{OPERATOR_PREFIX}{}", self.stages.len());
        let names =
            schema.fields().iter().map(|field| field.name().replace("count(Int64(1))", "count(*)"));
        let names = names.map(|name| name.trim_start_matches('_').to_owned()).collect();
        let plain = |(index, field): (usize, &Arc<Field>)| {
            Field::new(format!("c{index}"), field.data_type().clone(), field.is_nullable())
        };
        let plain: Vec<Field> = schema.fields().iter().enumerate().map(plain).collect();
        let output = Arc::new(Schema::new(plain));
        let slots = Slots::new(self.context.partitions);
        let table = StreamTable::new(name.clone(), Arc::clone(&output), Arc::clone(&slots));
        let columns = schema.iter().enumerate().map(|(index, (qualifier, field))| {
            let column = Expr::Column(datafusion::common::Column::new(
                Some(name.clone()),
                format!("c{index}"),
            ));
            column.alias_qualified(qualifier.cloned(), field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        let scan = LogicalPlanBuilder::scan(&name, provider_as_source(Arc::new(table)), None)?;
        let leaf = scan.project(columns)?.build()?;
        self.operators.insert(name, OperatorTable { times, delay_us });
        self.stages.push(Stage { kind, inputs, output, names, slots, delay_us });
        Ok(leaf)
    }
}

/// A column of the plan that lies below an operator.
fn plain(name: &str) -> Expr {
    col(datafusion::common::Column::new_unqualified(name))
}
