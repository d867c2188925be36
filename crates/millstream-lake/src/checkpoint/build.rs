//! Carries out a plan: reads old rows, drops those that are no longer in force, writes new files.
//!
//! The unit of work is a row group. Threads take units in the order of the plan, so that at any
//! time few groups are being written; whoever ends the last unit of a group finishes its files.
//! Memory is a row group for each thread, and the files being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use parking_lot::Mutex;

use super::actions::{FILES, FileRows};
use super::commits::{Delta, scatter};
use super::error::{CheckpointError, damaged, store_error};
use super::facts::{CheckpointFile, Columns};
use super::part::PartWriter;
use super::plan::{Group, How, Input, Place};
use super::pool;
use super::retention::Limits;
use super::source::SourceFile;
use crate::store::TableStore;

/// What all units share.
pub(super) struct Build {
    pub(super) store: TableStore,
    pub(super) delta: Delta,
    pub(super) limits: Limits,
    pub(super) columns: Columns,
    /// The name of the file for a slot of the plan.
    pub(super) name: Box<dyn Fn(usize) -> String + Send + Sync>,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// With their slots of the plan. A sidecar without rows is not written.
    pub(super) parts: Vec<(usize, CheckpointFile)>,
    /// Live files in them, as counted on the way.
    pub(super) adds_kept: u64,
}

struct Running {
    build: Build,
    groups: Vec<RunningGroup>,
    /// Groups with one of their inputs; none for a group that has no inputs.
    units: Vec<(usize, Option<usize>)>,
    adds_kept: AtomicU64,
    done: Mutex<Vec<(usize, CheckpointFile)>>,
}

struct RunningGroup {
    group: Group,
    units_left: AtomicUsize,
    writers: Vec<Mutex<Option<PartWriter>>>,
}

/// Writes the files of `groups` on `workers` threads.
pub(super) fn build(
    build: Build,
    groups: Vec<Group>,
    workers: usize,
) -> Result<Built, CheckpointError> {
    let mut units = Vec::new();
    let groups = groups.into_iter().enumerate().map(|(number, group)| {
        let inputs = group.inputs.len();
        units.extend((0..inputs).map(|input| (number, Some(input))));
        if inputs == 0 {
            units.push((number, None));
        }
        let writers = group.outputs.iter().map(|_| Mutex::default()).collect();
        RunningGroup { group, units_left: AtomicUsize::new(inputs.max(1)), writers }
    });
    let groups: Vec<_> = groups.collect();
    let (env, count) = (build.store.env().clone(), units.len());
    let (adds_kept, done) = (AtomicU64::new(0), Mutex::default());
    let running = Arc::new(Running { build, groups, units, adds_kept, done });
    let shared = Arc::clone(&running);
    pool::run(&env, workers, count, move |number| shared.unit(number))?;
    let mut parts = std::mem::take(&mut *running.done.lock());
    parts.sort_unstable_by_key(|(slot, _)| *slot);
    Ok(Built { parts, adds_kept: running.adds_kept.load(Ordering::Acquire) })
}

impl Running {
    fn unit(&self, number: usize) -> Result<(), CheckpointError> {
        let (number, input) = self.units[number];
        let group = &self.groups[number];
        match input.map(|input| &group.group.inputs[input]) {
            Some(Input::RowGroup { source, row_group, how: How::Copy }) => {
                self.copy(group, source, *row_group)?;
            }
            Some(Input::RowGroup { source, row_group, how }) => {
                for rows in source.rows(*row_group, &FILES)? {
                    let rows = rows?;
                    match how {
                        How::Merge => self.merge(group, &rows)?,
                        _ => self.filter(group, &rows, &source.part.name)?,
                    }
                }
            }
            Some(Input::Rows(rows)) => self.filter(group, rows, "the V2 checkpoint")?,
            None => {}
        }
        if group.units_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish(group)?;
        }
        Ok(())
    }

    /// Copies and merges have one output.
    fn copy(
        &self,
        group: &RunningGroup,
        source: &SourceFile,
        row_group: usize,
    ) -> Result<(), CheckpointError> {
        let opened = source.open()?;
        let footer = opened.metadata.metadata();
        self.adds_kept.fetch_add(source.part.row_groups[row_group].adds, Ordering::Relaxed);
        self.with_writer(group, 0, |writer| {
            writer.copy_row_group(&opened.file, footer.row_group(row_group))
        })
    }

    fn merge(&self, group: &RunningGroup, rows: &RecordBatch) -> Result<(), CheckpointError> {
        self.count_adds(rows);
        self.with_writer(group, 0, |writer| writer.write(rows))
    }

    fn filter(
        &self,
        group: &RunningGroup,
        rows: &RecordBatch,
        file: &str,
    ) -> Result<(), CheckpointError> {
        let outputs = group.writers.len();
        let files = FileRows::new(rows);
        let (mut hashes, mut is_misplaced) = (vec![Vec::new(); outputs], false);
        let places = (0..rows.num_rows()).map(|row| {
            let hash = files.hash(row)?;
            if self.build.delta.replaces(&files, row, hash)
                || files.is_expired(row, self.build.limits.oldest_remove_ms)
            {
                return None;
            }
            match group.group.spread.place(hash, outputs) {
                Place::Output(output) => {
                    hashes[output as usize].push(hash);
                    return Some(output);
                }
                Place::Elsewhere => {}
                Place::Misplaced => is_misplaced = true,
            }
            None
        });
        let places: Vec<_> = places.collect();
        if is_misplaced {
            return Err(damaged(file)("it has rows that belong to another part"));
        }
        let count = u32::try_from(outputs).expect("parts are counted in 32 bits");
        let rows = scatter(rows, places.into_iter(), count)?;
        for (output, (rows, hashes)) in rows.into_iter().zip(hashes).enumerate() {
            let Some(rows) = rows else { continue };
            self.count_adds(&rows);
            self.with_writer(group, output, |writer| {
                writer.add_hashes(Some(&hashes));
                writer.write(&rows)
            })?;
        }
        Ok(())
    }

    fn count_adds(&self, rows: &RecordBatch) {
        let files = FileRows::new(rows);
        let adds = (0..rows.num_rows()).filter(|row| files.is_add(*row)).count();
        self.adds_kept.fetch_add(adds as u64, Ordering::Relaxed);
    }

    fn with_writer(
        &self,
        group: &RunningGroup,
        output: usize,
        write: impl FnOnce(&mut PartWriter) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let mut writer = group.writers[output].lock();
        match &mut *writer {
            Some(writer) => write(writer),
            none => write(none.insert(PartWriter::new(self.build.columns)?)),
        }
    }

    fn finish(&self, group: &RunningGroup) -> Result<(), CheckpointError> {
        for input in &group.group.inputs {
            if let Input::RowGroup { source, .. } = input {
                source.close();
            }
        }
        for (number, output) in group.group.outputs.iter().enumerate() {
            let writer = group.writers[number].lock().take();
            let mut writer = writer.map_or_else(|| PartWriter::new(self.build.columns), Ok)?;
            if output.has_unknown {
                writer.add_hashes(None);
            }
            for hashes in &output.carried {
                writer.add_hashes(Some(hashes));
            }
            for rows in &output.new_files {
                self.count_adds(rows);
                writer.add_hashes(Some(&hashes_of(rows)));
                writer.write(rows)?;
            }
            if let Some(others) = &output.others {
                writer.end_row_group()?;
                writer.write(others)?;
            }
            self.put(output.slot, writer)?;
        }
        Ok(())
    }

    fn put(&self, slot: usize, writer: PartWriter) -> Result<(), CheckpointError> {
        let (bytes, mut part) = writer.finish()?;
        if self.build.columns == Columns::Files && part.rows() == 0 {
            return Ok(());
        }
        part.name = (self.build.name)(slot);
        part.modified_ms = self.build.store.env().now_ms();
        let put = self.build.store.put(&part.name, bytes);
        put.map_err(store_error("write", &part.name))?;
        self.done.lock().push((slot, part));
        Ok(())
    }
}

fn hashes_of(rows: &RecordBatch) -> Vec<i32> {
    let files = FileRows::new(rows);
    (0..rows.num_rows()).filter_map(|row| files.hash(row)).collect()
}
