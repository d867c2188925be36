//! What a run leaves to the next one: which messages of micro-batches that are not acknowledged yet
//! the receiver has accepted.
//!
//! ```text
//! sinks/<name>/<N>    {"batches":{"12":["QUERY-12-DIGEST", ...]}}
//! ```
//!
//! A run may end in the middle of a micro-batch, which the next run gets again, with the same keys:
//! so it leaves out what this one has delivered. It is written when the run ends and not before, so
//! after a crash messages may come twice.

use std::collections::{BTreeMap, HashSet};

use millstream_engine::api::refusals::Refusals;
use millstream_engine::api::sink::{BatchId, Failure};
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};

use super::Message;

/// Keys that are written, at most; of the messages beyond that, some come twice.
const KEYS_MAX: usize = 100_000;

/// By micro-batch, the keys of accepted messages.
#[derive(Default, Serialize, Deserialize)]
struct Keys {
    batches: BTreeMap<u64, HashSet<String>>,
}

/// What is accepted of micro-batches that are not acknowledged.
#[derive(Default)]
pub struct Accepted {
    /// Of earlier runs, until the micro-batch comes again.
    recalled: Keys,
    /// Whether there were any, which are to be forgotten.
    has_recalled: bool,
    begun: BTreeMap<u64, Begun>,
    /// Refused rows: a micro-batch that has some is not acknowledged before they are letters.
    refusals: Option<Refusals>,
}

/// A micro-batch that was handed over.
#[derive(Default)]
struct Begun {
    keys: HashSet<String>,
    /// Messages that are not accepted yet.
    left: usize,
}

impl Accepted {
    /// What the run before has written to `log`.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn recall(
        log: Option<&SinkLog>,
        refusals: Option<Refusals>,
    ) -> Result<Self, Failure> {
        let last = match log {
            Some(log) => log.last().await?,
            None => None,
        };
        let recalled = last.map_or_else(Self::default, |(_, bytes)| Self::from_entry(&bytes));
        Ok(Self { refusals, ..recalled })
    }

    fn from_entry(bytes: &[u8]) -> Self {
        // One that cannot be read says nothing; the next one replaces it.
        let recalled: Keys = serde_json::from_slice(bytes).unwrap_or_default();
        let has_recalled = !recalled.batches.is_empty();
        Self { recalled, has_recalled, begun: BTreeMap::new(), refusals: None }
    }

    /// What the run that follows knows.
    #[cfg(test)]
    pub fn next_run(self) -> Self {
        self.into_entry().map_or_else(Self::default, |bytes| Self::from_entry(&bytes))
    }

    /// A micro-batch is handed over: gives those of its messages that are to be delivered.
    pub fn begin<M: Message>(
        &mut self,
        batch_id: BatchId,
        messages: Vec<(Option<u64>, M)>,
    ) -> Vec<(Option<u64>, M)> {
        // Those before it do not come again.
        let later = self.recalled.batches.split_off(&batch_id.0);
        self.recalled.batches = later;
        // What is known beyond its messages is of another text of the query, and does not come.
        let keys = self.recalled.batches.remove(&batch_id.0).unwrap_or_default();
        let mut rest = messages;
        rest.retain(|(_, message)| !keys.contains(message.key()));
        self.begun.insert(batch_id.0, Begun { keys, left: rest.len() });
        self.forget_whole();
        rest
    }

    /// The receiver has accepted a message, or it is kept elsewhere for good.
    pub fn add(&mut self, batch_id: BatchId, key: &str) {
        if let Some(begun) = self.begun.get_mut(&batch_id.0) {
            begun.keys.insert(key.to_owned());
        }
        self.settle(batch_id);
    }

    /// A message is done with, and is to be sent again if its micro-batch comes again.
    pub fn settle(&mut self, batch_id: BatchId) {
        if let Some(begun) = self.begun.get_mut(&batch_id.0) {
            begun.left -= 1;
            self.forget_whole();
        }
    }

    /// Forgets micro-batches that are done with as a whole, with all before them: these are
    /// acknowledged.
    fn forget_whole(&mut self) {
        while let Some((batch_id, Begun { left: 0, .. })) = self.begun.first_key_value()
            && !self.refusals.as_ref().is_some_and(|refused| refused.has(BatchId(*batch_id)))
        {
            self.begun.pop_first();
        }
    }

    /// Writes down what the next run is to leave out.
    pub async fn write(self, log: &SinkLog) {
        let Some(bytes) = self.into_entry() else { return };
        if let Err(error) = log.replace(bytes).await {
            let place = log.location();
            tracing::warn!(place, %error, "which messages were accepted was not recorded; the next \
                                           run may send some of them again");
        }
    }

    fn into_entry(mut self) -> Option<Vec<u8>> {
        self.forget_whole();
        let mut batches = self.recalled.batches;
        batches.extend(self.begun.into_iter().map(|(batch_id, begun)| (batch_id, begun.keys)));
        batches.retain(|_, keys| !keys.is_empty());
        let mut left = KEYS_MAX;
        for keys in batches.values_mut() {
            if keys.len() > left {
                *keys = keys.drain().take(left).collect();
            }
            left -= keys.len();
        }
        let is_needed = self.has_recalled || !batches.is_empty();
        is_needed.then(|| serde_json::to_vec(&Keys { batches }).expect("texts and numbers"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use bytes::Bytes;

    use super::*;

    struct Note(&'static str);

    impl Message for Note {
        fn key(&self) -> &str {
            self.0
        }

        fn rows(&self) -> &[Bytes] {
            &[]
        }

        fn content(&self) -> Value {
            Value::Null
        }
    }

    fn begin(accepted: &mut Accepted, batch_id: u64, keys: &[&'static str]) -> Vec<&'static str> {
        let notes = keys.iter().map(|key| (None, Note(key))).collect();
        let rest = accepted.begin(BatchId(batch_id), notes);
        rest.into_iter().map(|(_, note)| note.0).collect()
    }

    fn next_run(accepted: Accepted) -> (Accepted, Option<Value>) {
        let entry = accepted.into_entry();
        let text = entry.as_deref().map(|bytes| serde_json::from_slice(bytes).expect("JSON"));
        (Accepted::from_entry(entry.as_deref().unwrap_or_default()), text)
    }

    #[test]
    fn what_is_accepted_is_left_out_until_its_micro_batch_is_whole() {
        let mut run = Accepted::default();
        assert_eq!(begin(&mut run, 4, &["a"]), ["a"]);
        assert_eq!(begin(&mut run, 5, &["b", "c"]), ["b", "c"]);
        assert_eq!(begin(&mut run, 6, &["d"]), ["d"]);
        for (batch_id, key) in [(4, "a"), (5, "c"), (6, "d")] {
            run.add(BatchId(batch_id), key);
        }
        // The last one is whole, and cannot be acknowledged before the one that is not.
        let (mut run, entry) = next_run(run);
        assert_eq!(entry, Some(json!({"batches": {"5": ["c"], "6": ["d"]}})));
        // A run that ends before it has delivered anything leaves the same.
        assert_eq!(begin(&mut run, 5, &["c", "b"]), ["b"]);
        let (mut run, entry) = next_run(run);
        assert_eq!(entry, Some(json!({"batches": {"5": ["c"], "6": ["d"]}})));
        assert_eq!(begin(&mut run, 5, &["b", "c"]), ["b"]);
        run.add(BatchId(5), "b");
        assert_eq!(begin(&mut run, 6, &["d"]), [""; 0]);
        let (run, entry) = next_run(run);
        assert_eq!(entry, Some(json!({"batches": {}})), "it is forgotten");
        assert_eq!(next_run(run).1, None, "once");
    }

    #[test]
    fn what_is_written_is_limited() {
        let mut run = Accepted::default();
        run.begun
            .insert(7, Begun { keys: (0..KEYS_MAX).map(|n| n.to_string()).collect(), left: 1 });
        run.begun.insert(8, Begun { keys: ["more".to_owned()].into(), left: 1 });
        let (run, _) = next_run(run);
        assert_eq!(run.recalled.batches.values().map(HashSet::len).sum::<usize>(), KEYS_MAX);
        assert_eq!(run.recalled.batches[&7].len(), KEYS_MAX);
    }
}
