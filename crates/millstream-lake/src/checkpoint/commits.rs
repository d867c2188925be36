//! What happened since the base checkpoint: the commits above it, as one compact delta.
//!
//! Commits have names that follow from their versions, so they are fetched without asking what
//! there is. Per file, with its deletion vector, the latest action is in force; it stands for all
//! earlier ones, those of the base checkpoint too.
//!
//! All of a delta is in memory, so it ends early where the commits are many: the rest is for
//! another checkpoint, on top of the first.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use bytes::Bytes;
use object_store::Error;
use parking_lot::Mutex;
use serde_json::Value;

use super::Settings;
use super::actions::{FILES, FileRows, Key};
use super::error::{CheckpointError, encode_error, store_error};
use super::names;
use super::placement::part_of_hash;
use super::pool;
use super::state::TableState;
use crate::store::{REQUESTS_IN_FLIGHT_MAX, TableStore};

/// Rows decoded at once.
const RECORD_BATCH_ROWS: usize = 8_192;

/// Bytes of commits that are fetched together, about, while it is known how large they are.
const FETCHED_BYTES: usize = 16 << 20;
/// Commits that are fetched while it is not known.
const FETCHED_FIRST: usize = 4;
/// Bytes of lines that one thread decodes at a time, about.
const DECODED_BYTES: usize = 1 << 20;

/// The files that changed between two versions.
#[derive(Debug, Default)]
pub(super) struct Delta {
    /// The actions in force, in the schema of file actions.
    rows: Vec<RecordBatch>,
    /// Where the action for each key stands: rows of the base with one of these are replaced.
    latest: HashMap<Key, (u32, u32)>,
    /// The hashes of their paths: most rows of the base are told apart by these alone.
    hashes: HashSet<i32>,
}

impl Delta {
    /// Reads the commits from `versions`, brings `state` up to the last one read, and tells which
    /// that was: all of them, unless they are many.
    pub(super) fn read(
        store: &TableStore,
        settings: &Settings,
        versions: RangeInclusive<u64>,
        state: &mut TableState,
    ) -> Result<(Self, u64), CheckpointError> {
        let (mut next, last) = (*versions.start(), *versions.end());
        let (mut rows, mut bytes, mut at_once) = (Vec::new(), 0, FETCHED_FIRST);
        while next <= last && bytes < settings.commits_bytes_max {
            let end = last.min(next + at_once as u64 - 1);
            let commits = fetch(store, next, end)?;
            let fetched: usize = commits.iter().map(Bytes::len).sum();
            bytes += fetched;
            let mean = (fetched / commits.len()).max(1);
            at_once = (FETCHED_BYTES / mean).clamp(1, REQUESTS_IN_FLIGHT_MAX);
            let lines = split(next, commits, state)?;
            rows.extend(decode_together(store, settings.workers, lines, end)?);
            next = end + 1;
        }
        Ok((Self::of(rows)?, next - 1))
    }

    /// Reconciles file actions that are in the order in which they happened.
    fn of(batches: Vec<RecordBatch>) -> Result<Self, CheckpointError> {
        let mut latest: HashMap<Key, (u32, u32)> = HashMap::new();
        let mut hashes = HashSet::new();
        let mut in_force: Vec<_> =
            batches.iter().map(|batch| vec![false; batch.num_rows()]).collect();
        for (number, batch) in (0_u32..).zip(&batches) {
            let files = FileRows::new(batch);
            for row in 0..batch.num_rows() {
                let (Some(key), Some(hash)) = (files.key(row), files.hash(row)) else { continue };
                hashes.insert(hash);
                in_force[number as usize][row] = true;
                let place = (number, u32::try_from(row).expect("few rows are decoded at once"));
                if let Some((number, row)) = latest.insert(key, place) {
                    in_force[number as usize][row as usize] = false;
                }
            }
        }
        let rows = batches.into_iter().zip(in_force).map(|(batch, kept)| {
            if kept.iter().all(|is_kept| *is_kept) {
                return Ok(batch);
            }
            filter_record_batch(&batch, &BooleanArray::from(kept)).map_err(encode_error)
        });
        Ok(Self { rows: rows.collect::<Result<_, _>>()?, latest, hashes })
    }

    /// Leaves out the removes from before `oldest_kept_ms`. Their keys stay: they still replace.
    pub(super) fn expire(&mut self, oldest_kept_ms: i64) -> Result<(), CheckpointError> {
        for rows in &mut self.rows {
            let files = FileRows::new(rows);
            let kept = (0..rows.num_rows()).map(|row| Some(!files.is_expired(row, oldest_kept_ms)));
            *rows = filter_record_batch(rows, &kept.collect()).map_err(encode_error)?;
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.iter().map(|rows| rows.num_rows() as u64).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// True if one of these paths, by their hashes, may be among the changed ones.
    pub(super) fn may_replace(&self, hashes: &[i32]) -> bool {
        !self.hashes.is_empty() && hashes.iter().any(|hash| self.hashes.contains(hash))
    }

    /// True if some changed path is in `part`.
    pub(super) fn touches(&self, part: u32, parts: u32) -> bool {
        self.hashes.iter().any(|hash| part_of_hash(*hash, parts) == part)
    }

    /// True if the row of the base is replaced. `hash` is that of its path.
    pub(super) fn replaces(&self, files: &FileRows<'_>, row: usize, hash: i32) -> bool {
        self.hashes.contains(&hash)
            && files.key(row).is_some_and(|key| self.latest.contains_key(&key))
    }

    /// The rows by part.
    pub(super) fn split(&self, parts: u32) -> Result<Vec<Vec<RecordBatch>>, CheckpointError> {
        let mut by_part = vec![Vec::new(); parts as usize];
        for rows in &self.rows {
            let files = FileRows::new(rows);
            let placed =
                (0..rows.num_rows()).map(|row| Some(part_of_hash(files.hash(row)?, parts)));
            for (part, rows) in by_part.iter_mut().zip(scatter(rows, placed, parts)?) {
                part.extend(rows);
            }
        }
        Ok(by_part)
    }
}

/// `rows` by the part that `placed` gives each of them.
pub(super) fn scatter(
    rows: &RecordBatch,
    placed: impl Iterator<Item = Option<u32>>,
    parts: u32,
) -> Result<Vec<Option<RecordBatch>>, CheckpointError> {
    let mut chosen: Vec<Vec<u32>> = vec![Vec::new(); parts as usize];
    for (row, part) in (0_u32..).zip(placed) {
        if let Some(part) = part {
            chosen[part as usize].push(row);
        }
    }
    let all_rows = rows.num_rows();
    let take = |chosen: Vec<u32>| match chosen.len() {
        0 => Ok(None),
        count if count == all_rows => Ok(Some(rows.clone())),
        _ => take_record_batch(rows, &UInt32Array::from(chosen)).map(Some),
    };
    chosen.into_iter().map(take).collect::<Result<_, _>>().map_err(encode_error)
}

fn fetch(store: &TableStore, first: u64, last: u64) -> Result<Vec<Bytes>, CheckpointError> {
    let names: Vec<_> = (first..=last).map(names::commit).collect();
    store.get_many(&names).map_err(|error| match error {
        Error::NotFound { path, source } => {
            let missing = names.iter().position(|name| path.contains(name.as_str()));
            match missing {
                Some(place) => CheckpointError::CommitMissing { version: first + place as u64 },
                None => store_error("read", &path)(Error::NotFound { path: path.clone(), source }),
            }
        }
        error => store_error("read", &names[0])(error),
    })
}

/// The lines that are about files, of all these commits; the other ones go to `state`.
fn split(
    first: u64,
    commits: Vec<Bytes>,
    state: &mut TableState,
) -> Result<Vec<u8>, CheckpointError> {
    let mut files = Vec::with_capacity(commits.iter().map(Bytes::len).sum());
    for (version, commit) in (first..).zip(commits) {
        split_lines(&commit, &mut files, |name, action| state.apply(name, action))
            .map_err(|problem| CheckpointError::CommitUnreadable { version, problem })?;
    }
    Ok(files)
}

/// The same for one file of actions.
pub(super) fn split_lines(
    lines: &[u8],
    files: &mut Vec<u8>,
    mut other: impl FnMut(&str, Value),
) -> Result<(), String> {
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if is_plainly(line, b"add") || is_plainly(line, b"remove") {
            files.extend_from_slice(line);
            files.push(b'\n');
        } else if !line.is_empty() {
            let action: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
            let Value::Object(action) = action else {
                return Err("a line is not an object".to_owned());
            };
            for (name, action) in action {
                if name == "add" || name == "remove" {
                    files.extend_from_slice(line);
                    files.push(b'\n');
                }
                other(&name, action);
            }
        }
    }
    Ok(())
}

/// True if the line begins with this action as nearly all writers write it.
fn is_plainly(line: &[u8], action: &[u8]) -> bool {
    line.strip_prefix(b"{\"")
        .and_then(|line| line.strip_prefix(action))
        .is_some_and(|line| line.starts_with(b"\":"))
}

/// Decodes lines of file actions on several threads, if there are many. `last` is the version that
/// the last of them is from.
fn decode_together(
    store: &TableStore,
    workers: usize,
    lines: Vec<u8>,
    last: u64,
) -> Result<Vec<RecordBatch>, CheckpointError> {
    let pieces = pieces(&lines);
    let (count, decoded) = (pieces.len(), Arc::new(Mutex::new(Vec::new())));
    let results = Arc::clone(&decoded);
    pool::run(store.env(), workers, count, move |number| {
        let mut rows = Vec::new();
        decode(&lines[pieces[number].clone()], &mut rows)
            .map_err(|problem| CheckpointError::CommitUnreadable { version: last, problem })?;
        results.lock().push((number, rows));
        Ok(())
    })?;
    let mut decoded = std::mem::take(&mut *decoded.lock());
    decoded.sort_unstable_by_key(|(number, _)| *number);
    Ok(decoded.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// Cuts at ends of lines.
fn pieces(lines: &[u8]) -> Vec<Range<usize>> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    while start < lines.len() {
        let least = lines.len().min(start + DECODED_BYTES);
        let end_of_line = lines[least - 1..].iter().position(|byte| *byte == b'\n');
        let end = end_of_line.map_or(lines.len(), |rest| least + rest);
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// Decodes lines of file actions.
pub(super) fn decode(lines: &[u8], rows: &mut Vec<RecordBatch>) -> Result<(), String> {
    if lines.is_empty() {
        return Ok(());
    }
    let reader = arrow_json::ReaderBuilder::new(Arc::clone(&FILES))
        .with_batch_size(RECORD_BATCH_ROWS)
        .with_coerce_primitive(true)
        .build(Cursor::new(lines))
        .map_err(|error| error.to_string())?;
    for batch in reader {
        rows.push(batch.map_err(|error| error.to_string())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines() {
        let mut lines = Vec::new();
        for number in 0..70_000_u32 {
            lines.extend_from_slice(&vec![b'x'; (number % 97) as usize]);
            lines.push(b'\n');
        }
        let pieces = pieces(&lines);
        assert!(pieces.len() > 2, "{pieces:?}");
        assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, lines.len()));
        assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(pieces.iter().all(|piece| lines[piece.end - 1] == b'\n'));
        assert!(super::pieces(b"").is_empty());
        assert_eq!(super::pieces(b"no end"), vec![0..6]);
    }
}
