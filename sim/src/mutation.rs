//! Drivers with a mistake, to show that the checks find it.
//!
//! The driver is the real one. A mutation is made where the driver reaches the world: at its
//! store, its sinks and its sources, as its process sees them. There it changes what is done, or
//! when the driver hears of it, so that the world sees what a driver with that mistake would do.

/// A mistake of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// It publishes without waiting for the intent, which is logged later.
    LogsIntentAfterPublishing,
    /// It writes the commit entry of a micro-batch that the sink has not acknowledged.
    CommitsBeforeAcknowledged,
    /// It writes the commit entry when the first of several sinks has acknowledged.
    CommitsAfterTheFirstSink,
    /// It takes a failure of the sink for an acknowledgement.
    TakesFailureForSuccess,
    /// It leaves out a commit entry now and then.
    LeavesOutCommitEntries,
    /// It continues after the last intent, without asking the sink.
    AsksNoSink,
    /// It continues after what was published without repeating what was not.
    ReplaysNothing,
    /// It gives a micro-batch that it repeats a new number.
    RenumbersReplays,
    /// It repeats a micro-batch with what is there now, not with its range.
    ReplaysAnotherRange,
    /// It continues one row too late.
    ContinuesTooLate,
    /// It continues at the beginning of the sources.
    ContinuesAtTheBeginning,
    /// It tells a source that rows are published when it takes the next ones.
    TellsSourcesTooEarly,
    /// It does not give dead letters again.
    RepeatsNoLetters,
    /// It deletes more entries of a log than it may.
    PurgesTooMuch,
    /// It does not flush intents.
    FlushesNoIntents,
    /// It does not flush the names of files.
    FlushesNoNames,
    /// It does not flush the state log.
    FlushesNoState,
    /// It publishes without waiting for the state log.
    LogsStateAfterPublishing,
    /// It forgets the watermark at a restart.
    ForgetsTheWatermark,
    /// It says that a snapshot has the micro-batch after its last one.
    TakesSnapshotsTooEarly,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::LogsIntentAfterPublishing,
        Self::CommitsBeforeAcknowledged,
        Self::CommitsAfterTheFirstSink,
        Self::TakesFailureForSuccess,
        Self::LeavesOutCommitEntries,
        Self::AsksNoSink,
        Self::ReplaysNothing,
        Self::RenumbersReplays,
        Self::ReplaysAnotherRange,
        Self::ContinuesTooLate,
        Self::ContinuesAtTheBeginning,
        Self::TellsSourcesTooEarly,
        Self::RepeatsNoLetters,
        Self::PurgesTooMuch,
        Self::FlushesNoIntents,
        Self::FlushesNoNames,
        Self::FlushesNoState,
        Self::LogsStateAfterPublishing,
        Self::ForgetsTheWatermark,
        Self::TakesSnapshotsTooEarly,
    ];
}
