//! Checkpoints of a table's log that cost what changed, not what the table holds.
//!
//! One checkpoint, from the commits to the hint:
//! 1. the last checkpoint is remembered, or found by one listing ([`base`]);
//! 2. the commits above it are fetched by their names and reconciled into a delta ([`commits`]);
//! 3. the files of the last checkpoint that the delta does not touch stay, others are to be written
//!    anew ([`plan`]);
//! 4. those are written, old row groups as the bytes they are where possible ([`build`], [`part`]);
//! 5. what was written is read back and counted, then gets its names in one burst ([`publish`]);
//! 6. the hint moves forward ([`hint`]), and the writer of data files is told which names keep the
//!    next checkpoint cheap ([`part_file_names`]).
//!
//! Three layouts, all of them read by every reader of today: one classic file while the table is
//! small; then parts, placed by a hash ([`placement`]); V2 with sidecars if the table has that
//! feature. It runs beside the stream and holds no lock: commits go on meanwhile.
//!
//! It deliberately does not decide when to write a checkpoint, does not write parsed statistics,
//! and keeps nothing of an existing checkpoint that the protocol does not name.
//!
//! Origin: protocol, "Checkpoints".

mod actions;
mod base;
mod build;
mod checkpoint_cleanup;
mod cleanup;
mod commits;
mod conform;
mod error;
mod facts;
pub mod facts_of;
pub(crate) mod fallback;
mod hint;
mod names;
mod part;
mod part_file_names;
pub mod placement;
mod plan;
mod pool;
mod publish;
mod repair;
mod retention;
mod source;
pub(crate) mod span;
mod state;

use millstream_store::crash_points::{self, Step};

use crate::store::TableStore;

use base::{Base, checkpoints_of, is_fault_of_base};
use build::Build;
use commits::Delta;
use error::store_error;
use facts::{CheckpointFile, Columns};
use hint::Hint;
use plan::{Given, Plan, Slot};
use retention::Limits;
use state::TableState;

pub use checkpoint_cleanup::remove_old;
pub use cleanup::{Cleaned, cleanup};
pub use error::CheckpointError;
pub use part_file_names::PartFileNames;
pub use repair::{Repaired, repair};
pub use retention::interval_ms;

/// `add` and `remove` actions as they stand in a checkpoint.
pub(crate) fn file_actions() -> arrow::datatypes::Fields {
    actions::FILES.fields().clone()
}

/// Which layout checkpoints have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayoutChoice {
    /// V2 if the table has that feature; else one file while it is small, then parts.
    #[default]
    Auto,
    /// One file, however large.
    Classic,
    /// Parts, at least two. Where the protocol forbids them, as [`LayoutChoice::Auto`].
    MultiPart,
    /// V2; needs the table feature.
    V2,
}

/// The layout of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One file.
    Classic,
    /// A set of files.
    MultiPart {
        /// Files in the set.
        parts: u32,
    },
    /// A file that names others.
    V2 {
        /// Files that it names.
        sidecars: u32,
    },
}

/// How checkpoints are written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rows of a part or a sidecar, above which there are more of them.
    pub part_rows: u64,
    /// The layout.
    pub layout: LayoutChoice,
    /// Threads.
    pub workers: usize,
    /// Bytes of commits that are taken into one checkpoint, about; the actions in them take about
    /// as much in memory. Where there are more, a checkpoint comes in between.
    pub commits_bytes_max: usize,
    /// Who writes: letters and digits, the same after a restart. What a crash left is known by it
    /// from what another process is at work on.
    pub owner: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            part_rows: 50_000,
            layout: LayoutChoice::Auto,
            workers: 2,
            commits_bytes_max: 128 << 20,
            owner: "nobody".to_owned(),
        }
    }
}

/// A checkpoint that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The table's version.
    pub version: u64,
    /// Its layout.
    pub layout: Layout,
    /// Its files, but for the top file of V2.
    pub parts: usize,
    /// Those of them that were written; none if the checkpoint was there already.
    pub parts_rewritten: usize,
    /// Those of them that were copied within the store, or referenced again.
    pub parts_copied: usize,
    /// Actions in it.
    pub rows: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Live files.
    pub adds: u64,
    /// Removed files whose tombstones readers still need.
    pub removes: u64,
    /// False if the hint names a later checkpoint already, of another writer.
    pub is_hinted: bool,
    /// Checkpoints that could not be used as a base, and why.
    pub damaged: Vec<String>,
}

/// Writes the checkpoints of one table. Its methods block.
#[derive(Debug)]
pub struct Checkpointer {
    store: TableStore,
    settings: Settings,
    part_file_names: PartFileNames,
    last: Option<Base>,
    repaired: Repaired,
    /// True if an attempt may have left staged parts, or some of a set.
    is_unfinished: bool,
}

impl Checkpointer {
    /// Takes care of a table's checkpoints from now on, and first of what a crash left behind
    /// ([`repair`]); so this comes before the first commit.
    pub fn open(store: TableStore, settings: Settings) -> Result<Self, CheckpointError> {
        let repaired = repair(&store, &settings.owner)?;
        let part_file_names = PartFileNames::default();
        Ok(Self { store, settings, part_file_names, last: None, repaired, is_unfinished: false })
    }

    /// Tells which names keep the next checkpoint cheap; good for as long as this lives.
    pub fn part_file_names(&self) -> PartFileNames {
        self.part_file_names.clone()
    }

    /// What opening found left over.
    pub fn repaired(&self) -> &Repaired {
        &self.repaired
    }

    /// Looks at the checkpoint that the next one will stand on, and so finds out which names are
    /// good. Without this that is known after the first checkpoint only, which then has to write
    /// every part that one of the names until then falls into.
    pub fn prepare(&mut self) -> Result<(), CheckpointError> {
        let listed = self.store.list(names::LOG, None).map_err(store_error("list", names::LOG))?;
        let (found, _) = checkpoints_of(&listed);
        for found in &found {
            match Base::load(&self.store, found) {
                Ok(base) => {
                    self.last = Some(base);
                    self.name_with();
                    return Ok(());
                }
                Err(error) if is_fault_of_base(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of `version`, whose commit must be in the log.
    ///
    /// Errors: `Retry` if the store is away, and the checkpointer is as it was; `Data` if the log
    /// is damaged beyond what its older checkpoints can heal.
    pub fn write(&mut self, version: u64) -> Result<Written, CheckpointError> {
        if self.is_unfinished {
            repair(&self.store, &self.settings.owner)?;
            self.is_unfinished = false;
        }
        let mut damaged = Vec::new();
        if let Some(last) = self.last.take() {
            if last.version > version {
                let error = CheckpointError::Backwards { asked: version, last: last.version };
                self.last = Some(last);
                return Err(error);
            }
            match self.write_from(Some(&last), version) {
                // Somebody deleted or damaged it; what the log has now may still do.
                Err(error) if is_fault_of_base(&error) => damaged.push(error.to_string()),
                // Others have gone on without us for long, and cleaned up.
                Err(CheckpointError::CommitMissing { .. }) => {}
                Err(error) => {
                    // If only the hint is missing, the new checkpoint is remembered already.
                    self.last.get_or_insert(last);
                    return Err(error);
                }
                Ok(written) => return Ok(written),
            }
        }
        self.write_from_log(version, damaged)
    }

    /// Tries the checkpoints that the log has, newest first, and then its commits alone.
    fn write_from_log(
        &mut self,
        version: u64,
        mut damaged: Vec<String>,
    ) -> Result<Written, CheckpointError> {
        let listed = self.store.list(names::LOG, None).map_err(store_error("list", names::LOG))?;
        let (found, _) = checkpoints_of(&listed);
        for found in found.iter().filter(|found| found.version <= version) {
            let base = Base::load(&self.store, found);
            match base.and_then(|base| self.write_from(Some(&base), version)) {
                Ok(written) => return Ok(Written { damaged, ..written }),
                Err(error) if is_fault_of_base(&error) => {
                    tracing::warn!(%error, version = found.version, "a checkpoint is passed over");
                    damaged.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let written = self.write_from(None, version)?;
        Ok(Written { damaged, ..written })
    }

    /// Writes the checkpoint on top of `base`. If the commits above that are too many to be held in
    /// memory, others come first, each on top of the one before.
    fn write_from(
        &mut self,
        base: Option<&Base>,
        version: u64,
    ) -> Result<Written, CheckpointError> {
        if let Some(base) = base.filter(|base| base.version == version) {
            return self.adopt(base);
        }
        let mut written = self.write_next(base, version)?;
        while written.version < version {
            let base = self.last.take().expect("it was written just now");
            written = self.write_next(Some(&base), version)?;
        }
        Ok(written)
    }

    /// One checkpoint on top of `base`, of `version` or one before it.
    fn write_next(
        &mut self,
        base: Option<&Base>,
        version: u64,
    ) -> Result<Written, CheckpointError> {
        let mut state = base.map(|base| base.state.clone()).unwrap_or_default();
        let versions = base.map_or(0, |base| base.version + 1)..=version;
        let (mut delta, version) = Delta::read(&self.store, &self.settings, versions, &mut state)?;
        state.check(version)?;
        let limits = Limits::of(state.metadata(), self.store.env().now_ms());
        state.expire(&limits);
        delta.expire(limits.oldest_remove_ms)?;
        let layout = self.layout(base, &delta, &state)?;
        let part_rows = self.settings.part_rows.max(1);
        let given = Given { store: &self.store, base, delta: &delta, limits: &limits, part_rows };
        let plan = match layout {
            Layout::Classic => given.parts(1, state.rows()?)?,
            Layout::MultiPart { parts } => given.parts(parts, state.rows()?)?,
            Layout::V2 { .. } => given.sidecars()?,
        };
        self.is_unfinished = true;
        let (parts, rewritten) = self.build(plan, delta, limits, version)?;
        self.publish(version, state, parts, rewritten, layout)
    }

    /// A checkpoint of the wanted version is there already.
    fn adopt(&mut self, base: &Base) -> Result<Written, CheckpointError> {
        let mut written = written(base);
        written.parts_copied = written.parts;
        written.is_hinted = match Hint::read(&self.store)? {
            Some(hint) if hint.version >= base.version => hint.version == base.version,
            _ => hint_of(&written).advance(&self.store)?,
        };
        self.last = Some(base.clone());
        self.name_with();
        Ok(written)
    }

    fn layout(
        &self,
        base: Option<&Base>,
        delta: &Delta,
        state: &TableState,
    ) -> Result<Layout, CheckpointError> {
        let has_v2 = state.has_feature("v2Checkpoint");
        match self.settings.layout {
            LayoutChoice::Classic => return Ok(Layout::Classic),
            LayoutChoice::V2 if !has_v2 => return Err(CheckpointError::V2NotEnabled),
            _ if has_v2 => return Ok(Layout::V2 { sidecars: 0 }),
            // Spark and the protocol disagree on where the rows of such a table belong.
            _ if state.has_feature("deletionVectors") => return Ok(Layout::Classic),
            _ => {}
        }
        let old_rows = base.map_or(0, |base| {
            let inline: usize = base.inline.iter().map(|rows| rows.num_rows()).sum();
            base.parts.iter().map(CheckpointFile::rows).sum::<u64>() + inline as u64
        });
        let parts = self.part_count(base, old_rows + delta.rows());
        match self.settings.layout {
            LayoutChoice::MultiPart => Ok(Layout::MultiPart { parts: parts.max(2) }),
            _ if parts == 1 => Ok(Layout::Classic),
            _ => Ok(Layout::MultiPart { parts }),
        }
    }

    /// A power of two, so that a part is split in two and not in many when there are to be more.
    fn part_count(&self, base: Option<&Base>, rows: u64) -> u32 {
        let part_rows = self.settings.part_rows.max(1);
        let needed = rows.div_ceil(part_rows).max(1).next_power_of_two();
        let needed = u32::try_from(needed).unwrap_or(1 << 30);
        let Some(Base { layout: Layout::MultiPart { parts: now }, .. }) = base else {
            return needed;
        };
        let base = base.filter(|base| base.is_placed() && now.is_power_of_two());
        let Some(base) = base else { return needed };
        let has_room = |number: usize| {
            part_file_names::is_steerable(number as u32, *now)
                && base.parts[number].rows() < part_rows
        };
        let is_full = !(0..base.parts.len()).any(has_room);
        match needed {
            needed if needed > *now => needed,
            _ if is_full => now.saturating_mul(2),
            // Fewer only if it is worth the work, and will not have to be undone soon.
            needed if needed <= *now / 4 => needed,
            _ => *now,
        }
    }

    /// The files of the new checkpoint, verified, and how many of them were written.
    fn build(
        &self,
        plan: Plan,
        delta: Delta,
        limits: Limits,
        version: u64,
    ) -> Result<(Vec<CheckpointFile>, usize), CheckpointError> {
        let Plan { columns, slots, groups } = plan;
        let (env, uuid) = (self.store.env().clone(), self.store.env().random_uuid());
        let count = u32::try_from(slots.len()).expect("parts are counted in 32 bits");
        let attempt = names::staged(version, count, &self.settings.owner, uuid);
        let name: Box<dyn Fn(usize) -> String + Send + Sync> = match columns {
            Columns::Files => Box::new(move |_| {
                format!("{}{version:020}.{}.parquet", names::SIDECARS, env.random_uuid())
            }),
            _ => Box::new(move |slot| format!("{attempt}part-{}", slot + 1)),
        };
        let build = Build { store: self.store.clone(), delta, limits, columns, name };
        let built = build::build(build, groups, self.settings.workers)?;
        publish::verify(&self.store, &built.parts)?;
        let rewritten = built.parts.len();
        let adds_written: u64 = built.parts.iter().map(|(_, part)| part.adds()).sum();
        if adds_written != built.adds_kept {
            let (kept, written) = (built.adds_kept, adds_written);
            return Err(CheckpointError::CountsDiffer { kept, written });
        }
        let mut built = built.parts.into_iter().peekable();
        let parts = slots.into_iter().enumerate().filter_map(|(number, slot)| match slot {
            Slot::Kept(part) => Some(part),
            Slot::Written => built.next_if(|(slot, _)| *slot == number).map(|(_, part)| part),
        });
        Ok((parts.collect(), rewritten))
    }

    fn publish(
        &mut self,
        version: u64,
        state: TableState,
        mut parts: Vec<CheckpointFile>,
        rewritten: usize,
        layout: Layout,
    ) -> Result<Written, CheckpointError> {
        let mut top = (0, 0);
        let layout = match layout {
            Layout::V2 { .. } => {
                top = publish::write_top(&self.store, version, &state, &parts)?;
                Layout::V2 { sidecars: u32::try_from(parts.len()).unwrap_or(u32::MAX) }
            }
            layout => {
                publish::name_parts(&self.store, version, &mut parts)?;
                layout
            }
        };
        let base = Base { version, layout, state, parts, inline: Vec::new() };
        let mut written = written(&base);
        written.bytes += top.0;
        written.rows += top.1;
        written.parts_rewritten = rewritten;
        written.parts_copied = written.parts - rewritten;
        crash_points::reached(Step::CheckpointUnhinted);
        // The checkpoint is complete whether or not the hint can be written.
        self.is_unfinished = false;
        self.last = Some(base);
        self.name_with();
        written.is_hinted = hint_of(&written).advance(&self.store)?;
        crash_points::reached(Step::CheckpointHinted);
        Ok(written)
    }

    fn name_with(&self) {
        let is_placed = |base: &&Base| base.is_placed() && base.parts.len() > 1;
        let rows: Vec<u64> = match self.last.as_ref().filter(is_placed) {
            Some(base) => base.parts.iter().map(CheckpointFile::rows).collect(),
            None => vec![0],
        };
        self.part_file_names.update(&rows, self.settings.part_rows.max(1));
    }
}

fn written(base: &Base) -> Written {
    let total = |of: fn(&CheckpointFile) -> u64| base.parts.iter().map(of).sum::<u64>();
    Written {
        version: base.version,
        layout: base.layout,
        parts: base.parts.len(),
        parts_rewritten: 0,
        parts_copied: 0,
        rows: total(CheckpointFile::rows),
        bytes: total(|part| part.bytes),
        adds: total(CheckpointFile::adds),
        removes: total(CheckpointFile::removes),
        is_hinted: false,
        damaged: Vec::new(),
    }
}

fn hint_of(written: &Written) -> Hint {
    let parts = match written.layout {
        Layout::MultiPart { parts } => Some(parts),
        _ => None,
    };
    let Written { version, rows: size, bytes, adds, .. } = *written;
    Hint { version, parts, size, bytes, adds }
}
