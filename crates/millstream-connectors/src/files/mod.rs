//! `USING files`, and by format `USING json`, `csv`, `parquet`, `text`: a directory of files.
//!
//! As a stream, a directory is watched and each file in it is read once, whole. Which file belongs
//! to which micro-batch stands in the checkpoint's source log, in Spark's own format
//! ([`source_log`]), so a replay reads the same files again and Spark can go on from there. Files
//! must appear whole: written elsewhere, or under a name that starts with a dot, and then renamed.
//! A file that changes after it was found stops the query with an error instead of giving part of
//! its rows.
//!
//! As a sink, micro-batches are gathered into files, a commit makes them visible, and a manifest in
//! Spark's format lists them ([`sink`], [`directory`]).
//!
//! - [`options`]: what may stand in OPTIONS. [`listing`]: what there is in a directory.
//! - [`scanner`] finds new files in the background; [`source`] hands them out.
//! - [`read`] turns one file into record batches: lines with `millstream-formats`, Parquet with
//!   [`parquet`].
//! - [`commit_record`]: what a commit is; [`manifest`]: what Spark reads; [`metadata_log`]: when a
//!   log that grows repeats itself, and what of it can go.
//! - [`static_table`]: all files at once, for joins and batch queries; [`stored`]: Parquet files in
//!   an object store, likewise.
//!
//! Left out: compressed text files, records that span lines, and partition columns made from
//! directory names.

mod commit_record;
mod directory;
mod durable;
mod error;
mod file_records;
mod file_rows;
mod infer;
mod lines;
mod listing;
mod manifest;
mod metadata_log;
mod options;
mod parquet;
mod payloads;
mod read;
mod scanner;
mod sink;
mod source;
mod source_log;
mod static_table;
mod stored;
mod target;
mod uri;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
pub use error::FileError;
use millstream_engine::api::connector::{
    Connector, DeadLetterSupport, FlowContext, ReadMode, Table,
};
use millstream_engine::api::dead_letter::Payloads;
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::settings::OutputMode;
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{Source, StaticTable};
pub use options::{Format, ReadOptions, WriteOptions};
pub use sink::FilesSink;
pub use source::FilesSource;
pub use static_table::FilesTable;

use crate::paths::{check_local, is_stored};
use crate::places::{self, Access};

/// The `files` connector, or one that is named after a format.
pub struct Files {
    /// The format its name stands for; `None` for `files`, where the option `format` says it.
    format: Option<Format>,
    /// Relative paths are relative to this directory while columns are inferred in `check_source`.
    base_dir: PathBuf,
}

impl Files {
    /// `USING files`, with the option `format`.
    pub fn any(base_dir: &Path) -> Self {
        Self { format: None, base_dir: base_dir.to_owned() }
    }

    /// `USING json` and so on.
    pub fn of(format: Format, base_dir: &Path) -> Self {
        Self { format: Some(format), base_dir: base_dir.to_owned() }
    }

    fn read_options(&self, table: &Table) -> Result<ReadOptions, OptionError> {
        ReadOptions::parse(&table.options, self.format)
    }

    /// The columns of the table, as they come out of files.
    fn columns(
        &self,
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<(ReadOptions, SchemaRef), OptionError> {
        let options = self.read_options(table)?;
        let in_store = is_stored(&options.path);
        if in_store && mode == ReadMode::Stream {
            check_local("path", &options.path)?;
        }
        let declared = match (&table.columns, options.format, mode) {
            (Some(columns), _, _) => columns.clone(),
            (None, Format::Text, _) => infer::text_columns(),
            (None, Format::Json | Format::Csv, ReadMode::Stream) => {
                return Err(OptionError::table(
                    format!(
                        "the columns of '{}' must be declared: a stream of {} files cannot wait \
                         for the first file to learn them",
                        table.name, options.format
                    ),
                    Some(format!("write CREATE TABLE {} (name TYPE, ...) USING ...", table.name)),
                ));
            }
            (None, Format::Parquet, _) if in_store => stored::columns(&options)?,
            (None, _, _) => infer::columns(&options, base_dir)?,
        };
        let schema = read::schema(&declared, &options)?;
        Ok((options, schema))
    }
}

impl Connector for Files {
    fn name(&self) -> &'static str {
        self.format.map_or("files", Format::name)
    }

    fn output_modes(&self, _: &Table) -> &'static [OutputMode] {
        &[OutputMode::Append]
    }

    fn options(&self) -> &'static [OptionSpec] {
        options::known(self.format)
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        Ok(self.columns(table, mode, &self.base_dir)?.1)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        let options = WriteOptions::parse(&table.options, self.format)?;
        write::check(&options, schema)
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        let (options, schema) = self.columns(table, mode, &context.base_dir)?;
        check_local("path", &options.path)?;
        Ok(Box::new(FilesSource::new(options, schema, context)))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = WriteOptions::parse(&table.options, self.format)?;
        Ok(Box::new(FilesSink::new(options, schema.clone(), context)))
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let (path, access) = match usage.role {
            Role::Read(_) => (self.read_options(table)?.path, Access::Read),
            Role::Written(_) => {
                (WriteOptions::parse(&table.options, self.format)?.path, Access::Write)
            }
        };
        Ok(places::needs(&path, &self.base_dir, access))
    }

    fn static_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        let (options, schema) = self.columns(table, ReadMode::Batch, &context.base_dir)?;
        if is_stored(&options.path) {
            return Ok(Some(Arc::new(stored::StoredTable::new(options, schema, &context.env))));
        }
        Ok(Some(Arc::new(FilesTable::new(options, schema, context))))
    }

    fn dead_letters(&self) -> &dyn DeadLetterSupport {
        self
    }
}

impl DeadLetterSupport for Files {
    fn takes_several_writers(&self) -> bool {
        false
    }

    fn readable(&self, table: &Table, columns: &SchemaRef) -> Table {
        // Found out from text, a payload would be what stands for its bytes.
        Table { columns: Some(columns.clone()), ..table.clone() }
    }

    fn payloads(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Option<Arc<dyn Payloads>>, Failure> {
        let (options, schema) = self.columns(table, ReadMode::Stream, &context.base_dir)?;
        Ok(Some(Arc::new(read::FileReader::new(Arc::new(options), schema))))
    }
}

#[cfg(test)]
mod tests;
