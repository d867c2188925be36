//! Which files a read has to look at.

use std::sync::Arc;

use delta_kernel::scan::Scan;
use delta_kernel::scan::state::ScanFile;
use delta_kernel::schema::SchemaRef;
use delta_kernel::{KernelResult, PredicateRef};

use super::TableReader;
use crate::error::TableError;

/// The files of one read.
pub(super) struct Plan {
    pub(super) scan: Scan,
    /// Those to be read.
    pub(super) files: Vec<ScanFile>,
    /// How many the table has.
    pub(super) files_all: u64,
}

/// Replays the log. All files are known before the first one is read: if a damaged checkpoint is
/// found half way, nothing has to be taken back.
pub(super) fn plan(
    reader: &TableReader,
    logical: &SchemaRef,
    predicate: Option<PredicateRef>,
) -> Result<Plan, TableError> {
    reader.replay(|snapshot| {
        let builder = Arc::clone(snapshot).scan_builder().with_schema(Arc::clone(logical));
        let scan = builder.with_predicate(predicate.clone()).build()?;
        let files = live(reader, &scan)?;
        let known = snapshot.get_file_stats_if_present();
        let known = known.and_then(|stats| u64::try_from(stats.num_files()).ok());
        let files_all = match (known, &predicate) {
            (Some(known), _) => known,
            (None, None) => files.len() as u64,
            (None, Some(_)) => {
                let all = Arc::clone(snapshot).scan_builder().build()?;
                live(reader, &all)?.len() as u64
            }
        };
        Ok(Plan { scan, files, files_all })
    })
}

/// The live files that the scan does not rule out.
pub(super) fn live(reader: &TableReader, scan: &Scan) -> KernelResult<Vec<ScanFile>> {
    let mut files = Vec::new();
    for some in scan.scan_metadata(reader.engine().as_ref())? {
        files = some?.visit_scan_files(files, |files, file| files.push(file))?;
    }
    Ok(files)
}

/// Every live file of the reader's version.
pub(crate) fn all(reader: &TableReader) -> Result<Vec<ScanFile>, TableError> {
    reader.replay(|snapshot| live(reader, &Arc::clone(snapshot).scan_builder().build()?))
}
