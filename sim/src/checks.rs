//! What must hold of the checkpoint at every moment, and of everything at the end.
//!
//! An entry is checked when the store takes it. As nothing changes the logs but that, this is the
//! same as a look at them after a crash at any moment.

use std::collections::{BTreeMap, BTreeSet};

use millstream_engine::api::sink::{Delivery, EndOffsets, SourceOffset};

use crate::topic::position_of;
use crate::world::State;

/// Every log entry that was ever written, also those that were deleted since.
#[derive(Default)]
pub struct Ever {
    intents: BTreeMap<u64, Intent>,
    commits: BTreeSet<u64>,
    /// Numbers that were written again with something else, when the first entry was purged.
    again: BTreeSet<u64>,
}

impl Ever {
    /// Whether a number was given again: by a process that stood still for so long that another
    /// one has come past and purged the entry. What it publishes is old: a sink that knows numbers
    /// has it already, and the process ends with the next entry that is there.
    pub fn is_given_again(&self, id: u64) -> bool {
        self.again.contains(&id)
    }
}

/// What an entry of the offset log says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Intent {
    /// Where the micro-batch ends, by source.
    ends: Vec<u64>,
    /// Its time, milliseconds since the epoch.
    batch_time_ms: i64,
}

impl Intent {
    /// Reads what the model wrote; the codec has tests of its own, and recovery uses it.
    fn read(bytes: &[u8]) -> Self {
        const TIME: &str = "\"batchTimestampMs\":";
        let mut lines = std::str::from_utf8(bytes).expect("JSON").lines().skip(1);
        let facts = lines.next().expect("three lines");
        let (_, time) = facts.split_once(TIME).expect("an entry has a time");
        let time = time.split(',').next().expect("there is always a first");
        let ends = lines.map(|end| end.parse().unwrap_or(0)).collect();
        Self { ends, batch_time_ms: time.parse().expect("a time is a number") }
    }
}

/// Offsets as numbers; a source without one is at its beginning.
pub fn positions(ends: &[Option<SourceOffset>]) -> Vec<u64> {
    ends.iter().map(|end| end.as_ref().map_or(0, position_of)).collect()
}

impl State {
    /// Whether the outside has every row up to `ends`.
    pub fn is_published(&self, ends: &[u64]) -> bool {
        self.outside.complete_to.iter().zip(ends).all(|(complete, end)| complete >= end)
    }

    /// Where entries have gaps, two writers are not told apart by their numbers: each may write
    /// entries between those of the other. Rows are repeated then, which no other rule forbids.
    pub fn is_muddled(&self) -> bool {
        self.crowded && self.processes.iter().any(|process| process.is_sparse())
    }

    /// Checks an object that is about to be written.
    pub fn check_put(&mut self, from: usize, name: &str, bytes: &[u8]) {
        match name.split_once('/') {
            Some(("offsets", id)) => {
                self.check_intent(from, id.parse().expect("a number"), Intent::read(bytes));
            }
            Some(("commits", id)) => {
                self.check_commit(from, id.parse().expect("a number"));
            }
            _ => {}
        }
    }

    fn check_intent(&mut self, from: usize, id: u64, intent: Intent) {
        let ends = intent.ends.clone();
        let sparse = self.processes[from].is_sparse();
        let logged_at_once = self.scenario.delivery == Delivery::Idempotent;
        let intents = &self.objects.ever.intents;
        let before = intents.range(..id).next_back().map(|(id, intent)| (*id, intent.ends.clone()));
        let in_turn = match &before {
            Some((before, _)) => before + 1 == id,
            None => id == 0,
        };
        if !in_turn && (!sparse || logged_at_once) {
            self.violated(format!("offsets/{id} is written after {before:?}"));
        }
        if let Some((before, their_ends)) = before {
            let forward = their_ends.iter().zip(&ends).all(|(theirs, ours)| theirs <= ours);
            let again = self.objects.ever.is_given_again(before);
            if !forward && !again && !self.is_muddled() {
                self.violated(format!("offsets/{id} ends before offsets/{before}"));
            }
            // Spark repeats the last intent only, from the end of the one before it.
            if !logged_at_once && !self.is_published(&their_ends) {
                self.violated(format!("offsets/{id} is written and {before} is not published"));
            }
        }
        if sparse && !logged_at_once && !self.is_published(&ends) {
            self.violated(format!("offsets/{id} is written, which is not published"));
        }
        let first = self.objects.ever.intents.entry(id).or_insert_with(|| intent.clone());
        if *first != intent && !self.objects.is_there(&format!("offsets/{id}")) {
            self.objects.ever.again.insert(id);
        }
    }

    fn check_commit(&mut self, from: usize, id: u64) {
        let Some(Intent { ends, .. }) = self.objects.ever.intents.get(&id).cloned() else {
            return self.violated(format!("commits/{id} is written without offsets/{id}"));
        };
        if !self.is_published(&ends) {
            self.violated(format!("commits/{id} is written, which is not published"));
        }
        let ever = &self.objects.ever;
        let before = ever.intents.range(..id).next_back().map(|(before, _)| *before);
        if let Some(before) = before
            && !self.processes[from].is_sparse()
            && !ever.commits.contains(&before)
            && !self.was_sparse()
        {
            self.violated(format!("commits/{id} is written before commits/{before}"));
        }
        self.objects.ever.commits.insert(id);
    }

    fn was_sparse(&self) -> bool {
        self.processes.iter().any(|process| process.is_sparse())
    }

    /// Checks a micro-batch that a process gives to the sink.
    pub fn check_handed_over(&mut self, from: usize, id: u64, end_offsets: &EndOffsets) {
        let before = self.processes[from].publish_result.replace(id);
        if before >= Some(id) {
            self.violated(format!("micro-batch {id} is handed over after {before:?}"));
        }
        if self.scenario.delivery == Delivery::Idempotent {
            let (ends, batch_time_ms) = (positions(&end_offsets.ends), end_offsets.batch_time_ms);
            let ours = Intent { ends, batch_time_ms };
            let logged = self.objects.ever.intents.get(&id);
            if logged != Some(&ours) && !self.objects.ever.is_given_again(id) {
                let text = format!("micro-batch {id} reaches {ours:?}, its intent {logged:?}");
                self.violated(text);
            }
        }
    }

    /// Checks what a source is told.
    pub fn check_heard(&mut self, source: usize, end: u64) {
        if self.outside.complete_to[source] < end {
            self.violated(format!("source {source} hears of {end}, which is not published"));
        }
        let committed = &mut self.topics[source].committed;
        *committed = end.max(*committed);
    }

    /// Checks the logs after a run that ended as it was asked to: they are as far as it has
    /// published, so that the next run repeats nothing.
    pub fn check_stopped(&mut self, id: usize) {
        let last = |log: &str| self.objects.last_id(log);
        let (intent, commit) = (last("offsets/"), last("commits/"));
        if intent != commit {
            self.violated(format!("stopped with intent {intent:?} and commit {commit:?}"));
        }
        let ends = intent.and_then(|id| self.objects.ever.intents.get(&id));
        let ends = ends.map_or_else(|| vec![0; self.topics.len()], |intent| intent.ends.clone());
        let published = &self.processes[id].published;
        let is_behind = published.iter().zip(&ends).any(|(row, end)| *row >= *end as i64);
        if is_behind || !self.is_published(&ends) {
            let text = format!("stopped with logs at {ends:?}, rows published: {published:?}");
            self.violated(text);
        }
        let heard: Vec<u64> = self.topics.iter().map(|topic| topic.committed).collect();
        let unheard = heard.iter().zip(&ends).any(|(heard, end)| heard < end);
        if self.processes[id].publish_result.is_some() && unheard {
            self.violated(format!("stopped with logs at {ends:?}, sources heard of {heard:?}"));
        }
    }

    /// Checks that everything has arrived.
    pub fn check_end(&mut self) {
        let total = vec![self.scenario.rows; self.scenario.sources];
        if !self.is_published(&total) {
            let complete = &self.outside.complete_to;
            self.violated(format!("published up to {complete:?}, of {total:?} rows"));
        }
    }
}
