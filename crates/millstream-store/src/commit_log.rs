//! The commit log: entry N says that micro-batch N is published.
//!
//! Format v1, which every release of Spark reads, without a line break at the end:
//!
//! ```text
//! v1
//! {"nextBatchWatermarkMs":1767225590000}
//! ```
//!
//! v2 adds state store ids and v3 sink names; both are read for the watermark, and never written.

use serde::{Deserialize, Serialize};

use crate::codec::{DecodeError, json_object, versioned_lines};

/// The highest version that can be read.
pub const VERSION_MAX: u32 = 3;

/// What is known once a micro-batch is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// The watermark of the next micro-batch, milliseconds since the epoch; 0 without one.
    pub next_batch_watermark_ms: i64,
}

impl Entry {
    /// The entry's bytes, format v1.
    pub fn encode(&self) -> Vec<u8> {
        format!("v1\n{{\"nextBatchWatermarkMs\":{}}}", self.next_batch_watermark_ms).into_bytes()
    }

    /// Reads an entry of format v1, v2 or v3. Line 2 may be `{}`, empty or absent.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (_, mut lines) = versioned_lines(bytes, VERSION_MAX)?;
        match lines.next().map(str::trim) {
            // Spark's reader too takes a missing line for `{}`.
            None | Some("") => Ok(Self::default()),
            Some(line) => json_object("line 2", line),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn watermark_ms(text: &str) -> i64 {
        Entry::decode(text.as_bytes()).expect("readable").next_batch_watermark_ms
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(next_batch_watermark_ms: i64) {
            let entry = Entry { next_batch_watermark_ms };
            prop_assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }

        #[test]
        fn torn_entries_are_no_other_entry(next_batch_watermark_ms: i64, cut in 4_usize..26) {
            let bytes = Entry { next_batch_watermark_ms }.encode();
            prop_assert!(Entry::decode(&bytes[..cut]).is_err_and(|error| error.is_torn()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Entry::decode(&bytes);
        }
    }

    #[test]
    fn every_form_of_sparks_is_read() {
        assert_eq!(watermark_ms("v1\n{}"), 0);
        assert_eq!(watermark_ms("v1"), 0);
        assert_eq!(watermark_ms("v1\n"), 0);
        assert_eq!(watermark_ms("v1\n{\"nextBatchWatermarkMs\":7,\"stateUniqueIds\":{}}"), 7);
        assert_eq!(
            watermark_ms("v2\n{\"nextBatchWatermarkMs\":8,\"stateUniqueIds\":{\"0\":[[\"a\"]]}}"),
            8
        );
        assert_eq!(
            watermark_ms(
                "v3\n{\"nextBatchWatermarkMs\":9,\"sinkMetadataMap\":{\"s\":{\"isActive\":true}}}"
            ),
            9
        );
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        assert_eq!(
            Entry::decode(b"v4\n{}"),
            Err(DecodeError::NewerVersion { found: 4, supported: VERSION_MAX })
        );
        assert_eq!(Entry::decode(b""), Err(DecodeError::Empty));
        for damaged in [&b"\0\0\0\0"[..], b"v", b"v0\n{}", b"v1x\n{}", b"v1\n{\"next", b"v1\n[1]"] {
            assert!(Entry::decode(damaged).is_err_and(|error| error.is_torn()), "{damaged:?}");
        }
    }
}
