//! Several files read at once and given in their order.
//!
//! Each lane is a thread that reads every n-th file, a few record batches ahead of whoever takes
//! them. The taker goes from lane to lane with the files, so order is kept, and what is in memory
//! is bounded by the lanes and not by the files.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use delta_kernel::{EngineData, KernelError, KernelResult};
use millstream_store::env::{Env, Thread};

/// Record batches that a lane is ahead: about those of one part of a checkpoint.
const AHEAD: usize = 8;
const LANES_MAX: usize = 4;

pub(super) type Item = KernelResult<Box<dyn EngineData>>;
pub(super) type Rows = Box<dyn Iterator<Item = Item> + Send>;

/// The rows of `files`, each read by `read`.
pub(super) fn in_order<F: Send + Sync + 'static>(
    env: &Env,
    files: Vec<F>,
    read: impl Fn(&F) -> Rows + Send + Sync + 'static,
) -> Rows {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let lanes = files.len().min(cores).min(LANES_MAX);
    if lanes <= 1 {
        return Box::new(files.into_iter().flat_map(move |file| read(&file)));
    }
    let (count, shared) = (files.len(), Arc::new((files, read)));
    let (mut receivers, mut threads) = (Vec::new(), Vec::new());
    for lane in 0..lanes {
        let (sender, receiver) = sync_channel(AHEAD);
        let shared = Arc::clone(&shared);
        threads.push(env.thread("lake-read", move || {
            let (files, read) = &*shared;
            for file in files.iter().skip(lane).step_by(lanes) {
                let items = read(file).map(Some).chain(std::iter::once(None));
                for item in items {
                    // Nobody takes any more.
                    if sender.send(item).is_err() {
                        return;
                    }
                }
            }
        }));
        receivers.push(receiver);
    }
    Box::new(InOrder { receivers, file: 0, count, _threads: threads })
}

struct InOrder {
    /// By lane; `None` ends a file. Dropped first, which ends the threads.
    receivers: Vec<Receiver<Option<Item>>>,
    /// The one whose rows are taken.
    file: usize,
    count: usize,
    _threads: Vec<Thread>,
}

impl Iterator for InOrder {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.file < self.count {
            match self.receivers[self.file % self.receivers.len()].recv() {
                Ok(Some(item)) => return Some(item),
                Ok(None) => self.file += 1,
                Err(_) => {
                    self.file = self.count;
                    let problem = "a thread that reads files has ended too early";
                    return Some(Err(KernelError::generic(problem)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;
    use delta_kernel::engine::arrow_data::ArrowEngineData;

    use super::*;

    fn batch(value: i64) -> Item {
        let column: arrow::array::ArrayRef = Arc::new(Int64Array::from(vec![value]));
        let rows = RecordBatch::try_from_iter([("n", column)]).expect("a column");
        Ok(Box::new(ArrowEngineData::new(rows)))
    }

    fn value(item: Item) -> i64 {
        let rows = ArrowEngineData::try_from_engine_data(item.expect("rows")).expect("Arrow's");
        rows.record_batch().column(0).as_primitive::<Int64Type>().value(0)
    }

    /// File `number` has `number` times three rows.
    fn read(number: &i64) -> Rows {
        let number = *number;
        Box::new((0..number * 3).map(move |row| batch(number * 1_000 + row)))
    }

    #[test]
    fn rows_come_in_the_order_of_the_files() {
        for files in [0, 1, 2, 3, 20] {
            let found = in_order(&Env::real(), (0..files).collect(), read).map(value);
            let expected = (0..files).flat_map(|file| (0..file * 3).map(move |n| file * 1_000 + n));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn it_can_be_left() {
        let mut rows = in_order(&Env::real(), (5..50).collect(), read);
        assert_eq!(rows.next().map(value), Some(5_000));
    }

    #[test]
    fn an_error_comes_where_it_belongs() {
        let failing = |number: &i64| match number {
            2 => Box::new(std::iter::once(Err(KernelError::generic("broken")))) as Rows,
            _ => read(number),
        };
        let found: Vec<_> = in_order(&Env::real(), (0..4).collect(), failing).collect();
        let place = found.iter().position(Result::is_err);
        assert_eq!((place, found.len()), (Some(3), 3 + 1 + 9));
    }
}
