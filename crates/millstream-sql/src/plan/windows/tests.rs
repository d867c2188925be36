//! What becomes of windows in a plan: the form that whatever runs the plan can rely on.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Column;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::{empty::EmptyTable, provider_as_source};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, col, lit,
};

use crate::functions::windows::{SESSION, WINDOW, function};
use crate::types::timestamp;
use crate::plan::windows::{WindowCall, WindowKind, lower};

fn events() -> LogicalPlanBuilder {
    let columns = vec![
        Field::new("ts", timestamp(), true),
        Field::new("k", DataType::Utf8, true),
        Field::new("gap", DataType::Utf8, true),
    ];
    let table = EmptyTable::new(Arc::new(Schema::new(columns)));
    let source = provider_as_source(Arc::new(table));
    LogicalPlanBuilder::scan("events", source, None).expect("the table can be scanned")
}

fn window(args: &[i64]) -> Expr {
    let udf: Arc<ScalarUDF> = function(WINDOW);
    let mut all = vec![col("ts")];
    all.extend(args.iter().map(|us| lit(*us)));
    udf.call(all)
}

fn session(gap: Expr) -> Expr {
    function(SESSION).call(vec![col("ts"), gap])
}

/// Groups by `window` and `k`, and lowers that.
fn lowered(window: Expr, is_stream: fn(&LogicalPlan) -> bool) -> (LogicalPlan, Aggregate) {
    let count = count_udaf().call(vec![lit(1)]);
    let plan = events().aggregate(vec![window, col("k")], vec![count]).expect("it is valid");
    let plan = plan.build().expect("it is valid");
    let names = plan.schema().field_names();
    let lowered = lower(plan, is_stream).expect("it can be lowered");
    assert_eq!(lowered.schema().field_names(), names, "the columns keep their names");
    let LogicalPlan::Projection(projection) = &lowered else { panic!("{lowered}") };
    let LogicalPlan::Aggregate(aggregate) = projection.input.as_ref() else { panic!("{lowered}") };
    let aggregate = aggregate.clone();
    (lowered, aggregate)
}

fn definition(aggregate: &Aggregate) -> Option<WindowCall> {
    let Expr::Column(column) = &aggregate.group_expr[0] else { panic!("it is no column") };
    assert_eq!(column.relation, None);
    WindowCall::of_column(&aggregate.input, column)
}

fn time() -> Expr {
    Expr::Column(Column::new(Some("events"), "ts"))
}

#[test]
fn a_window_without_overlap_is_a_call_of_window() {
    let (plan, aggregate) = lowered(window(&[60, 60, 5]), |_| true);
    let found = definition(&aggregate).expect("it is defined by a call");
    assert_eq!((found.kind, found.time), (WindowKind::Tumbling, time()));
    assert_eq!((found.size_us, found.slide_us, found.start_us), (60, 60, 5));
    assert!(!plan.exists(|node| Ok(matches!(node, LogicalPlan::Unnest(_)))).expect("no errors"));
}

#[test]
fn windows_that_overlap_are_a_list_that_is_unnested() {
    let (_, aggregate) = lowered(window(&[60, 30, -5]), |_| true);
    assert!(matches!(aggregate.input.as_ref(), LogicalPlan::Unnest(_)));
    let found = definition(&aggregate).expect("it is defined by a call");
    assert_eq!((found.kind, found.time), (WindowKind::Sliding, time()));
    assert_eq!((found.size_us, found.slide_us, found.start_us), (60, 30, -5));
}

#[test]
fn sessions_of_a_stream_are_left_for_state_to_merge() {
    let (_, aggregate) = lowered(session(lit(5_i64)), |_| true);
    let found = definition(&aggregate).expect("it is defined by a call");
    assert_eq!((found.kind, found.gap), (WindowKind::Session, lit(5_i64)));
    let (_, aggregate) = lowered(session(col("gap")), |_| true);
    let found = definition(&aggregate).expect("it is defined by a call");
    assert_eq!(found.gap, Expr::Column(Column::new(Some("events"), "gap")));
}

#[test]
fn sessions_of_a_batch_are_merged_in_the_plan() {
    let (plan, aggregate) = lowered(session(lit(5_i64)), |_| false);
    assert_eq!(definition(&aggregate), None);
    assert!(plan.exists(|node| Ok(matches!(node, LogicalPlan::Window(_)))).expect("no errors"));
}

#[test]
fn a_window_of_a_window_is_one_of_its_last_microsecond() {
    let inner = events().project(vec![window(&[60, 60, 0]).alias("w")]).expect("it is valid");
    let outer = function(WINDOW).call(vec![col("w"), lit(3600_i64)]);
    let count = count_udaf().call(vec![lit(1)]);
    let plan = inner.aggregate(vec![outer], vec![count]).and_then(LogicalPlanBuilder::build);
    let plan = lower(plan.expect("it is valid"), |_| true).expect("it can be lowered");
    let text = plan.display_indent().to_string();
    assert!(text.contains("window(window_time(w), Int64(3600), Int64(3600), Int64(0))"), "{text}");
}
