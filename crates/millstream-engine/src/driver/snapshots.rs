//! Snapshots of a query's state, made in the background.
//!
//! Without one, a restart applies every entry of the state log whose rows are still in the state.
//! For windows that is not much more than the state itself, since they close and their entries go.
//! For groups that stay it would be everything since the query began. So when the entries that are
//! needed have grown by so many bytes, or the user's interval has passed, a snapshot is made from
//! the log ([`QueryReplica`]) up to what all sinks have acknowledged, on a thread of low priority.
//! State that is larger than that grows by its own size first: to write it again costs no more than
//! what came in since.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::error::DataFusionError;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::{Background, Env};
use millstream_store::error::{Classified, Kind};
use millstream_store::offset::BatchId;
use millstream_store::state_log::{Facts, SnapshotWriter, StateLog, StateReader};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::api::settings::SnapshotSettings;
use crate::api::source::Failure;
use crate::state::micro_batch::MicroBatchFacts;
use crate::state::snapshot_builder::QueryReplica;
use crate::state::watermark::Watermark;

/// After a try that has failed, so much time passes until the next: each reads the whole log.
const RETRY: Duration = Duration::from_secs(60);

/// Decides when a snapshot is made, and knows the last one.
pub(super) struct Snapshots {
    settings: SnapshotSettings,
    /// The micro-batch of the last one.
    last: Option<BatchId>,
    /// When it was begun, or the run was, on the monotonic clock.
    begun: Duration,
    /// The bytes of the last one.
    last_bytes: u64,
    /// Before this moment none is begun: the last try has failed.
    retry_at: Duration,
    /// The entries since that are needed still, with their bytes.
    grown: VecDeque<(BatchId, u64)>,
    /// The bytes of those.
    bytes: u64,
    making: Option<Making>,
}

/// A snapshot being made. Dropping it gives it up.
struct Making {
    made: oneshot::Receiver<Result<Made, Failure>>,
    given_up: Arc<AtomicBool>,
    _running: Background,
}

struct Made {
    id: BatchId,
    bytes: u64,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

impl Snapshots {
    /// After `last`, with its bytes.
    pub(super) fn new(
        settings: SnapshotSettings,
        last: Option<(BatchId, u64)>,
        now: Duration,
    ) -> Self {
        let (last, last_bytes) = (last.map(|(id, _)| id), last.map_or(0, |(_, bytes)| bytes));
        let (grown, bytes, retry_at) = (VecDeque::new(), 0, now);
        Self { settings, last, begun: now, last_bytes, retry_at, grown, bytes, making: None }
    }

    /// The micro-batch of the last one.
    pub(super) fn last(&self) -> Option<BatchId> {
        self.last
    }

    /// The log has an entry of `bytes` for `id`, and those below `needs` are not needed any more.
    pub(super) fn grown(&mut self, id: BatchId, bytes: usize, needs: BatchId) {
        if bytes > 0 {
            self.grown.push_back((id, bytes as u64));
            self.bytes += bytes as u64;
        }
        self.drop_below(needs);
    }

    fn drop_below(&mut self, needs: BatchId) {
        while let Some((_, bytes)) = self.grown.pop_front_if(|(id, _)| *id < needs) {
            self.bytes -= bytes;
        }
    }

    /// Whether it is time for a snapshot up to `acknowledged`.
    pub(super) fn are_due(&mut self, acknowledged: Option<BatchId>, now: Duration) -> bool {
        self.look(now);
        let passed = now.saturating_sub(self.begun);
        let is_due = self.bytes >= self.settings.after_bytes.max(self.last_bytes)
            || self.settings.interval.is_some_and(|interval| passed >= interval);
        let may_be = now >= self.retry_at && self.bytes > 0;
        is_due && may_be && self.making.is_none() && acknowledged > self.last
    }

    fn look(&mut self, now: Duration) {
        let Some(making) = &mut self.making else { return };
        match making.made.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Ok(Ok(Made { id, bytes })) => {
                (self.last, self.last_bytes) = (Some(id), bytes);
                self.drop_below(id.next());
            }
            Ok(Err(failure)) => {
                self.retry_at = now + RETRY;
                tracing::warn!(%failure, "a snapshot of the state could not be made");
            }
            Err(oneshot::error::TryRecvError::Closed) => {
                self.retry_at = now + RETRY;
                tracing::warn!("a snapshot of the state was given up");
            }
        }
        self.making = None;
    }

    /// Begins one up to `end`, of state that `snapshot_builder` can hold.
    pub(super) fn make(
        &mut self,
        checkpoint: &Checkpoint,
        env: &Env,
        log: &Arc<StateLog>,
        snapshot_builder: QueryReplica,
        end: BatchId,
    ) {
        self.begun = env.monotonic();
        let (checkpoint, log) = (checkpoint.clone(), Arc::clone(log));
        let (made, receiver) = oneshot::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let is_given_up = Arc::clone(&given_up);
        let running = env.spawn_in_background("state-snapshot", async move {
            let is_given_up = || is_given_up.load(Ordering::Relaxed);
            let making = make(&checkpoint, &log, snapshot_builder, end, is_given_up);
            if let Some(outcome) = making.await.transpose() {
                // The query may have ended meanwhile.
                let _ = made.send(outcome);
            }
        });
        self.making = Some(Making { made: receiver, given_up, _running: running });
    }
}

/// Makes one; `None` where it was given up on the way.
async fn make(
    checkpoint: &Checkpoint,
    log: &StateLog,
    mut snapshot_builder: QueryReplica,
    end: BatchId,
    is_given_up: impl Fn() -> bool,
) -> Result<Option<Made>, Failure> {
    // What the query needs no more while this is read is not to go under its eyes.
    let kept = log.keep_files().await;
    let mut reader = StateReader::beside_a_writer(checkpoint).await?;
    let mut facts: Option<Facts> = None;
    let before = reader.snapshot().await?;
    let first_id = reader.next_id().await?;
    // Where entries behind it are gone, nothing of it is in the state any more.
    let goes_on = |id: BatchId| first_id.is_none_or(|first| first == id.next());
    if let Some(mut snapshot) = before.filter(|before| goes_on(before.facts().id())) {
        let before = MicroBatchFacts::from_snapshot(snapshot.facts().id());
        while let Some(piece) = snapshot.next().await? {
            if is_given_up() {
                return Ok(None);
            }
            snapshot_builder.apply(&before, &piece).map_err(BuilderError)?;
        }
        facts = Some(snapshot.facts().clone());
    }
    let follows = facts.is_some();
    let mut next = facts.as_ref().map(|facts| facts.id().next());
    let mut first = None;
    while let Some(entry) = reader.next_up_to(end).await? {
        if is_given_up() {
            return Ok(None);
        }
        let id = entry.id();
        if let Some(missing) = next.filter(|next| *next != id) {
            return Err(reader.missing(missing).into());
        }
        let of_batch = MicroBatchFacts::new(id, Watermark::from_entry(&entry.facts));
        snapshot_builder.apply(&of_batch, &entry.sections).map_err(BuilderError)?;
        first.get_or_insert(id);
        next = Some(id.next());
        facts = Some(entry.facts);
    }
    let Some(facts) = facts.filter(|facts| facts.id() == end) else {
        return Err(reader.missing(end).into());
    };
    drop(kept);
    let needs = BatchId(facts.needs);
    if !follows && first.is_some_and(|first| first > needs) {
        return Err(reader.missing(needs).into());
    }
    let id = facts.id();
    let mut snapshot = log.begin_snapshot(facts);
    let written = write(&mut snapshot, &mut snapshot_builder, is_given_up).await;
    if !matches!(written, Ok(Some(_))) {
        snapshot.abandon().await;
    }
    Ok(written?.map(|bytes| Made { id, bytes }))
}

/// Gives its bytes; `None` where it was given up on the way.
async fn write(
    snapshot: &mut SnapshotWriter,
    snapshot_builder: &mut QueryReplica,
    is_given_up: impl Fn() -> bool,
) -> Result<Option<u64>, Failure> {
    while let Some(piece) = snapshot_builder.next_piece().map_err(BuilderError)? {
        if is_given_up() {
            return Ok(None);
        }
        snapshot.add(piece).await?;
    }
    Ok(Some(snapshot.finish().await?))
}

/// The state that a snapshot is made of does not follow from the entries of its log.
#[derive(Debug, Error)]
#[error("{0}")]
struct BuilderError(DataFusionError);

impl Classified for BuilderError {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use arrow::datatypes::Schema;
    use datafusion::common::Result as DataFusionResult;
    use millstream_store::state_log::WriteSettings;
    use millstream_store::storage::Storage;

    use super::*;
    use crate::state::snapshot_builder::{OperatorReplica, SnapshotBuilder};

    const SECOND: Duration = Duration::from_secs(1);

    fn snapshots(after_bytes: u64, interval: Option<Duration>) -> Snapshots {
        Snapshots::new(SnapshotSettings { after_bytes, interval }, None, Duration::ZERO)
    }

    /// As if a snapshot were being made; gives the end that says how it went.
    fn making(snapshots: &mut Snapshots) -> oneshot::Sender<Result<Made, Failure>> {
        let (made, receiver) = oneshot::channel();
        let running = Env::real().spawn_in_background("state-snapshot", async {});
        let given_up = Arc::default();
        snapshots.making = Some(Making { made: receiver, given_up, _running: running });
        made
    }

    #[test]
    fn a_snapshot_is_due_when_what_is_needed_has_grown() {
        let mut some = snapshots(100, None);
        some.grown(BatchId(0), 60, BatchId(0));
        assert!(!some.are_due(Some(BatchId(0)), SECOND));
        some.grown(BatchId(1), 40, BatchId(0));
        assert!(!some.are_due(None, SECOND), "nothing is acknowledged that it could be made of");
        assert!(some.are_due(Some(BatchId(0)), SECOND));
        some.grown(BatchId(2), 10, BatchId(1));
        assert!(!some.are_due(Some(BatchId(2)), SECOND), "entry 0 is not needed any more");
        some.grown(BatchId(3), 50, BatchId(1));
        assert!(some.are_due(Some(BatchId(3)), SECOND));

        let settings = SnapshotSettings { after_bytes: 100, interval: None };
        let mut large = Snapshots::new(settings, Some((BatchId(5), 300)), Duration::ZERO);
        large.grown(BatchId(6), 200, BatchId(6));
        assert!(!large.are_due(Some(BatchId(6)), SECOND), "the last one is larger");
        large.grown(BatchId(7), 100, BatchId(6));
        assert!(!large.are_due(Some(BatchId(5)), SECOND), "it would be the last one again");
        assert!(large.are_due(Some(BatchId(6)), SECOND));
    }

    #[test]
    fn a_snapshot_is_due_by_time_where_the_log_has_grown() {
        let mut some = snapshots(1 << 40, Some(10 * SECOND));
        assert!(!some.are_due(Some(BatchId(0)), 20 * SECOND), "nothing has changed");
        some.grown(BatchId(0), 1, BatchId(0));
        assert!(!some.are_due(Some(BatchId(0)), 9 * SECOND));
        assert!(some.are_due(Some(BatchId(0)), 10 * SECOND));
    }

    #[tokio::test]
    async fn one_snapshot_is_made_at_a_time_and_stands_for_what_came_before() {
        let mut some = snapshots(10, None);
        (0..3).for_each(|id| some.grown(BatchId(id), 20, BatchId(0)));
        let made = making(&mut some);
        assert!(!some.are_due(Some(BatchId(2)), SECOND), "one is being made");
        assert!(made.send(Ok(Made { id: BatchId(1), bytes: 15 })).is_ok());
        assert!(some.are_due(Some(BatchId(2)), SECOND), "entry 2 is larger than the snapshot");
        assert_eq!((some.last(), some.bytes, some.last_bytes), (Some(BatchId(1)), 20, 15));
        drop(making(&mut some));
        assert!(!some.are_due(Some(BatchId(2)), SECOND), "that one was given up");
        assert!(some.are_due(Some(BatchId(2)), SECOND + RETRY));
    }

    /// A state log with these entries, of which the last needs those from `needs` on.
    async fn log_of(checkpoint: &Checkpoint, ids: std::ops::RangeInclusive<u64>, needs: u64) {
        let env = Env::real();
        let reader = StateReader::open(checkpoint).await.unwrap();
        let log = StateLog::start(checkpoint, &env, WriteSettings::of(checkpoint), &reader);
        for batch_id in ids {
            let facts = Facts { batch_id, needs, ..Facts::default() };
            let ticket = log.append(facts, 0, Vec::new()).await;
            ticket.written().await.unwrap();
        }
        log.close().await.unwrap();
    }

    /// Makes a snapshot of `replica` up to `end`, unless it is given up.
    async fn made_of(
        checkpoint: &Checkpoint,
        replica: QueryReplica,
        end: u64,
        is_given_up: impl Fn() -> bool,
    ) -> Result<Option<u64>, Kind> {
        let env = Env::real();
        let reader = StateReader::open(checkpoint).await.unwrap();
        let log = StateLog::start(checkpoint, &env, WriteSettings::of(checkpoint), &reader);
        let made = make(checkpoint, &log, replica, BatchId(end), is_given_up).await;
        log.close().await.unwrap();
        made.map(|made| made.map(|made| made.id.0)).map_err(|failure| failure.kind())
    }

    /// Makes a snapshot, of a query without operators, up to `end`.
    async fn made(checkpoint: &Checkpoint, end: u64) -> Result<u64, Kind> {
        let made = made_of(checkpoint, QueryReplica::new(Vec::new()), end, || false).await;
        made.map(|made| made.expect("it is not given up"))
    }

    /// An operator whose state is ten pieces, whatever it is given.
    struct TenPieces(u32);

    impl SnapshotBuilder for TenPieces {
        fn apply(&mut self, _: &MicroBatchFacts, _: Vec<Vec<RecordBatch>>) -> DataFusionResult<()> {
            Ok(())
        }

        fn next_piece(&mut self) -> DataFusionResult<Option<Vec<Vec<RecordBatch>>>> {
            self.0 += 1;
            let rows = RecordBatch::new_empty(Arc::new(Schema::empty()));
            Ok((self.0 <= 10).then(|| vec![vec![rows]]))
        }
    }

    #[tokio::test]
    async fn a_snapshot_that_is_given_up_leaves_no_pieces() {
        let env = Env::real();
        let checkpoint = Checkpoint::open_in(Storage::in_memory(), &env).await.unwrap();
        log_of(&checkpoint, 0..=2, 0).await;
        for looks_max in [0, 1, 5, 8, 12, 100] {
            let looks = std::cell::Cell::new(0);
            let is_given_up = || looks.replace(looks.get() + 1) >= looks_max;
            let parts = vec![OperatorReplica {
                snapshot_builder: Box::new(TenPieces(0)),
                schemas: vec![Arc::new(Schema::empty())],
                delay_us: 0,
            }];
            let made = made_of(&checkpoint, QueryReplica::new(parts), 2, is_given_up).await;
            assert_eq!(made, Ok((looks_max == 100).then_some(2)), "{looks_max}");
            let names = checkpoint.storage().list("state").await.unwrap();
            let pieces = names.iter().filter(|name| name.starts_with("piece-")).count();
            assert_eq!(pieces, if looks_max == 100 { 10 } else { 0 }, "{looks_max}: {names:?}");
        }
    }

    #[tokio::test]
    async fn a_snapshot_is_made_only_of_all_that_it_needs() {
        let env = Env::real();
        let new = || Checkpoint::open_in(Storage::in_memory(), &env);
        let checkpoint = new().await.unwrap();
        log_of(&checkpoint, 3..=5, 1).await;
        assert_eq!(made(&checkpoint, 5).await, Err(Kind::Data), "entries 1 and 2 are missing");
        let checkpoint = new().await.unwrap();
        log_of(&checkpoint, 3..=5, 3).await;
        assert_eq!(made(&checkpoint, 6).await, Err(Kind::Data), "entry 6 is not there yet");
        log_of(&checkpoint, 7..=8, 3).await;
        assert_eq!(made(&checkpoint, 8).await, Err(Kind::Data), "entry 6 is missing");
        let checkpoint = new().await.unwrap();
        log_of(&checkpoint, 3..=5, 3).await;
        assert_eq!(made(&checkpoint, 5).await, Ok(5));
        // The next one builds on it.
        log_of(&checkpoint, 6..=7, 6).await;
        assert_eq!(made(&checkpoint, 7).await, Ok(7));
        // Entries behind it that nobody needs any more are gone: so is what it has.
        log_of(&checkpoint, 10..=11, 10).await;
        assert_eq!(made(&checkpoint, 11).await, Ok(11));
    }

    #[tokio::test]
    async fn after_a_failure_time_passes() {
        let mut some = snapshots(10, None);
        some.grown(BatchId(0), 20, BatchId(0));
        let failure = BuilderError(DataFusionError::Internal("on purpose".to_owned())).into();
        assert!(making(&mut some).send(Err(failure)).is_ok());
        assert!(!some.are_due(Some(BatchId(0)), SECOND));
        assert!(!some.are_due(Some(BatchId(0)), RETRY));
        assert!(some.are_due(Some(BatchId(0)), SECOND + RETRY));
    }
}
