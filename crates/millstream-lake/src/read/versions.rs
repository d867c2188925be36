//! Which versions of a table can be read, and which is the newest.

use object_store::Error;

use crate::checkpoint::span::{self, Span};
use crate::entry;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;

/// The newest state of a table. A table that was deleted and made anew has another one, even at the
/// same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The newest version.
    pub version: u64,
    /// The time of its commit's file, milliseconds since the epoch.
    pub modified_ms: i64,
    /// The size of its commit's file.
    pub bytes: u64,
}

/// The newest version that was there at `ms`.
pub(super) fn at_timestamp(store: &TableStore, ms: i64) -> Result<u64, TableError> {
    let span = span_of(store)?;
    let found = span.newest_at(store, ms).map_err(|error| log_error(store, &error))?;
    match found {
        Some(version) => Ok(version),
        None => Err(not_readable(store, &span, format!("the moment {ms} ms"))?),
    }
}

/// Why `version` cannot be read, if that is because it is not there.
pub(super) fn refusal(store: &TableStore, version: u64) -> Result<Option<TableError>, TableError> {
    let Some(span) = span::find(store).map_err(|error| log_error(store, &error))? else {
        return Ok(None);
    };
    if (span.oldest()..=span.newest()).contains(&version) {
        return Ok(None);
    }
    not_readable(store, &span, format!("version {version}")).map(Some)
}

fn not_readable(store: &TableStore, span: &Span, asked: String) -> Result<TableError, TableError> {
    let (oldest, newest) = (span.oldest(), span.newest());
    let at = |version| span.time_ms(store, version).map_err(|error| log_error(store, &error));
    let (oldest_ms, newest_ms) = (at(oldest)?, at(newest)?);
    Ok(TableError::NotReadable {
        table: store.shown(),
        asked,
        oldest,
        oldest_ms,
        newest,
        newest_ms,
    })
}

fn span_of(store: &TableStore) -> Result<Span, TableError> {
    let span = span::find(store).map_err(|error| log_error(store, &error))?;
    span.ok_or_else(|| TableError::Missing { table: store.shown() })
}

fn log_error(store: &TableStore, error: &Error) -> TableError {
    TableError::store("cannot read the log of", &store.shown(), error)
}

/// The newest state, looked for from `known` on.
pub(super) fn fingerprint(
    store: &TableStore,
    engine: &KernelEngine,
    known: u64,
) -> Result<Fingerprint, TableError> {
    let newest = newest_from(store, known)?;
    if let Some(found) = state(store, newest)? {
        return Ok(found);
    }
    // Cleaned up that far, or another table by now.
    let newest = engine.snapshot(None)?.version();
    let table = store.shown();
    state(store, newest)?.ok_or_else(|| TableError::Damaged {
        problem: format!("version {newest} has a checkpoint and no commit"),
        table,
    })
}

/// The newest version, looked for from `known` on.
pub(super) fn newest(
    store: &TableStore,
    engine: &KernelEngine,
    known: u64,
) -> Result<u64, TableError> {
    let newest = newest_from(store, known)?;
    // Cleaned up but for a checkpoint, or put back from an older copy.
    let is_there = newest > known || state(store, known)?.is_some();
    if is_there { Ok(newest) } else { Ok(engine.snapshot(None)?.version()) }
}

/// The newest version there is, at least `known`: in steps that double, then by halves, as versions
/// follow each other without gaps.
fn newest_from(store: &TableStore, known: u64) -> Result<u64, TableError> {
    let (mut there, mut step) = (known, 1);
    let mut not_there = loop {
        let next = there + step;
        match state(store, next)? {
            Some(_) => (there, step) = (next, step * 2),
            None => break next,
        }
    };
    while not_there - there > 1 {
        let middle = there.midpoint(not_there);
        match state(store, middle)? {
            Some(_) => there = middle,
            None => not_there = middle,
        }
    }
    Ok(there)
}

fn state(store: &TableStore, version: u64) -> Result<Option<Fingerprint>, TableError> {
    match store.head(&entry::name(version)) {
        Ok(file) => {
            let (modified_ms, bytes) = (file.modified_ms, file.size);
            Ok(Some(Fingerprint { version, modified_ms, bytes }))
        }
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(log_error(store, &error)),
    }
}
