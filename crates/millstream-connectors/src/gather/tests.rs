use arrow::array::{ArrayRef, Int64Array};
use parking_lot::Mutex;

use super::*;

/// Number and rows of each commit that the destination was asked for.
#[derive(Default)]
struct Commits {
    asked: Mutex<Vec<(u64, usize)>>,
    fails: bool,
}

/// Counts rows; cannot write [`UNWRITABLE`] at a time.
struct Counting(usize);

const UNWRITABLE: usize = 13;

impl RowWriter for Counting {
    type File = usize;

    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        if rows.num_rows() == UNWRITABLE {
            return Err(CommitError::WriterEnded.into());
        }
        self.0 += rows.num_rows();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.0 as u64
    }

    fn finish(&mut self) -> Result<Vec<usize>, Failure> {
        Ok(vec![std::mem::take(&mut self.0)])
    }

    fn abandon(&mut self) {}
}

impl Destination for Commits {
    type File = usize;
    type Writer = Counting;

    const THREADS: [&'static str; 3] = ["gather", "write", "commit"];

    fn writer(&self) -> Counting {
        Counting(0)
    }

    fn publish(&self, files: Vec<usize>, batch_id: BatchId, _: &EndOffsets) -> Result<(), Failure> {
        self.asked.lock().push((batch_id.0, files.iter().sum()));
        if self.fails { Err(CommitError::WriterEnded.into()) } else { Ok(()) }
    }
}

fn rows(count: i64) -> RecordBatch {
    let column = Arc::new(Int64Array::from_iter_values(0..count)) as ArrayRef;
    RecordBatch::try_from_iter([("v", column)]).expect("a column")
}

fn output(id: u64, rows: Vec<RecordBatch>) -> Output {
    let end_offsets = EndOffsets::default();
    Output { batch_id: BatchId(id), partitions: vec![rows], end_offsets }
}

const AT_ONCE: Pacing = Pacing { interval: Duration::ZERO, patience: None };

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_committed_after_a_commit_that_failed() {
    let commits = Arc::new(Commits { fails: true, ..Commits::default() });
    let mut gather = Gather::start(Arc::clone(&commits), AT_ONCE, &Env::real());
    for id in 0..3 {
        let acknowledgement = gather.publish(output(id, vec![rows(1)])).await;
        assert!(acknowledgement.accepted().await.is_err(), "{id}");
    }
    assert_eq!(*commits.asked.lock(), [(0, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_written_are_in_no_commit() {
    let commits = Arc::new(Commits::default());
    let mut gather = Gather::start(Arc::clone(&commits), AT_ONCE, &Env::real());
    let unwritable = rows(i64::try_from(UNWRITABLE).expect("small"));
    let acknowledgement = gather.publish(output(0, vec![rows(1), unwritable])).await;
    assert!(acknowledgement.accepted().await.is_err());
    assert_eq!(*commits.asked.lock(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_with_nothing_gathered_commits_nothing() {
    let commits = Arc::new(Commits::default());
    let mut gather = Gather::start(Arc::clone(&commits), AT_ONCE, &Env::real());
    for id in 0..3 {
        gather.flush().await;
        let acknowledgement = gather.publish(output(id, vec![rows(1)])).await;
        acknowledgement.accepted().await.expect("committed");
    }
    assert_eq!(*commits.asked.lock(), [(0, 1), (1, 1), (2, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_are_acknowledged_with_their_commit() {
    let commits = Arc::new(Commits::default());
    let mut gather = Gather::start(Arc::clone(&commits), AT_ONCE, &Env::real());
    gather.write(rows(3)).await.expect("taken");
    gather.write(rows(4)).await.expect("taken");
    let acknowledgement = gather.publish(output(0, Vec::new())).await;
    let accepted = acknowledgement.accepted().await.expect("committed");
    assert!(accepted.is_some(), "it waits for the commit");
    assert_eq!(*commits.asked.lock(), [(0, 7)]);
    let nothing = gather.publish(output(1, Vec::new())).await;
    assert!(matches!(nothing, Acknowledgement::Done));
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_wait_until_they_have_grown_and_not_for_ever() {
    let (hour, interval) = (Duration::from_secs(3_600), Duration::from_millis(5));
    let soon = Duration::from_millis(50);
    // The first commit waits for nothing; the second is large, or late.
    for (bytes, longest, count) in [(100, hour, 200), (u64::MAX, soon, 1)] {
        let commits = Arc::new(Commits::default());
        let patience = Some(Patience { bytes, interval: longest });
        let pacing = Pacing { interval, patience };
        let mut gather = Gather::start(Arc::clone(&commits), pacing, &Env::real());
        for (id, count) in [(0, 1), (1, count)] {
            let acknowledgement = gather.publish(output(id, vec![rows(count)])).await;
            let late = Env::real().sleep(Duration::from_secs(30));
            tokio::select! {
                accepted = acknowledgement.accepted() => drop(accepted.expect("committed")),
                () = late => panic!("micro-batch {id} waits"),
            }
        }
        assert_eq!(commits.asked.lock().len(), 2);
    }
}

#[test]
fn a_commit_begins_earlier_by_what_commits_take() {
    let (lead, second) = (Lead::default(), Duration::from_secs(1));
    assert_eq!(lead.within(second, Duration::ZERO), Duration::ZERO);
    lead.has_taken(Duration::from_millis(20));
    assert_eq!(lead.within(second, Duration::ZERO), Duration::from_millis(40));
    // One that took long changes little, and a slow store is not given twice as many commits.
    lead.has_taken(Duration::from_millis(100));
    assert_eq!(lead.within(second, Duration::ZERO), Duration::from_millis(60));
    lead.has_taken(Duration::from_secs(5));
    assert_eq!(lead.within(second, Duration::ZERO), Duration::from_millis(100));
    assert_eq!(lead.within(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    let (lead, spacing) = (Lead::default(), Duration::from_millis(15));
    lead.has_taken(Duration::from_millis(4));
    assert_eq!(lead.within(second, spacing), Duration::from_millis(23), "what comes in between");
}
