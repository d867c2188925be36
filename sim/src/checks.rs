//! What must hold of the checkpoint at every moment, and of everything at the end.
//!
//! An entry is checked when the store takes it. As nothing changes the logs but that, this is the
//! same as a look at them after a crash at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
    /// When the entries were written, offset log and commit log.
    written: [BTreeMap<u64, Duration>; 2],
    /// The last micro-batch whose entries had been on the disk when a machine failed.
    survived: Option<u64>,
}

/// Which log an object is of, and its number.
fn entry_of(name: &str) -> Option<(usize, u64)> {
    let (log, id) = name.split_once('/')?;
    let log = ["offsets", "commits"].iter().position(|known| *known == log)?;
    Some((log, id.parse().ok()?))
}

impl Ever {
    /// An object was written.
    pub fn written(&mut self, name: &str, now: Duration) {
        if let Some((log, id)) = entry_of(name) {
            self.written[log].insert(id, now);
        }
    }

    /// The machine has failed: all that was written up to `written_back` is on the disk.
    pub fn survives(&mut self, written_back: Duration) {
        let is_old = |log: usize, id: &u64| {
            self.written[log].get(id).is_some_and(|written| *written <= written_back)
        };
        let last = self.commits.iter().rev().find(|id| is_old(0, id) && is_old(1, id));
        self.survived = self.survived.max(last.copied());
    }

    /// A failure of the machine has taken an object, or part of it.
    pub fn lost(&mut self, name: &str) {
        match entry_of(name) {
            Some((0, id)) => {
                self.intents.remove(&id);
            }
            Some((_, id)) => {
                self.commits.remove(&id);
            }
            None => {}
        }
    }

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
    /// Whether every sink has all that a micro-batch up to `ends` publishes.
    pub fn is_published(&self, ends: &[u64]) -> bool {
        self.outsides.iter().all(|outside| outside.has(ends))
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
        let logged_at_once = self.scenario.logs_at_once();
        let intents = &self.objects.ever.intents;
        let before = intents.range(..id).next_back().map(|(id, intent)| (*id, intent.ends.clone()));
        let in_turn = match &before {
            Some((before, _)) => before + 1 == id,
            None => id == 0,
        };
        // What the state log knows as published may be in the other logs no more after a crash.
        if !in_turn && (!sparse || logged_at_once) && !self.scenario.has_state() {
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
            && !self.scenario.has_state()
        {
            self.violated(format!("commits/{id} is written before commits/{before}"));
        }
        self.objects.ever.commits.insert(id);
    }

    fn was_sparse(&self) -> bool {
        self.processes.iter().any(|process| process.is_sparse())
    }

    /// Checks a log from which the entry `name` was deleted.
    pub fn check_purged(&mut self, name: &str) {
        if entry_of(name).is_none() || self.crowded {
            return;
        }
        let (left, least) =
            (self.objects.committed_beside(name), self.scenario.store.settings.retain_entries_min);
        if (left as u64) < least {
            self.violated(format!("{left} entries are left when {name} is deleted, not {least}"));
        }
    }

    /// Checks a micro-batch that a process gives to a sink.
    pub fn check_handed_over(
        &mut self,
        from: usize,
        sink: usize,
        id: u64,
        end_offsets: &EndOffsets,
    ) {
        let before = self.processes[from].sinks[sink].handed_over.replace(id);
        if before >= Some(id) {
            self.violated(format!("sink {sink} is given micro-batch {id} after {before:?}"));
        }
        if let Some(survived) = self.objects.ever.survived.filter(|survived| id <= *survived) {
            let text = format!("micro-batch {id} is given again: {survived} was on the disk");
            self.violated(text);
        }
        let relies_on_it = self.outsides[sink].delivery() == Delivery::Idempotent;
        if !relies_on_it || !self.scenario.logs_at_once() {
            return;
        }
        let (ends, batch_time_ms) = (positions(&end_offsets.ends), end_offsets.batch_time_ms);
        let ours = Intent { ends, batch_time_ms };
        let logged = self.objects.ever.intents.get(&id);
        // A sink that is behind another one gets what that one has, which the logs need not have.
        let of_another =
            self.outsides.iter().any(|outside| outside.ends_of(id) == Some(end_offsets));
        if logged != Some(&ours) && !self.objects.ever.is_given_again(id) && !of_another {
            self.violated(format!("micro-batch {id} reaches {ours:?}, its intent {logged:?}"));
        }
    }

    /// Checks what a source is told.
    pub fn check_heard(&mut self, source: usize, end: u64) {
        let mut ends = vec![0; self.topics.len()];
        ends[source] = end;
        // A process that stood still may take what another one has under the number for its own.
        if !self.is_published(&ends) && self.objects.ever.again.is_empty() {
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
        let is_in_state = self.scenario.has_state() && !self.processes[id].has_handed_over();
        if intent != commit && !is_in_state {
            self.violated(format!("stopped with intent {intent:?} and commit {commit:?}"));
        }
        let ends = intent.and_then(|id| self.objects.ever.intents.get(&id));
        let ends = ends.map_or_else(|| vec![0; self.topics.len()], |intent| intent.ends.clone());
        for (sink, outside) in self.processes[id].sinks.iter().zip(&self.outsides) {
            let mut published = sink.published.iter().zip(&ends);
            let is_behind = published.any(|(row, end)| *row >= *end as i64);
            if outside.rows.follow_input() && (is_behind || !outside.has(&ends)) {
                let published = &sink.published;
                let text = format!("stopped with logs at {ends:?}, rows published: {published:?}");
                return self.violated(text);
            }
        }
        let heard: Vec<u64> = self.topics.iter().map(|topic| topic.committed).collect();
        let unheard = heard.iter().zip(&ends).any(|(heard, end)| heard < end);
        if self.processes[id].has_handed_over() && unheard {
            self.violated(format!("stopped with logs at {ends:?}, sources heard of {heard:?}"));
        }
    }

    /// Checks that everything has arrived.
    pub fn check_end(&mut self) {
        for sink in 0..self.outsides.len() {
            if !self.outsides[sink].is_complete() {
                let complete = &self.outsides[sink].complete_to;
                self.violated(format!("sink {sink} has everything up to {complete:?} only"));
            }
        }
    }
}
