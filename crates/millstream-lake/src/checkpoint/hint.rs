//! `_last_checkpoint`: where readers begin.
//!
//! A hint that names a checkpoint which is not complete stops readers, so it is written last. It
//! only moves forwards: what is there is read again just before. The checksum is the MD5 of the
//! JSON in a canonical form:
//!
//! ```text
//! a leaf is  segment+segment+..=value, where a segment is an encoded key in quotes, or an index
//! strings    keep their quotes; octets other than a-z A-Z 0-9 - . _ ~ become %XX
//! the form   the leaves in the order of their paths, joined with commas; no top-level "checksum"
//! ```
//! Origin: protocol, "JSON checksum".

use bytes::Bytes;
use md5::{Digest, Md5};
use object_store::Error;
use serde_json::{Map, Value, json};

use super::error::{CheckpointError, store_error};
use super::names::HINT;
use crate::store::TableStore;

/// What the hint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) version: u64,
    /// Of a multi-part checkpoint.
    pub(super) parts: Option<u32>,
    /// Actions.
    pub(super) size: u64,
    pub(super) bytes: u64,
    pub(super) adds: u64,
}

impl Hint {
    /// Reads the hint; none if there is none, or if what is there is not to be trusted.
    pub(super) fn read(store: &TableStore) -> Result<Option<Self>, CheckpointError> {
        match store.get(HINT) {
            Ok(content) => Ok(Self::parse(&content)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error("read", HINT)(error)),
        }
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let hint: Value = serde_json::from_slice(content).ok()?;
        if let Some(stated) = hint.get("checksum")
            && stated.as_str() != Some(&checksum(&hint))
        {
            return None;
        }
        let number = |key: &str| hint.get(key).and_then(Value::as_u64);
        Some(Self {
            version: number("version")?,
            parts: number("parts").and_then(|parts| u32::try_from(parts).ok()),
            size: number("size").unwrap_or(0),
            bytes: number("sizeInBytes").unwrap_or(0),
            adds: number("numOfAddFiles").unwrap_or(0),
        })
    }

    /// Writes the hint unless that would move it backwards. True if it was written.
    pub(super) fn advance(&self, store: &TableStore) -> Result<bool, CheckpointError> {
        if Self::read(store)?.is_some_and(|now| now.version > self.version) {
            return Ok(false);
        }
        self.write(store)?;
        Ok(true)
    }

    /// Writes the hint whatever is there.
    pub(super) fn write(&self, store: &TableStore) -> Result<(), CheckpointError> {
        let bytes = Bytes::from(self.to_json().to_string());
        store.put(HINT, bytes).map_err(store_error("write", HINT))
    }

    fn to_json(&self) -> Value {
        let mut hint = Map::new();
        hint.insert("version".to_owned(), json!(self.version));
        hint.insert("size".to_owned(), json!(self.size));
        if let Some(parts) = self.parts {
            hint.insert("parts".to_owned(), json!(parts));
        }
        hint.insert("sizeInBytes".to_owned(), json!(self.bytes));
        hint.insert("numOfAddFiles".to_owned(), json!(self.adds));
        let mut hint = Value::Object(hint);
        hint["checksum"] = json!(checksum(&hint));
        hint
    }
}

/// The checksum of a JSON object, in hexadecimal.
fn checksum(object: &Value) -> String {
    let digest = Md5::digest(canonical(object).as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical(object: &Value) -> String {
    let mut leaves = Vec::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        if key != "checksum" {
            add_leaves(encoded(key), value, &mut leaves);
        }
    }
    leaves.sort_unstable();
    let leaves: Vec<_> =
        leaves.into_iter().map(|(path, value)| format!("{path}={value}")).collect();
    leaves.join(",")
}

fn add_leaves(path: String, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                add_leaves(format!("{path}+{}", encoded(key)), value, leaves);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                add_leaves(format!("{path}+{index}"), value, leaves);
            }
        }
        Value::String(text) => leaves.push((path, encoded(text))),
        literal => leaves.push((path, literal.to_string())),
    }
}

fn encoded(text: &str) -> String {
    let mut encoded = String::from("\"");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded.push('"');
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_protocols() {
        let object: Value = serde_json::from_str(
            r#"{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj",
                "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"#,
        )
        .unwrap();
        assert_eq!(checksum(&object), "6a92d155a59bf2eecbd4b4ec7fd1f875");
    }

    #[test]
    fn a_hint_is_read_as_written_and_not_if_it_was_changed() {
        let hint = Hint { version: 7, parts: Some(4), size: 9, bytes: 1_000, adds: 5 };
        let text = hint.to_json().to_string();
        assert_eq!(Hint::parse(text.as_bytes()), Some(hint));
        assert_eq!(Hint::parse(text.replace(":7", ":8").as_bytes()), None);
        let plain = Hint::parse(br#"{"version":3,"size":2}"#).unwrap();
        assert_eq!((plain.version, plain.parts), (3, None));
        assert_eq!(Hint::parse(b"{"), None);
    }
}
