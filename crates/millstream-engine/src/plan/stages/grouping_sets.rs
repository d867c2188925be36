//! GROUP BY with ROLLUP, CUBE or GROUPING SETS over a stream, as an aggregation by plain keys.
//!
//! Each row is repeated for each set, as in Spark's Expand: with the set's number, and with NULL
//! for the keys that the set leaves out. The number is a key too, since a NULL may also be a value.
//! It has the bits that DataFusion gives it, because calls of `grouping` and `grouping_id` have
//! become expressions over them by now.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlanBuilder, cast, lit, when};

use super::CutError;
use super::lineage::{EventTime, Lineage};
use crate::api::settings::OutputMode;

/// The column with the number of the set that a repeated row is for.
const SET: &str = "__grouping_set";
/// How often a row may be repeated: CUBE of ten keys.
const SETS_MAX: usize = 1024;

/// The same aggregation by plain keys, with the schema of `node`; `node` itself if its keys are
/// plain already.
pub(super) fn by_plain_keys(node: Aggregate) -> Result<Aggregate, CutError> {
    let [Expr::GroupingSet(grouping)] = node.group_expr.as_slice() else { return Ok(node) };
    let keys: Vec<Expr> = grouping.distinct_expr().into_iter().cloned().collect();
    let numbers = numbers(&keys, &sets(grouping)?);
    let id_type = node.schema.field(keys.len()).data_type();
    let typed = numbers.iter().map(|number| ScalarValue::from(*number).cast_to(id_type));
    let list = ScalarValue::new_list_nullable(&typed.collect::<Result<Vec<_>>>()?, id_type);
    let columns = node.input.schema().columns().into_iter().map(Expr::Column);
    let input = LogicalPlanBuilder::from(Arc::clone(&node.input))
        .project(columns.chain([Expr::Literal(ScalarValue::List(list), None).alias(SET)]))?
        .unnest_column(Column::from_name(SET))?
        .build()?;
    let of_set = Expr::Column(Column::from_name(SET));
    let mut group_expr = Vec::with_capacity(keys.len() + 1);
    for (index, key) in keys.iter().enumerate() {
        group_expr.push(in_its_sets(key, 1 << (keys.len() - 1 - index), &numbers)?);
    }
    group_expr.push(of_set);
    let schema = Arc::clone(&node.schema);
    Ok(Aggregate::try_new_with_schema(Arc::new(input), group_expr, node.aggr_expr, schema)?)
}

/// Refuses a time by which groups are to close and that some set leaves out: in the rows of that
/// set it is NULL, and no group would ever close. A session is refused in any mode, since rows are
/// merged to sessions by a key that is one in all of them.
pub(super) fn check_times(
    node: &Aggregate,
    lineage: &Lineage<'_>,
    mode: OutputMode,
) -> Result<(), CutError> {
    let [Expr::GroupingSet(grouping)] = node.group_expr.as_slice() else { return Ok(()) };
    let sets = sets(grouping)?;
    let is_in_all = |key: &Expr| sets.iter().all(|set| set.contains(&key));
    let keys = grouping.distinct_expr().into_iter();
    let times = keys.filter_map(|key| Some((lineage.grouped(&node.input, key)?, is_in_all(key))));
    let times: Vec<(EventTime, bool)> = times.collect();
    let closes = times.iter().any(|(_, is_whole)| *is_whole);
    for (time, _) in times.into_iter().filter(|(_, is_whole)| !is_whole) {
        let (what, key) = match time {
            EventTime::Session | EventTime::EndlessSession => {
                ("session_window", "session_window(...)")
            }
            _ if closes || mode == OutputMode::Complete => continue,
            EventTime::Window { .. } => ("window", "window(...)"),
            EventTime::Instant => ("an event time", "ts"),
        };
        return Err(CutError::Unsupported {
            what: format!("{what} that some grouping sets leave out, over a stream,"),
            help: format!("put it into all sets: GROUP BY {key}, ROLLUP(k)"),
        });
    }
    Ok(())
}

/// The keys of each set.
fn sets(grouping: &GroupingSet) -> Result<Vec<Vec<&Expr>>, CutError> {
    let too_many = || CutError::Unsupported {
        what: format!("GROUP BY with more than {SETS_MAX} grouping sets over a stream"),
        help: "write those that you need: GROUP BY GROUPING SETS ((a, b), (a))".to_owned(),
    };
    match grouping {
        GroupingSet::Rollup(keys) => {
            Ok((0..=keys.len()).rev().map(|length| keys[..length].iter().collect()).collect())
        }
        GroupingSet::Cube(keys) if keys.len() > SETS_MAX.ilog2() as usize => Err(too_many()),
        GroupingSet::Cube(keys) => {
            let of = |members: usize| {
                let is_member = |(index, _): &(usize, &Expr)| members >> index & 1 == 1;
                keys.iter().enumerate().filter(is_member).map(|(_, key)| key).collect()
            };
            Ok((0..1 << keys.len()).map(of).collect())
        }
        GroupingSet::GroupingSets(sets) if sets.len() > SETS_MAX => Err(too_many()),
        GroupingSet::GroupingSets(sets) => {
            Ok(sets.iter().map(|set| set.iter().collect()).collect())
        }
    }
}

/// By set, its number: a bit for each key that it leaves out, that of the last key lowest, and
/// above these how often the same set stands before it.
fn numbers(keys: &[Expr], sets: &[Vec<&Expr>]) -> Vec<u64> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let number = |set: &Vec<&Expr>| {
        let bits = keys.iter().fold(0, |bits, key| bits << 1 | u64::from(!set.contains(&key)));
        let before = seen.entry(bits).or_default();
        let number = bits | *before << keys.len();
        *before += 1;
        number
    };
    sets.iter().map(number).collect()
}

/// `key` in the rows of its sets, and NULL in others. One that all sets have stays as it is, so
/// that it may be an event time.
fn in_its_sets(key: &Expr, bit: u64, numbers: &[u64]) -> Result<Expr> {
    if numbers.iter().all(|number| number & bit == 0) {
        return Ok(key.clone());
    }
    let set = cast(Expr::Column(Column::from_name(SET)), arrow::datatypes::DataType::UInt64);
    let without: Vec<Expr> =
        numbers.iter().filter(|number| *number & bit == 0).map(|number| lit(*number)).collect();
    when(set.in_list(without, false), key.clone()).end()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::logical_expr::{col, table_scan};

    use super::*;
    use crate::plan::stages::Watermarked;

    fn numbers_of(grouping: &GroupingSet) -> Vec<u64> {
        let keys: Vec<Expr> = grouping.distinct_expr().into_iter().cloned().collect();
        numbers(&keys, &sets(grouping).unwrap())
    }

    #[test]
    fn a_set_has_a_bit_for_each_key_that_it_leaves_out() {
        let keys = || vec![col("a"), col("b")];
        assert_eq!(numbers_of(&GroupingSet::Rollup(keys())), [0, 1, 3]);
        assert_eq!(numbers_of(&GroupingSet::Cube(keys())), [3, 1, 2, 0]);
        let sets = vec![vec![col("a")], vec![col("b")], vec![col("a")], vec![], vec![col("a")]];
        assert_eq!(numbers_of(&GroupingSet::GroupingSets(sets)), [1, 2, 5, 3, 9]);
    }

    #[test]
    fn too_many_sets_are_refused() {
        let keys = |count: usize| (0..count).map(|key| col(format!("k{key}"))).collect();
        assert_eq!(sets(&GroupingSet::Cube(keys(10))).unwrap().len(), SETS_MAX);
        let refused = sets(&GroupingSet::Cube(keys(60))).unwrap_err();
        assert!(refused.to_string().contains("more than 1024 grouping sets"), "{refused}");
    }

    #[test]
    fn a_time_by_which_groups_close_is_in_all_sets() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let fields = vec![Field::new("ts", time, true), Field::new("k", DataType::Int32, true)];
        let schema = Schema::new(fields);
        let watermark = Watermarked { column: "ts".to_owned(), delay_us: 0 };
        let streams = HashMap::from([("t".to_owned(), watermark)]);
        let operators = HashMap::new();
        let lineage = Lineage { streams: &streams, operators: &operators };
        let check = |sets: Vec<Vec<Expr>>, mode: OutputMode| {
            let input = table_scan(Some("t"), &schema, None).unwrap().build().unwrap();
            let group = Expr::GroupingSet(GroupingSet::GroupingSets(sets));
            let node = Aggregate::try_new(Arc::new(input), vec![group], Vec::new()).unwrap();
            check_times(&node, &lineage, mode)
        };
        let (ts, k) = (|| col("t.ts"), || col("t.k"));
        let in_all = || vec![vec![ts(), k()], vec![ts()]];
        let in_some = || vec![vec![ts(), k()], vec![k()]];
        for mode in [OutputMode::Append, OutputMode::Update] {
            assert!(check(in_all(), mode).is_ok());
            let refused = check(in_some(), mode).unwrap_err();
            assert!(refused.to_string().contains("some grouping sets leave out"), "{refused}");
            assert!(refused.help().contains("GROUP BY ts, ROLLUP(k)"));
        }
        assert!(check(in_some(), OutputMode::Complete).is_ok());
    }
}
