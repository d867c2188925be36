//! The query of `millstream-bench windowed`, and what it should give.

use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::ValueEnum;
use millstream_store::env::Env;

use crate::engine::sql_options;
use crate::error::Error;
use crate::messages::{FIRST_ID, IDS};
use crate::read_back;

/// What is made of the messages of a key in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// How many there are, and the sum of their lengths.
    Count,
    /// A list of them.
    List,
}

/// A query by key and window.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// What is computed.
    pub form: Form,
    /// What the source table uses, with its options.
    pub source: &'a str,
    /// The Delta table; `None` for rows that are dropped.
    pub table: Option<&'a Path>,
    /// Length of a window.
    pub window_s: u32,
    /// How far the watermark is behind the newest event.
    pub delay_s: u32,
    /// More options of the sink.
    pub of_writer: &'a [(&'a str, &'a str)],
}

impl Query<'_> {
    /// The pipeline file.
    pub fn pipeline(&self) -> String {
        let Self { source, window_s, delay_s, .. } = self;
        let table = self.table.map(|table| table.display().to_string());
        let path = table.as_deref().map(|table| ("path", table));
        let options: Vec<_> = path.into_iter().chain(self.of_writer.to_vec()).collect();
        let sink = if table.is_some() { "delta" } else { "noop" };
        let made = match self.form {
            Form::Count => "count(*) AS messages, sum(length(value)) AS bytes",
            Form::List => "count(*) AS messages, collect_list(value) AS list",
        };
        format!(
            "CREATE TABLE input USING {source};\n\
             CREATE TABLE output USING {sink} OPTIONS ({});\n\
             CREATE FLOW windowed AS INSERT INTO output\n\
             SELECT window.start AS start, id, {made} FROM (\n\
             SELECT timestamp, get_json_object(value, '$.logStreamId') AS id, value FROM (\n\
             SELECT timestamp, CAST(value AS STRING) AS value\n\
             FROM STREAM input WATERMARK timestamp DELAY OF INTERVAL {delay_s} SECONDS))\n\
             GROUP BY window(timestamp, '{window_s} seconds'), id;\n",
            sql_options(&options, &[]),
        )
    }
}

/// What is in a topic or in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsFound {
    /// Messages in all groups.
    pub messages: u64,
    /// Pairs of window and id.
    pub groups: u64,
    /// The sum of the messages' ids.
    ids: u64,
}

impl RowsFound {
    fn add(&mut self, rows: &RecordBatch) {
        let counts = rows.column(1).as_primitive::<Int64Type>().values();
        for (id, count) in rows.column(0).as_string::<i32>().iter().zip(counts) {
            let id: u64 = id.and_then(|id| id.parse().ok()).unwrap_or(0);
            let count = u64::try_from(*count).unwrap_or(0);
            self.groups += 1;
            self.messages += count;
            self.ids = self.ids.wrapping_add(id.wrapping_mul(count));
        }
    }

    /// Messages of this, read from `table`, less those of `sent`. Errors if there are as many, but
    /// others, or in other groups.
    pub fn surplus(&self, sent: &Self, table: &Path) -> Result<i64, Error> {
        if self.messages == sent.messages && self != sent {
            let problem = format!("it has {self:?}, but the topic {sent:?}");
            return Err(Error::Result { path: table.to_owned(), problem });
        }
        let signed = |count: u64| i64::try_from(count).expect("messages are few");
        Ok(signed(self.messages) - signed(sent.messages))
    }
}

/// Reads the table back.
pub fn read(env: &Env, table: &Path) -> Result<RowsFound, Error> {
    let mut found = RowsFound::default();
    read_back::table(env, table, &["id", "messages"], |rows| found.add(rows))?;
    Ok(found)
}

/// Counts what is sent.
#[derive(Default)]
pub struct Sent {
    /// What the table should have.
    pub found: RowsFound,
    /// By window, which ids it has.
    seen: Vec<Vec<bool>>,
}

impl Sent {
    /// Adds a message of window number `window`.
    pub fn add(&mut self, window: usize, id: u64) {
        if self.seen.len() <= window {
            self.seen.resize_with(window + 1, || vec![false; IDS]);
        }
        let key = usize::try_from(id - FIRST_ID).expect("a small number");
        let seen = &mut self.seen[window][key];
        self.found.groups += u64::from(!std::mem::replace(seen, true));
        self.found.messages += 1;
        self.found.ids = self.found.ids.wrapping_add(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_pairs_of_window_and_id() {
        let mut sent = Sent::default();
        for (window, id) in [(0, FIRST_ID), (0, FIRST_ID), (1, FIRST_ID), (1, FIRST_ID + 1)] {
            sent.add(window, id);
        }
        assert_eq!((sent.found.groups, sent.found.messages), (3, 4));
        let other = RowsFound { groups: 2, ..sent.found };
        assert!(other.surplus(&sent.found, Path::new("table")).is_err());
        let fewer = RowsFound { messages: 3, ..sent.found };
        assert_eq!(fewer.surplus(&sent.found, Path::new("table")).ok(), Some(-1));
    }
}
