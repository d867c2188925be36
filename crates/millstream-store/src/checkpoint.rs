//! The checkpoint of one query, opened to be continued.
//!
//! Opening takes the lock (local directories), reads the query's id or makes one, and refuses what
//! cannot be continued: logs that lost their `metadata`, and the state of a stateful Spark query,
//! whose rows are in a form that only Spark reads. Where to go on is [`Checkpoint::recover`]'s
//! question.

use std::sync::Arc;

use uuid::Uuid;

use crate::env::Env;
use crate::error::{Classified, Kind};
use crate::inspect::{self, State};
use crate::lock::{self, Lock, LockError};
use crate::sink_log::SinkLog;
use crate::source_log::SourceLog;
use crate::storage::{self, Durability, LocationError, PutError, Storage, StorageError};
use crate::{layout, metadata};

/// An open checkpoint. Clones are the same checkpoint; the lock is released with the last.
#[derive(Clone)]
pub struct Checkpoint {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    env: Env,
    query_id: String,
    has_state: bool,
    _lock: Option<Lock>,
}

/// Why a checkpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is neither a path nor a URL of a known kind.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Another process runs the query.
    #[error(
        "the checkpoint {location} is in use by {holder}. Stop that process first, or give this query a checkpoint of its own"
    )]
    InUse {
        /// The checkpoint.
        location: String,
        /// What the other process says about itself: its id and when it started.
        holder: String,
    },
    /// There are log entries, but not the file with the query's id.
    #[error(
        "the checkpoint {location} has entries in offsets/ or commits/, but its file `metadata` is missing. Restore that file from a backup, or use a new checkpoint directory (the query then begins anew)"
    )]
    MetadataMissing {
        /// The checkpoint.
        location: String,
    },
    /// The file with the query's id cannot be read.
    #[error(
        "{file} is damaged: {problem}. Restore it from a backup, or use a new checkpoint directory (the query then begins anew)"
    )]
    MetadataDamaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The checkpoint has state of a stateful query in Spark's format.
    #[error(
        "the checkpoint {location} holds state of a stateful Spark query (in state/), which only Spark can read. Continue that query in Spark, or use a new checkpoint directory (the query then begins anew)"
    )]
    ForeignState {
        /// The checkpoint.
        location: String,
    },
    /// The text given as a query's id is not a UUID.
    #[error(
        "'{text}' is not the id of a query: it looks like 0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11"
    )]
    NotAnId {
        /// What was given.
        text: String,
    },
    /// `--adopt` names another query than the one that has run on this checkpoint.
    #[error(
        "the checkpoint {location} is of the query {own}, which has run on it, so it cannot continue as {other}: leave --adopt out, or give it a new checkpoint"
    )]
    OtherQuery {
        /// The checkpoint.
        location: String,
        /// The query that has run on it.
        own: String,
        /// The query that was to continue it.
        other: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// `metadata` cannot be written.
    #[error("cannot begin a checkpoint: {0}")]
    Put(#[from] PutError),
}

impl Classified for OpenError {
    fn kind(&self) -> Kind {
        match self {
            Self::Location(error) => error.kind(),
            Self::InUse { .. } => Kind::Fenced,
            Self::MetadataMissing { .. } | Self::MetadataDamaged { .. } => Kind::Data,
            Self::ForeignState { .. } | Self::NotAnId { .. } | Self::OtherQuery { .. } => {
                Kind::Config
            }
            Self::Storage(error) => error.kind(),
            Self::Put(error) => error.kind(),
        }
    }
}

impl Checkpoint {
    /// Opens the checkpoint at `location` (see [`storage::parse`]), or begins one.
    pub async fn open(location: &str, env: &Env) -> Result<Self, OpenError> {
        Self::open_in(storage::parse(location, env)?, env).await
    }

    /// Opens the checkpoint at `location` for the query `adopted`, whose own checkpoint is
    /// gone or elsewhere: begins one under that id, or opens it if it was begun so before.
    ///
    /// Errors: [`OpenError::OtherQuery`] if a query with another id has run on it.
    pub async fn open_as(location: &str, adopted: &str, env: &Env) -> Result<Self, OpenError> {
        let Ok(id) = adopted.parse() else {
            return Err(OpenError::NotAnId { text: adopted.to_owned() });
        };
        Self::open_with(storage::parse(location, env)?, Some(id), env).await
    }

    /// Opens the checkpoint in `storage`, or begins one.
    pub async fn open_in(storage: Storage, env: &Env) -> Result<Self, OpenError> {
        Self::open_with(storage, None, env).await
    }

    async fn open_with(
        storage: Storage,
        adopted: Option<Uuid>,
        env: &Env,
    ) -> Result<Self, OpenError> {
        // The lock comes before the first read: what is read below decides what is written, and
        // another process must not write in between.
        let lock = acquire_lock(&storage, env).await?;
        let has_state = look_for_state(&storage).await?;
        let query_id = match storage.get(layout::METADATA).await? {
            Some(bytes) => read_query_id(&storage, &bytes, env).await?,
            None => None,
        };
        let query_id = match (query_id, adopted) {
            (Some(own), Some(adopted)) if own != adopted.to_string() => {
                discard_unused_id(&storage, own, adopted).await?;
                begin(&storage, adopted).await?
            }
            (Some(query_id), _) => query_id,
            (None, adopted) => {
                begin(&storage, adopted.unwrap_or_else(|| env.random_uuid())).await?
            }
        };
        let env = env.clone();
        // The lock lives in the shared part, so it is released only when the last clone, which may
        // belong to the background writer, is dropped.
        Ok(Self { inner: Arc::new(Inner { storage, env, query_id, has_state, _lock: lock }) })
    }

    /// The query's id, the same over all its restarts, in Spark too.
    pub fn query_id(&self) -> &str {
        &self.inner.query_id
    }

    /// Whether a query with state had run on it when it was opened.
    pub fn has_state(&self) -> bool {
        self.inner.has_state
    }

    /// Where the checkpoint is, for messages.
    pub fn location(&self) -> String {
        self.inner.storage.location()
    }

    /// The private directory of a source; `id` is its place in the plan, from 0.
    pub fn source_log(&self, id: usize) -> SourceLog {
        SourceLog::new(self.inner.storage.clone(), id)
    }

    /// The private directory of the sink `name`.
    pub fn sink_log(&self, name: &str) -> SinkLog {
        SinkLog::new(self.inner.storage.clone(), name)
    }

    /// The storage that holds the checkpoint's files.
    pub fn storage(&self) -> &Storage {
        &self.inner.storage
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.env
    }
}

/// Whether `text` looks like the id of a query.
pub fn is_query_id(text: &str) -> bool {
    text.parse::<Uuid>().is_ok()
}

/// The ids of the queries whose checkpoints are at `location`: the flow's own, and those of the
/// replays of its dead letters. What cannot be read has none; nothing is changed.
pub async fn query_ids(location: &str, env: &Env) -> Vec<String> {
    let Ok(storage) = storage::parse(location, env) else { return Vec::new() };
    let replays = storage.list(layout::REPLAYS).await.unwrap_or_default();
    let replay_metadata = |name: &String| format!("{}/{name}{}", layout::REPLAYS, layout::METADATA);
    let directories = replays.iter().filter(|name| name.ends_with('/'));
    let mut ids = Vec::new();
    for file in std::iter::once(layout::METADATA.to_owned()).chain(directories.map(replay_metadata))
    {
        let content = storage.get(&file).await.ok().flatten();
        ids.extend(content.and_then(|bytes| metadata::decode(&bytes).ok()));
    }
    ids
}

async fn acquire_lock(storage: &Storage, env: &Env) -> Result<Option<Lock>, OpenError> {
    // Object stores have no locks: there the second writer is found when it puts an entry that
    // exists already.
    let Storage::Local(local) = storage else { return Ok(None) };
    let (directory, lock_env) = (local.directory.clone(), env.clone());
    let locked = env.spawn_blocking("checkpoint lock", move || {
        directory.make().map_err(LockError::Storage)?;
        lock::acquire(directory.disk(), directory.root(), &lock_env)
    });
    match locked.join().await {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Held { holder }) => {
            Err(OpenError::InUse { location: storage.location(), holder })
        }
        Err(LockError::Storage(error)) => Err(error.into()),
    }
}

/// True if the checkpoint has state in Millstream's format; state in Spark's format is refused.
async fn look_for_state(storage: &Storage) -> Result<bool, OpenError> {
    match inspect::read_state(storage).await? {
        State::None => Ok(false),
        State::Millstream => Ok(true),
        State::Spark => Err(OpenError::ForeignState { location: storage.location() }),
    }
}

/// The id in `metadata`. `None`, with the file moved aside, where a crash at the first start left
/// the file torn: without log entries there is nothing that the id could belong to.
async fn read_query_id(
    storage: &Storage,
    bytes: &[u8],
    env: &Env,
) -> Result<Option<String>, OpenError> {
    let error = match metadata::decode(bytes) {
        Ok(query_id) => return Ok(Some(query_id)),
        Err(error) => error,
    };
    let file = storage.path_of(layout::METADATA);
    if has_entries(storage).await? {
        return Err(OpenError::MetadataDamaged { file, problem: error.to_string() });
    }
    // An object store makes an object visible whole or not at all, so there a crash cannot explain
    // the damage.
    let Storage::Local(_) = storage else {
        return Err(OpenError::MetadataDamaged { file, problem: error.to_string() });
    };
    tracing::warn!(file, %error, "the query's id was torn by a crash before the query began; \
        moved it aside");
    let aside = format!(".{}.torn-{}", layout::METADATA, env.random_uuid());
    storage.rename(layout::METADATA, &aside).await?;
    storage.delete_many(vec![layout::sidecar(layout::METADATA)]).await?;
    Ok(None)
}

/// Deletes the id of a query that has not run yet; a start that was refused leaves it behind.
async fn discard_unused_id(storage: &Storage, own: String, other: Uuid) -> Result<(), OpenError> {
    if has_entries(storage).await? {
        let (location, other) = (storage.location(), other.to_string());
        return Err(OpenError::OtherQuery { location, own, other });
    }
    let metadata = vec![layout::METADATA.to_owned(), layout::sidecar(layout::METADATA)];
    Ok(storage.delete_many(metadata).await?)
}

/// Begins a new checkpoint; returns its query's id.
async fn begin(storage: &Storage, id: Uuid) -> Result<String, OpenError> {
    if has_entries(storage).await? {
        // Another process may have begun it since we looked.
        return Err(match storage.get(layout::METADATA).await? {
            Some(_) => PutError::AlreadyExists { path: storage.path_of(layout::METADATA) }.into(),
            None => OpenError::MetadataMissing { location: storage.location() },
        });
    }
    // Flushed to the disk: it is written once per checkpoint, and the logs are worthless without
    // it.
    storage.put_if_absent(layout::METADATA, metadata::encode(&id), Durability::Power).await?;
    Ok(id.to_string())
}

async fn has_entries(storage: &Storage) -> Result<bool, StorageError> {
    for log in [layout::OFFSETS, layout::COMMITS] {
        if !layout::batch_ids(&storage.list(log).await?).is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
