//! The file `metadata`: the query's id, `{"id":"0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11"}`.
//!
//! One JSON object without a version line or a line break. The id stays the same over restarts.

use serde::Deserialize;

use crate::codec::{DecodeError, json_object};

/// The bytes of `metadata` for the query `id`.
pub fn encode(id: &uuid::Uuid) -> Vec<u8> {
    format!("{{\"id\":\"{id}\"}}").into_bytes()
}

/// Reads the query's id as it stands in the file.
pub fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
    #[derive(Deserialize)]
    struct Metadata {
        id: String,
    }
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::malformed(format!("it is not UTF-8 text: {error}")))?;
    let metadata: Metadata = json_object("the content", text)?;
    Ok(metadata.id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bits: u128) {
            let id = uuid::Uuid::from_u128(bits);
            prop_assert_eq!(decode(&encode(&id)), Ok(id.to_string()));
        }
    }

    #[test]
    fn damage_is_reported() {
        assert_eq!(decode(b""), Err(DecodeError::Empty));
        assert!(decode(b"{\"id\":\"0b9e").is_err());
        assert!(decode(b"{}").is_err());
    }
}
