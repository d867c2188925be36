//! Spreading rows over shards by the hash of their keys.

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// A fixed seed: which shard a key is in, and so the order of output rows, is the same in every
/// run.
const SEED: u64 = 0x6d69_6c6c;
/// The seed where the rows of one shard are spread further: by another hash, as all of them have
/// something of the first one in common.
const SEED_WITHIN_SHARD: u64 = 0x7374_7265;

/// Spreads rows over a number of shards: the rows of one key always to the same.
pub struct Spread {
    shards: usize,
    hashing: RandomState,
}

impl Spread {
    /// Over `shards` shards.
    pub fn new(shards: usize) -> Self {
        assert!(shards > 0, "there is at least one shard");
        Self { shards, hashing: RandomState::with_seed(SEED) }
    }

    /// Over `parts` parts of what is in one shard.
    pub fn within_shard(parts: usize) -> Self {
        Self { hashing: RandomState::with_seed(SEED_WITHIN_SHARD), ..Self::new(parts) }
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
                // The upper bits: the hash tables within a shard use the lower ones of a similar
                // hash, and would crowd if all their keys had those in common.
                places[(hash >> 32) as usize % self.shards].push(place);
            }
            for (share, places) in shares.iter_mut().zip(places) {
                match places.len() {
                    0 => {}
                    all if all == rows.num_rows() => share.push(rows.clone()),
                    _ => share.push(picked(rows, places)?),
                }
            }
        }
        Ok(shares)
    }
}

/// The rows at `places`. What is picked of lists has room for up to twice as much, as its length is
/// not known before; the state keeps it as it is here, so that room is given back.
fn picked(rows: &RecordBatch, places: Vec<u32>) -> Result<RecordBatch> {
    let rows = take_record_batch(rows, &UInt32Array::from(places))?;
    if !rows.columns().iter().any(|column| column.data_type().is_nested()) {
        return Ok(rows);
    }
    let (schema, mut columns, _) = rows.into_parts();
    columns.iter_mut().for_each(Array::shrink_to_fit);
    Ok(RecordBatch::try_new(schema, columns)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn keys_of_any_kind_are_spread_evenly() {
        const KEYS: i64 = 64_000;
        let minutes =
            TimestampMicrosecondArray::from_iter_values((0..KEYS).map(|at| at * 60_000_000));
        let numbers = Int64Array::from_iter_values(0..KEYS);
        let rounded = Int64Array::from_iter_values((0..KEYS).map(|at| at << 32));
        let texts = StringArray::from_iter_values((0..KEYS).map(|at| at.to_string()));
        let columns: [(&str, ArrayRef); 4] = [
            ("minutes", Arc::new(minutes)),
            ("numbers", Arc::new(numbers)),
            ("rounded", Arc::new(rounded)),
            ("texts", Arc::new(texts)),
        ];
        for (name, keys) in columns {
            let rows = RecordBatch::try_from_iter([(name, keys)]).unwrap();
            for shards in [2, 3, 64] {
                let spread = Spread::new(shards);
                let shares =
                    spread.rows(std::slice::from_ref(&rows), |rows| rows.columns().to_vec());
                let mean = KEYS as usize / shards;
                for share in shares.unwrap() {
                    let found: usize = share.iter().map(RecordBatch::num_rows).sum();
                    assert!(
                        found.abs_diff(mean) < mean / 3,
                        "{name}: {found} of {mean} in {shards}"
                    );
                }
            }
        }
    }
}
