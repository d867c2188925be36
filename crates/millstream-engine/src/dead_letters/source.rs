//! A table of dead letters as a source: each letter is fed to its flow once.
//!
//! What a run feeds is decided when it starts: letters that were not fed before, that the condition
//! asks for, and that can be decoded now. Their positions are written to the source's log, an
//! entry a run, before anything is done with them; the offset is the last entry, `{"logOffset":3}`,
//! and a micro-batch that has to be repeated finds the same letters by their positions. So a letter
//! is recorded one by one, and not by how far the table was read: another run may ask for those
//! that this one passed over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::error::ReplayError;
use super::replay_input::{self, LetterSplit};
use super::table_reader::{StoredLetter, stored_letters};
use crate::api::connector::{Connector, FlowContext, Table};
use crate::api::dead_letter::{Form, Payloads};
use crate::api::source::{
    Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset, Split, StaticTable,
};

/// Where letters stand, and which of them are asked for.
#[derive(Clone)]
pub struct LetterBox {
    /// The dead-letter table.
    pub table: Arc<dyn StaticTable>,
    /// What its rows look like.
    pub form: Form,
    /// The flow whose letters are asked for.
    pub flow: String,
    /// A condition on the table's columns.
    pub condition: Option<String>,
}

/// What became of the letters that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Letters that this run feeds.
    pub fed: u64,
    /// Letters that a run before has fed.
    pub fed_before: u64,
    /// Letters that still cannot be decoded.
    pub malformed: u64,
    /// Letters whose payload in the table is not the record that was read: it was cut, or stands
    /// in a column of texts and was none.
    pub not_whole: u64,
}

/// The letters of one source of a flow.
pub struct LetterSource {
    letters: LetterBox,
    /// The source whose records they are.
    connector: Arc<dyn Connector>,
    table: Table,
    schema: SchemaRef,
    context: FlowContext,
    log: Option<SourceLog>,
    /// Positions by log entry.
    entries: BTreeMap<i64, Vec<String>>,
    /// What this run is to feed, until it is recorded.
    chosen: Vec<StoredLetter>,
    /// Letters that wait to be taken, and the entry that they end.
    queue: Option<(i64, Vec<StoredLetter>)>,
    is_end_fixed: bool,
    tally: Arc<Mutex<Tally>>,
}

impl LetterSource {
    /// The letters among `letters` that were records of `table`, which has the columns `schema`.
    pub fn new(
        letters: LetterBox,
        (connector, table, schema): (Arc<dyn Connector>, Table, SchemaRef),
        context: FlowContext,
        tally: Arc<Mutex<Tally>>,
    ) -> Self {
        Self {
            letters,
            connector,
            table,
            schema,
            context,
            log: None,
            entries: BTreeMap::new(),
            chosen: Vec::new(),
            queue: None,
            is_end_fixed: false,
            tally,
        }
    }

    /// All letters of this source that are asked for, each once.
    async fn read(&self, condition: Option<&str>) -> Result<Vec<StoredLetter>, Failure> {
        let LetterBox { table, form, flow, .. } = &self.letters;
        let rows = table.read().await?;
        let mut all = stored_letters(rows, &table.schema(), *form, flow, condition).await?;
        let mut seen = BTreeSet::new();
        all.retain(|filed| {
            let of_source = filed.source_table.as_ref();
            let is_own = of_source.is_none_or(|of| of.eq_ignore_ascii_case(&self.table.name));
            is_own && seen.insert(filed.position.clone())
        });
        Ok(all)
    }

    /// The letters of the entries after `first` up to `last`, found again.
    async fn logged(&self, first: i64, last: i64) -> Result<Vec<StoredLetter>, Failure> {
        let positions = between(&self.entries, first, last);
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.read(None).await?.into_iter();
        let mut all: HashMap<String, StoredLetter> =
            all.map(|filed| (filed.position.clone(), filed)).collect();
        let mut logged = Vec::with_capacity(positions.len());
        for position in positions {
            let gone = || ReplayError::Gone { position: position.clone() };
            logged.push(all.remove(position).ok_or_else(gone)?);
        }
        if let Some((filed, problem)) = self.part(&mut logged)?.into_iter().next() {
            return Err(ReplayError::Unfit { position: filed.position, problem }.into());
        }
        Ok(logged)
    }

    /// Takes letters that cannot be decoded out of `letters`, and says why.
    fn part(
        &self,
        letters: &mut Vec<StoredLetter>,
    ) -> Result<Vec<(StoredLetter, String)>, Failure> {
        let columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        let payloads = self.payloads()?;
        let (mut problems, mut first) = (BTreeMap::new(), 0);
        for piece in replay_input::cut(letters) {
            let mut reject = |index: usize, problem: String| {
                problems.insert(first + index, problem);
            };
            replay_input::decode(&*payloads, piece, &columns, &mut reject)?;
            first += piece.len();
        }
        let (mut fit, mut unfit) = (Vec::with_capacity(letters.len()), Vec::new());
        for (index, filed) in std::mem::take(letters).into_iter().enumerate() {
            match problems.remove(&index) {
                Some(problem) => unfit.push((filed, problem)),
                None => fit.push(filed),
            }
        }
        *letters = fit;
        Ok(unfit)
    }

    fn payloads(&self) -> Result<Arc<dyn Payloads>, Failure> {
        let payloads =
            self.connector.dead_letters().payloads(&*self.table.fresh()?, &self.context)?;
        let table = self.table.name.clone();
        payloads.ok_or_else(|| ReplayError::NothingToDecode { table }.into())
    }

    /// Letters as input of the source.
    pub fn splits(&self, letters: &[StoredLetter]) -> Result<Vec<Box<dyn Split>>, Failure> {
        let payloads = self.payloads()?;
        let split = |letters: &[StoredLetter]| {
            let (letters, payloads) = (letters.to_vec(), Arc::clone(&payloads));
            Box::new(LetterSplit { letters, payloads }) as Box<dyn Split>
        };
        Ok(replay_input::cut(letters).map(split).collect())
    }

    fn taken(&self, end: SourceOffset, letters: &[StoredLetter]) -> Result<InputBatch, Failure> {
        Ok(InputBatch {
            end,
            rows: letters.len() as u64,
            splits: self.splits(letters)?,
            oldest_arrival_us: self.context.env.now_us(),
        })
    }

    /// Reads the log of what was fed, whose entries are those of all runs.
    pub async fn open_log(&mut self, log: SourceLog) -> Result<(), Failure> {
        for name in log.list().await? {
            let damaged = |problem: String| ReplayError::Log { problem };
            let Some(number) = entry_number(&name).map_err(damaged)? else { continue };
            let bytes = log.get(&name).await?.unwrap_or_default();
            let positions = serde_json::from_slice(&bytes);
            let positions = positions.map_err(|error| damaged(format!("{name}: {error}")))?;
            self.entries.insert(number, positions);
        }
        self.log = Some(log);
        Ok(())
    }

    /// Chooses what this run feeds: letters that no run has fed, and that can be decoded now. To be
    /// called once, when the log is open.
    pub async fn choose(&mut self) -> Result<(), Failure> {
        let mut letters = self.read(self.letters.condition.as_deref()).await?;
        let all = letters.len();
        let known: BTreeSet<&String> = self.entries.values().flatten().collect();
        letters.retain(|filed| !known.contains(&filed.position));
        let fed_before = (all - letters.len()) as u64;
        let before = letters.len();
        letters.retain(|filed| filed.is_whole);
        let not_whole = (before - letters.len()) as u64;
        let unfit = self.part(&mut letters)?;
        for (filed, problem) in &unfit {
            tracing::info!(position = filed.position, problem, "a letter cannot be decoded");
        }
        let mut tally = self.tally.lock();
        tally.fed_before += fed_before;
        tally.malformed += unfit.len() as u64;
        tally.not_whole += not_whole;
        tally.fed += letters.len() as u64;
        drop(tally);
        self.chosen = letters;
        Ok(())
    }

    /// What was chosen.
    pub fn chosen(&self) -> &[StoredLetter] {
        &self.chosen
    }

    fn last_entry(&self) -> i64 {
        self.entries.last_key_value().map_or(-1, |(number, _)| *number)
    }
}

/// The positions of the entries after `first` up to `last`; none where `last` is not behind it.
fn between(entries: &BTreeMap<i64, Vec<String>>, first: i64, last: i64) -> Vec<&String> {
    let own = entries.iter().filter(|(entry, _)| **entry > first && **entry <= last);
    own.flat_map(|(_, positions)| positions).collect()
}

/// No replay comes to this number; the one after a larger one may not exist.
const ENTRY_MAX: i64 = 1 << 53;

/// The number of the entry that is called `name`; `None` where that is no number. An error if no
/// entry can have it.
fn entry_number(name: &str) -> Result<Option<i64>, String> {
    match name.parse() {
        Ok(number) if (0..=ENTRY_MAX).contains(&number) => Ok(Some(number)),
        Ok(_) => Err(format!("{name} is no number that an entry has")),
        Err(_) => Ok(None),
    }
}

fn offset(entry: i64) -> SourceOffset {
    SourceOffset::new(format!("{{\"logOffset\":{entry}}}"))
}

fn entry_of(offset: &SourceOffset) -> Result<i64, Failure> {
    let parsed: Option<serde_json::Value> = serde_json::from_str(offset.as_str()).ok();
    let entry = parsed.and_then(|value| value.get("logOffset")?.as_i64());
    let problem = || format!("{offset} is no offset of a replay");
    entry.ok_or_else(|| ReplayError::Log { problem: problem() }.into())
}

#[async_trait]
impl Source for LetterSource {
    fn description(&self) -> String {
        format!("DeadLetters[{}]", self.table.name)
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        self.open_log(log).await?;
        Ok(offset(position.map_or(Ok(-1), entry_of)?))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let (first, last) = (start.map_or(Ok(-1), entry_of)?, entry_of(end)?);
        let letters = self.logged(first, last).await?;
        self.tally.lock().fed += letters.len() as u64;
        self.taken(end.clone(), &letters)
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        // Chosen by a run before, which did not come to feed them.
        let letters = self.logged(entry_of(position)?, i64::MAX - 1).await?;
        self.tally.lock().fed += letters.len() as u64;
        self.queue = (!letters.is_empty()).then(|| (self.last_entry(), letters));
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let chosen = std::mem::take(&mut self.chosen);
        if !chosen.is_empty() {
            let number = self.last_entry() + 1;
            let positions: Vec<String> =
                chosen.iter().map(|filed| filed.position.clone()).collect();
            let bytes = serde_json::to_vec(&positions).expect("texts are JSON");
            let log = self.log.as_ref().expect("the driver opens a source before it uses it");
            log.put_if_absent(&number.to_string(), bytes).await?;
            self.entries.insert(number, positions);
            let mut queued = self.queue.take().map(|(_, letters)| letters).unwrap_or_default();
            queued.extend(chosen);
            self.queue = Some((number, queued));
        }
        self.is_end_fixed = true;
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.is_end_fixed && self.queue.is_none()
    }

    fn poll(&mut self, _: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let Some((last, letters)) = self.queue.take() else { return Ok(None) };
        self.taken(offset(last), &letters).map(Some)
    }

    async fn data_available(&mut self) {
        if !self.is_end_fixed && self.queue.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn committed(&mut self, _: &SourceOffset) {}

    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_range_of_entries_has_no_letters() {
        let entries = BTreeMap::from([(0, vec!["a".to_owned()]), (1, vec!["b".to_owned()])]);
        assert_eq!(between(&entries, -1, 1), ["a", "b"]);
        assert_eq!(between(&entries, 0, 1), ["b"]);
        // After a crash before the first entry the same range is asked for again.
        for (first, last) in [(-1, -1), (1, 1), (1, 0), (i64::MAX, i64::MAX)] {
            assert!(between(&entries, first, last).is_empty(), "{first} {last}");
        }
    }

    #[test]
    fn numbers_that_no_entry_has_are_damage() {
        assert_eq!(entry_number("7"), Ok(Some(7)));
        assert_eq!(entry_number("7.tmp"), Ok(None));
        for name in ["-1", "9223372036854775807"] {
            assert!(entry_number(name).unwrap_err().contains(name), "{name}");
        }
    }
}
