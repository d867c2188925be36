//! `millstream.remote.stages = 'auto'`: where a query and its stages run.
//!
//! - A query that reads little runs in the client, which needs no cluster for it: [`runs_here`].
//! - A stage that reads much goes to runners, and nodes take part while they have room. Where all
//!   nodes are busy, an eighth of that is much.
//! - A stage that groups, joins or sorts much, and so may need much memory, goes to runners alone.
//!
//! How much a scan reads is estimated: the sizes of its files that are left after pruning, times
//! the share of its columns in a row's width. How much a stage reads of what others have written is
//! known when it begins.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use ballista_core::execution_plans::ShuffleReaderExec;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;

use super::settings::RemoteOptions;
use super::stage::{StageKind, leaves, scans};

/// By how much less is much where all nodes are busy.
const BUSY_SHARE: usize = 8;

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On nodes.
    Nodes,
    /// At runners.
    Runners,
    /// At runners, and on nodes as far as they have room.
    Both,
}

/// Where a stage of `kind` runs that reads `bytes`.
pub fn whereabouts(
    options: &RemoteOptions,
    kind: StageKind,
    bytes: usize,
    nodes_are_busy: bool,
) -> Whereabouts {
    let (much, out) = match kind {
        StageKind::Scan => (options.scan_bytes, Whereabouts::Both),
        StageKind::GroupBy => (options.group_by_bytes, Whereabouts::Runners),
        StageKind::Other => return Whereabouts::Nodes,
    };
    let much = if nodes_are_busy { much / BUSY_SHARE } else { much };
    if bytes >= much.max(1) { out } else { Whereabouts::Nodes }
}

/// Whether a query of the plan `plan` runs in the client.
pub fn runs_here(options: &RemoteOptions, plan: &Arc<dyn ExecutionPlan>) -> bool {
    sum(scanned(plan)) < options.here_bytes
}

/// What [`whereabouts`] and [`runs_here`] decide for a query, and why, in lines.
pub fn explained(options: &RemoteOptions, plan: &Arc<dyn ExecutionPlan>) -> String {
    let scans = scanned(plan);
    let (all, few) = (sum(scans.iter().copied()), options.here_bytes);
    let mut text = "millstream.remote.stages = auto:\n".to_owned();
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    if runs_here(options, plan) {
        line(format!(
            "the query runs in this process: its scans read about {all} bytes, less than {few} \
             (millstream.remote.here_bytes)"
        ));
        return text;
    }
    line(format!(
        "the query runs on the cluster: its scans read about {all} bytes, at least {few} \
         (millstream.remote.here_bytes)"
    ));
    for bytes in scans {
        let (much, key) = (options.scan_bytes, "millstream.remote.scan_bytes");
        line(match whereabouts(options, StageKind::Scan, bytes, false) {
            Whereabouts::Nodes => {
                let busy = match whereabouts(options, StageKind::Scan, bytes, true) {
                    Whereabouts::Nodes => "also",
                    _ => "but not",
                };
                format!(
                    "a scan of about {bytes} bytes runs on nodes: that is less than {much} \
                     ({key}); {busy} while all nodes are busy"
                )
            }
            _ => format!(
                "a scan of about {bytes} bytes runs at runners, too: that is at least {much} \
                 ({key})"
            ),
        });
    }
    line(format!(
        "a stage that groups, joins or sorts runs at runners if it reads at least {} bytes \
         (millstream.remote.group_by_bytes), which is known when it begins",
        options.group_by_bytes
    ));
    text
}

/// How much a stage reads: of tables about, of what other stages have written exactly.
pub fn stage_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut bytes = sum(scanned(plan));
    leaves(plan, &mut |leaf| {
        if let Some(reader) = leaf.downcast_ref::<ShuffleReaderExec>() {
            let written = reader.partition.iter().flatten();
            let written = written.filter_map(|part| part.partition_stats.num_bytes());
            let written = written.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            bytes = bytes.saturating_add(sum(written));
        }
    });
    bytes
}

/// Sizes come from logs that anybody may have written.
fn sum(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(0, usize::saturating_add)
}

/// About how many bytes each scan of a plan reads.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
    let mut found = Vec::new();
    scans(plan, &mut |scan| found.push(scan_bytes(scan)));
    found
}

fn scan_bytes(scan: &FileScanConfig) -> usize {
    let files = scan.file_groups.iter().flat_map(|group| group.files());
    let bytes = files.map(PartitionedFile::effective_size).fold(0, u64::saturating_add);
    let source = scan.file_source();
    let schema = source.table_schema().file_schema();
    let mut columns: BTreeSet<usize> = match source.projection() {
        Some(projection) => projection.column_indices().into_iter().collect(),
        None => (0..schema.fields().len()).collect(),
    };
    if let Some(filter) = source.filter() {
        columns.extend(collect_columns(&filter).into_iter().map(|column| column.index()));
    }
    let all = width(schema, 0..schema.fields().len());
    let read = width(schema, columns);
    usize::try_from(u128::from(bytes) * read / all.max(1)).unwrap_or(usize::MAX)
}

/// About how wide the columns `columns` of a row are.
fn width(schema: &Schema, columns: impl IntoIterator<Item = usize>) -> u128 {
    let of = |column: usize| {
        let field = schema.fields().get(column);
        field.map_or(0, |field| type_width(field.data_type()))
    };
    columns.into_iter().map(of).sum()
}

fn type_width(data_type: &DataType) -> u128 {
    match data_type {
        DataType::Null | DataType::Boolean => 1,
        DataType::Struct(fields) => fields.iter().map(|field| type_width(field.data_type())).sum(),
        DataType::List(element) | DataType::LargeList(element) => {
            8 * type_width(element.data_type())
        }
        DataType::Map(entry, _) => 8 * type_width(entry.data_type()),
        other => other.primitive_width().map_or(20, |width| width as u128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RemoteOptions {
        RemoteOptions { scan_bytes: 800, group_by_bytes: 80, ..RemoteOptions::default() }
    }

    #[test]
    fn what_reads_much_goes_out() {
        let decide = |kind, bytes, is_busy| whereabouts(&options(), kind, bytes, is_busy);
        assert_eq!(decide(StageKind::Scan, 799, false), Whereabouts::Nodes);
        assert_eq!(decide(StageKind::Scan, 800, false), Whereabouts::Both);
        assert_eq!(decide(StageKind::GroupBy, 79, false), Whereabouts::Nodes);
        assert_eq!(decide(StageKind::GroupBy, 80, false), Whereabouts::Runners);
        assert_eq!(decide(StageKind::Other, usize::MAX, true), Whereabouts::Nodes);
    }

    #[test]
    fn less_is_much_while_all_nodes_are_busy() {
        let decide = |kind, bytes| whereabouts(&options(), kind, bytes, true);
        assert_eq!(decide(StageKind::Scan, 99), Whereabouts::Nodes);
        assert_eq!(decide(StageKind::Scan, 100), Whereabouts::Both);
        assert_eq!(decide(StageKind::GroupBy, 9), Whereabouts::Nodes);
        assert_eq!(decide(StageKind::GroupBy, 10), Whereabouts::Runners);
        let nothing = RemoteOptions { scan_bytes: 1, ..RemoteOptions::default() };
        assert_eq!(whereabouts(&nothing, StageKind::Scan, 0, true), Whereabouts::Nodes);
    }

    #[test]
    fn a_column_counts_by_its_width() {
        use arrow::datatypes::Field;
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let schema = Schema::new(vec![
            field("id", DataType::Int64),
            field("name", DataType::Utf8),
            field("flag", DataType::Boolean),
            field("day", DataType::Date32),
        ]);
        assert_eq!(width(&schema, 0..4), 8 + 20 + 1 + 4);
        assert_eq!(width(&schema, [0, 3]), 12);
        assert_eq!(width(&schema, [7]), 0, "a partition's column is in no file");
    }
}
