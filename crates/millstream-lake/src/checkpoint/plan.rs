//! Which files of the last checkpoint stay, and where the rows of the others go.
//!
//! - A part that nothing touches stays: its file is copied, or referenced again.
//! - A part that only gains rows is written anew from its old row groups, as bytes, and the new
//!   rows. When it has gathered many small row groups these are decoded and become one.
//! - A part that may lose rows (a removed file, a file that is added again, removes that expired)
//!   is decoded and filtered.
//! - Everything else (another number of parts, another layout, another writer's files) is decoded
//!   and placed anew. If both numbers of parts have a common divisor g, old part i only has rows
//!   for new parts that leave the same remainder by g; so the work falls apart into g pieces.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::base::Base;
use super::commits::Delta;
use super::error::CheckpointError;
use super::facts::{CheckpointFile, Columns};
use super::part::ROW_GROUP_ROWS_MAX;
use super::placement::{part_of_hash, part_of_other_actions};
use super::retention::Limits;
use super::source::SourceFile;
use crate::store::TableStore;

/// Row groups of fewer rows are small.
const SMALL_ROW_GROUP_ROWS: u64 = ROW_GROUP_ROWS_MAX as u64 / 4;
/// Small row groups of a file before they become one.
const SMALL_ROW_GROUPS_MAX: usize = 32;
/// Files that are written side by side where rows may go to any: each is held in memory.
const OUTPUTS_MAX: usize = 16;
/// Sidecars of about one size before they become one: each row is written about once per power of
/// this.
const SIDECARS_PER_SIZE_MAX: usize = 8;

/// How the rows of a row group go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// As bytes.
    Copy,
    /// All of them, decoded.
    Merge,
    /// Those that are still in force, decoded.
    Filter,
}

/// Rows to be written.
pub(super) enum Input {
    RowGroup { source: Arc<SourceFile>, row_group: usize, how: How },
    Rows(RecordBatch),
}

/// A file to be written.
#[derive(Default)]
pub(super) struct Output {
    /// Its place in [`Plan::slots`].
    pub(super) slot: usize,
    /// New file actions.
    pub(super) new_files: Vec<RecordBatch>,
    /// Actions that are not about files, if this is their part.
    pub(super) others: Option<RecordBatch>,
    /// The hashes of files whose row groups go over without being filtered.
    pub(super) carried: Vec<Arc<Vec<i32>>>,
    /// True if the hashes of some such file are not known.
    pub(super) has_unknown: bool,
}

/// Rows, and the files that they are spread over.
pub(super) struct Group {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) spread: Spread,
}

/// Output i is the part `first + i * step` of `parts`.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    pub(super) parts: u32,
    first: u32,
    step: u32,
}

/// Where a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Output(u32),
    /// Another group's.
    Elsewhere,
    /// The file that the row was read from should not have had it.
    Misplaced,
}

impl Spread {
    const ONE: Self = Self { parts: 1, first: 0, step: 1 };

    pub(super) fn place(&self, hash: i32, outputs: usize) -> Place {
        let part = part_of_hash(hash, self.parts);
        match part.checked_sub(self.first) {
            Some(from_first) if from_first % self.step == 0 => {
                let output = from_first / self.step;
                if (output as usize) < outputs { Place::Output(output) } else { Place::Elsewhere }
            }
            None if self.step == 1 => Place::Elsewhere,
            _ => Place::Misplaced,
        }
    }
}

/// A file of the new checkpoint.
pub(super) enum Slot {
    /// One that stays.
    Kept(CheckpointFile),
    /// One that is written.
    Written,
}

/// What a new checkpoint consists of.
pub(super) struct Plan {
    pub(super) columns: Columns,
    pub(super) slots: Vec<Slot>,
    pub(super) groups: Vec<Group>,
}

/// What a plan is made from.
pub(super) struct Given<'a> {
    pub(super) store: &'a TableStore,
    pub(super) base: Option<&'a Base>,
    pub(super) delta: &'a Delta,
    pub(super) limits: &'a Limits,
    /// The target number of rows of a file.
    pub(super) part_rows: u64,
}

impl Given<'_> {
    /// A classic checkpoint (of one part) or a multi-part one.
    pub(super) fn parts(&self, parts: u32, others: RecordBatch) -> Result<Plan, CheckpointError> {
        let mut plan = Plan { columns: Columns::Rows, slots: Vec::new(), groups: Vec::new() };
        let mut new_files = self.delta.split(parts)?;
        let mut outputs: Vec<_> = new_files
            .drain(..)
            .enumerate()
            .map(|(slot, new_files)| Output { slot, new_files, ..Output::default() })
            .collect();
        outputs[part_of_other_actions(parts) as usize].others = Some(others);
        plan.slots.resize_with(outputs.len(), || Slot::Written);
        match self.base {
            Some(base) if base.is_placed() && base.parts.len() == outputs.len() => {
                self.change_parts(base, outputs, &mut plan)?;
            }
            base => self.place_anew(base, outputs, &mut plan),
        }
        Ok(plan)
    }

    fn change_parts(
        &self,
        base: &Base,
        outputs: Vec<Output>,
        plan: &mut Plan,
    ) -> Result<(), CheckpointError> {
        let parts = u32::try_from(outputs.len()).expect("parts are counted in 32 bits");
        for (old, mut output) in base.parts.iter().zip(outputs) {
            let number = u32::try_from(output.slot).expect("parts are counted in 32 bits");
            let is_touched = self.delta.touches(number, parts);
            let is_overdue = old.has_removes_before(self.limits.overdue_remove_ms);
            if !is_touched && !is_overdue && output.others.is_none() {
                plan.slots[output.slot] = Slot::Kept(old.clone());
                continue;
            }
            let old = if is_touched { self.with_hashes(old)? } else { old.clone() };
            let loses_rows = is_overdue || (is_touched && self.loses_rows(&old));
            let inputs = self.inputs(&[old], loses_rows, &mut output);
            plan.groups.push(Group { inputs, outputs: vec![output], spread: Spread::ONE });
        }
        Ok(())
    }

    /// Spreads all rows by their hashes.
    fn place_anew(&self, base: Option<&Base>, mut outputs: Vec<Output>, plan: &mut Plan) {
        let parts = u32::try_from(outputs.len()).expect("parts are counted in 32 bits");
        let pieces = match base {
            Some(base) if base.is_placed() => common_divisor(parts, base.parts.len() as u32),
            _ => 1,
        };
        let sources: Vec<_> = base
            .iter()
            .flat_map(|base| &base.parts)
            .map(|part| Arc::new(SourceFile::new(self.store, part)))
            .collect();
        let inline = base.iter().flat_map(|base| &base.inline);
        let all_of = |sources: &[Arc<SourceFile>]| -> Vec<Input> {
            sources.iter().flat_map(|source| row_groups(source, |_| How::Filter)).collect()
        };
        if pieces == 1 {
            while !outputs.is_empty() {
                let count = outputs.len().min(OUTPUTS_MAX);
                let window: Vec<_> = outputs.drain(..count).collect();
                let first = u32::try_from(window[0].slot).expect("parts are counted in 32 bits");
                let spread = Spread { parts, first, step: 1 };
                let mut inputs = all_of(&sources);
                inputs.extend(inline.clone().cloned().map(Input::Rows));
                plan.groups.push(Group { inputs, outputs: window, spread });
            }
            return;
        }
        for piece in 0..pieces {
            let is_here = |number: usize| number % pieces as usize == piece as usize;
            let own: Vec<_> = (0..sources.len())
                .filter(|number| is_here(*number))
                .map(|number| Arc::clone(&sources[number]))
                .collect();
            let own_outputs = outputs.extract_if(.., |output| is_here(output.slot)).collect();
            let spread = Spread { parts, first: piece, step: pieces };
            plan.groups.push(Group { inputs: all_of(&own), outputs: own_outputs, spread });
        }
    }

    /// The sidecars of a V2 checkpoint.
    pub(super) fn sidecars(&self) -> Result<Plan, CheckpointError> {
        let mut plan = Plan { columns: Columns::Files, slots: Vec::new(), groups: Vec::new() };
        match self.base {
            Some(base) if self.can_keep_sidecars(base) => self.change_sidecars(base, &mut plan)?,
            base => {
                let old_rows: u64 =
                    base.iter().flat_map(|base| &base.parts).map(CheckpointFile::rows).sum();
                let count = (old_rows + self.delta.rows()).div_ceil(self.part_rows).max(1);
                let outputs = self.new_outputs(count, 0)?;
                plan.slots.resize_with(outputs.len(), || Slot::Written);
                self.place_anew(base, outputs, &mut plan);
            }
        }
        Ok(plan)
    }

    /// Sidecars can stay if it is known what they hold.
    fn can_keep_sidecars(&self, base: &Base) -> bool {
        matches!(base.layout, super::Layout::V2 { .. })
            && base.inline.is_empty()
            && base.parts.iter().all(|part| part.adds() + part.removes() == part.rows())
    }

    fn change_sidecars(&self, base: &Base, plan: &mut Plan) -> Result<(), CheckpointError> {
        let mut small = Vec::new();
        for old in &base.parts {
            let old = if self.delta.is_empty() { old.clone() } else { self.with_hashes(old)? };
            let is_overdue = old.has_removes_before(self.limits.overdue_remove_ms);
            if is_overdue || self.loses_rows(&old) {
                let mut output = Output { slot: plan.slots.len(), ..Output::default() };
                plan.slots.push(Slot::Written);
                let inputs = self.inputs(&[old], true, &mut output);
                plan.groups.push(Group { inputs, outputs: vec![output], spread: Spread::ONE });
            } else if old.rows() < self.part_rows / 2 && old.columns == Columns::Files {
                small.push(old);
            } else {
                plan.slots.push(Slot::Kept(old));
            }
        }
        let new_rows = self.delta.rows();
        let merged = merged_sidecars(&mut small, new_rows);
        plan.slots.extend(small.into_iter().map(Slot::Kept));
        if new_rows > 0 {
            let outputs = self.new_outputs(new_rows.div_ceil(self.part_rows), plan.slots.len())?;
            self.add_sidecars(merged, outputs, plan);
        }
        Ok(())
    }

    /// New rows, and the sidecars that they are merged with into the first of the new ones.
    fn add_sidecars(&self, merged: Vec<CheckpointFile>, outputs: Vec<Output>, plan: &mut Plan) {
        for (number, mut output) in outputs.into_iter().enumerate() {
            plan.slots.push(Slot::Written);
            let merged = if number == 0 { merged.as_slice() } else { &[] };
            let inputs = self.inputs(merged, false, &mut output);
            plan.groups.push(Group { inputs, outputs: vec![output], spread: Spread::ONE });
        }
    }

    fn new_outputs(&self, count: u64, first_slot: usize) -> Result<Vec<Output>, CheckpointError> {
        let new_files = self.delta.split(u32::try_from(count).unwrap_or(u32::MAX))?;
        let outputs = new_files.into_iter().enumerate().map(|(number, new_files)| Output {
            slot: first_slot + number,
            new_files,
            ..Output::default()
        });
        Ok(outputs.collect())
    }

    /// The row groups of files that go into one new file.
    fn inputs(&self, old: &[CheckpointFile], loses_rows: bool, output: &mut Output) -> Vec<Input> {
        let is_small = |part: &CheckpointFile, row_group: usize| {
            part.row_groups[row_group].rows < SMALL_ROW_GROUP_ROWS
        };
        let small = old.iter().flat_map(|part| &part.row_groups);
        let small = small.filter(|group| group.rows < SMALL_ROW_GROUP_ROWS && !group.is_other());
        let merges = small.count() > SMALL_ROW_GROUPS_MAX;
        let mut inputs = Vec::new();
        for part in old {
            let how = |row_group: usize| match (loses_rows, merges && is_small(part, row_group)) {
                (true, _) => How::Filter,
                (false, true) => How::Merge,
                (false, false) => How::Copy,
            };
            inputs.extend(row_groups(&Arc::new(SourceFile::new(self.store, part)), how));
            match &part.hashes {
                _ if loses_rows => {}
                Some(hashes) => output.carried.push(Arc::clone(hashes)),
                None => output.has_unknown |= part.adds() + part.removes() > 0,
            }
        }
        inputs
    }

    fn loses_rows(&self, part: &CheckpointFile) -> bool {
        !self.delta.is_empty()
            && part.hashes.as_ref().is_none_or(|hashes| self.delta.may_replace(hashes))
    }

    fn with_hashes(&self, part: &CheckpointFile) -> Result<CheckpointFile, CheckpointError> {
        let mut part = part.clone();
        if part.hashes.is_none() {
            let hashes = SourceFile::new(self.store, &part).hashes()?;
            part.hashes = Some(Arc::new(hashes));
        }
        Ok(part)
    }
}

fn row_groups(source: &Arc<SourceFile>, how: impl Fn(usize) -> How) -> impl Iterator<Item = Input> {
    let is_ours = source.part.columns != Columns::Foreign;
    let groups = source.part.row_groups.iter().enumerate();
    let wanted = groups.filter(move |(_, facts)| !(is_ours && facts.is_other()));
    wanted.map(move |(row_group, _)| Input::RowGroup {
        source: Arc::clone(source),
        row_group,
        how: how(row_group),
    })
}

/// Takes out of `small` the sidecars that are to become one with `new_rows` new rows: those of
/// about their size, if there are many, and so on for the size that this gives.
fn merged_sidecars(small: &mut Vec<CheckpointFile>, new_rows: u64) -> Vec<CheckpointFile> {
    let size_of = |rows: u64| rows.max(1).ilog(SIDECARS_PER_SIZE_MAX as u64);
    let (mut merged, mut rows) = (Vec::new(), new_rows);
    loop {
        let size = size_of(rows);
        let (alike, other): (Vec<_>, Vec<_>) =
            small.drain(..).partition(|part| size_of(part.rows()) <= size);
        if new_rows == 0 || alike.len() + 1 < SIDECARS_PER_SIZE_MAX {
            *small = other.into_iter().chain(alike).collect();
            return merged;
        }
        *small = other;
        rows += alike.iter().map(CheckpointFile::rows).sum::<u64>();
        merged.extend(alike);
    }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { common_divisor(b, a % b) }
}
