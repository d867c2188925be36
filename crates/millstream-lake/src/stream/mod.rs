//! A table as a stream: the files of one version, then what each later version adds.
//!
//! 1. A [`StreamTable`] is the table as it was when the stream began: its id, its schema.
//! 2. A [`Follower`] goes through the log, a version after the other ([`commit`]), and gives a
//!    [`Step`] per file and per end of a version. A new stream goes through all files of a version
//!    first ([`initial`]).
//! 3. Whether a commit is given, left out or refused is decided by its actions as a whole
//!    ([`follower`]); where changes are asked for, what is given of it ([`changes`]).
//! 4. A [`StreamScan`] reads a file's rows.
//!
//! What is given, in which order and under which number is that of Spark's source of Delta tables,
//! so that a position of one is a position of the other. Origin: `DeltaSource.scala` of Delta Lake.
//!
//! Only the files of the log are looked at, by name: a version that is not there yet costs one
//! request, and no listing.

mod actions;
mod changes;
mod commit;
mod error;
mod file;
mod follower;
mod initial;
mod scan;
mod schema;

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use delta_kernel::SnapshotRef;

use crate::checkpoint::span::{self, Span};
use crate::error::TableError;
use crate::read::TableReader;
use crate::store::TableStore;
use schema::Layout;

pub use error::StreamError;
pub use file::{Change, Position, Step, StreamFile};
pub use follower::{Follower, Rules};
pub use scan::{CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FileRows, StreamScan};

/// Where a new stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With all files of the newest version.
    Snapshot,
    /// With what this version has changed.
    Version(u64),
    /// With what comes behind the newest version.
    Latest,
    /// With the first version at this moment or later, milliseconds since the epoch.
    Moment(i64),
}

/// A table as it was when a stream of it began. Its methods block.
pub struct StreamTable {
    reader: TableReader,
    id: String,
    version: u64,
    layout: Layout,
    gives_changes: bool,
    schema: SchemaRef,
}

impl StreamTable {
    /// The table at `store`, at its newest version. With `gives_changes` its rows say what became
    /// of them, in three more columns.
    ///
    /// # Errors
    /// [`TableError::Missing`], [`StreamError::NoChangeFeed`] for a table that records no changes.
    pub fn open(store: &TableStore, gives_changes: bool) -> Result<Self, StreamError> {
        let reader = TableReader::open(store)?;
        let (snapshot, version) = (reader.snapshot(), reader.version());
        let has_change_feed = actions::has_change_feed(snapshot.metadata_configuration());
        if gives_changes && !has_change_feed {
            return Err(StreamError::NoChangeFeed { table: store.shown(), version });
        }
        let schema = reader.schema()?;
        let schema = if gives_changes { with_changes(&reader, &schema)? } else { schema };
        let (id, layout) = (id_of(&reader)?, layout_of(&snapshot));
        Ok(Self { reader, id, version, layout, gives_changes, schema })
    }

    /// Where its files are.
    pub fn store(&self) -> &TableStore {
        self.reader.store()
    }

    /// The table's own identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The version that was the newest when this was opened.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The columns of rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The newest version now.
    pub fn newest(&self) -> Result<u64, StreamError> {
        Ok(self.reader.newest_version()?)
    }

    /// Where a stream that begins now does.
    ///
    /// # Errors
    /// A version that is not there; [`StreamError::InTheFuture`].
    pub fn start(&self, start: Start) -> Result<Position, StreamError> {
        Ok(match start {
            Start::Snapshot => Position::snapshot(self.version),
            Start::Latest => Position::before(self.newest()? + 1),
            Start::Version(version) => {
                if commit::look(self.store(), version)?.is_none() {
                    return Err(self.no_version(version));
                }
                Position::before(version)
            }
            Start::Moment(ms) => Position::before(self.first_at(ms)?),
        })
    }

    /// Reads the columns with the numbers `columns`, in that order.
    pub fn scan(&self, columns: &[usize]) -> Result<StreamScan, StreamError> {
        Ok(StreamScan::new(&self.reader, scan::projected(&self.schema, columns))?)
    }

    fn span(&self) -> Result<Span, StreamError> {
        let shown = self.store().shown();
        let span = span::find(self.store())
            .map_err(|error| TableError::store("cannot read the log of", &shown, &error))?;
        span.ok_or(StreamError::NoCommits { table: shown, version: self.version })
    }

    fn no_version(&self, version: u64) -> StreamError {
        let not_readable = || {
            let span = self.span()?;
            let time = |version| self.time_ms(&span, version);
            let (oldest, newest) = (span.oldest(), span.newest());
            let (oldest_ms, newest_ms) = (time(oldest)?, time(newest)?);
            let (table, asked) = (self.store().shown(), format!("version {version}"));
            Ok::<_, StreamError>(TableError::NotReadable {
                table,
                asked,
                oldest,
                oldest_ms,
                newest,
                newest_ms,
            })
        };
        not_readable().map_or_else(|error| error, StreamError::from)
    }

    fn time_ms(&self, span: &Span, version: u64) -> Result<i64, StreamError> {
        let failed = |error| {
            TableError::store("cannot read the log of", &self.store().shown(), &error).into()
        };
        span.time_ms(self.store(), version).map_err(failed)
    }

    fn first_at(&self, ms: i64) -> Result<u64, StreamError> {
        let span = self.span()?;
        let failed =
            |error| TableError::store("cannot read the log of", &self.store().shown(), &error);
        let Some(found) = span.newest_at(self.store(), ms).map_err(failed)? else {
            return Ok(span.oldest());
        };
        let found_ms = self.time_ms(&span, found)?;
        if found_ms == ms {
            return Ok(found);
        }
        if found == span.newest() {
            let (table, newest_ms) = (self.store().shown(), found_ms);
            return Err(StreamError::InTheFuture { table, newest_ms });
        }
        Ok(found + 1)
    }
}

/// The columns of the table and those of changes.
fn with_changes(reader: &TableReader, schema: &SchemaRef) -> Result<SchemaRef, TableError> {
    let more = scan::change_columns();
    if let Some(taken) = more.iter().find(|column| schema.column_with_name(column.name()).is_some())
    {
        let (table, column) = (reader.store().shown(), taken.name());
        let problem = format!("it has a column {column}, which is the name of a fact of a change");
        return Err(TableError::Unsupported { table, action: "read", problem });
    }
    let more = more.into_iter().map(FieldRef::new);
    let fields = schema.fields().iter().cloned().chain(more).collect::<Vec<_>>();
    Ok(Arc::new(Schema::new(fields)))
}

/// The identifier of the table that `reader` stands at.
fn id_of(reader: &TableReader) -> Result<String, TableError> {
    let snapshot = reader.snapshot();
    let metadata = serde_json::to_value(snapshot.table_configuration().metadata());
    let id = metadata.ok().and_then(|metadata| metadata["id"].as_str().map(str::to_owned));
    id.ok_or_else(|| TableError::Damaged {
        table: reader.store().shown(),
        problem: "its metadata has no id".to_owned(),
    })
}

fn layout_of(snapshot: &SnapshotRef) -> Layout {
    let configuration = snapshot.table_configuration();
    Layout {
        schema: snapshot.schema().as_ref().clone(),
        partition_columns: configuration.logical_partition_columns().to_vec(),
        mapping: configuration.column_mapping_mode(),
    }
}
