//! Files of a stream to rows, one file at a time.
//!
//! The protocol library reads the columns that are in files, under the names and types that they
//! have there; what is the same for all rows of a file, its partition's values and the facts of
//! its commit, is put beside them here.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::expressions::{Expression, ExpressionRef, ExpressionStructPatchBuilder};
use delta_kernel::scan::Scan;
use delta_kernel::scan::state::transform_to_logical;
use delta_kernel::schema::{
    DataType as KernelType, PrimitiveType, SchemaRef as KernelSchemaRef, StructField, StructType,
};
use delta_kernel::{Engine, FileMeta, KernelError, KernelResult};

use super::file::{Change, Kept, StreamFile};
use crate::columns::retyped;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::read::{TableReader, explained};
use crate::store::TableStore;

/// What became of a row: `insert`, `delete`, `update_preimage` or `update_postimage`.
pub const CHANGE_TYPE: &str = "_change_type";
/// The version that a row was changed in.
pub const COMMIT_VERSION: &str = "_commit_version";
/// The time of that version.
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// The columns that rows of changes have behind those of the table.
pub(super) fn change_columns() -> [Field; 3] {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    [
        Field::new(CHANGE_TYPE, DataType::Utf8, true),
        Field::new(COMMIT_VERSION, DataType::Int64, true),
        Field::new(COMMIT_TIMESTAMP, time, true),
    ]
}

/// Rows decoded from files, as they come.
pub type FileRows = Box<dyn Iterator<Item = Result<RecordBatch, TableError>> + Send>;

/// Reads some columns of files of a stream. Clones are cheap. Its methods block.
#[derive(Clone)]
pub struct StreamScan(Arc<Inner>);

struct Inner {
    store: TableStore,
    engine: Arc<KernelEngine>,
    /// Of the columns that are in files.
    scan: Scan,
    /// The physical columns, and what files of changes have besides.
    physical_with_change: KernelSchemaRef,
    columns: Vec<Column>,
    schema: SchemaRef,
    names: ExpressionRef,
}

/// Where a column's values are.
enum Column {
    /// In files: the number of the column among those read.
    File(usize),
    /// The same for all rows of a file.
    Partition {
        physical_name: String,
        kind: PrimitiveType,
    },
    ChangeType,
    CommitVersion,
    CommitTimestamp,
}

impl StreamScan {
    /// Reads `wanted` of the table as `reader` sees it, which are fields of its schema or
    /// [`change_columns`].
    pub(super) fn new(reader: &TableReader, wanted: SchemaRef) -> Result<Self, TableError> {
        let snapshot = reader.snapshot();
        let table = snapshot.schema();
        let mapping = snapshot.table_configuration().column_mapping_mode();
        let partitions = reader.partition_columns();
        let (mut in_files, mut columns): (Vec<StructField>, _) = (Vec::new(), Vec::new());
        let has_changes = wanted.fields().iter().any(|field| table.field(field.name()).is_none());
        for field in wanted.fields() {
            columns.push(match (table.field(field.name()), field.name().as_str()) {
                (Some(field), name) if partitions.iter().any(|partition| partition == name) => {
                    let KernelType::Primitive(kind) = field.data_type() else {
                        let problem = format!("the partition column {name} is nested");
                        return Err(damaged(reader, problem));
                    };
                    let physical_name = field.physical_name(mapping).to_owned();
                    Column::Partition { physical_name, kind: kind.clone() }
                }
                (Some(field), _) => {
                    in_files.push(field.clone());
                    Column::File(in_files.len() - 1)
                }
                (None, CHANGE_TYPE) => Column::ChangeType,
                (None, COMMIT_VERSION) => Column::CommitVersion,
                (None, COMMIT_TIMESTAMP) => Column::CommitTimestamp,
                (None, name) => {
                    let (table, column) = (reader.store().shown(), name.to_owned());
                    return Err(TableError::NoColumn { table, column });
                }
            });
        }
        // Without any column a file does not tell how many rows it has.
        if in_files.is_empty() {
            in_files.extend(reader.narrow_column_in_files());
        }
        let failed = |error| TableError::kernel("read", &reader.store().shown(), error);
        let logical = Arc::new(StructType::try_new(in_files).map_err(failed)?);
        let scan = Arc::clone(&snapshot).scan_builder().with_schema(logical).build();
        let scan = scan.map_err(failed)?;
        let change = has_changes.then(|| StructField::nullable(CHANGE_TYPE, KernelType::STRING));
        let physical = scan.physical_schema().fields().cloned().chain(change);
        let physical_with_change = Arc::new(StructType::try_new(physical).map_err(failed)?);
        let names = Expression::struct_patch(ExpressionStructPatchBuilder::new());
        Ok(Self(Arc::new(Inner {
            store: reader.store().clone(),
            engine: Arc::clone(reader.engine()),
            scan,
            physical_with_change,
            columns,
            schema: wanted,
            names: Arc::new(names.map_err(failed)?),
        })))
    }

    /// The rows of `file`, as record batches of some thousand rows; the file is read as they are
    /// taken. After an error nothing more comes.
    pub fn rows(&self, file: &StreamFile) -> FileRows {
        let opened = caught(|| self.0.open(file));
        let (inner, file) = (Arc::clone(&self.0), file.clone());
        match opened {
            Ok(mut rows) => {
                let mut is_over = false;
                Box::new(std::iter::from_fn(move || {
                    if is_over {
                        return None;
                    }
                    let next = caught(|| rows.next(&inner)).transpose()?;
                    is_over = next.is_err();
                    Some(next.map_err(|error| inner.explained(&file, error)))
                }))
            }
            Err(error) => Box::new(std::iter::once(Err(inner.explained(&file, error)))),
        }
    }

    /// How many rows of `file` are given, from its own footer and its deletion vectors.
    pub fn count(&self, file: &StreamFile) -> Result<u64, TableError> {
        let counted = caught(|| self.0.count(file));
        counted.map_err(|error| self.0.explained(file, error))
    }
}

/// What `work` gives. Decoders are known to panic at bytes that make no sense.
fn caught<T>(work: impl FnOnce() -> KernelResult<T>) -> KernelResult<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(KernelError::generic("its decoder panicked")))
}

fn damaged(reader: &TableReader, problem: String) -> TableError {
    TableError::Damaged { table: reader.store().shown(), problem }
}

impl Inner {
    fn open(&self, file: &StreamFile) -> KernelResult<OpenFile> {
        let is_stated = file.change == Change::Stated;
        let physical =
            if is_stated { &self.physical_with_change } else { self.scan.physical_schema() };
        let meta = FileMeta {
            last_modified: file.modified_ms,
            size: file.bytes,
            location: self.scan.table_root().join(&file.path)?,
        };
        let parquet = self.engine.parquet_handler();
        let rows = parquet.read_parquet_files(&[meta], Arc::clone(physical), None)?;
        Ok(OpenFile {
            rows,
            given: self.given(&file.kept)?,
            at: 0,
            constants: self.constants(file)?,
            is_stated,
        })
    }

    fn given(&self, kept: &Kept) -> KernelResult<Given> {
        let (engine, root) = (self.engine.as_ref(), self.scan.table_root());
        Ok(match kept {
            Kept::Without(vector) => match vector.get_selection_vector(engine, root)? {
                None => Given::All,
                Some(flags) => Given::Flagged(flags),
            },
            Kept::Only(these, not_these) => {
                let not_these = not_these.get_row_indexes(engine, root)?.unwrap_or_default();
                let not_these: HashSet<u64> = not_these.into_iter().collect();
                let mut these = these.get_row_indexes(engine, root)?.unwrap_or_default();
                these.retain(|row| !not_these.contains(row));
                these.sort_unstable();
                Given::Only(these)
            }
        })
    }

    /// By column, the value that all rows of the file have.
    fn constants(&self, file: &StreamFile) -> KernelResult<Vec<Option<Constant>>> {
        let constant = |column: &Column| {
            Ok(Some(match column {
                Column::File(_) => return Ok(None),
                Column::Partition { physical_name, kind } => {
                    let mut values = file.partition_values.iter();
                    let value = values.find(|(column, _)| column == physical_name);
                    let text = value.and_then(|(_, value)| value.as_deref()).unwrap_or_default();
                    Constant::Scalar(kind.parse_scalar(text)?)
                }
                Column::ChangeType => match file.change {
                    Change::Insert => Constant::Text("insert"),
                    Change::Delete => Constant::Text("delete"),
                    Change::Stated => return Ok(None),
                },
                Column::CommitVersion => {
                    Constant::Number(i64::try_from(file.version).unwrap_or(i64::MAX))
                }
                Column::CommitTimestamp => {
                    Constant::Micros(file.commit_ms.map(|ms| ms.saturating_mul(1_000)))
                }
            }))
        };
        self.columns.iter().map(constant).collect()
    }

    fn count(&self, file: &StreamFile) -> KernelResult<u64> {
        let name = self.scan.table_root().join(&file.path)?;
        let meta = FileMeta { last_modified: file.modified_ms, size: file.bytes, location: name };
        let in_file = self.engine.rows_in(&meta)?;
        Ok(match self.given(&file.kept)? {
            Given::All => in_file,
            Given::Flagged(flags) => {
                in_file.saturating_sub(flags.iter().filter(|kept| !**kept).count() as u64)
            }
            Given::Only(rows) => rows.partition_point(|row| *row < in_file) as u64,
        })
    }

    fn explained(&self, file: &StreamFile, error: KernelError) -> TableError {
        explained(&self.store, &self.scan, &file.path, file.version, error)
    }
}

/// Which rows of a file are given.
enum Given {
    All,
    /// A flag each; rows that the flags do not reach are given.
    Flagged(Vec<bool>),
    /// These, in order.
    Only(Vec<u64>),
}

/// The value of a column in all rows of a file.
enum Constant {
    Scalar(delta_kernel::expressions::Scalar),
    Text(&'static str),
    Number(i64),
    Micros(Option<i64>),
}

impl Constant {
    fn column(&self, rows: usize) -> KernelResult<ArrayRef> {
        Ok(match self {
            Self::Scalar(value) => value.to_array(rows)?,
            Self::Text(text) => Arc::new(StringArray::from_iter_values((0..rows).map(|_| text))),
            Self::Number(number) => Arc::new(Int64Array::from_value(*number, rows)),
            Self::Micros(micros) => {
                let moments = TimestampMicrosecondArray::from_iter((0..rows).map(|_| *micros));
                Arc::new(moments.with_timezone("UTC"))
            }
        })
    }
}

/// A file whose rows are being taken.
struct OpenFile {
    rows: delta_kernel::FileDataReadResultIterator,
    given: Given,
    /// Rows gone past.
    at: usize,
    constants: Vec<Option<Constant>>,
    is_stated: bool,
}

impl OpenFile {
    fn next(&mut self, scan: &Inner) -> KernelResult<Option<RecordBatch>> {
        loop {
            let Some(rows) = self.rows.next() else { return Ok(None) };
            let rows = ArrowEngineData::try_from_engine_data(rows?)?.record_batch().clone();
            let at = self.at;
            self.at += rows.num_rows();
            let rows = self.given.filter(rows, at)?;
            if rows.num_rows() > 0 {
                return self.shaped(scan, rows).map(Some);
            }
        }
    }

    /// The rows under the names and types that the caller was promised.
    fn shaped(&self, scan: &Inner, rows: RecordBatch) -> KernelResult<RecordBatch> {
        let count = rows.num_rows();
        let in_files = scan.scan.physical_schema().num_fields();
        let stated = self.is_stated.then(|| rows.columns().last().map(Arc::clone)).flatten();
        let rows = match self.is_stated {
            true => rows.project(&(0..in_files).collect::<Vec<_>>())?,
            false => rows,
        };
        let rows = transform_to_logical(
            scan.engine.as_ref(),
            Box::new(ArrowEngineData::new(rows)),
            scan.scan.physical_schema(),
            scan.scan.logical_schema(),
            Some(Arc::clone(&scan.names)),
        )?;
        let rows = ArrowEngineData::try_from_engine_data(rows)?;
        let rows = rows.record_batch();
        let columns = scan.columns.iter().zip(&self.constants).zip(scan.schema.fields());
        let columns = columns.map(|((column, constant), field)| {
            let found = match (column, constant) {
                (_, Some(constant)) => constant.column(count)?,
                (Column::File(number), None) => Arc::clone(rows.column(*number)),
                (_, None) => stated.clone().ok_or_else(|| {
                    KernelError::generic(format!("it has no column {CHANGE_TYPE}"))
                })?,
            };
            Ok(retyped(&found, field.data_type())?)
        });
        let columns = columns.collect::<KernelResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&scan.schema), columns, &options)?)
    }
}

impl Given {
    /// Those of `rows`, the first of which is number `at` of its file, that are given.
    fn filter(&self, rows: RecordBatch, at: usize) -> KernelResult<RecordBatch> {
        let count = rows.num_rows();
        let flags: Vec<bool> = match self {
            Self::All => return Ok(rows),
            Self::Flagged(flags) => {
                (at..at + count).map(|row| flags.get(row).copied().unwrap_or(true)).collect()
            }
            Self::Only(given) => {
                let (first, end) = (at as u64, (at + count) as u64);
                let begin = given.partition_point(|row| *row < first);
                let given = given[begin..].iter().take_while(|row| **row < end);
                let mut flags = vec![false; count];
                given.for_each(|row| flags[(row - first) as usize] = true);
                flags
            }
        };
        if flags.iter().all(|kept| *kept) {
            return Ok(rows);
        }
        Ok(filter_record_batch(&rows, &BooleanArray::from(flags))?)
    }
}

/// The columns `columns` of `schema`.
pub(super) fn projected(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let fields = columns.iter().map(|column| Arc::clone(&schema.fields()[*column]));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
