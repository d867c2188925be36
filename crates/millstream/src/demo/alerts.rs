//! Alerts on the terminal, as they are published.
//!
//! The demo's pipelines write to an ordinary connector; a [`Tee`] around it sees each micro-batch
//! again once the sink has acknowledged it, and hands its rows to a thread that prints. A terminal
//! that is too slow misses alerts; the files have them all.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Registry, Table};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Ending, Failure, OtherQuery, Output, Published, Sink,
};
use millstream_engine::api::source::Source;
use millstream_store::env::{Env, Thread};

use crate::screen::Screen;

/// The connector that the demo's pipelines write to.
const SINK: &str = "json";
/// Micro-batches with alerts that wait to be printed.
const WAITING_MAX: usize = 256;

/// Prints alerts until [`Alerts::finish`].
pub struct Alerts {
    sender: SyncSender<Message>,
    thread: Thread,
}

enum Message {
    Rows { flow: Arc<str>, rows: RecordBatch },
    End,
}

impl Alerts {
    /// Prints on standard output, above the live lines of `screen`.
    pub fn start(env: &Env, screen: &Screen) -> Self {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let screen = screen.clone();
        let thread = env.thread("alerts", move || print_all(&receiver, &screen));
        Self { sender, thread }
    }

    /// The connectors of `registry`, with what is written to files also printed.
    pub fn registry(&self, registry: &Registry) -> Registry {
        let connectors = registry.names().filter_map(|name| {
            let inner = Arc::clone(registry.get(name)?);
            match name {
                SINK => Some(Arc::new(Tee { inner, alerts: self.sender.clone() }) as _),
                _ => Some(inner),
            }
        });
        Registry::new(connectors.collect())
    }

    /// Waits until everything is printed.
    pub fn finish(self) {
        // It fails if the thread has ended already, which is what is wanted.
        let _ = self.sender.send(Message::End);
        drop(self.thread);
    }
}

fn print_all(receiver: &Receiver<Message>, screen: &Screen) {
    let colours = super::colours();
    while let Ok(Message::Rows { flow, rows }) = receiver.recv() {
        let text = match lines(&flow, &rows, colours) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "alerts cannot be shown; the files have them");
                continue;
            }
        };
        // A reader that has gone away has seen enough.
        let _ = screen.above(|| io::stdout().write_all(text.as_bytes()));
    }
}

/// A line per row: the flow, the time of day, and the other columns' values.
fn lines(flow: &str, rows: &RecordBatch, colours: bool) -> Result<String, ArrowError> {
    let options = FormatOptions::default().with_timestamp_format(Some("%H:%M:%S%.3f"));
    let columns: Vec<_> = rows.columns().iter().map(without_zone).collect();
    let columns = columns.iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let (bold, plain) = if colours { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let mut text = String::new();
    for row in 0..rows.num_rows() {
        let values: Vec<_> = columns.iter().map(|column| column.value(row).to_string()).collect();
        text.push_str(&format!("{bold}ALERT {flow:11}{plain}  {}\n", values.join("  ")));
    }
    Ok(text)
}

/// Moments as they are in UTC; their zone's name would need a time zone database to be shown.
fn without_zone(column: &ArrayRef) -> ArrayRef {
    match column.as_any().downcast_ref::<TimestampMicrosecondArray>() {
        Some(moments) => Arc::new(moments.clone().with_timezone_opt::<Arc<str>>(None)),
        None => Arc::clone(column),
    }
}

/// A connector whose sinks' rows are printed, too.
struct Tee {
    inner: Arc<dyn Connector>,
    alerts: SyncSender<Message>,
}

impl Connector for Tee {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.inner.options()
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        self.inner.check_source(table, mode)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        self.inner.check_sink(table, schema)
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        self.inner.source(table, mode, context)
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let inner = self.inner.sink(table, schema, context)?;
        let (flow, alerts) = (context.flow.as_str().into(), self.alerts.clone());
        Ok(Box::new(TeeSink { inner, flow, alerts }))
    }
}

struct TeeSink {
    inner: Box<dyn Sink>,
    flow: Arc<str>,
    alerts: SyncSender<Message>,
}

#[async_trait]
impl Sink for TeeSink {
    fn description(&self) -> String {
        self.inner.description()
    }

    fn delivery(&self) -> Delivery {
        self.inner.delivery()
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.inner.open().await
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        self.inner.other_queries().await
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.inner.ready().await
    }

    async fn room(&mut self) -> Result<(), Failure> {
        self.inner.room().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let rows: Vec<_> =
            output.record_batches().filter(|rows| rows.num_rows() > 0).cloned().collect();
        let acknowledgement = self.inner.publish(output).await?;
        if rows.is_empty() {
            return Ok(acknowledgement);
        }
        let (flow, alerts) = (Arc::clone(&self.flow), self.alerts.clone());
        let announce = move || {
            for rows in rows {
                // Full: the terminal is too slow, and a micro-batch does not wait for it.
                let _ = alerts.try_send(Message::Rows { flow: Arc::clone(&flow), rows });
            }
        };
        Ok(match acknowledgement {
            Acknowledgement::Done => {
                announce();
                Acknowledgement::Done
            }
            Acknowledgement::Later(accepted) => Acknowledgement::Later(Box::pin(async move {
                let at_us = accepted.await?;
                announce();
                Ok(at_us)
            })),
        })
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        self.inner.micro_batches_in_flight_max()
    }

    async fn flush(&mut self) {
        self.inner.flush().await;
    }

    async fn end(&mut self, ending: Ending) {
        self.inner.end(ending).await;
    }

    async fn close(&mut self) -> Result<(), Failure> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};

    use super::*;

    #[test]
    fn an_alert_is_a_line_with_the_time_of_day() {
        let time = TimestampMicrosecondArray::from(vec![1_767_225_601_123_456]);
        let rows = RecordBatch::try_from_iter([
            ("ts", Arc::new(time.with_timezone("UTC")) as ArrayRef),
            ("generator", Arc::new(StringArray::from(vec!["generator-7"]))),
            ("celsius", Arc::new(Float64Array::from(vec![101.5]))),
        ]);
        let text = lines("temperature", &rows.unwrap(), false).unwrap();
        assert_eq!(text, "ALERT temperature  00:00:01.123  generator-7  101.5\n");
    }
}
