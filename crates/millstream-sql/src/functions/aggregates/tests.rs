//! Partial states: rows aggregated in parts and merged give what all rows give at once.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
    RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::{Accumulator, AggregateUDF, EmitTo};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{cast, col, lit};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::SessionConfig;

use crate::functions::clock::BatchClock;
use crate::session::session;

/// Aggregates of one column each, with the columns they are tried on.
const OF_ONE: &[(&str, &[&str])] = &[
    ("sum", &["i", "d", "n"]),
    ("try_sum", &["i", "d", "n"]),
    ("avg", &["d", "n"]),
    ("try_avg", &["d", "n"]),
    ("count", &["i", "s"]),
    ("min", &["i", "d", "f", "g", "n", "s"]),
    ("max", &["i", "d", "f", "g", "n", "s"]),
    ("first_value", &["i", "s"]),
    ("last_value", &["i", "s"]),
    ("collect_list", &["i", "n", "s"]),
    ("collect_set", &["i", "s"]),
    ("approx_distinct", &["i", "f", "g", "s"]),
    ("median", &["d"]),
    ("mode", &["i", "s"]),
    ("stddev", &["d"]),
    ("stddev_pop", &["d"]),
    ("var_samp", &["d"]),
    ("var_pop", &["d"]),
    ("skewness", &["d"]),
    ("kurtosis", &["d"]),
    ("bool_and", &["b"]),
    ("bool_or", &["b"]),
    ("bit_and", &["i"]),
    ("bit_or", &["i"]),
    ("bit_xor", &["i"]),
];

/// Aggregates of two numbers.
const OF_TWO: &[&str] = &[
    "corr",
    "covar_samp",
    "covar_pop",
    "regr_count",
    "regr_avgx",
    "regr_avgy",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "min_by",
    "max_by",
];

fn rows() -> RecordBatch {
    let i = Int64Array::from(vec![Some(3), None, Some(7), Some(3), Some(-2), None]);
    let d = Float64Array::from(vec![Some(1.5), Some(-4.0), None, Some(2.25), Some(9.0), None]);
    let e = Float64Array::from(vec![Some(2.0), Some(3.5), Some(1.0), None, Some(8.0), None]);
    let n = Decimal128Array::from(vec![Some(250), None, Some(-125), Some(1), Some(99999), None]);
    let n = n.with_precision_and_scale(5, 2).expect("the numbers fit");
    let s = StringArray::from(vec![Some("q"), Some("p"), None, Some("q"), Some("r"), None]);
    let b = BooleanArray::from(vec![Some(true), None, Some(false), Some(true), None, None]);
    let (nan, infinite) = (f64::NAN, f64::INFINITY);
    let f = [Some(-nan), Some(1.0), Some(infinite), Some(-infinite), Some(nan), None];
    let g = Float32Array::from_iter(f.map(|value| value.map(|value| value as f32)));
    let f = Float64Array::from_iter(f);
    let columns: [(&str, ArrayRef); 8] = [
        ("i", Arc::new(i)),
        ("d", Arc::new(d)),
        ("e", Arc::new(e)),
        ("f", Arc::new(f)),
        ("g", Arc::new(g)),
        ("n", Arc::new(n)),
        ("s", Arc::new(s)),
        ("b", Arc::new(b)),
    ];
    RecordBatch::try_from_iter(columns).expect("the columns are as long as each other")
}

fn aggregate(name: &str) -> Arc<AggregateUDF> {
    let state = session(SessionConfig::new(), &BatchClock::default()).state();
    Arc::clone(state.aggregate_functions().get(name).unwrap_or_else(|| panic!("no {name}")))
}

/// A call of an aggregate, and what its arguments are for some rows.
struct Call {
    expr: AggregateFunctionExpr,
    args: Vec<Arc<dyn PhysicalExpr>>,
}

impl Call {
    fn new(name: &str, columns: &[&str], share: Option<f64>) -> Self {
        let schema = rows().schema();
        let columns = columns.iter().map(|name| col(name, &schema).expect("there is one"));
        Self::of(name, columns.chain(share.map(lit)).collect())
    }

    fn of(name: &str, args: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let builder = AggregateExprBuilder::new(aggregate(name), args.clone());
        let expr = builder.schema(rows().schema()).alias(name).build().expect("the types fit");
        Self { expr, args }
    }

    fn distinct(mut self) -> Self {
        let name = self.expr.fun().name();
        let builder = AggregateExprBuilder::new(aggregate(name), self.args.clone());
        let builder = builder.schema(rows().schema()).alias(name).distinct();
        self.expr = builder.build().expect("the types fit");
        self
    }

    fn values(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        let value = |arg: &Arc<dyn PhysicalExpr>| {
            let value = arg.evaluate(rows).expect("the column is there");
            value.into_array(rows.num_rows()).expect("it is an array")
        };
        self.args.iter().map(value).collect()
    }

    fn accumulator(&self) -> Box<dyn Accumulator> {
        self.expr.create_accumulator().expect("the types fit")
    }

    /// The result over the rows of `parts`, in one accumulator.
    fn whole(&self, parts: &[RecordBatch]) -> ScalarValue {
        let mut accumulator = self.accumulator();
        for part in parts {
            accumulator.update_batch(&self.values(part)).expect("it accumulates");
        }
        accumulator.evaluate().expect("there is a result")
    }

    /// The result over the rows of `parts`, each in an accumulator of its own and then merged.
    fn merged(&self, parts: &[RecordBatch]) -> ScalarValue {
        let mut all = self.accumulator();
        for part in parts {
            let mut one = self.accumulator();
            if part.num_rows() > 0 {
                one.update_batch(&self.values(part)).expect("it accumulates");
            }
            let state = one.state().expect("there is a state");
            let state: Vec<ArrayRef> =
                state.iter().map(|value| value.to_array().expect("it is a value")).collect();
            all.merge_batch(&state).expect("it merges");
        }
        all.evaluate().expect("there is a result")
    }

    /// The results of two groups, rows with even numbers and with odd ones; from merged states.
    fn grouped(&self, parts: &[RecordBatch]) -> ArrayRef {
        let mut all = self.expr.create_groups_accumulator().expect("it is supported");
        let mut row = 0;
        for part in parts {
            let groups: Vec<usize> = (row..row + part.num_rows()).map(|row| row % 2).collect();
            row += part.num_rows();
            let mut one = self.expr.create_groups_accumulator().expect("it is supported");
            one.update_batch(&self.values(part), &groups, None, 2).expect("it accumulates");
            let state = one.state(EmitTo::All).expect("there is a state");
            let groups: Vec<usize> = (0..state[0].len()).collect();
            all.merge_batch(&state, &groups, 2).expect("it merges");
        }
        all.evaluate(EmitTo::All).expect("there are results")
    }
}

fn slices(cuts: &[usize]) -> Vec<RecordBatch> {
    let rows = rows();
    cuts.windows(2).map(|cut| rows.slice(cut[0], cut[1] - cut[0])).collect()
}

/// The same, but for the last digits of doubles and the order of what has none.
fn alike(left: &ScalarValue, right: &ScalarValue) -> bool {
    match (left, right) {
        (ScalarValue::Float64(Some(left)), ScalarValue::Float64(Some(right))) => {
            left.total_cmp(right).is_eq() || (left - right).abs() < 1e-9
        }
        (ScalarValue::List(left), ScalarValue::List(right)) => {
            elements(&left.value(0)) == elements(&right.value(0))
        }
        (left, right) => left == right,
    }
}

fn elements(list: &ArrayRef) -> Vec<String> {
    let element = |at| ScalarValue::try_from_array(list, at).expect("it is there").to_string();
    let mut elements: Vec<String> = (0..list.len()).map(element).collect();
    elements.sort();
    elements
}

fn calls() -> Vec<(String, Call)> {
    let one = OF_ONE.iter().flat_map(|(name, columns)| {
        columns
            .iter()
            .map(move |column| (format!("{name}({column})"), (*name, vec![*column], None)))
    });
    let two = OF_TWO.iter().map(|name| (format!("{name}(d, e)"), (*name, vec!["d", "e"], None)));
    let shares = [("percentile", "d"), ("percentile_approx", "i"), ("percentile_approx", "n")];
    let shares = shares
        .map(|(name, column)| (format!("{name}({column}, 0.4)"), (name, vec![column], Some(0.4))));
    let all = one.chain(two).chain(shares);
    all.map(|(text, (name, columns, share))| (text, Call::new(name, &columns, share))).collect()
}

#[test]
fn merged_states_give_the_result_of_all_rows() {
    for (text, call) in calls() {
        let whole = call.whole(&slices(&[0, 6]));
        for cuts in [&[0, 1, 2, 3, 4, 5, 6][..], &[0, 0, 4, 4, 6], &[0, 2, 6]] {
            let merged = call.merged(&slices(cuts));
            assert!(alike(&whole, &merged), "{text}, {cuts:?}: {merged} for {whole}");
        }
    }
}

#[test]
fn nothing_at_all_is_as_nothing_merged() {
    for (text, call) in calls() {
        let (whole, merged) = (call.whole(&[]), call.merged(&slices(&[0, 0, 0])));
        assert!(alike(&whole, &merged), "{text}: {merged} for {whole}");
    }
}

#[test]
fn accumulators_of_groups_give_what_those_of_one_group_give() {
    let mut tried = 0;
    for (text, call) in calls() {
        if !call.expr.groups_accumulator_supported() {
            continue;
        }
        tried += 1;
        let every_row = slices(&[0, 1, 2, 3, 4, 5, 6]);
        let results = call.grouped(&slices(&[0, 2, 5, 6]));
        for group in 0..2 {
            let rows: Vec<RecordBatch> = every_row.iter().skip(group).step_by(2).cloned().collect();
            let whole = call.whole(&rows);
            let found = ScalarValue::try_from_array(&results, group).expect("it is there");
            assert!(alike(&whole, &found), "{text}, group {group}: {found} for {whole}");
        }
    }
    assert!(tried > 25, "only {tried} calls have accumulators of groups");
}

#[test]
fn a_sum_that_does_not_fit_is_remembered_in_its_state() {
    let most = Int64Array::from(vec![i64::MAX, 1]);
    let rows = RecordBatch::try_from_iter([("i", Arc::new(most) as ArrayRef)]).expect("it is one");
    let call = Call::new("try_sum", &["i"], None);
    let small = slices(&[0, 1])[0].project(&[0]).expect("the column is there");
    assert!(call.merged(&[rows.clone(), small.clone()]).is_null());
    assert!(call.merged(&[small, rows.clone()]).is_null());
    let sum = Call::new("sum", &["i"], None);
    assert!(sum.accumulator().update_batch(&sum.values(&rows)).is_err());
}

#[test]
fn a_sum_fails_where_one_on_the_way_does_not_fit() {
    let sum_of = |values: Vec<i64>| {
        let rows = [("i", Arc::new(Int64Array::from(values)) as ArrayRef)];
        let rows = RecordBatch::try_from_iter(rows).expect("it is one");
        let call = Call::new("sum", &["i"], None);
        let mut sum = call.accumulator();
        sum.update_batch(&call.values(&rows)).ok()?;
        sum.evaluate().ok()
    };
    let is = |sum: i64| Some(ScalarValue::Int64(Some(sum)));
    assert_eq!(sum_of(vec![i64::MAX, 1, -1]), None);
    assert_eq!(sum_of(vec![i64::MIN, -1, 1]), None);
    assert_eq!(sum_of(vec![i64::MAX, -1, 1]), is(i64::MAX));
    assert_eq!(sum_of(vec![i64::MAX - 9, 4, 5]), is(i64::MAX));
    assert_eq!(sum_of(vec![i64::MIN, i64::MAX, 0]), is(-1));
    assert_eq!(sum_of((-1_000..=2_000).collect()), is(1_500_500));
    assert_eq!(sum_of(vec![]), Some(ScalarValue::Int64(None)));
}

#[test]
fn a_result_is_there_again_and_again_while_rows_come() {
    let mut calls = calls();
    for (name, column) in [("sum", "i"), ("avg", "n"), ("collect_list", "s")] {
        let call = Call::new(name, &[column], None).distinct();
        calls.push((format!("{name}(DISTINCT {column})"), call));
    }
    for (text, call) in calls {
        let mut growing = call.accumulator();
        for (at, row) in slices(&[0, 1, 2, 3, 4, 5, 6]).iter().enumerate() {
            growing.update_batch(&call.values(row)).expect("it accumulates");
            let whole = call.whole(&slices(&[0, at + 1]));
            for _ in 0..2 {
                let found = growing.evaluate().expect("there is a result");
                assert!(alike(&whole, &found), "{text} up to {at}: {found} for {whole}");
            }
        }
    }
}

#[test]
fn frames_that_move_give_the_results_of_their_rows() {
    let mut tried = 0;
    for (text, call) in calls() {
        let Ok(mut frame) = call.expr.create_sliding_accumulator() else { continue };
        tried += 1;
        let (mut start, mut end) = (0, 0);
        for (new_start, new_end) in [(0, 2), (0, 3), (1, 4), (3, 5), (4, 5), (4, 6), (5, 6)] {
            frame.update_batch(&call.values(&slices(&[end, new_end])[0])).expect("it takes rows");
            let gone = call.values(&slices(&[start, new_start])[0]);
            frame.retract_batch(&gone).expect("it loses rows");
            (start, end) = (new_start, new_end);
            let whole = call.whole(&slices(&[start, end]));
            let found = frame.evaluate().expect("there is a result");
            assert!(alike(&whole, &found), "{text}, {start} to {end}: {found} for {whole}");
        }
    }
    assert!(tried > 60, "only {tried} calls have frames that move");
}

/// The least and the greatest, of one group and of two.
fn extremes(values: &[f64]) -> [f64; 4] {
    let values: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
    let extreme = |name: &str| {
        let call = Call::new(name, &["f"], None);
        let mut one = call.accumulator();
        one.update_batch(&[Arc::clone(&values)]).expect("it accumulates");
        let one = one.evaluate().expect("there is a result");
        let one = one.to_array().expect("it is a value");
        let mut many = call.expr.create_groups_accumulator().expect("it is supported");
        let groups = vec![1; values.len()];
        many.update_batch(&[Arc::clone(&values)], &groups, None, 2).expect("it accumulates");
        let many = many.evaluate(EmitTo::All).expect("there are results");
        [one.as_primitive::<Float64Type>().value(0), many.as_primitive::<Float64Type>().value(1)]
    };
    let ([least, of_group_least], [greatest, of_group_greatest]) = (extreme("min"), extreme("max"));
    [least, of_group_least, greatest, of_group_greatest]
}

#[test]
fn nan_is_greater_than_all_numbers_wherever_it_comes() {
    let (nan, infinite) = (f64::NAN, f64::INFINITY);
    let cases = [
        (vec![nan, 1.0], 1.0, nan),
        (vec![1.0, nan], 1.0, nan),
        (vec![1.0, nan, 2.0], 1.0, nan),
        (vec![-nan, -infinite], -infinite, nan),
        (vec![infinite, nan], infinite, nan),
        (vec![nan, nan], nan, nan),
        (vec![infinite, infinite], infinite, infinite),
        (vec![-infinite, -infinite], -infinite, -infinite),
        (vec![-1.5, -2.5, 0.5], -2.5, 0.5),
    ];
    for (values, least, greatest) in cases {
        let found = extremes(&values).map(|value| value.to_string());
        let (least, greatest) = (least.to_string(), greatest.to_string());
        assert_eq!(found, [&*least, &*least, &*greatest, &*greatest], "{values:?}");
    }
}

#[test]
fn the_shares_of_a_percentile_may_be_computed_from_literals() {
    let schema = rows().schema();
    let column = || col("d", &schema).expect("there is one");
    let share = cast(lit("0.4"), &schema, DataType::Float64).expect("text can be a number");
    let call = Call::of("percentile", vec![column(), share]);
    let wanted = Call::new("percentile", &["d"], Some(0.4)).whole(&[rows()]);
    assert_eq!(call.whole(&[rows()]), wanted);
    let state = session(SessionConfig::new(), &BatchClock::default()).state();
    let array = Arc::clone(&state.scalar_functions()["make_array"]);
    let (shares, options) = (vec![lit(0.4), lit(1.0)], Arc::new(ConfigOptions::new()));
    let shares = ScalarFunctionExpr::try_new(array, shares, &schema, options);
    let call = Call::of("percentile", vec![column(), Arc::new(shares.expect("it is a list"))]);
    let found = call.whole(&[rows()]);
    let ScalarValue::List(found) = found else { panic!("{found} is no list") };
    let found: Vec<f64> = found.value(0).as_primitive::<Float64Type>().iter().flatten().collect();
    let ScalarValue::Float64(Some(first)) = wanted else { panic!("{wanted} is no DOUBLE") };
    assert_eq!(found, [first, 9.0]);
}

#[test]
fn numbers_far_from_zero_correlate_as_those_near_it() {
    let shifted = |by: f64| {
        let d = Float64Array::from(
            vec![1.0, 2.0, 4.0, 8.0].into_iter().map(|x| x + by).collect::<Vec<_>>(),
        );
        let e = Float64Array::from(vec![3.0, 1.0, 5.0, 6.0]);
        let values: [ArrayRef; 2] = [Arc::new(d), Arc::new(e)];
        let call = Call::new("corr", &["d", "e"], None);
        let mut groups = call.expr.create_groups_accumulator().expect("it is supported");
        groups.update_batch(&values, &[0; 4], None, 1).expect("it accumulates");
        groups
            .evaluate(EmitTo::All)
            .expect("there is a result")
            .as_primitive::<Float64Type>()
            .value(0)
    };
    let (near, far) = (shifted(0.0), shifted(1.7e9));
    assert!((near - far).abs() < 1e-9, "{far} for {near}");
}
