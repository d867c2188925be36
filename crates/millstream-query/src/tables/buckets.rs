//! Buckets of a table's files as partitions of a scan, so that `GROUP BY` of the column that the
//! table is clustered by needs no shuffle.
//!
//! DataFusion knows of a partitioning by hash, and takes all of them for one by its own function:
//! it would join partition N of a table's buckets with partition N of a shuffle, although other
//! rows are in them. So buckets are told only in plans in which no two inputs are ever brought
//! together, and it does not matter by what function the rows are divided.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::logical_expr::{Expr, LogicalPlan};
use millstream_engine::api::snapshot::DataFile;

/// Whether scans in a plan may tell the buckets of their rows: it reads one table once, and has
/// nodes of one input only, without ROLLUP and its like.
///
/// # Errors
/// Those of walking through the plan.
pub fn may_be_told(plan: &LogicalPlan) -> Result<bool> {
    let (mut scans, mut all_known) = (0, true);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(_) => scans += 1,
            // Some of its sets leave the column out, and have groups of all partitions.
            LogicalPlan::Aggregate(aggregate)
                if matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_), ..]) =>
            {
                all_known = false;
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_) => {}
            // Joins and unions, and whatever may have several inputs one day.
            _ => all_known = false,
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(all_known && scans == 1)
}

/// The files in up to `partitions` groups, of which no two have a value of the column in common,
/// and that column. None where a file is in no bucket, or in one by another column; where `schema`
/// has no such column, as names of files may say anything; where there would be one group only; or
/// where there are fewer than half as many as there could be: then a shuffle after reading by all
/// cores is better.
pub fn grouped(
    files: &[DataFile],
    scanned: &[PartitionedFile],
    schema: &Schema,
    partitions: usize,
) -> Option<(String, Vec<FileGroup>)> {
    let column = &files.first()?.bucket.as_ref()?.column;
    schema.index_of(column).ok()?;
    let mut common = 0;
    for file in files {
        let bucket = file.bucket.as_ref().filter(|bucket| bucket.column == *column)?;
        common = greatest_common_divisor(bucket.of, common);
    }
    let groups_max = u32::try_from(partitions).ok()?.min(common);
    let mut groups: BTreeMap<u32, Vec<PartitionedFile>> = BTreeMap::new();
    for (file, scanned) in files.iter().zip(scanned) {
        let group = file.bucket.as_ref()?.number % common % groups_max;
        groups.entry(group).or_default().push(scanned.clone());
    }
    if groups.len() < 2 || groups.len() * 2 < partitions {
        return None;
    }
    Some((column.clone(), groups.into_values().map(FileGroup::new).collect()))
}

fn greatest_common_divisor(left: u32, right: u32) -> u32 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use millstream_engine::api::snapshot::FileBucket;

    use super::*;

    /// The names of the files of each group.
    fn groups(buckets: &[Option<(u32, u32, &str)>], partitions: usize) -> Option<Vec<Vec<String>>> {
        let files: Vec<DataFile> = buckets
            .iter()
            .map(|bucket| DataFile {
                url: String::new(),
                bytes: 1,
                modified_ms: 0,
                e_tag: None,
                rows: None,
                partition_values: Vec::new(),
                bucket: bucket.map(|(number, of, column)| FileBucket {
                    number,
                    of,
                    column: column.to_owned(),
                }),
            })
            .collect();
        let scanned: Vec<PartitionedFile> =
            (0..files.len()).map(|at| PartitionedFile::new(at.to_string(), 1)).collect();
        let fields = ["u", "v"].map(|name| Field::new(name, DataType::Int64, true));
        let (_, groups) = grouped(&files, &scanned, &Schema::new(fields.to_vec()), partitions)?;
        let names = |group: &FileGroup| {
            let names = group.files().iter().map(|file| file.object_meta.location.to_string());
            names.collect()
        };
        Some(groups.iter().map(names).collect())
    }

    #[test]
    fn files_of_a_bucket_are_in_one_group() {
        let files = [0, 1, 2, 3, 1, 0].map(|number| Some((number, 4, "u")));
        let expected = vec![vec!["0", "2", "5"], vec!["1", "3", "4"]];
        assert_eq!(groups(&files, 2).expect("two groups"), expected);
        assert_eq!(groups(&files, 4).expect("four groups").len(), 4);
        assert_eq!(groups(&files, 9), None, "more cores than buckets");
        assert_eq!(groups(&files, 1), None);
    }

    #[test]
    fn numbers_of_buckets_may_differ_where_they_have_a_common_divisor() {
        let expected = vec![vec!["0", "2"], vec!["1", "3"]];
        let files = [(0, 4, "u"), (5, 6, "u"), (4, 6, "u"), (3, 4, "u")].map(Some);
        assert_eq!(groups(&files, 4).expect("two groups"), expected);
        assert_eq!(groups(&[(0, 4, "u"), (1, 3, "u")].map(Some), 2), None);
    }

    #[test]
    fn a_file_of_no_bucket_or_of_another_column_ends_it() {
        assert_eq!(groups(&[Some((0, 4, "u")), Some((1, 4, "u")), None], 2), None);
        assert_eq!(groups(&[Some((0, 4, "u")), Some((1, 4, "v"))], 2), None);
        assert_eq!(groups(&[], 2), None);
        assert_eq!(groups(&[Some((0, 2, "x")), Some((1, 2, "x"))], 2), None, "there is no x");
    }
}
