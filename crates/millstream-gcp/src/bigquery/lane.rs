//! One write stream, and the connection to it: rows go out as fast as the service takes them, and
//! are kept until it has said that it has them.
//!
//! Where a connection breaks, what is unanswered is sent again over a new one, at the same offsets;
//! what the service has by then it refuses as already there, which is as good as an answer. The
//! default stream has no offsets: there such rows may be there twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1;
use millstream_engine::api::refusals::Refusal;
use millstream_engine::api::sink::{Failure, RefusedRow};
use millstream_store::env::Task;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, watch};
use tonic::Code;
use v1::append_rows_request::{ArrowData, Rows};
use v1::append_rows_response::Response;

use super::aside::Aside;
use super::error::{Answer, BigQueryProblem, Verdict};
use super::message::{self, Message};
use super::storage::{ANSWER_PATIENCE, Appending, Attempts, LOOKED_AT, Storage};

/// What a lane asks for, for messages.
const WHAT: &str = "take rows";

/// What all lanes of a sink write.
pub(super) struct Freight {
    /// The encapsulated schema.
    pub(super) schema: bytes::Bytes,
    /// Who writes, for the operators of the service.
    pub(super) trace_id: String,
    /// The table, for messages.
    pub(super) table: String,
    /// Where rows go that are not taken; without it they fail the query.
    pub(super) aside: Option<Arc<Aside>>,
}

/// Rows of a lane that the service does not take.
#[derive(Debug, Default)]
struct NotTaken {
    /// Each with the place of its message among the rows that were handed over, in order.
    rows: VecDeque<(i64, Refusal)>,
    /// How many were part of earlier commits.
    committed: i64,
}

/// What went wrong in a lane, for whoever reports it.
#[derive(Clone, Default)]
pub(super) struct Fault {
    failure: Arc<Mutex<Option<Failure>>>,
    happened: Arc<Notify>,
}

impl Fault {
    fn set(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
        self.happened.notify_one();
    }

    /// The failure, for the first that asks.
    pub(super) fn take(&self) -> Failure {
        self.failure.lock().take().unwrap_or_else(|| BigQueryProblem::Ended.into())
    }

    /// Whether something went wrong that nobody has taken yet.
    pub(super) fn has_happened(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Completes once something went wrong.
    pub(super) async fn happened(&self) {
        self.happened.notified().await;
    }
}

/// How far a lane is.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// Rows that the service has.
    rows: i64,
    has_failed: bool,
}

/// A stream that is written to.
pub(super) struct Lane {
    /// The stream's resource name.
    pub(super) stream: String,
    /// Rows that were handed over.
    pub(super) rows: i64,
    inbox: mpsc::UnboundedSender<Waiting>,
    reached: watch::Receiver<Reached>,
    not_taken: Arc<Mutex<NotTaken>>,
    _task: Task<()>,
}

/// Waits for what a lane was handed until some moment.
#[derive(Clone)]
pub(super) struct LaneMark {
    pub(super) stream: String,
    /// Rows that were handed over.
    pub(super) rows: i64,
    reached: watch::Receiver<Reached>,
    not_taken: Arc<Mutex<NotTaken>>,
}

/// A message with its place in the stream.
struct Waiting {
    /// Its place among the rows that were handed over.
    place: i64,
    /// So many of these rows are done with once it is: with it, and where the service has taken
    /// others before their turn.
    rows: i64,
    /// Its place in the stream, which lacks rows that were not taken.
    offset: i64,
    /// Whether the service has it, though it is not its turn.
    is_taken: bool,
    message: Message,
    /// How often it was sent.
    tries: u32,
    _bytes: Arc<OwnedSemaphorePermit>,
}

impl Lane {
    /// Begins to write to `stream`, which is empty, or is the default stream of a table and has no
    /// offsets. `number` counts the lanes of the sink.
    pub(super) fn start(
        stream: String,
        has_offsets: bool,
        number: usize,
        storage: Arc<Storage>,
        freight: Arc<Freight>,
        fault: Fault,
    ) -> Self {
        let (inbox, messages) = mpsc::unbounded_channel();
        let (reach, reached) = watch::channel(Reached::default());
        let not_taken = Arc::<Mutex<NotTaken>>::default();
        let env = storage.env.clone();
        let courier = Courier {
            stream: stream.clone(),
            has_offsets,
            number,
            storage,
            freight,
            reach,
            waiting: VecDeque::new(),
            sent: 0,
            not_taken: Arc::clone(&not_taken),
            left_out: 0,
            answered: None,
            appending: None,
            attempts: Attempts::begin(&env),
            asked: Duration::ZERO,
            look: Duration::ZERO,
            has_new_token: false,
            is_told: false,
        };
        let task = env.spawn("bigquery-lane", async move {
            let mut courier = courier;
            if let Err(failure) = courier.run(messages).await {
                fault.set(failure);
                courier.reach.send_modify(|reached| reached.has_failed = true);
            }
        });
        Self { stream, rows: 0, inbox, reached, not_taken, _task: task }
    }

    /// Hands a message over, with a share of the memory for what is under way.
    pub(super) fn send(&mut self, message: Message, bytes: Arc<OwnedSemaphorePermit>) {
        let (place, rows) = (self.rows, message.rows.num_rows() as i64);
        self.rows += rows;
        let (offset, is_taken, tries) = (place, false, 0);
        let waiting = Waiting { place, rows, offset, is_taken, message, tries, _bytes: bytes };
        // It fails only after a failure that was kept.
        let _ = self.inbox.send(waiting);
    }

    /// Whether the service has all that was handed over.
    pub(super) fn is_idle(&self) -> bool {
        let reached = self.reached.borrow();
        reached.rows >= self.rows && !reached.has_failed
    }

    /// What was handed over so far.
    pub(super) fn mark(&self) -> LaneMark {
        let (stream, reached) = (self.stream.clone(), self.reached.clone());
        let not_taken = Arc::clone(&self.not_taken);
        LaneMark { stream, rows: self.rows, reached, not_taken }
    }
}

impl NotTaken {
    /// All rows that were left out so far.
    fn total(&self) -> i64 {
        self.committed + self.rows.len() as i64
    }
}

impl LaneMark {
    /// Completes once the service has the rows. False where the lane has failed before.
    pub(super) async fn reached(&mut self) -> bool {
        let rows = self.rows;
        let reached = self.reached.wait_for(|reached| reached.rows >= rows || reached.has_failed);
        reached.await.is_ok_and(|reached| reached.rows >= rows)
    }

    /// How many rows the stream has of what was handed over, and those that it lacks since the mark
    /// before. Once the mark is reached, and of one mark after the other.
    pub(super) fn settle(&self) -> (i64, Vec<Refusal>) {
        let mut not_taken = self.not_taken.lock();
        let mut refused = Vec::new();
        while let Some((_, row)) = not_taken.rows.pop_front_if(|(place, _)| *place < self.rows) {
            refused.push(row);
        }
        not_taken.committed += refused.len() as i64;
        (self.rows - not_taken.committed, refused)
    }
}

/// The task of a lane.
struct Courier {
    stream: String,
    has_offsets: bool,
    number: usize,
    storage: Arc<Storage>,
    freight: Arc<Freight>,
    reach: watch::Sender<Reached>,
    /// What the service has not answered, in order.
    waiting: VecDeque<Waiting>,
    /// How many of them were sent over the present connection.
    sent: usize,
    not_taken: Arc<Mutex<NotTaken>>,
    /// Rows of the stream that were left out, of all that was handed over.
    left_out: i64,
    /// After the service has refused rows: how many of the messages that were sent are answered
    /// and still wait. Nothing is sent until all of them are, since those behind the refused one
    /// may have other places now.
    answered: Option<usize>,
    appending: Option<Appending>,
    /// Since when the first of those that wait does, and how often it was sent in vain.
    attempts: Attempts,
    /// Since when the next answer over the present connection is awaited, on the monotonic clock,
    /// and when it is time to look how long that takes.
    asked: Duration,
    look: Duration,
    /// Whether a token was refused since the last answer.
    has_new_token: bool,
    /// Whether it was reported that the table has changed.
    is_told: bool,
}

/// What happens next.
enum Event {
    Handed(Option<Waiting>),
    Answered(Result<Option<v1::AppendRowsResponse>, tonic::Status>),
    Silence,
}

impl Courier {
    /// Sends what comes until nothing more does, and all of it is answered.
    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<Waiting>) -> Result<(), Failure> {
        let mut is_open = true;
        while is_open || !self.waiting.is_empty() {
            self.send_waiting().await?;
            match self.next(&mut inbox, is_open).await {
                Event::Handed(Some(mut message)) => {
                    message.offset -= self.left_out;
                    if self.waiting.is_empty() {
                        self.attempts = Attempts::begin(&self.storage.env);
                    }
                    self.waiting.push_back(message);
                }
                Event::Handed(None) => is_open = false,
                Event::Answered(Ok(Some(response))) => self.take(response).await?,
                Event::Answered(Ok(None)) => {
                    self.broken(Answer::nothing("the connection was ended")).await?;
                }
                Event::Answered(Err(status)) => {
                    self.storage.refused(self.number, &status);
                    self.broken(status.into()).await?;
                }
                Event::Silence => self.look().await?,
            }
        }
        Ok(())
    }

    async fn next(&mut self, inbox: &mut mpsc::UnboundedReceiver<Waiting>, is_open: bool) -> Event {
        let is_expecting = self.sent > 0;
        let silence = self.look.saturating_sub(self.storage.env.monotonic());
        let answer = async {
            match &mut self.appending {
                Some(appending) => appending.answers.message().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer => Event::Answered(answer),
            message = inbox.recv(), if is_open => Event::Handed(message),
            () = self.storage.env.sleep(silence), if is_expecting => Event::Silence,
        }
    }

    /// Looks how long the next answer takes.
    async fn look(&mut self) -> Result<(), Failure> {
        let said = || "it does not answer".to_owned();
        self.storage.still_waits(&self.attempts, WHAT, said)?;
        let now = self.storage.env.monotonic();
        self.look = now + LOOKED_AT;
        if now.saturating_sub(self.asked) < ANSWER_PATIENCE {
            return Ok(());
        }
        self.broken(Answer::nothing(format!("no answer for {ANSWER_PATIENCE:?}"))).await
    }

    /// Sends what was not sent over the present connection; makes one if there is none.
    async fn send_waiting(&mut self) -> Result<(), Failure> {
        while self.answered.is_none() && self.sent < self.waiting.len() {
            let is_first = self.appending.is_none();
            let request = self.request(self.sent, is_first);
            self.waiting[self.sent].tries += 1;
            match &self.appending {
                Some(appending) => {
                    // Where the other end is gone, an answer says so.
                    let _ = appending.requests.unbounded_send(request);
                    if self.sent == 0 {
                        self.asked = self.storage.env.monotonic();
                        self.look = self.asked + LOOKED_AT;
                    }
                    self.sent += 1;
                }
                None => {
                    let asking = self.storage.append(self.number, &self.stream, request);
                    match self.storage.awaited(&self.attempts, WHAT, asking).await? {
                        Ok(appending) => {
                            self.appending = Some(appending);
                            self.sent = 1;
                            self.asked = self.storage.env.monotonic();
                        }
                        Err(answer) => self.broken(answer).await?,
                    }
                }
            }
        }
        Ok(())
    }

    fn request(&self, index: usize, is_first: bool) -> v1::AppendRowsRequest {
        let Waiting { offset, message, .. } = &self.waiting[index];
        let serialized_record_batch = message.bytes.clone();
        let rows = v1::ArrowRecordBatch { serialized_record_batch, ..Default::default() };
        let schema = || v1::ArrowSchema { serialized_schema: self.freight.schema.clone() };
        let writer_schema = is_first.then(schema);
        v1::AppendRowsRequest {
            write_stream: self.stream.clone(),
            offset: self.has_offsets.then_some(*offset),
            trace_id: if is_first { self.freight.trace_id.clone() } else { String::new() },
            rows: Some(Rows::ArrowRows(ArrowData { writer_schema, rows: Some(rows) })),
            ..Default::default()
        }
    }

    /// Takes the answer to the first message that waits.
    async fn take(&mut self, response: v1::AppendRowsResponse) -> Result<(), Failure> {
        if response.updated_schema.is_some() && !std::mem::replace(&mut self.is_told, true) {
            let table = &self.freight.table;
            tracing::info!(
                table,
                "the table has got other columns; new ones get no values until \
                                   the flow is started again"
            );
        }
        if self.answered.is_some() || (!response.row_errors.is_empty() && self.puts_aside()) {
            return self.take_beside_refused(&response);
        }
        if let Some(refused) = self.refused_row(&response) {
            return Err(refused);
        }
        match &response.response {
            Some(Response::AppendResult(result)) => self.accepted(result.offset),
            Some(Response::Error(status)) => {
                let answer = Answer::from(status);
                let was_there = self.waiting.front().is_some_and(|head| head.tries > 1);
                match answer.verdict() {
                    // The answer to an earlier try was lost.
                    Verdict::Done if was_there => self.accepted(None),
                    _ => self.broken(answer).await,
                }
            }
            None => self.broken(Answer::nothing("an empty answer")).await,
        }
    }

    fn puts_aside(&self) -> bool {
        self.freight.aside.is_some() && self.sent > 0
    }

    /// Takes the answer to a message of which rows are refused, or to one behind it.
    fn take_beside_refused(&mut self, response: &v1::AppendRowsResponse) -> Result<(), Failure> {
        let index = self.answered.unwrap_or(0);
        // What an earlier connection has taken on its way might still arrive, at a place that
        // others will have.
        if self.has_offsets && self.waiting.iter().take(self.sent).skip(1).any(|one| one.tries > 1)
        {
            let (stream, said) = (self.stream.clone(), "rows are refused".to_owned());
            return Err(BigQueryProblem::StreamLost { stream, said }.into());
        }
        if !response.row_errors.is_empty() {
            self.leave_out(index, &response.row_errors)?;
        } else if let Some(Response::AppendResult(result)) = &response.response {
            if self.has_offsets {
                let answer = format!("rows behind refused ones are at {:?}", result.offset);
                return Err(BigQueryProblem::Answer { answer }.into());
            }
            self.waiting[index].is_taken = true;
        }
        self.has_new_token = false;
        // Any other answer comes again when the message is sent again.
        self.asked = self.storage.env.monotonic();
        self.storage.answered();
        self.answered = Some(index + 1);
        if index + 1 == self.sent {
            self.close_ranks();
        }
        Ok(())
    }

    /// Leaves out the rows of a message that the service refuses.
    fn leave_out(&mut self, index: usize, errors: &[v1::RowError]) -> Result<(), Failure> {
        let aside = Arc::clone(self.freight.aside.as_ref().expect("the caller looked"));
        let errors: Vec<(usize, String)> = errors
            .iter()
            .map(|error| {
                (usize::try_from(error.index).unwrap_or(usize::MAX), error.message.clone())
            })
            .collect();
        let waiting = &mut self.waiting[index];
        let unexpected = || BigQueryProblem::Answer { answer: format!("refused rows: {errors:?}") };
        let (rows, mut refused) =
            aside.without(&waiting.message.rows, &errors).ok_or_else(unexpected)?;
        let mut messages = aside.messages(rows.clone(), &mut refused);
        if messages.len() > 1 {
            return Err(unexpected().into());
        }
        waiting.message = match messages.pop() {
            Some(message) => message,
            None => Message { rows: rows.slice(0, 0), bytes: bytes::Bytes::new() },
        };
        let place = waiting.place;
        let mut not_taken = self.not_taken.lock();
        let at = not_taken.rows.partition_point(|(known, _)| *known <= place);
        for row in refused.into_iter().rev() {
            not_taken.rows.insert(at, (place, row));
        }
        Ok(())
    }

    /// All that was sent is answered: what the service has is done with, and what it has not is
    /// sent again, at its new place.
    fn close_ranks(&mut self) {
        let (mut done, mut offset) = (0, self.waiting.front().map_or(0, |head| head.offset));
        let before: i64 = self.waiting.iter().map(|waiting| waiting.rows).sum();
        let mut left = VecDeque::with_capacity(self.waiting.len());
        for mut waiting in std::mem::take(&mut self.waiting) {
            let rows = waiting.message.rows.num_rows() as i64;
            if waiting.is_taken || rows == 0 {
                done += waiting.rows;
                continue;
            }
            waiting.rows += std::mem::take(&mut done);
            (waiting.offset, waiting.tries) = (offset, 0);
            offset += rows;
            left.push_back(waiting);
        }
        match left.back_mut() {
            Some(last) => last.rows += done,
            None => self.reach.send_modify(|reached| reached.rows += done),
        }
        debug_assert!(left.is_empty() || before == left.iter().map(|one| one.rows).sum::<i64>());
        self.waiting = left;
        self.left_out = self.not_taken.lock().total();
        (self.sent, self.answered) = (0, None);
        self.attempts = Attempts::begin(&self.storage.env);
    }

    fn refused_row(&self, response: &v1::AppendRowsResponse) -> Option<Failure> {
        let error = response.row_errors.first()?;
        let head = self.waiting.front()?;
        let table = self.freight.table.clone();
        let said = format!("{} (and {} more)", error.message, response.row_errors.len() - 1);
        let said = if response.row_errors.len() == 1 { error.message.clone() } else { said };
        let problem = BigQueryProblem::RowRefused { table, said };
        let rows = &head.message.rows;
        let index = usize::try_from(error.index).ok().filter(|index| *index < rows.num_rows())?;
        let refused = rows.slice(index, 1);
        Some(RefusedRow::new(problem, move |rows| message::has_row(rows, &refused)).into())
    }

    /// The service has the first message that waits.
    fn accepted(&mut self, offset: Option<i64>) -> Result<(), Failure> {
        let Some(head) = self.waiting.pop_front() else {
            let answer = "an append that was not asked for".to_owned();
            return Err(BigQueryProblem::Answer { answer }.into());
        };
        self.sent -= 1;
        if self.has_offsets && offset.is_some_and(|offset| offset != head.offset) {
            let answer = format!(
                "rows that were sent for offset {} of {} are at {offset:?}",
                head.offset, self.stream
            );
            return Err(BigQueryProblem::Answer { answer }.into());
        }
        self.attempts = Attempts::begin(&self.storage.env);
        self.asked = self.storage.env.monotonic();
        self.has_new_token = false;
        self.storage.answered();
        self.reach.send_modify(|reached| reached.rows += head.rows);
        Ok(())
    }

    /// Whether `answer` says that the table is not there, and it may be soon: rows that the service
    /// has taken would be gone with it.
    fn may_come(&self, answer: &Answer) -> bool {
        self.reach.borrow().rows == 0 && self.storage.may_come(answer)
    }

    /// Gives up the connection, and waits before there is another.
    async fn broken(&mut self, answer: Answer) -> Result<(), Failure> {
        self.appending = None;
        if self.answered.is_some() {
            if self.has_offsets {
                // What is on its way might still arrive, at a place that others have now.
                let (stream, said) = (self.stream.clone(), answer.to_string());
                return Err(BigQueryProblem::StreamLost { stream, said }.into());
            }
            self.close_ranks();
        }
        self.sent = 0;
        // The service ends connections that have nothing to do.
        if self.waiting.is_empty() {
            return Ok(());
        }
        // A token lives for an hour, and a connection may live longer.
        let may_pass = answer.is_about_credentials() && !self.has_new_token;
        self.has_new_token |= may_pass;
        match answer.verdict() {
            _ if may_pass => Ok(()),
            verdict if verdict == Verdict::Passing || self.may_come(&answer) => {
                self.storage.wait(&mut self.attempts, WHAT, &answer).await
            }
            Verdict::Done | Verdict::StreamGone if self.has_offsets => {
                let (stream, said) = (self.stream.clone(), answer.to_string());
                Err(BigQueryProblem::StreamLost { stream, said }.into())
            }
            Verdict::StreamGone if answer.code == Code::NotFound => {
                Err(BigQueryProblem::NoTable { table: self.freight.table.clone() }.into())
            }
            _ => Err(answer.refused(format!("write to {}", self.freight.table)).into()),
        }
    }
}
