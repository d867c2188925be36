//! Spreading rows over shards by the hash of their keys.

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// Spreads rows over a number of shards: the rows of one key always to the same.
pub struct Spread {
    shards: usize,
    hashing: RandomState,
}

impl Spread {
    /// Over `shards` shards.
    pub fn new(shards: usize) -> Self {
        assert!(shards > 0, "there is at least one shard");
        Self { shards, hashing: RandomState::with_seed(0x6d69_6c6c) }
    }

    /// By shard, its rows in order, without empty record batches. `keys` gives the key columns.
    pub fn rows(
        &self,
        rows: &[RecordBatch],
        keys: impl Fn(&RecordBatch) -> Vec<ArrayRef>,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let mut shares = vec![Vec::new(); self.shards];
        let mut hashes = Vec::new();
        for rows in rows.iter().filter(|rows| rows.num_rows() > 0) {
            let keys = keys(rows);
            if self.shards == 1 || keys.is_empty() {
                shares[0].push(rows.clone());
                continue;
            }
            hashes.clear();
            hashes.resize(rows.num_rows(), 0);
            create_hashes(&keys, &self.hashing, &mut hashes)?;
            let mut places = vec![Vec::new(); self.shards];
            for (place, hash) in (0_u32..).zip(&hashes) {
                // The upper bits: tables of groups use the lower ones of a like hash.
                places[(hash >> 32) as usize % self.shards].push(place);
            }
            for (share, places) in shares.iter_mut().zip(places) {
                match places.len() {
                    0 => {}
                    all if all == rows.num_rows() => share.push(rows.clone()),
                    _ => share.push(take_record_batch(rows, &UInt32Array::from(places))?),
                }
            }
        }
        Ok(shares)
    }
}
