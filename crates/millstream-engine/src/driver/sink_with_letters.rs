//! A sink and the table of the rows that it could not deliver.
//!
//! For the driver both are one sink. A micro-batch goes to the sink first. When that has
//! acknowledged it, the rows that it has put aside ([`Refusals`]) are published to the table, under
//! the same number, and only then the micro-batch counts as accepted. Micro-batches take this way
//! in order, in a task of its own, so that the next ones are under way meanwhile. While letters of
//! one wait for the table, those behind it do, so a table that gathers is not left to its interval
//! then.
//!
//! After a crash the same micro-batch comes again, with the same rows. What the table has of it, it
//! has because the sink was done with it: then the sink does not get it again, whose receiver might
//! answer otherwise this time. Where the table has nothing of it yet, it is delivered again and its
//! refused rows are found again. A sink that does not get it again, since it has published it
//! ([`Delivery::Transactional`]), has kept the refused rows, and gives them when it is opened. So
//! each of them is in the table once, as far as the table is exactly-once.
//!
//! The table's record is part of what the sink says when it is opened, and so recovery compares it
//! with the logs: a checkpoint that was restored from an older copy would give other rows under the
//! numbers that the table has.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Task};
use tokio::sync::{mpsc, oneshot, watch};

use super::dead_letter_sinks::DeadLetterSink;
use crate::api::dead_letter::{Group, Layout, Letter, Stamp};
use crate::api::refusals::{Refusal, Refusals, RefusedRows};
use crate::api::sink::{
    Acknowledgement, BatchId, Classified, Delivery, EndOffsets, Ending, Failure, Kind, OtherQuery,
    Output, Published, RefusedRow, Sink,
};

/// While letters wait for the table: how often it is looked whether other micro-batches wait for
/// them.
const LOOKED_AT: Duration = Duration::from_millis(50);

/// A sink whose refused rows become dead letters.
pub struct SinkWithLetters {
    sink: Box<dyn Sink>,
    /// The table's sink, until the task takes it.
    letters: Option<Box<dyn Sink>>,
    maker: LetterMaker,
    env: Env,
    /// What the letters' table delivers; known once it is open.
    delivery: Option<Delivery>,
    /// The last micro-batch that the table has letters of.
    published: Option<BatchId>,
    running: Option<Running>,
}

/// What makes letters of refused rows.
#[derive(Clone)]
struct LetterMaker {
    refusals: Refusals,
    layout: Layout,
    flow: Arc<str>,
    /// The table's name, for messages.
    table: Arc<str>,
}

/// The task that publishes letters.
struct Running {
    delivered: mpsc::UnboundedSender<Delivered>,
    ending: watch::Sender<Option<Ending>>,
    task: Task<Result<(), Failure>>,
}

/// What the sink has got, micro-batch after micro-batch.
type Inbox = mpsc::UnboundedReceiver<Delivered>;

/// A micro-batch, and where the query stands after it.
struct Place {
    batch_id: BatchId,
    end_offsets: EndOffsets,
}

/// A micro-batch that the sink has got.
struct Delivered {
    place: Place,
    acknowledgement: Acknowledgement,
    accepted: oneshot::Sender<Result<i64, Failure>>,
}

/// Why letters cannot be written.
#[derive(Debug, thiserror::Error)]
enum LettersError {
    /// The table refuses a letter.
    #[error(
        "the table of dead letters {table} refuses a letter: {refused}. Make the table take it, or \
         name another one in 'deadLetter'"
    )]
    Refused { table: Arc<str>, refused: RefusedRow },
    /// The table has letters of what the sink has not published.
    #[error(
        "the table of dead letters {table} has letters up to micro-batch {letters}, but {sink} has \
         published no more than {published}. Was the checkpoint restored from a copy? Restore the \
         newer one, or give the flow another table in 'deadLetter'"
    )]
    Ahead { table: Arc<str>, letters: BatchId, sink: String, published: String },
}

impl Classified for LettersError {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { refused, .. } => refused.kind(),
            Self::Ahead { .. } => Kind::Data,
        }
    }
}

/// A micro-batch before this one has failed, or the run has ended.
#[derive(Debug, thiserror::Error)]
#[error("a micro-batch before this one was not acknowledged")]
struct Ended;

impl Classified for Ended {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}

impl SinkWithLetters {
    /// `sink`, which puts the refused rows of the flow `flow` into `refusals`, and the table
    /// `letters` that gets them.
    pub fn new(
        sink: Box<dyn Sink>,
        refusals: Refusals,
        flow: &str,
        letters: DeadLetterSink,
        env: &Env,
    ) -> Self {
        let DeadLetterSink { name, sink: letters, layout } = letters;
        let maker = LetterMaker { refusals, layout, flow: flow.into(), table: name.into() };
        let (letters, env) = (Some(letters), env.clone());
        Self { sink, letters, maker, env, delivery: None, published: None, running: None }
    }

    /// What is known to be published: what the sink says, or, where it cannot say it, what the
    /// table of letters does. The sink was done with that.
    fn known(&self, of_sink: Option<Published>) -> Result<Option<Published>, Failure> {
        let Some(letters) = self.published else { return Ok(of_sink) };
        if self.sink.delivery() != Delivery::Transactional {
            return Ok(of_sink.or(Some(Published { batch_id: letters, end_offsets: None })));
        }
        let last = of_sink.as_ref().map(|published| published.batch_id);
        if last >= Some(letters) {
            return Ok(of_sink);
        }
        let published = last.map_or("nothing".to_owned(), |last| format!("micro-batch {last}"));
        let (table, sink) = (Arc::clone(&self.maker.table), self.sink.description());
        Err(LettersError::Ahead { table, letters, sink, published }.into())
    }
}

#[async_trait]
impl Sink for SinkWithLetters {
    fn description(&self) -> String {
        self.sink.description()
    }

    fn delivery(&self) -> Delivery {
        match (self.sink.delivery(), self.delivery) {
            // What the table has of a micro-batch says something of it only if it is the same.
            (Delivery::AtLeastOnce, Some(Delivery::Idempotent | Delivery::Transactional)) => {
                Delivery::Idempotent
            }
            (delivery, _) => delivery,
        }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let published = self.sink.open().await?;
        let mut letters = self.letters.take().expect("a sink is opened once");
        self.published = letters.open().await?.map(|published| published.batch_id);
        self.delivery = Some(letters.delivery());
        let published = self.known(published)?;
        let (delivered, inbox) = mpsc::unbounded_channel();
        let (ending, endings) = watch::channel(None);
        let (env, maker) = (self.env.clone(), self.maker.clone());
        let last = self.published;
        let publisher = Publisher { letters, maker, endings, env, last, is_told: false };
        let task = self.env.spawn("dead-letters", publisher.run(inbox));
        self.running = Some(Running { delivered, ending, task });
        Ok(published)
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        self.sink.other_queries().await
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.sink.ready().await
    }

    async fn room(&mut self) -> Result<(), Failure> {
        self.sink.room().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let batch_id = output.batch_id;
        if self.published >= Some(batch_id) {
            return Ok(Acknowledgement::Done);
        }
        let end_offsets = output.end_offsets.clone();
        let acknowledgement = self.sink.publish(output).await?;
        let (accepted, told) = oneshot::channel();
        let place = Place { batch_id, end_offsets };
        let delivered = Delivered { place, acknowledgement, accepted };
        // A task that has ended drops it, and with it the sender that is waited for.
        let running = self.running.as_ref().expect("the driver opens a sink before it uses it");
        let _ = running.delivered.send(delivered);
        Ok(Acknowledgement::Later(Box::pin(async move {
            told.await.unwrap_or_else(|_| Err(Ended.into()))
        })))
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        self.sink.micro_batches_in_flight_max()
    }

    async fn flush(&mut self) {
        self.sink.flush().await;
    }

    async fn end(&mut self, ending: Ending) {
        self.sink.end(ending).await;
        if let Some(running) = &self.running {
            running.ending.send_replace(Some(ending));
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let closed = self.sink.close().await;
        let Some(Running { delivered, ending, task }) = self.running.take() else { return closed };
        // Whatever is not acknowledged by now is not waited for.
        ending.send_replace(Some(Ending::Stopped));
        drop(delivered);
        closed.and(task.join().await)
    }
}

/// Publishes letters, micro-batch after micro-batch.
struct Publisher {
    letters: Box<dyn Sink>,
    maker: LetterMaker,
    endings: watch::Receiver<Option<Ending>>,
    env: Env,
    /// The last micro-batch that the table had letters of when it was opened.
    last: Option<BatchId>,
    /// Whether it was said in this run that there are such rows.
    is_told: bool,
}

impl Publisher {
    async fn run(mut self, mut inbox: Inbox) -> Result<(), Failure> {
        let mut kept = self.publish_kept(&inbox).await;
        if let Err(failure) = &kept {
            let (flow, table) = (&self.maker.flow, &self.maker.table);
            tracing::warn!(%flow, %table, %failure, "dead letters of the run before are not written");
        }
        while let Some(delivered) = inbox.recv().await {
            let outcome = match std::mem::replace(&mut kept, Ok(())) {
                Ok(()) => self.settle(delivered.place, delivered.acknowledgement, &inbox).await,
                Err(failure) => Err(failure),
            };
            let accepted = delivered.accepted;
            let has_failed = outcome.is_err();
            // Nobody listens where the query has ended.
            let _ = accepted.send(outcome);
            if has_failed {
                // No micro-batch may count as accepted behind one that does not.
                inbox.close();
                break;
            }
        }
        let closed = self.letters.close().await;
        kept.and(closed)
    }

    /// Publishes what the sink has kept of micro-batches that it had published before it was
    /// opened.
    async fn publish_kept(&mut self, inbox: &Inbox) -> Result<(), Failure> {
        for RefusedRows { batch_id, found_ms, .. } in self.maker.refusals.unpublished() {
            if Some(batch_id) > self.last
                && let Some(refused) = self.maker.refusals.of(batch_id)
            {
                let end_offsets = EndOffsets { batch_time_ms: found_ms, ..EndOffsets::default() };
                self.publish(refused, end_offsets, inbox).await?;
            }
            self.maker.refusals.published(batch_id);
        }
        Ok(())
    }

    /// Waits until the sink has accepted a micro-batch, and has its letters in the table. Gives the
    /// moment, microseconds since the epoch.
    ///
    /// Where a sink accepts several micro-batches at once, the letters of all of them are under the
    /// last one's number, and are written before the first one counts: were only that one logged,
    /// nobody would give its letters again.
    async fn settle(
        &mut self,
        place: Place,
        acknowledgement: Acknowledgement,
        inbox: &Inbox,
    ) -> Result<i64, Failure> {
        let mut accepted_us = acknowledgement.accepted().await?;
        if let Some(refused) = self.maker.refusals.of(place.batch_id) {
            crash_points::reached(Step::RowsRefused);
            self.tell(&refused);
            let last = refused.batch_id;
            accepted_us = self.publish(refused, place.end_offsets, inbox).await?;
            self.maker.refusals.published(last);
            crash_points::reached(Step::LettersPublished);
        }
        Ok(accepted_us.unwrap_or_else(|| self.env.now_us()))
    }

    /// Says once in a run that rows are refused.
    fn tell(&mut self, refused: &RefusedRows) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let (flow, table) = (&self.maker.flow, &self.maker.table);
        if let Some(Refusal { error, .. }) = refused.rows.first() {
            tracing::warn!(%flow, %table, first = error, "rows are refused and go to the table of \
                dead letters; further ones are not reported in this run");
        }
    }

    /// Publishes the letters of a micro-batch, and waits until the table has them. Gives the
    /// moment, microseconds since the epoch, as acknowledgements do.
    async fn publish(
        &mut self,
        refused: RefusedRows,
        end_offsets: EndOffsets,
        inbox: &Inbox,
    ) -> Result<Option<i64>, Failure> {
        let batch_id = refused.batch_id;
        let partitions = vec![self.maker.rows(refused, end_offsets.batch_time_ms)];
        self.wait_for_room().await?;
        let published = self.letters.publish(Output { batch_id, partitions, end_offsets }).await;
        let accepted = match published {
            Ok(acknowledgement) => self.until_accepted(acknowledgement, inbox).await,
            Err(failure) => Err(failure),
        };
        accepted.map_err(|failure| match failure.downcast::<RefusedRow>() {
            // It is no row of the sink's: nothing is to be looked for among those.
            Ok(refused) => {
                LettersError::Refused { table: Arc::clone(&self.maker.table), refused }.into()
            }
            Err(other) => other,
        })
    }

    /// Waits until the table takes letters at once, or the run is stopped.
    async fn wait_for_room(&mut self) -> Result<(), Failure> {
        let stopped = async |endings: &mut watch::Receiver<Option<Ending>>| {
            let is_stopped = |ending: &Option<Ending>| *ending == Some(Ending::Stopped);
            // The sender is gone only when the run has ended.
            let _ = endings.wait_for(is_stopped).await;
        };
        tokio::select! {
            biased;
            room = self.letters.room() => room,
            () = stopped(&mut self.endings) => Ok(()),
        }
    }

    /// Waits for the table's acknowledgement. Neither a run that ends nor another micro-batch waits
    /// for the table's next commit, and a run that is stopped does not wait for ever.
    async fn until_accepted(
        &mut self,
        acknowledgement: Acknowledgement,
        inbox: &Inbox,
    ) -> Result<Option<i64>, Failure> {
        let mut accepted = std::pin::pin!(acknowledgement.accepted());
        let mut known = *self.endings.borrow_and_update();
        loop {
            if let Some(ending) = known {
                self.letters.end(ending).await;
            }
            tokio::select! {
                biased;
                accepted = &mut accepted => return accepted,
                changed = self.endings.changed() => match changed {
                    Ok(()) => known = *self.endings.borrow_and_update(),
                    Err(_) => {
                        self.letters.end(Ending::Stopped).await;
                        return accepted.await;
                    }
                },
                () = self.env.sleep(LOOKED_AT), if known.is_none() => {
                    if !inbox.is_empty() {
                        self.letters.flush().await;
                    }
                }
            }
        }
    }
}

impl LetterMaker {
    /// Refused rows as rows of the table; `found_ms` is the micro-batch's time.
    fn rows(&self, refused: RefusedRows, found_ms: i64) -> Vec<RecordBatch> {
        let letters = refused.rows.into_iter().map(|Refusal { row, error }| Letter {
            payload: Some(row),
            error,
            ..Letter::default()
        });
        let group = Group { letters: letters.collect(), ..Group::default() };
        self.layout.rows(&[group], Stamp { flow: &self.flow, found_ms })
    }
}
