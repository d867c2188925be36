//! Which node reads which part of a table in an object store.
//!
//! A node keeps on disk what it has read ([`crate::cache`]), so the same files are to go to the
//! same node. Each file ranks all nodes by a hash of both names (rendezvous hashing): where a node
//! comes, it takes files over from all others alike, where one goes, its files spread over the
//! others, and all other files stay where they were. A part of a scan has several files and goes
//! where most of its bytes belong; no node is given more parts than the others, give or take one.

use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::physical_plan::ExecutionPlan;

use super::stage::scans;
use crate::cache::hash::stable_hash;

/// A file, or a part of it, and its bytes.
pub type Piece = (String, u64);

/// The files of each partition that a stage reads from an object store; `None` where it reads from
/// local disks, from other stages, or nothing.
pub fn pieces(plan: &Arc<dyn ExecutionPlan>, partitions: usize) -> Option<Vec<Vec<Piece>>> {
    let mut largest: Option<(u64, Vec<Vec<Piece>>)> = None;
    scans(plan, &mut |scan| {
        let is_local = scan.object_store_url.as_str().starts_with("file:");
        if is_local || scan.file_groups.len() != partitions {
            return;
        }
        let store = scan.object_store_url.as_str();
        let groups = scan.file_groups.iter().map(|group| {
            let piece = |file: &PartitionedFile| {
                (format!("{store}{}", file.object_meta.location), file.effective_size())
            };
            group.files().iter().map(piece).collect::<Vec<_>>()
        });
        let groups: Vec<_> = groups.collect();
        let bytes = groups.iter().flatten().fold(0, |sum, (_, bytes)| bytes.saturating_add(sum));
        if largest.as_ref().is_none_or(|(most, _)| *most < bytes) {
            largest = Some((bytes, groups));
        }
    });
    largest.map(|(_, groups)| groups)
}

/// By part the node that is to read it, as an index into `nodes`, which is not empty.
pub fn place(parts: &[Vec<Piece>], nodes: &[String]) -> Vec<usize> {
    let most = parts.len().div_ceil(nodes.len());
    let mut load = vec![0; nodes.len()];
    let owners = parts.iter().map(|part| {
        let ranked = ranked(part, nodes);
        let owner = ranked.into_iter().find(|node| load[*node] < most).unwrap_or_default();
        load[owner] += 1;
        owner
    });
    owners.collect()
}

/// The nodes, the one first that most bytes of `part` belong to.
fn ranked(part: &[Piece], nodes: &[String]) -> Vec<usize> {
    let weight = |file: &str, node: &String| stable_hash([node.as_bytes(), file.as_bytes()]);
    let mut bytes = vec![0_u64; nodes.len()];
    for (file, its_bytes) in part {
        let owner = (0..nodes.len()).max_by_key(|node| weight(file, &nodes[*node]));
        let sum = &mut bytes[owner.unwrap_or_default()];
        *sum = its_bytes.saturating_add(*sum);
    }
    let first = part.first().map_or("", |(file, _)| file);
    let mut ranked: Vec<usize> = (0..nodes.len()).collect();
    ranked.sort_by_key(|node| std::cmp::Reverse((bytes[*node], weight(first, &nodes[*node]))));
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<String> {
        (0..count).map(|node| format!("{node:016x}")).collect()
    }

    fn files(count: usize) -> Vec<Vec<Piece>> {
        (0..count).map(|file| vec![(format!("s3://lake/t/part-{file}.parquet"), 100)]).collect()
    }

    #[test]
    fn the_same_files_go_to_the_same_nodes_and_all_have_as_much_to_do() {
        let (nodes, files) = (nodes(4), files(64));
        let owners = place(&files, &nodes);
        assert_eq!(owners, place(&files, &nodes));
        for node in 0..4 {
            assert_eq!(owners.iter().filter(|owner| **owner == node).count(), 16);
        }
        let mut reversed = nodes.clone();
        reversed.reverse();
        let alone = |nodes: &[String], file: &Vec<Piece>| nodes[ranked(file, nodes)[0]].clone();
        for file in &files {
            assert_eq!(alone(&nodes, file), alone(&reversed, file), "whatever their order");
        }
    }

    #[test]
    fn a_node_that_goes_moves_nothing_but_its_own_files() {
        let (all, files) = (nodes(5), files(500));
        let fewer = &all[..4];
        let mut moved = 0;
        for file in &files {
            let before = ranked(file, &all)[0];
            let after = ranked(file, fewer)[0];
            assert!(before == after || before == 4, "{file:?} has moved for no reason");
            moved += usize::from(before != after);
        }
        assert!((60..140).contains(&moved), "{moved} of 500 files belonged to one of five nodes");
    }

    #[test]
    fn a_part_goes_where_most_of_its_bytes_belong() {
        let nodes = nodes(3);
        let of = |node: usize| {
            let file = (0..).map(|file| format!("f{file}"));
            file.into_iter().find(|file| ranked(&[(file.clone(), 1)], &nodes)[0] == node)
        };
        let file = |node: usize, bytes: u64| (of(node).expect("each has some"), bytes);
        assert_eq!(ranked(&[file(0, 1), file(2, 9), file(1, 3)], &nodes), [2, 1, 0]);
    }
}
