//! What a checkpoint holds, described in plain words; it may also be one of Spark.
//!
//! Inspecting only reads, and takes no lock, so it can look at a running query. Then it may catch
//! the logs between two writes; it reports what it saw.

use std::fmt;
use std::ops::RangeInclusive;

use futures::{StreamExt, TryStreamExt, stream};

use crate::codec::DecodeError;
use crate::env::Env;
use crate::error::{Classified, Kind};
use crate::offset::BatchId;
use crate::storage::{self, LocationError, Storage, StorageError};
use crate::time_text::utc;
use crate::{commit_log, layout, metadata, offset_log};

/// How many of the last entries of each log are shown.
const SHOWN_ENTRIES: usize = 3;
/// Files read at the same time; an object store takes long for each.
const READS_MAX: usize = 32;

/// What a checkpoint holds.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Where it is.
    pub location: String,
    /// The query's id, or why it is not known.
    pub query_id: Result<String, String>,
    /// The offset log.
    pub intents: Log<offset_log::Entry>,
    /// The commit log.
    pub commits: Log<commit_log::Entry>,
    /// Each source's id and its files, in order of the ids.
    pub sources: Vec<(String, Vec<String>)>,
    /// What is in `state/`.
    pub state: State,
    /// Torn entries that a recovery moved aside.
    pub moved_aside: Vec<String>,
}

/// One log.
#[derive(Clone, Debug)]
pub struct Log<Entry> {
    /// All ids on disk, ascending.
    pub ids: Vec<BatchId>,
    /// Ids that are missing between the first and the last.
    pub gaps: Vec<RangeInclusive<u64>>,
    /// Entries that cannot be read, and why.
    pub unreadable: Vec<(BatchId, DecodeError)>,
    /// The last entries that can be read, ascending.
    pub last: Vec<(BatchId, Entry)>,
}

/// What is in `state/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: a stateless query.
    None,
    /// State in Millstream's format.
    Millstream,
    /// State in Spark's format, which only Spark reads.
    Spark,
}

/// Why a checkpoint cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The text is neither a path nor a URL of a known kind.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The location has none of a checkpoint's files.
    #[error(
        "{location} is not a checkpoint: it has no file `metadata` and no directory `offsets` or `commits`"
    )]
    NoCheckpoint {
        /// The location.
        location: String,
    },
    /// A file or directory cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Classified for InspectError {
    fn kind(&self) -> Kind {
        match self {
            Self::Location(error) => error.kind(),
            Self::NoCheckpoint { .. } => Kind::Config,
            Self::Storage(error) => error.kind(),
        }
    }
}

/// Looks at the checkpoint at `location` (see [`storage::parse`]).
pub async fn inspect(location: &str, env: &Env) -> Result<Inspection, InspectError> {
    inspect_in(&storage::parse(location, env)?).await
}

/// Looks at the checkpoint in `storage`.
pub async fn inspect_in(storage: &Storage) -> Result<Inspection, InspectError> {
    let offsets = storage.list(layout::OFFSETS).await?;
    let commits = storage.list(layout::COMMITS).await?;
    let query_id = storage.get(layout::METADATA).await?;
    if query_id.is_none() && offsets.is_empty() && commits.is_empty() {
        return Err(InspectError::NoCheckpoint { location: storage.location() });
    }
    let query_id = match query_id.as_deref().map(metadata::decode) {
        None => Err("the file `metadata` is missing".to_owned()),
        Some(decoded) => {
            decoded.map_err(|error| format!("the file `metadata` is damaged: {error}"))
        }
    };
    let state_names = storage.list(layout::STATE).await?;
    let logs = [(layout::OFFSETS, &offsets), (layout::COMMITS, &commits)];
    let moved_aside = logs
        .into_iter()
        .chain([(layout::STATE, &state_names)])
        .flat_map(|(log, names)| names.iter().map(move |name| format!("{log}/{name}")))
        .filter(|name| name.contains(".torn-"))
        .collect();
    Ok(Inspection {
        location: storage.location(),
        query_id,
        intents: read_log(storage, &offsets, layout::intent, offset_log::Entry::decode).await?,
        commits: read_log(storage, &commits, layout::commit, commit_log::Entry::decode).await?,
        sources: read_sources(storage).await?,
        state: read_state(storage).await?,
        moved_aside,
    })
}

async fn read_log<Entry>(
    storage: &Storage,
    names: &[String],
    name_of: fn(BatchId) -> String,
    decode: fn(&[u8]) -> Result<Entry, DecodeError>,
) -> Result<Log<Entry>, StorageError> {
    let ids = layout::batch_ids(names);
    let mut log = Log { gaps: gaps(&ids), ids, unreadable: Vec::new(), last: Vec::new() };
    let reads = log.ids.clone().into_iter().map(|id| async move {
        let bytes = storage.get(&name_of(id)).await?;
        Ok::<_, StorageError>((id, bytes))
    });
    let mut reads = stream::iter(reads).buffered(READS_MAX);
    while let Some((id, bytes)) = reads.try_next().await? {
        // A purge may have deleted it since the listing.
        let Some(bytes) = bytes else { continue };
        match decode(&bytes) {
            Ok(entry) => {
                if log.last.len() == SHOWN_ENTRIES {
                    log.last.remove(0);
                }
                log.last.push((id, entry));
            }
            Err(error) => log.unreadable.push((id, error)),
        }
    }
    Ok(log)
}

fn gaps(ids: &[BatchId]) -> Vec<RangeInclusive<u64>> {
    let neighbours = ids.windows(2).map(|pair| (pair[0].0, pair[1].0));
    neighbours.filter(|(a, b)| b - a > 1).map(|(a, b)| a + 1..=b - 1).collect()
}

async fn read_sources(storage: &Storage) -> Result<Vec<(String, Vec<String>)>, StorageError> {
    let mut sources = Vec::new();
    for name in storage.list(layout::SOURCES).await? {
        let Some(id) = name.strip_suffix('/') else { continue };
        let mut files = storage.list(&format!("{}/{id}", layout::SOURCES)).await?;
        files.retain(|file| !file.starts_with('.'));
        files.sort_unstable();
        sources.push((id.to_owned(), files));
    }
    sources.sort_unstable();
    Ok(sources)
}

pub(crate) async fn read_state(storage: &Storage) -> Result<State, StorageError> {
    let names = storage.list(layout::STATE).await?;
    if names.iter().any(|name| name == layout::STATE_MARKER) {
        return Ok(State::Millstream);
    }
    // The marker is Millstream's alone. Any other visible name was written by Spark, whose state
    // has a directory per operator.
    let is_empty = names.iter().all(|name| name.starts_with('.'));
    Ok(if is_empty { State::None } else { State::Spark })
}

/// Where a query stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It cannot be continued, for the reason given.
    Stuck(String),
    /// Nothing is logged yet.
    New,
    /// Everything logged is published; the id of the next micro-batch.
    Published(BatchId),
    /// These are logged and not known to be published; ascending, not empty.
    Unfinished(Vec<BatchId>),
}

impl Inspection {
    /// Where the query stands, as a recovery would find it.
    pub fn standing(&self) -> Standing {
        if let Err(problem) = &self.query_id
            && !(self.intents.ids.is_empty() && self.commits.ids.is_empty())
        {
            return Standing::Stuck(problem.clone());
        }
        if self.state == State::Spark {
            return Standing::Stuck("its state is Spark's".to_owned());
        }
        let (last, committed) = (self.intents.last_id(), self.commits.last_id());
        if committed > last {
            return Standing::Stuck("the commit log is ahead of the offset log".to_owned());
        }
        // Torn entries at the end are moved aside by a recovery and so do not stop the query. An
        // entry that is whole but unreadable, and newer than the last readable one, does.
        let not_torn =
            |id: &BatchId, error: &DecodeError, last| Some(*id) > last && !error.is_torn();
        let newer = self.intents.unreadable.iter().any(|(id, error)| not_torn(id, error, last))
            || self.commits.unreadable.iter().any(|(id, error)| not_torn(id, error, committed));
        if newer {
            return Standing::Stuck("its last entries are in a form not supported".to_owned());
        }
        let Some(last) = last else { return Standing::New };
        let above = self.intents.ids.iter().filter(|id| Some(**id) > committed && **id <= last);
        let unfinished: Vec<BatchId> = above.copied().collect();
        if unfinished.is_empty() {
            return Standing::Published(last.next());
        }
        Standing::Unfinished(unfinished)
    }
}

impl<Entry> Log<Entry> {
    /// The last entry that can be read.
    fn last_id(&self) -> Option<BatchId> {
        self.last.last().map(|(id, _)| *id)
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checkpoint  {}", self.location)?;
        match &self.query_id {
            Ok(id) => writeln!(f, "query id    {id}")?,
            Err(problem) => writeln!(f, "query id    not known: {problem}")?,
        }
        writeln!(f, "offset log  {}", self.intents)?;
        writeln!(f, "commit log  {}", self.commits)?;
        for (id, files) in &self.sources {
            let files = if files.is_empty() { "no files".to_owned() } else { files.join(", ") };
            writeln!(f, "source {id:<5}{files}")?;
        }
        let state = match self.state {
            State::None => "none",
            State::Millstream => "Millstream's",
            State::Spark => "a stateful Spark query's, which only Spark can continue",
        };
        writeln!(f, "state       {state}")?;
        self.fmt_standing(f)?;
        self.fmt_entries(f)?;
        self.fmt_problems(f)
    }
}

impl Inspection {
    fn fmt_standing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standing() {
            Standing::Stuck(problem) => writeln!(f, "The query cannot continue: {problem}."),
            Standing::New => {
                writeln!(f, "Nothing is logged yet: the query begins with micro-batch 0.")
            }
            Standing::Published(next) => writeln!(
                f,
                "All that is logged is published: the query continues with micro-batch {next}."
            ),
            Standing::Unfinished(ids) if ids.len() == 1 => writeln!(
                f,
                "Micro-batch {} is logged and not known to be published: it is run again.",
                ids[0]
            ),
            Standing::Unfinished(ids) => {
                let last = ids[ids.len() - 1];
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                writeln!(
                    f,
                    "Micro-batches {} are logged and not known to be published: Millstream runs \
                     them again. Spark would run only {last} again: let Millstream finish them \
                     before Spark takes over.",
                    ids.join(", ")
                )
            }
        }
    }

    fn fmt_entries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.intents.last.is_empty() {
            writeln!(f, "last intents")?;
        }
        for (id, entry) in &self.intents.last {
            let watermark = watermark(entry.batch_watermark_ms);
            writeln!(f, "  {id}  taken {}, {watermark}", utc(entry.batch_timestamp_ms))?;
            for (source, offset) in entry.offsets.iter().enumerate() {
                let offset = offset.as_ref().map_or("no offset", |offset| offset.as_str());
                writeln!(f, "     source {source} ends before {offset}")?;
            }
        }
        if !self.commits.last.is_empty() {
            writeln!(f, "last commit entries")?;
        }
        for (id, entry) in &self.commits.last {
            writeln!(f, "  {id}  {} from here on", watermark(entry.next_batch_watermark_ms))?;
        }
        Ok(())
    }

    fn fmt_problems(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, problem) in &self.intents.unreadable {
            writeln!(f, "problem: {}: {problem}", layout::intent(*id))?;
        }
        for (id, problem) in &self.commits.unreadable {
            writeln!(f, "problem: {}: {problem}", layout::commit(*id))?;
        }
        for name in &self.moved_aside {
            writeln!(f, "moved aside after a crash: {name}")?;
        }
        Ok(())
    }
}

impl<Entry> fmt::Display for Log<Entry> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.ids.first(), self.ids.last()) else {
            return f.write_str("empty");
        };
        match self.ids.len() {
            1 => write!(f, "1 entry, {first}")?,
            count => write!(f, "{count} entries, {first} to {last}")?,
        }
        if self.gaps.is_empty() {
            return Ok(());
        }
        // Asynchronous progress tracking leaves a gap after nearly every entry.
        let missing: u64 = self.gaps.iter().map(|gap| gap.end() - gap.start() + 1).sum();
        let shown = self.gaps.iter().take(SHOWN_ENTRIES).map(|gap| match gap.end() - gap.start() {
            0 => gap.start().to_string(),
            _ => format!("{} to {}", gap.start(), gap.end()),
        });
        let shown: Vec<String> = shown.collect();
        let more = if self.gaps.len() > SHOWN_ENTRIES { ", ..." } else { "" };
        write!(f, "; {missing} not logged between them: {}{more}", shown.join(", "))
    }
}

fn watermark(ms: i64) -> String {
    if ms == 0 { "no watermark".to_owned() } else { format!("watermark {}", utc(ms)) }
}
