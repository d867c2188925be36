//! Named moments of a micro-batch at which the process ends itself, to show that a crash there
//! loses nothing and doubles nothing.
//!
//! `MILLSTREAM_CRASH_AT=after-commit:3` ends the process, without any tidying up, the third time
//! that a micro-batch comes to that step; without `:3` the first time. A step costs one relaxed
//! load where the variable is not set.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The environment variable.
pub const VARIABLE: &str = "MILLSTREAM_CRASH_AT";

/// A moment in the life of a micro-batch, or of a checkpoint of the table that it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its rows were taken from the sources.
    AfterTake,
    /// The query has run, the sink knows nothing yet.
    AfterRun,
    /// The sink is about to begin a transaction.
    BeforeBegin,
    /// Its rows are with the sink's client; some may be on their way.
    AfterProduce,
    /// Its progress is part of the transaction.
    AfterOffsets,
    /// Everything is in the transaction.
    BeforeCommit,
    /// It is published, and only the sink knows.
    AfterCommit,
    /// What it changed in the query's state is about to be written.
    BeforeState,
    /// What it changed in the query's state is written.
    AfterState,
    /// Its sink is done with it, and rows of it that were refused are in no table yet.
    RowsRefused,
    /// The refused rows are in the table of dead letters, and the micro-batch does not count yet.
    LettersPublished,
    /// Its entry in the offset log is about to be written.
    BeforeIntent,
    /// Its entry in the offset log is written.
    AfterIntent,
    /// Its entry in the commit log is about to be written.
    BeforeCommitEntry,
    /// Its entry in the commit log is written.
    AfterCommitEntry,
    /// The files of a table's checkpoint are written, under names that nobody reads.
    CheckpointStaged,
    /// Some of them have their final names.
    CheckpointHalfPublished,
    /// All of them have, and the hint names the checkpoint before.
    CheckpointUnhinted,
    /// The hint names it.
    CheckpointHinted,
    /// Files of a table are written anew, and the old ones are in the table.
    FilesRewritten,
    /// The new ones are.
    FilesSwapped,
    /// The deletion vectors of a merge are written, and no version of the table names them.
    VectorsWritten,
    /// The files of a commit have the names that readers look at.
    FilesNamed,
    /// The manifest of their directory lists them.
    FilesListed,
    /// Its rows are aside in Redis, and it counts as published there.
    RowsStaged,
    /// Some of those rows are under their keys.
    RowsHalfApplied,
    /// The record of what is published in BigQuery is this run's.
    ProgressClaimed,
    /// The rows of one stream of BigQuery are visible, those of others may not be.
    StreamsHalfFlushed,
    /// Its rows are visible in BigQuery, and nobody was told.
    StreamsFlushed,
    /// Input that cannot be asked for again was received, and is not in the journal.
    BeforeJournal,
    /// It is in the journal, and not acknowledged.
    AfterJournal,
    /// It is acknowledged.
    AfterAcknowledge,
    /// Segments of the journal are about to be deleted, and the keys of their records are kept.
    JournalSuperseded,
}

impl Step {
    /// All steps, in the order of a micro-batch of a transactional sink, then those of tables,
    /// directories, Redis, BigQuery and the journal.
    pub const ALL: [Self; 33] = [
        Self::AfterTake,
        Self::AfterRun,
        Self::BeforeBegin,
        Self::AfterProduce,
        Self::AfterOffsets,
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::BeforeState,
        Self::AfterState,
        Self::RowsRefused,
        Self::LettersPublished,
        Self::BeforeIntent,
        Self::AfterIntent,
        Self::BeforeCommitEntry,
        Self::AfterCommitEntry,
        Self::CheckpointStaged,
        Self::CheckpointHalfPublished,
        Self::CheckpointUnhinted,
        Self::CheckpointHinted,
        Self::FilesRewritten,
        Self::FilesSwapped,
        Self::VectorsWritten,
        Self::FilesNamed,
        Self::FilesListed,
        Self::RowsStaged,
        Self::RowsHalfApplied,
        Self::ProgressClaimed,
        Self::StreamsHalfFlushed,
        Self::StreamsFlushed,
        Self::BeforeJournal,
        Self::AfterJournal,
        Self::AfterAcknowledge,
        Self::JournalSuperseded,
    ];

    /// Its name in the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterTake => "after-take",
            Self::AfterRun => "after-run",
            Self::BeforeBegin => "before-begin",
            Self::AfterProduce => "after-produce",
            Self::AfterOffsets => "after-offsets",
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
            Self::BeforeState => "before-state",
            Self::AfterState => "after-state",
            Self::RowsRefused => "rows-refused",
            Self::LettersPublished => "letters-published",
            Self::BeforeIntent => "before-intent",
            Self::AfterIntent => "after-intent",
            Self::BeforeCommitEntry => "before-commit-entry",
            Self::AfterCommitEntry => "after-commit-entry",
            Self::CheckpointStaged => "checkpoint-staged",
            Self::CheckpointHalfPublished => "checkpoint-half-published",
            Self::CheckpointUnhinted => "checkpoint-unhinted",
            Self::CheckpointHinted => "checkpoint-hinted",
            Self::FilesRewritten => "files-rewritten",
            Self::FilesSwapped => "files-swapped",
            Self::VectorsWritten => "vectors-written",
            Self::FilesNamed => "files-named",
            Self::FilesListed => "files-listed",
            Self::RowsStaged => "rows-staged",
            Self::RowsHalfApplied => "rows-half-applied",
            Self::ProgressClaimed => "progress-claimed",
            Self::StreamsHalfFlushed => "streams-half-flushed",
            Self::StreamsFlushed => "streams-flushed",
            Self::BeforeJournal => "before-journal",
            Self::AfterJournal => "after-journal",
            Self::AfterAcknowledge => "after-acknowledge",
            Self::JournalSuperseded => "journal-superseded",
        }
    }
}

// Whether the variable is set, cached so that `reached` costs one relaxed load. Relaxed is enough:
// a thread that still sees UNKNOWN asks `ORDER`, which synchronizes by itself.
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static ORDER: OnceLock<Option<Order>> = OnceLock::new();

struct Order {
    step: Step,
    left: AtomicU64,
}

/// Ends the process if that was ordered for `step`.
#[inline]
pub fn reached(step: Step) {
    if STATE.load(Ordering::Relaxed) != OFF {
        look(step);
    }
}

/// Whether the process is to end at `step`, this time or later: for steps that have to be made
/// first.
pub fn is_ordered(step: Step) -> bool {
    STATE.load(Ordering::Relaxed) != OFF && order().is_some_and(|order| order.step == step)
}

fn order() -> Option<&'static Order> {
    let order = ORDER.get_or_init(|| {
        let order = std::env::var(VARIABLE).ok().map(|text| parse(&text));
        STATE.store(if order.is_some() { ON } else { OFF }, Ordering::Relaxed);
        order
    });
    order.as_ref()
}

#[cold]
fn look(step: Step) {
    let Some(order) = order() else { return };
    if order.step == step && order.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        eprintln!("{VARIABLE}: the process ends at {}", step.name());
        std::process::abort();
    }
}

/// # Panics
/// For a step that does not exist: a test that crashes nowhere would show nothing.
fn parse(text: &str) -> Order {
    let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
    let step = Step::ALL.into_iter().find(|step| step.name() == name);
    let (Some(step), Some(nth)) = (step, nth.parse().ok().filter(|nth| *nth > 0)) else {
        let names = Step::ALL.map(Step::name).join(", ");
        panic!("{VARIABLE}={text}: write STEP or STEP:N, with STEP one of {names}");
    };
    Order { step, left: AtomicU64::new(nth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_name_a_step_and_a_count() {
        for step in Step::ALL {
            let order = parse(step.name());
            assert_eq!((order.step, order.left.into_inner()), (step, 1));
        }
        let order = parse("after-commit:30");
        assert_eq!((order.step, order.left.into_inner()), (Step::AfterCommit, 30));
        for wrong in ["", "after", "after-run:0", "after-run:x"] {
            assert!(std::panic::catch_unwind(|| parse(wrong)).is_err(), "{wrong}");
        }
    }
}
