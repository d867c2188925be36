//! Keys of messages: the same on a replay.
//!
//! A replay has the same rows under the same micro-batch's number, and may have them in another
//! order: partitions are computed side by side. So a key is made of what the message says and not
//! of its place; of several equal messages in a micro-batch the first has the number 0, the second
//! 1, and which of them is which makes no difference.

use std::collections::HashMap;

use millstream_engine::api::sink::BatchId;
use ring::digest::{Context, SHA256, digest};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// The digest of what a row says.
pub fn digest_of(content: &[u8]) -> Digest {
    digest(&SHA256, content).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The keys of one micro-batch's messages.
pub struct Keys<'a> {
    query_id: &'a str,
    table: &'a str,
    batch_id: BatchId,
    equal: HashMap<Digest, u64>,
}

impl<'a> Keys<'a> {
    /// Keys of micro-batch `batch_id`, which this query writes to `table`.
    pub fn new(query_id: &'a str, table: &'a str, batch_id: BatchId) -> Self {
        Self { query_id, table, batch_id, equal: HashMap::new() }
    }

    /// The key of the next message that says `content`: `QUERY-NUMBER-DIGEST`, where DIGEST is 32
    /// hexadecimal digits of the table, the content and the number among equal ones.
    pub fn next(&mut self, content: &[u8]) -> String {
        let content = digest_of(content);
        let equal = self.equal.entry(content).or_default();
        let mut context = Context::new(&SHA256);
        for part in [self.table.as_bytes(), &[0], &content, &equal.to_le_bytes()] {
            context.update(part);
        }
        *equal += 1;
        let digest = context.finish();
        let hex: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{hex}", self.query_id, self.batch_id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(batch: u64, contents: &[&str]) -> Vec<String> {
        let mut keys = Keys::new("q", "t", BatchId(batch));
        contents.iter().map(|content| keys.next(content.as_bytes())).collect()
    }

    #[test]
    fn another_order_gives_the_same_keys() {
        let (one, other) = (keys(3, &["a", "b", "a", "c"]), keys(3, &["c", "a", "a", "b"]));
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys
        };
        assert_eq!(one[0], other[1], "the first of equal ones");
        assert_eq!(one[2], other[2], "the second");
        assert_eq!(sorted(one.clone()), sorted(other));
        assert_eq!(one.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }

    #[test]
    fn other_micro_batches_tables_and_queries_have_other_keys() {
        let key = |query, table, batch| Keys::new(query, table, BatchId(batch)).next(b"a");
        let key0 = key("q", "t", 0);
        assert!(key0.starts_with("q-0-") && key0.len() == 36, "{key0}");
        for other in [key("p", "t", 0), key("q", "u", 0), key("q", "t", 1)] {
            assert_ne!(key0, other);
        }
    }
}
