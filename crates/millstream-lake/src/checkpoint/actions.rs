//! The columns of a checkpoint, as the protocol names them.
//!
//! Every field is nullable, as a row is one action and all its other columns are null; readers put
//! their own schema over it. Map and list fields carry the names that Parquet prescribes. A remove
//! has neither statistics nor tags: a checkpoint needs it only to tell that the file is gone.
//!
//! Origin: protocol, "Checkpoint Schema".

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};

use super::placement::spark_hash;

/// `add` and `remove`: what a sidecar holds, and what grows with the table.
pub(super) static FILES: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![add(), remove()])));

/// All actions that are not about files.
pub(super) static OTHERS: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(other_fields())));

/// [`OTHERS`], and what only a V2 checkpoint has.
pub(super) static OTHERS_V2: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields = other_fields();
    fields.push(group("checkpointMetadata", vec![long("version"), map("tags")]));
    let sidecar = vec![text("path"), long("sizeInBytes"), long("modificationTime"), map("tags")];
    fields.push(group("sidecar", sidecar));
    Arc::new(Schema::new(fields))
});

/// Rows of a classic checkpoint and of a part: [`OTHERS`], then [`FILES`].
pub(super) static ROWS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields = other_fields();
    fields.extend([add(), remove()]);
    Arc::new(Schema::new(fields))
});

fn other_fields() -> Vec<Field> {
    let protocol = vec![
        int("minReaderVersion"),
        int("minWriterVersion"),
        list("readerFeatures"),
        list("writerFeatures"),
    ];
    let metadata = vec![
        text("id"),
        text("name"),
        text("description"),
        group("format", vec![text("provider"), map("options")]),
        text("schemaString"),
        list("partitionColumns"),
        map("configuration"),
        long("createdTime"),
    ];
    vec![
        group("protocol", protocol),
        group("metaData", metadata),
        group("txn", vec![text("appId"), long("version"), long("lastUpdated")]),
        group("domainMetadata", vec![text("domain"), text("configuration"), flag("removed")]),
    ]
}

fn add() -> Field {
    let fields = vec![
        text("path"),
        map("partitionValues"),
        long("size"),
        long("modificationTime"),
        flag("dataChange"),
        text("stats"),
        map("tags"),
        deletion_vector(),
        long("baseRowId"),
        long("defaultRowCommitVersion"),
        text("clusteringProvider"),
    ];
    group("add", fields)
}

fn remove() -> Field {
    let fields = vec![
        text("path"),
        long("deletionTimestamp"),
        flag("dataChange"),
        flag("extendedFileMetadata"),
        map("partitionValues"),
        long("size"),
        deletion_vector(),
        long("baseRowId"),
        long("defaultRowCommitVersion"),
    ];
    group("remove", fields)
}

fn deletion_vector() -> Field {
    let fields = vec![
        text("storageType"),
        text("pathOrInlineDv"),
        int("offset"),
        int("sizeInBytes"),
        long("cardinality"),
        long("maxRowIndex"),
    ];
    group("deletionVector", fields)
}

fn group(name: &str, fields: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(Fields::from(fields)), true)
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn long(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn int(name: &str) -> Field {
    Field::new(name, DataType::Int32, true)
}

fn flag(name: &str) -> Field {
    Field::new(name, DataType::Boolean, true)
}

fn list(name: &str) -> Field {
    Field::new(name, DataType::List(Arc::new(Field::new("element", DataType::Utf8, true))), true)
}

fn map(name: &str) -> Field {
    let entry = vec![Field::new("key", DataType::Utf8, false), text("value")];
    let entries = Field::new("key_value", DataType::Struct(Fields::from(entry)), false);
    Field::new(name, DataType::Map(Arc::new(entries), false), true)
}

/// What a file action is about, with the file's deletion vector: at most one such action is in
/// force.
pub(super) type Key = String;

/// The file actions of a record batch in the schema [`FILES`].
pub(super) struct FileRows<'a> {
    adds: Keys<'a>,
    removes: Keys<'a>,
    deleted_at: &'a Int64Array,
}

struct Keys<'a> {
    path: &'a StringArray,
    storage: &'a StringArray,
    place: &'a StringArray,
    offset: &'a Int32Array,
}

impl<'a> FileRows<'a> {
    pub(super) fn new(rows: &'a RecordBatch) -> Self {
        let remove = as_struct(rows.column(1));
        Self {
            adds: Keys::new(as_struct(rows.column(0))),
            removes: Keys::new(remove),
            deleted_at: field(remove, "deletionTimestamp"),
        }
    }

    pub(super) fn is_add(&self, row: usize) -> bool {
        self.adds.path.is_valid(row)
    }

    pub(super) fn path(&self, row: usize) -> Option<&'a str> {
        Some(self.of(row)?.path.value(row))
    }

    pub(super) fn hash(&self, row: usize) -> Option<i32> {
        self.path(row).map(|path| spark_hash(path.as_bytes()))
    }

    pub(super) fn key(&self, row: usize) -> Option<Key> {
        Some(self.of(row)?.key(row))
    }

    /// True for a remove that no reader needs any more. One without a time is as old as can be.
    pub(super) fn is_expired(&self, row: usize, oldest_kept_ms: i64) -> bool {
        let deleted_at = if self.deleted_at.is_valid(row) { self.deleted_at.value(row) } else { 0 };
        self.removes.path.is_valid(row) && deleted_at < oldest_kept_ms
    }

    fn of(&self, row: usize) -> Option<&Keys<'a>> {
        [&self.adds, &self.removes].into_iter().find(|keys| keys.path.is_valid(row))
    }
}

impl<'a> Keys<'a> {
    fn new(action: &'a StructArray) -> Self {
        let vector = as_struct(action.column_by_name("deletionVector").expect("in the schema"));
        Self {
            path: field(action, "path"),
            storage: field(vector, "storageType"),
            place: field(vector, "pathOrInlineDv"),
            offset: field(vector, "offset"),
        }
    }

    fn key(&self, row: usize) -> Key {
        let mut key = self.path.value(row).to_owned();
        if self.storage.is_valid(row) {
            // No path has a line feed: it would be encoded.
            key = format!("{key}\n{}{}", self.storage.value(row), self.place.value(row));
            if self.offset.is_valid(row) {
                key = format!("{key}@{}", self.offset.value(row));
            }
        }
        key
    }
}

pub(super) fn as_struct(array: &ArrayRef) -> &StructArray {
    array.as_any().downcast_ref().expect("rows are in our schema")
}

fn field<'a, A: 'static>(fields: &'a StructArray, name: &str) -> &'a A {
    let array = fields.column_by_name(name).expect("rows are in our schema");
    array.as_any().downcast_ref().expect("rows are in our schema")
}

pub(super) fn as_text(array: &ArrayRef) -> &StringArray {
    array.as_any().downcast_ref().expect("rows are in our schema")
}
