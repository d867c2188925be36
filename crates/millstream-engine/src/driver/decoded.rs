//! Rows that several plans read: decoded once, and then shared.
//!
//! A split can be read only once, and decoding is most of what a micro-batch costs. With several
//! plans over one source its splits are decoded here, into the columns that any of them asks for,
//! on as many cores as a scan would use. Each plan then gets splits that only pick columns out of
//! what is in memory.
//!
//! The same is done where malformed records are dead letters: they are gathered while the splits
//! are decoded, and the plans see the others only.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_store::env::Env;

use crate::api::dead_letter::Letter;
use crate::api::error::ArrowBug;
use crate::api::source::{Failure, RecordBatches, Records, SourcePartition, Split, Traced};
use crate::plan::failing_rows::records_of;
use crate::plan::stream_scan::spread;
use crate::state::event_times::{EventTimes, watched_read};

/// Indices of a source's columns, ascending.
pub type Columns = Arc<[usize]>;

/// By source, the columns that at least one plan reads. `plans` has, for each plan, the columns it
/// reads of each source; `None` where it does not read the source at all.
pub fn columns_of_any(plans: impl Iterator<Item = Vec<Option<Vec<usize>>>>) -> Vec<Columns> {
    let mut of_any: Vec<Vec<usize>> = Vec::new();
    for plan in plans {
        of_any.resize(of_any.len().max(plan.len()), Vec::new());
        for (columns, read) in of_any.iter_mut().zip(plan) {
            columns.extend(read.into_iter().flatten());
        }
    }
    let sorted = of_any.into_iter().map(|mut columns| {
        columns.sort_unstable();
        columns.dedup();
        columns.into()
    });
    sorted.collect()
}

/// The rows of a micro-batch, by source.
pub struct Decoded {
    sources: Vec<Vec<Share>>,
    letters: Vec<Vec<Letter>>,
}

/// What one core decoded, in order.
#[derive(Clone)]
struct Share {
    columns: Columns,
    rows: Arc<[RecordBatch]>,
    /// What the rows were made of; `None` where nobody knows.
    records: Option<Vec<Arc<dyn Records>>>,
    /// Whether malformed records are letters.
    apart: bool,
}

/// What is read of a source: the columns, and what is looked at meanwhile.
#[derive(Clone)]
pub struct Reading {
    pub columns: Columns,
    /// The event times to watch.
    pub watched: Option<Arc<EventTimes>>,
    /// Whether malformed records are letters.
    pub apart: bool,
}

/// Decodes the splits of each source; a large micro-batch on up to `partitions` cores.
pub async fn decode(
    env: &Env,
    inputs: Vec<Vec<Box<dyn Split>>>,
    readings: &[Reading],
    partitions: usize,
) -> Result<Decoded, Failure> {
    let mut sources = Vec::with_capacity(inputs.len());
    let mut letters = Vec::with_capacity(inputs.len());
    for (splits, reading) in inputs.into_iter().zip(readings) {
        let mut shares = spread(splits, partitions).into_iter();
        let first = shares.next();
        let elsewhere = shares.map(|splits| {
            let reading = reading.clone();
            env.spawn_on_cores("decode", async move { Share::decode(splits, &reading) })
        });
        let elsewhere: Vec<_> = elsewhere.collect();
        let here = first.map(|splits| Share::decode(splits, reading));
        let mut decoded: Vec<_> = here.into_iter().collect();
        for task in elsewhere {
            decoded.push(task.join().await);
        }
        let decoded = decoded.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (shares, rejected): (Vec<_>, Vec<_>) = decoded.into_iter().unzip();
        sources.push(shares);
        letters.push(rejected.into_iter().flatten().collect());
    }
    Ok(Decoded { sources, letters })
}

/// The input of one plan: what was decoded, or else `splits` themselves, once.
pub fn input(
    decoded: Option<&Decoded>,
    splits: &mut Vec<Vec<Box<dyn Split>>>,
) -> Vec<Vec<Box<dyn Split>>> {
    match decoded {
        Some(decoded) => decoded.splits(),
        None => std::mem::take(splits),
    }
}

impl Decoded {
    /// What was rejected, by source; once.
    pub fn take_letters(&mut self) -> Vec<Vec<Letter>> {
        std::mem::take(&mut self.letters)
    }

    /// The rows as splits, for one plan.
    pub fn splits(&self) -> Vec<Vec<Box<dyn Split>>> {
        let of_source = |shares: &Vec<Share>| {
            shares.iter().map(|share| Box::new(share.clone()) as Box<dyn Split>).collect()
        };
        self.sources.iter().map(of_source).collect()
    }
}

impl Share {
    fn decode(
        splits: Vec<Box<dyn Split>>,
        reading: &Reading,
    ) -> Result<(Self, Vec<Letter>), Failure> {
        let Reading { columns, watched, apart } = reading;
        let (owned, records, apart) = (Arc::clone(columns), records_of(&splits), *apart);
        if !apart {
            let read = |split| watched_read(split, columns, watched.clone());
            let rows = splits.into_iter().flat_map(read).collect::<Result<_, _>>()?;
            return Ok((Self { columns: owned, rows, records, apart }, Vec::new()));
        }
        let (mut rows, mut letters) = (Vec::new(), Vec::new());
        for split in splits {
            let partition = split.partition();
            let mut read = split.read_with_letters(columns, &mut letters)?;
            if let Some(watched) = watched {
                read.iter().for_each(|rows| watched.see_columns(partition, columns, rows));
            }
            rows.append(&mut read);
        }
        Ok((Self { columns: owned, rows: rows.into(), records, apart }, letters))
    }
}

impl Split for Share {
    fn rows(&self) -> u64 {
        self.rows.iter().map(|rows| rows.num_rows() as u64).sum()
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let place = |column: &usize| {
            self.columns.binary_search(column).expect("it was decoded for every plan")
        };
        let places: Vec<usize> = projection.iter().map(place).collect();
        let rows = Arc::clone(&self.rows);
        let picked = (0..rows.len()).map(move |at| {
            let picked = rows[at].project(&places);
            picked.map_err(|error| ArrowBug(error).into())
        });
        Box::new(picked)
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        let of = |records: &Arc<dyn Records>| -> Arc<dyn Records> {
            let (records, columns) = (Arc::clone(records), Arc::clone(&self.columns));
            Arc::new(OfShare { records, columns, apart: self.apart })
        };
        self.records.iter().flatten().map(of).collect()
    }
}

/// Records that were decoded for several plans: with the columns of all of them, as which records
/// are malformed depends on these.
struct OfShare {
    records: Arc<dyn Records>,
    columns: Columns,
    apart: bool,
}

impl Records for OfShare {
    fn partition(&self) -> Option<SourcePartition> {
        self.records.partition()
    }

    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        let place = |column: &usize| {
            self.columns.binary_search(column).expect("it was decoded for every plan")
        };
        let places: Vec<usize> = projection.iter().map(place).collect();
        let picked = self.records.read(&self.columns, self.apart)?.into_iter().map(|traced| {
            let rows = traced.rows.project(&places);
            let rows = rows.map_err(ArrowBug)?;
            Ok(Traced { rows, ..traced })
        });
        picked.collect()
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        self.records.letter(number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    /// Three columns, `v`, `10 v` and `100 v`; counts how often it is decoded.
    struct Counted {
        values: Vec<i64>,
        decoded: Arc<AtomicUsize>,
    }

    impl Split for Counted {
        fn rows(&self) -> u64 {
            self.values.len() as u64
        }

        fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
            self.decoded.fetch_add(1, Ordering::Relaxed);
            let columns = projection.iter().map(|column| {
                let factor = 10_i64.pow(u32::try_from(*column).unwrap());
                let values = self.values.iter().map(|value| value * factor);
                let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
                (format!("c{column}"), values)
            });
            Box::new(std::iter::once(Ok(RecordBatch::try_from_iter(columns).unwrap())))
        }
    }

    fn values(splits: Vec<Box<dyn Split>>, column: usize) -> Vec<i64> {
        let rows = splits.into_iter().flat_map(|split| split.read(&[column]));
        let of = |rows: Result<RecordBatch, Failure>| {
            rows.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()
        };
        rows.flat_map(of).collect()
    }

    #[test]
    fn columns_are_those_of_any_plan() {
        let plans = [vec![Some(vec![2, 0]), None], vec![Some(vec![0, 1]), Some(vec![])]];
        let found = columns_of_any(plans.into_iter());
        assert_eq!(
            found.iter().map(|columns| columns.to_vec()).collect::<Vec<_>>(),
            [vec![0, 1, 2], vec![]]
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_plan_sees_all_rows_of_splits_that_are_read_once() {
        for rows in [3_i64, 5_000] {
            let decoded = Arc::new(AtomicUsize::new(0));
            let split = |part: i64| {
                let (values, decoded) = ((part * rows..(part + 1) * rows).collect(), &decoded);
                Box::new(Counted { values, decoded: Arc::clone(decoded) }) as Box<dyn Split>
            };
            let splits: Vec<_> = (0..3).map(split).collect();
            let reading = Reading { columns: [0, 2].into(), watched: None, apart: false };
            let input = decode(&Env::real(), vec![splits], &[reading], 2).await.unwrap();
            assert_eq!(decoded.load(Ordering::Relaxed), 3);
            for (column, factor) in [(2, 100), (0, 1)] {
                let mut found = values(input.splits().remove(0), column);
                if rows > 4_096 {
                    found.sort_unstable();
                }
                let expected: Vec<i64> = (0..3 * rows).map(|v| v * factor).collect();
                assert_eq!(found, expected, "column {column}");
            }
        }
    }
}
