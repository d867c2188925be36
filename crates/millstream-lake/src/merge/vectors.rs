//! Deletion vectors: which rows of a file are no rows of the table any more.
//!
//! Those of a commit are in one file, as Spark writes them:
//!
//! ```text
//! 1 byte      1, the version of the form
//! then for each vector, from its offset on:
//! 4 bytes     the size of what follows but for the checksum, big-endian
//! 4 bytes     1681511377, little-endian
//! ...         the numbers of rows, a 64-bit Roaring bitmap in the portable form
//! 4 bytes     the CRC-32 of the two before, big-endian
//! ```
//!
//! Origin: protocol, "Deletion Vectors".

use bytes::Bytes;
use delta_kernel::KernelResult;
use delta_kernel::actions::deletion_vector::{DeletionVectorDescriptor, DeletionVectorStorageType};
use delta_kernel::actions::deletion_vector_writer::{
    DeletionVector, StreamingDeletionVectorWriter,
};
use delta_kernel::{Engine, KernelError};
use roaring::RoaringTreemap;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::error::TableError;
use crate::store::TableStore;

/// The letters of Z85, by their value.
const Z85: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// A file of deletion vectors, in the store.
pub(super) struct VectorFile {
    /// Relative to the table's directory.
    pub(super) name: String,
    /// What the log says of each, in order.
    pub(super) vectors: Vec<DeletionVectorDescriptor>,
}

impl VectorFile {
    /// Writes `vectors`.
    pub(super) fn put(store: &TableStore, vectors: &[RoaringTreemap]) -> Result<Self, TableError> {
        let id = store.env().random_uuid();
        let name = format!("deletion_vector_{id}.bin");
        let encoded = encoded(vectors, &z85(id.as_bytes()));
        let (bytes, vectors) =
            encoded.map_err(|error| TableError::kernel("written", &store.shown(), error))?;
        let put = store.put_many(vec![(name.clone(), bytes)]);
        put.map_err(|error| TableError::store("cannot write to", &store.shown(), &error))?;
        Ok(Self { name, vectors })
    }
}

fn encoded(
    vectors: &[RoaringTreemap],
    path: &str,
) -> KernelResult<(Bytes, Vec<DeletionVectorDescriptor>)> {
    let mut bytes = Vec::new();
    let mut writer = StreamingDeletionVectorWriter::new(&mut bytes);
    let mut described = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let written = writer.write_deletion_vector(Vector(vector.clone()))?;
        described.push(DeletionVectorDescriptor::try_new(
            DeletionVectorStorageType::PersistedRelative,
            path,
            Some(written.offset),
            written.size_in_bytes,
            written.cardinality,
        )?);
    }
    writer.finalize()?;
    Ok((bytes.into(), described))
}

struct Vector(RoaringTreemap);

impl DeletionVector for Vector {
    type IndexIterator = roaring::treemap::IntoIter;

    fn into_iter(self) -> Self::IndexIterator {
        self.0.into_iter()
    }

    fn cardinality(&self) -> u64 {
        self.0.len()
    }

    fn serialize(mut self) -> KernelResult<Bytes> {
        self.0.optimize();
        let mut bytes = Vec::with_capacity(self.0.serialized_size());
        self.0
            .serialize_into(&mut bytes)
            .map_err(|error| KernelError::generic(format!("a deletion vector: {error}")))?;
        Ok(bytes.into())
    }
}

/// Sixteen bytes as text of twenty letters. Origin: ZeroMQ RFC 32.
fn z85(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(20);
    for word in bytes.chunks_exact(4) {
        let word = u32::from_be_bytes(word.try_into().expect("four bytes"));
        for power in (0..5).rev() {
            text.push(Z85[(word / 85_u32.pow(power) % 85) as usize] as char);
        }
    }
    text
}

/// A vector as a row of a scan of the log has it.
pub(super) fn to_json(vector: &DeletionVectorDescriptor) -> Value {
    json!({
        "storageType": vector.storage_type.to_string(),
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    })
}

/// The vector that a row of a scan, or an action of the log, has.
pub(super) fn of_json(value: &Value) -> KernelResult<Option<DeletionVectorDescriptor>> {
    match value {
        Value::Null => Ok(None),
        value => {
            let vector = DeletionVectorDescriptor::deserialize(value);
            let vector = vector.map_err(|error| {
                KernelError::DeletionVector(format!("the log has {value}: {error}"))
            })?;
            Ok(Some(vector))
        }
    }
}

/// The rows that `vector` names.
pub(super) fn read(
    vector: DeletionVectorDescriptor,
    engine: &dyn Engine,
    root: &Url,
) -> KernelResult<RoaringTreemap> {
    vector.read(engine.storage_handler(), root)
}

/// Why the deletion vector of the file at `path`, as the log of `version` has it, cannot be read.
pub(super) fn explained(
    store: &TableStore,
    (path, version): (&str, u64),
    error: KernelError,
) -> TableError {
    let table = store.shown();
    match error {
        KernelError::Backtraced { source, .. } => explained(store, (path, version), *source),
        KernelError::FileNotFound(missing) => {
            let missing = missing.parse().ok().and_then(|url| store.name_of(&url));
            TableError::FileMissing { table, file: missing.unwrap_or(path.to_owned()), version }
        }
        error @ (KernelError::ObjectStore(_) | KernelError::IOError(_)) => {
            TableError::kernel("read", &table, error)
        }
        error => {
            TableError::FileDamaged { table, file: path.to_owned(), problem: error.to_string() }
        }
    }
}

/// What identifies a vector among those that one file has had.
pub(super) fn identity(vector: &Value) -> String {
    let part = |name: &str| vector[name].to_string();
    format!("{}{}{}", part("storageType"), part("pathOrInlineDv"), part("offset"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_others_read_them() {
        // The protocol's own example, without its prefix, and one that Spark has written.
        for (id, text) in [
            ("d2c639aa-8816-431a-aaf6-d3fe2512ff61", "^-aqEH.-t@S}K{vb[*k^"),
            ("61d16c75-6994-46b7-a15b-8b538852e50e", "vBn[lx{q8@P<9BNH/isA"),
        ] {
            let id = uuid::Uuid::parse_str(id).expect("an id");
            assert_eq!(z85(id.as_bytes()), text);
        }
    }
}
