//! Deliberate mistakes of the model, to show that the checks find what they are for.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The sink acknowledges what it has not published yet.
    AcknowledgesEarly,
    /// The sink publishes micro-batches in another order than it got them.
    PublishesOutOfOrder,
    /// The sink lets a writer go on that a newer one has replaced.
    FencesNobody,
    /// Recovery does not hear what the sink has published.
    AnswerUnheard,
    /// The store loses its last entry when a process crashes, although it said it was written.
    ForgetsTheLastPut,
    /// The store replaces an object that it should only have written if there was none.
    PutReplaces,
    /// The source gives one row less when it reads a range again.
    ReplayLosesARow,
    /// The source gives a row more than the range when it reads it again.
    ReplayTakesTooMuch,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AcknowledgesEarly,
        Self::PublishesOutOfOrder,
        Self::FencesNobody,
        Self::AnswerUnheard,
        Self::ForgetsTheLastPut,
        Self::PutReplaces,
        Self::ReplayLosesARow,
        Self::ReplayTakesTooMuch,
    ];
}
