//! Rows become requests.

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use millstream_formats::RecordEncoder;

use super::options::BodyKind;
use crate::notify::Message;
use crate::notify::error::DeliveryError;
use crate::notify::keys::{Keys, digest_of};
use crate::notify::rows::objects;

/// A request that is to be sent.
#[derive(Debug)]
pub struct Request {
    /// The same for every attempt and every replay.
    pub key: String,
    /// JSON.
    pub body: Bytes,
    /// The rows in it.
    rows: Vec<Bytes>,
}

impl Message for Request {
    fn key(&self) -> &str {
        &self.key
    }

    fn rows(&self) -> &[Bytes] {
        &self.rows
    }

    fn content(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The requests of a micro-batch, each with a number where those with the same one stay in order.
pub fn requests<'a>(
    encoder: &RecordEncoder,
    kind: BodyKind,
    order_by: Option<usize>,
    mut keys: Keys<'_>,
    rows: impl Iterator<Item = &'a RecordBatch>,
) -> Result<Vec<(Option<u64>, Request)>, DeliveryError> {
    let mut all = Vec::new();
    for rows in rows {
        let objects = objects(encoder, rows)?;
        let orders = order_by.map(|column| orders(rows, column));
        let order = |row| orders.as_ref().map(|orders: &Vec<u64>| orders[row]);
        all.extend(objects.into_iter().enumerate().map(|(row, object)| (order(row), object)));
    }
    let BodyKind::Array(rows_max) = kind else {
        let request = |(order, body): (Option<u64>, Bytes)| {
            let (key, rows) = (keys.next(&body), vec![body.clone()]);
            (order, Request { key, body, rows })
        };
        return Ok(all.into_iter().map(request).collect());
    };
    // A replay may have the rows in another order: only sorted they make the same arrays.
    all.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
    let arrays = all.chunks(rows_max).map(|rows| {
        let rows: Vec<Bytes> = rows.iter().map(|(_, object)| object.clone()).collect();
        let body = [b"[", &*rows.join(&b","[..]), b"]"].concat();
        (None, Request { key: keys.next(&body), body: body.into(), rows })
    });
    Ok(arrays.collect())
}

/// A number for each row that follows from its value in `column`.
fn orders(rows: &RecordBatch, column: usize) -> Vec<u64> {
    let options = FormatOptions::new();
    let Ok(values) = ArrayFormatter::try_new(rows.column(column), &options) else {
        // All in one lane, so in order.
        return vec![0; rows.num_rows()];
    };
    let number = |row| {
        let digest = digest_of(values.value(row).to_string().as_bytes());
        u64::from_le_bytes(digest[..8].try_into().expect("there are eight"))
    };
    (0..rows.num_rows()).map(number).collect()
}
