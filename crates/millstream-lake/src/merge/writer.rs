//! Rows of one commit on their way into files: of each key the last one.
//!
//! Rows are held until the commit, since a later one may replace them. Where they are more than
//! memory is for, those so far are put into files, and a file that has rows which were replaced
//! after that is written anew at the end.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};

use super::bounds::Bounds;
use super::keys::{Key, KeyColumns, KeyHasher};
use super::rewrite;
use crate::checkpoint::PartFileNames;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::file_writer::{FileKey, FileWriter, WritePlan};
use crate::store::TableStore;

/// Rows that may be replaced already, among those that are held, before they are let go.
const REPLACED_MAX: usize = 65_536;

/// How rows are merged, for all writers of a table.
#[derive(Clone)]
pub struct MergePlan {
    pub(super) keys: Arc<KeyColumns>,
    /// Of rows without the column that says which are deleted.
    pub(super) plan: WritePlan,
    /// Where that column stands in the query's.
    pub(super) delete: Option<usize>,
    /// Keys that a commit may have.
    pub(super) keys_max: usize,
    /// Bytes of rows that are held; with more, those so far go into files.
    pub(super) held_bytes_max: usize,
    /// A key that comes twice is an error.
    pub(super) refuses_repeated: bool,
}

impl MergePlan {
    /// The table's version that it was made by: rows written by it fit the table as long as nobody
    /// has changed the schema since.
    pub fn version(&self) -> u64 {
        self.plan.version()
    }

    /// Whether one of the query's `rows` breaks a rule of the table.
    pub fn refuses(&self, rows: &RecordBatch) -> bool {
        self.keys.of_query(rows).is_err() || self.kept(rows).is_err()
    }

    /// Rows that are not to be deleted, without the column that says so, as the table has them; and
    /// which those are.
    fn kept(&self, rows: &RecordBatch) -> Result<(RecordBatch, Option<BooleanArray>), String> {
        let Some(delete) = self.delete else { return Ok((self.plan.apply(rows)?, None)) };
        let failed = |error: arrow::error::ArrowError| error.to_string();
        let flags = rows.column(delete).as_boolean();
        // NULL is not true.
        let is_gone: BooleanArray = flags.iter().map(|flag| Some(flag == Some(true))).collect();
        let mut rows =
            filter_record_batch(rows, &not(&is_gone).map_err(failed)?).map_err(failed)?;
        rows.remove_column(delete);
        Ok((self.plan.apply(&rows)?, Some(is_gone)))
    }
}

/// A file whose rows' keys are known.
#[derive(Clone, Debug)]
pub(crate) struct KeyedFile {
    pub(crate) file: DataFile,
    /// Of each row, in order.
    pub(super) keys: Vec<Key>,
}

/// The rows of a commit: files that are written, and keys that are to be deleted.
#[derive(Debug, Default)]
pub struct MergeRows {
    pub(super) files: Vec<KeyedFile>,
    pub(super) gone: Vec<Key>,
    pub(super) bounds: Bounds,
}

impl MergeRows {
    /// Data files of it.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Keys that get a row.
    pub(super) fn kept(&self) -> impl Iterator<Item = Key> + '_ {
        self.files.iter().flat_map(|file| file.keys.iter().copied())
    }
}

/// Where the last row of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It is to be deleted.
    Gone,
    /// It is held: the piece, and the row in it.
    Held(u32, u32),
    /// It is in a file: which, and the row in it.
    Written(u32, u32),
}

/// Rows that are held.
struct Piece {
    rows: RecordBatch,
    keys: Vec<Key>,
}

/// Takes rows in order, and writes the last of each key. Belongs to one thread.
pub struct MergeWriter {
    plan: MergePlan,
    store: TableStore,
    files: FileWriter,
    held: Vec<Piece>,
    held_rows: usize,
    held_bytes: usize,
    last: HashMap<Key, Last, KeyHasher>,
    /// How many of them are held.
    held_last: usize,
    written: Vec<(FileKey, KeyedFile)>,
    /// Rows of `written` that were replaced, by file.
    replaced: HashMap<u32, Vec<u32>>,
    bounds: Bounds,
}

impl MergeWriter {
    /// A writer of rows into files of a table at `store`, whose names are `part_file_names`'.
    pub fn new(plan: MergePlan, store: &TableStore, part_file_names: &PartFileNames) -> Self {
        let mut files = FileWriter::new(plan.plan.clone(), store);
        files.name_with(part_file_names);
        Self {
            plan,
            store: store.clone(),
            files,
            held: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            last: HashMap::default(),
            held_last: 0,
            written: Vec::new(),
            replaced: HashMap::new(),
            bounds: Bounds::default(),
        }
    }

    /// What it writes by.
    pub fn plan(&self) -> &MergePlan {
        &self.plan
    }

    /// Takes rows of the query.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), TableError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let refused = |problem| TableError::Row { table: self.store.shown(), problem };
        let keys = self.plan.keys.of_query(rows).map_err(refused)?;
        let (kept, is_gone) = self.plan.kept(rows).map_err(refused)?;
        self.bounds.add(&self.plan.keys.columns_of_query(rows).map_err(refused)?);
        let piece = u32::try_from(self.held.len()).expect("pieces are let go before that");
        let mut kept_keys = Vec::with_capacity(kept.num_rows());
        for (row, key) in keys.into_iter().enumerate() {
            let last = if is_gone.as_ref().is_some_and(|gone| gone.value(row)) {
                Last::Gone
            } else {
                kept_keys.push(key);
                Last::Held(piece, u32::try_from(kept_keys.len() - 1).expect("rows of a batch"))
            };
            self.take(key, last)?;
        }
        if kept.num_rows() > 0 {
            self.held_rows += kept.num_rows();
            self.held_bytes += kept.get_array_memory_size();
            self.held.push(Piece { rows: kept, keys: kept_keys });
        }
        self.make_room()
    }

    fn take(&mut self, key: Key, last: Last) -> Result<(), TableError> {
        let before = self.last.insert(key, last);
        if before.is_some() && self.plan.refuses_repeated {
            let keys: Vec<&str> = self.plan.keys.names().collect();
            return Err(TableError::Repeated { table: self.store.shown(), keys: keys.join(", ") });
        }
        match before {
            Some(Last::Held(..)) => self.held_last -= 1,
            Some(Last::Written(file, row)) => self.replaced.entry(file).or_default().push(row),
            Some(Last::Gone) | None => {}
        }
        self.held_last += usize::from(matches!(last, Last::Held(..)));
        if self.last.len() > self.plan.keys_max {
            return Err(TableError::TooManyKeys {
                table: self.store.shown(),
                keys_max: self.plan.keys_max,
            });
        }
        Ok(())
    }

    /// Lets go of rows that were replaced, and writes what is too much to be held.
    fn make_room(&mut self) -> Result<(), TableError> {
        let is_full = self.held_bytes > self.plan.held_bytes_max || self.held.len() > REPLACED_MAX;
        let replaced = self.held_rows - self.held_last;
        if !is_full && replaced <= REPLACED_MAX.max(self.held_last) {
            return Ok(());
        }
        self.let_go()?;
        if self.held_bytes > self.plan.held_bytes_max / 2 { self.write_held() } else { Ok(()) }
    }

    /// Puts rows that are held and were not replaced into one piece.
    fn let_go(&mut self) -> Result<(), TableError> {
        let encoding = |error: arrow::error::ArrowError| TableError::Encoding {
            table: self.store.shown(),
            cause: error.to_string(),
        };
        let (mut kept, mut keys) = (Vec::new(), Vec::with_capacity(self.held_last));
        for (number, piece) in self.held.drain(..).enumerate() {
            let number = u32::try_from(number).expect("pieces are numbered so");
            let is_last = |(row, key): (usize, &Key)| {
                let row = u32::try_from(row).expect("rows of a batch");
                self.last.get(key) == Some(&Last::Held(number, row))
            };
            let flags: Vec<bool> = piece.keys.iter().enumerate().map(is_last).collect();
            let flagged = piece.keys.iter().zip(&flags).filter(|(_, flag)| **flag);
            keys.extend(flagged.map(|(key, _)| *key));
            let rows = filter_record_batch(&piece.rows, &BooleanArray::from(flags));
            kept.push(rows.map_err(encoding)?);
        }
        let Some(first) = kept.first() else { return Ok(()) };
        let rows = arrow::compute::concat_batches(&first.schema(), &kept).map_err(encoding)?;
        for (row, key) in keys.iter().enumerate() {
            let row = u32::try_from(row).expect("fewer rows than that fit into memory");
            self.last.insert(*key, Last::Held(0, row));
        }
        (self.held_rows, self.held_bytes) = (rows.num_rows(), rows.get_array_memory_size());
        if rows.num_rows() > 0 {
            self.held.push(Piece { rows, keys });
        }
        Ok(())
    }

    /// Writes a file for each partition and bucket of the rows that are held.
    fn write_held(&mut self) -> Result<(), TableError> {
        self.let_go()?;
        let Some(piece) = self.held.pop() else { return Ok(()) };
        (self.held_rows, self.held_bytes, self.held_last) = (0, 0, 0);
        let refused = |problem| TableError::Row { table: self.store.shown(), problem };
        for (place, rows, indices) in self.plan.plan.parts(&piece.rows).map_err(refused)? {
            self.files.write_to(place.clone(), &rows)?;
            let keys = match indices {
                Some(indices) => indices.iter().map(|row| piece.keys[*row as usize]).collect(),
                None => piece.keys.clone(),
            };
            self.finish_file(place, keys)?;
        }
        Ok(())
    }

    fn finish_file(&mut self, place: FileKey, keys: Vec<Key>) -> Result<(), TableError> {
        let number = u32::try_from(self.written.len()).expect("files of a commit");
        for (row, key) in keys.iter().enumerate() {
            let row = u32::try_from(row).expect("fewer rows than that fit into memory");
            self.last.insert(*key, Last::Written(number, row));
        }
        let [file] = <[DataFile; 1]>::try_from(self.files.finish()?)
            .expect("rows of one partition and bucket are one file");
        self.written.push((place, KeyedFile { file, keys }));
        Ok(())
    }

    /// Writes what is held, and gives everything since the last call. The files are in the store.
    pub fn finish(&mut self) -> Result<MergeRows, TableError> {
        self.write_held()?;
        let gone = self.last.iter().filter(|(_, last)| **last == Last::Gone);
        let gone = gone.map(|(key, _)| *key).collect();
        self.last = HashMap::default();
        let mut files = Vec::with_capacity(self.written.len());
        let written = std::mem::take(&mut self.written);
        for (number, (place, keyed)) in written.into_iter().enumerate() {
            let number = u32::try_from(number).expect("files of a commit");
            match self.replaced.remove(&number) {
                None => files.push(keyed),
                Some(replaced) => files.extend(self.without(place, keyed, &replaced)?),
            }
        }
        Ok(MergeRows { files, gone, bounds: std::mem::take(&mut self.bounds) })
    }

    /// The file without its rows `replaced`; `None` if it has no other.
    fn without(
        &mut self,
        place: FileKey,
        keyed: KeyedFile,
        replaced: &[u32],
    ) -> Result<Option<KeyedFile>, TableError> {
        let mut flags = vec![true; keyed.keys.len()];
        replaced.iter().for_each(|row| flags[*row as usize] = false);
        let keys = keyed.keys.iter().zip(&flags).filter(|(_, kept)| **kept);
        let keys: Vec<Key> = keys.map(|(key, _)| *key).collect();
        if !keys.is_empty() {
            rewrite::copy_of_ours(&self.store, &keyed.file, &flags, (&mut self.files, &place))?;
        }
        let file = self.files.finish()?.pop();
        // One that stays is no part of the table; vacuum finds it.
        let _ = self.store.delete_many(&[keyed.file.name]);
        Ok(file.map(|file| KeyedFile { file, keys }))
    }

    /// Forgets what was not finished.
    pub fn abandon(&mut self) {
        self.files.abandon();
        let names: Vec<String> = self.written.drain(..).map(|(_, keyed)| keyed.file.name).collect();
        // A file that stays is no part of the table; vacuum finds it.
        let _ = self.store.delete_many(&names);
        (self.held, self.last) = (Vec::new(), HashMap::default());
        (self.held_rows, self.held_bytes, self.held_last) = (0, 0, 0);
        self.replaced.clear();
        self.bounds = Bounds::default();
    }
}
