//! Which rows are sent together.
//!
//! Rows of one partition are one mutation for the server, written as a whole and by the same
//! replicas; so they share an unlogged batch, up to a size. Rows of several partitions never do.

use std::collections::HashMap;

use scylla::errors::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use thiserror::Error;

use crate::rows::{Row, Value};

/// Rows of one partition, sent at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) rows: Vec<Row>,
    bytes: usize,
}

/// Puts rows into requests of at most so many rows and bytes; a single larger row is one, too.
pub(crate) fn requests(rows: Vec<Row>, rows_max: usize, bytes_max: usize) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    let mut open: HashMap<Vec<u8>, usize> = HashMap::new();
    for row in rows {
        let bytes = row.cells.len();
        if rows_max > 1 {
            if let Some(at) = open.get(row.partition()) {
                let request = &mut requests[*at];
                if request.rows.len() < rows_max && request.bytes + bytes <= bytes_max {
                    request.rows.push(row);
                    request.bytes += bytes;
                    continue;
                }
            }
            open.insert(row.partition().to_vec(), requests.len());
        }
        requests.push(Request { rows: vec![row], bytes });
    }
    requests
}

/// One of the two statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Remove,
    Write,
}

/// The values of a statement about a row.
pub(crate) struct Values<'a> {
    pub(crate) row: &'a Row,
    pub(crate) statement: Statement,
    /// The micro-batch's time, microseconds since the epoch.
    pub(crate) time: i64,
}

impl Request {
    /// Its statements, in the order in which they count.
    pub(crate) fn values(&self, time: i64) -> Vec<Values<'_>> {
        let mut values = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            if row.removes {
                values.push(Values { row, statement: Statement::Remove, time });
            }
            if row.writes {
                values.push(Values { row, statement: Statement::Write, time });
            }
        }
        values
    }
}

/// The statement has other values than those that there are.
#[derive(Debug, Error)]
#[error("the statement has {wanted} values, and there are {found}")]
struct WrongCount {
    wanted: usize,
    found: usize,
}

impl SerializeRow for Values<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self.statement {
            Statement::Remove => {
                append_time(self.time, writer)?;
                append_cells(self.row.key(), writer)?;
            }
            Statement::Write => {
                append_cells(&self.row.cells, writer)?;
                append_time(self.time + 1, writer)?;
            }
        }
        check_count(context, writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// The cells of a key, of a statement that has nothing else.
pub(crate) struct KeyCells<'a>(pub(crate) &'a [u8]);

impl SerializeRow for KeyCells<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        append_cells(self.0, writer)?;
        check_count(context, writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

fn check_count(
    context: &RowSerializationContext<'_>,
    writer: &RowWriter<'_>,
) -> Result<(), SerializationError> {
    let (wanted, found) = (context.columns().len(), writer.value_count());
    match wanted == found {
        true => Ok(()),
        false => Err(SerializationError::new(WrongCount { wanted, found })),
    }
}

fn append_time(time: i64, writer: &mut RowWriter<'_>) -> Result<(), SerializationError> {
    let written = writer.make_cell_writer().set_value(&time.to_be_bytes());
    written.map(drop).map_err(SerializationError::new)
}

fn append_cells(bytes: &[u8], writer: &mut RowWriter<'_>) -> Result<(), SerializationError> {
    for cell in Row::cells(bytes) {
        let to = writer.make_cell_writer();
        match cell.value {
            Value::Unset => drop(to.set_unset()),
            Value::Null => drop(to.set_null()),
            Value::Bytes(bytes) => {
                to.set_value(bytes).map(drop).map_err(SerializationError::new)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(partition: &[u8], bytes: usize) -> Row {
        let cells = [partition, &vec![0; bytes - partition.len()]].concat();
        let partition_bytes = partition.len();
        Row { cells, partition_bytes, key_bytes: partition_bytes, removes: false, writes: true }
    }

    #[test]
    fn rows_of_one_partition_share_a_request_up_to_a_size() {
        let counts = |rows: Vec<Row>, rows_max, bytes_max| -> Vec<usize> {
            requests(rows, rows_max, bytes_max).iter().map(|request| request.rows.len()).collect()
        };
        let mixed = || vec![row(b"a", 10), row(b"b", 10), row(b"a", 10), row(b"a", 10)];
        assert_eq!(counts(mixed(), 10, 100), [3, 1]);
        assert_eq!(counts(mixed(), 2, 100), [2, 1, 1]);
        assert_eq!(counts(mixed(), 10, 20), [2, 1, 1]);
        assert_eq!(counts(mixed(), 1, 100), [1, 1, 1, 1]);
        assert_eq!(counts(vec![row(b"a", 500), row(b"a", 10)], 10, 100), [1, 1]);
    }

    #[test]
    fn a_row_that_was_deleted_and_written_has_both_statements_in_order() {
        let both = Row { removes: true, ..row(b"a", 10) };
        let requests = requests(vec![both, row(b"b", 10)], 10, 100);
        let statements: Vec<Statement> =
            requests[0].values(7).iter().map(|values| values.statement).collect();
        assert_eq!(statements, [Statement::Remove, Statement::Write]);
        assert_eq!(requests[1].values(7).len(), 1);
    }
}
