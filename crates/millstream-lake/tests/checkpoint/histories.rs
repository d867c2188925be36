//! Random histories, over all layouts, against a model.

use millstream_lake::checkpoint::LayoutChoice;
use proptest::prelude::*;

use crate::table::{APPS, Table, add, remove, txn};

#[derive(Clone, Debug)]
enum Step {
    /// New files, under names that are good for the next checkpoint or not.
    Append {
        count: usize,
        is_steered: bool,
    },
    /// The nth live file goes, and may come back in the next commit.
    Remove {
        nth: usize,
        comes_back: bool,
        is_expired: bool,
    },
    Transaction {
        app: usize,
    },
    Checkpoint,
    /// With the layout and the size of a part that a restart may bring.
    Restart {
        part_rows: u64,
        layout: usize,
    },
    ForgetCommits,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..20, any::<bool>())
            .prop_map(|(count, is_steered)| Step::Append { count, is_steered }),
        3 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(
            |(nth, comes_back, is_expired)| Step::Remove { nth, comes_back, is_expired }),
        1 => (0..APPS.len()).prop_map(|app| Step::Transaction { app }),
        4 => Just(Step::Checkpoint),
        1 => (1_u64..40, 0_usize..3)
            .prop_map(|(part_rows, layout)| Step::Restart { part_rows, layout }),
        2 => Just(Step::ForgetCommits),
    ]
}

fn layout_of(number: usize, has_v2: bool) -> LayoutChoice {
    match number {
        0 => LayoutChoice::Auto,
        1 => LayoutChoice::Classic,
        _ if has_v2 => LayoutChoice::V2,
        _ => LayoutChoice::MultiPart,
    }
}

fn run(steps: &[Step], has_v2: bool) {
    let mut table = Table::new(if has_v2 { &["v2Checkpoint"] } else { &[] });
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 10);
    let mut last = None;
    for step in steps {
        match *step {
            Step::Append { count, is_steered } => {
                let part_file_names = checkpointer.part_file_names();
                table.append(count, |names| {
                    if is_steered { part_file_names.draw("", names) } else { names() }
                });
            }
            Step::Remove { nth, comes_back, is_expired } => {
                let Some(path) = table.files.keys().nth(nth % table.files.len().max(1)) else {
                    continue;
                };
                let (path, now_ms) = (path.clone(), table.store.env().now_ms());
                table.commit(&[remove(&path, if is_expired { 1 } else { now_ms })]);
                if comes_back {
                    table.commit(&[add(&path, 1_000)]);
                }
            }
            Step::Transaction { app } => {
                let version = i64::try_from(table.newest()).unwrap();
                table.commit(&[txn(APPS[app], version)]);
            }
            Step::Checkpoint => {
                let written = checkpointer.write(table.newest()).unwrap();
                assert_eq!(written.adds, table.files.len() as u64);
                assert_eq!(written.damaged.len(), 0);
                last = Some(written.version);
                table.check();
            }
            Step::Restart { part_rows, layout } => {
                checkpointer = table.checkpointer(layout_of(layout, has_v2), part_rows);
            }
            Step::ForgetCommits => {
                if let Some(version) = last {
                    table.forget_commits_below(version);
                    table.check();
                }
            }
        }
    }
    checkpointer.write(table.newest()).unwrap();
    table.forget_commits_below(table.newest());
    table.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_reads_as_its_history(
        steps in proptest::collection::vec(step(), 1..40),
        has_v2 in any::<bool>(),
    ) {
        run(&steps, has_v2);
    }
}
