//! Taking an aggregation out of a plan.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionState;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan, Projection};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{
    AggregateFunctionExpr, LoweredAggregate, LoweredAggregateBuilder,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use millstream_sql::functions::nested_extremes::in_order;
use millstream_sql::functions::one_zero::{holds_float, one_zero};
use millstream_sql::plan::windows::WindowCall;

use super::grouping_sets::{by_plain_keys, check_times};
use super::in_words::in_words;
use super::lineage::EventTime;
use super::{CutError, Cutter, StageKind, plain};
use crate::api::settings::OutputMode;
use crate::state::aggregate::spec::{TimeKey, TimeKind};

/// The functions of an aggregation, over the columns of the plan below it.
///
/// That plan has the group columns first, called `k0`, `k1`, ..., then the functions' arguments.
#[derive(Clone)]
pub struct PartialAggregate {
    keys: usize,
    functions: Vec<Expr>,
    /// What the groups and functions are, in words: for messages, and to know the query again.
    pub described: Vec<String>,
}

impl Cutter<'_> {
    pub(super) fn aggregate(&mut self, node: Aggregate) -> Result<LogicalPlan, CutError> {
        let lineage = self.lineage();
        check_times(&node, &lineage, self.context.mode)?;
        let node = by_plain_keys(node)?;
        let times = node.group_expr.iter().map(|group| lineage.grouped(&node.input, group));
        let times: Vec<Option<EventTime>> = times.collect();
        let time = closing(&times);
        check(time, self.context.mode)?;
        // The output's sessions are finished: a session without a watermark is no event time for
        // the operators above.
        let times = times.into_iter().map(|time| time.and_then(EventTime::with_end));
        let mut times: Vec<Option<EventTime>> = times.collect();
        let below = Below::of(&node, time)?;
        let input = Projection::try_new(below.columns, Arc::clone(&node.input))?;
        let partial = PartialAggregate {
            keys: node.group_expr.len(),
            functions: below.functions,
            described: below.described,
        };
        let kind = StageKind::Aggregate { partial, time };
        times.resize(node.schema.fields().len(), None);
        let delay_us = self.delay_below(&node.input);
        self.leaf(kind, vec![LogicalPlan::Projection(input)], &node.schema, times, delay_us)
    }
}

/// Whether groups that close by `time` can be published in this mode.
fn check(time: Option<TimeKey>, mode: OutputMode) -> Result<(), CutError> {
    match (time.map(|time| time.kind), mode) {
        (Some(kind), OutputMode::Update) if kind.is_session() => Err(CutError::Unsupported {
            what: "outputMode 'update' with session_window over a stream".to_owned(),
            help: match kind {
                TimeKind::EndlessSession => CutError::NeverEnds.help(),
                _ => "leave outputMode out: a session is published when it has ended".to_owned(),
            },
        }),
        (Some(TimeKind::EndlessSession), OutputMode::Append) => Err(CutError::NeverEnds),
        (None, OutputMode::Append) => Err(CutError::NeverComplete),
        _ => Ok(()),
    }
}

/// The group column by which groups close. A session always is: its rows have different values of
/// it, so it can not be an ordinary key.
fn closing(times: &[Option<EventTime>]) -> Option<TimeKey> {
    let is_session = |time: &Option<EventTime>| {
        matches!(time, Some(EventTime::Session | EventTime::EndlessSession))
    };
    let session = times.iter().position(is_session);
    let column = session.or_else(|| times.iter().position(Option::is_some))?;
    let kind = match times[column]? {
        EventTime::Window { size_us } => TimeKind::Window { size_us },
        EventTime::Session => TimeKind::Session,
        EventTime::EndlessSession => TimeKind::EndlessSession,
        EventTime::Instant => TimeKind::Instant,
    };
    Some(TimeKey { column, kind })
}

/// What is computed below an aggregation.
struct Below {
    columns: Vec<Expr>,
    functions: Vec<Expr>,
    described: Vec<String>,
    /// The expressions that are among the columns already, with their names.
    known: Vec<(Expr, String)>,
}

impl Below {
    fn of(node: &Aggregate, time: Option<TimeKey>) -> Result<Self, CutError> {
        let (columns, functions, described) = (Vec::new(), Vec::new(), Vec::new());
        let mut below = Self { columns, functions, described, known: Vec::new() };
        for (index, group) in node.group_expr.iter().enumerate() {
            below.described.push(format!("by {}", group_in_words(&node.input, group)));
            let is_window = time.is_some_and(|time| {
                time.column == index && matches!(time.kind, TimeKind::Window { .. })
            });
            // Windows of one length differ by their ends alone, and a timestamp is a cheaper key
            // than a STRUCT.
            let key = if is_window { get_field(group.clone(), "end") } else { group.clone() };
            let key = with_one_nan(key, node.input.schema())?;
            below.columns.push(key.alias(format!("k{index}")));
        }
        for function in &node.aggr_expr {
            let function = below.function(function, node.input.schema())?;
            below.functions.push(function);
        }
        Ok(below)
    }

    /// The function over columns.
    fn function(&mut self, expr: &Expr, input: &DFSchema) -> Result<Expr, CutError> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias()
        else {
            return Err(unsupported(&expr.to_string()));
        };
        self.described.push(in_words(&expr.clone().unalias()));
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
        if distinct {
            return Err(CutError::Unsupported {
                what: format!("{}(DISTINCT ...) over a stream", func.name()),
                help: "write approx_count_distinct(...), which keeps little state".to_owned(),
            });
        }
        if !order_by.is_empty() {
            return Err(unsupported(&format!("{}(... ORDER BY ...)", func.name())));
        }
        let func = in_order(func.name(), &args, input).unwrap_or(func);
        let is_set = func.name() == "collect_set";
        let args = args.into_iter().map(|arg| match is_set {
            true => self.column(with_one_nan(arg, input)?),
            false => self.column(arg),
        });
        let args = args.collect::<Result<_, _>>()?;
        let filter = filter.map(|filter| self.column(*filter)).transpose()?.map(Box::new);
        let params = AggregateFunctionParams { args, distinct, filter, order_by, null_treatment };
        Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
    }

    /// A column with the value of `expr`. Constants stay in the function's arguments, because some
    /// functions need them when they are planned (the accuracy of `approx_percentile`, say).
    fn column(&mut self, expr: Expr) -> Result<Expr, CutError> {
        if expr.column_refs().is_empty() && !expr.is_volatile() {
            return Ok(ExprSimplifier::new(SimplifyContext::default()).simplify(expr)?);
        }
        if let Some((_, name)) = self.known.iter().find(|(known, _)| *known == expr) {
            return Ok(plain(name));
        }
        let name = format!("a{}", self.known.len());
        self.columns.push(expr.clone().alias(&name));
        self.known.push((expr, name.clone()));
        Ok(plain(&name))
    }
}

/// `expr` with one NaN and one zero, where it has FLOATs or DOUBLEs: those of different bits are
/// equal in Spark.
fn with_one_nan(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(match holds_float(&expr.get_type(schema)?) {
        true => one_zero().call(vec![expr.unalias()]),
        false => expr,
    })
}

/// A group expression; of a window its definition, since its name tells nothing.
fn group_in_words(input: &LogicalPlan, group: &Expr) -> String {
    let window = match group {
        Expr::Column(column) => WindowCall::of_column(input, column),
        _ => None,
    };
    window.map_or_else(|| in_words(group), |window| window.definition().to_string())
}

fn unsupported(what: &str) -> CutError {
    let help = "without STREAM the same query runs as a batch query".to_owned();
    CutError::Unsupported { what: format!("{what} over a stream"), help }
}

impl PartialAggregate {
    /// How many group columns there are.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The functions over the rows of a plan with these schemas.
    pub fn functions(
        &self,
        state: &SessionState,
        logical: &DFSchema,
        physical: &SchemaRef,
    ) -> Result<Vec<LoweredAggregate>> {
        let context = PhysicalPlanningContext::default();
        let lowered = self.functions.iter().enumerate().map(|(index, function)| {
            let properties = state.execution_props();
            LoweredAggregateBuilder::new(function, logical, physical, properties, &context)
                .with_name(format!("s{index}"))
                .build()
        });
        lowered.collect()
    }

    /// A plan that gives the partial aggregates of `input`'s rows.
    pub fn over(
        &self,
        input: Arc<dyn ExecutionPlan>,
        functions: Vec<LoweredAggregate>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = input.schema();
        let key = |index: usize| {
            let name = format!("k{index}");
            (Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>, name)
        };
        let group_by = PhysicalGroupBy::new_single((0..self.keys).map(key).collect());
        let (functions, filters): (Vec<Arc<AggregateFunctionExpr>>, Vec<_>) =
            functions.into_iter().map(|lowered| (lowered.aggregate, lowered.filter)).unzip();
        let mode = AggregateMode::Partial;
        let partial = AggregateExec::try_new(mode, group_by, functions, filters, input, schema)?;
        Ok(Arc::new(partial))
    }
}
