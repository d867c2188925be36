//! Writes micro-batches to one server, each with its progress, and finds out what the server has.
//!
//! A small micro-batch is one script: it checks who may write and what was published before, writes
//! the rows, and their progress last. A larger one would block the server, so it is *staged*:
//!
//! 1. its pieces are put into a list, which nobody reads;
//! 2. one script makes it the published one, and its pieces those that are to be applied;
//! 3. a script for each piece applies it and removes it from the list.
//!
//! In a cluster a script writes in one slot only, so all micro-batches are staged, and the third
//! step is a script for each slot of a piece, which leaves the piece's place among all pieces in a
//! key of that slot, and does nothing if it finds the same there, or a later one.
//!
//! A crash in the first step leaves a list that the next claim removes, one in the third a list
//! that the next claim applies. Each script says so when its work was done before, so that any of
//! them may be sent again.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::sink::{BatchId, EndOffsets, Failure, OtherQuery, Published};
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;
use redis::cmd;

use super::encode::{Encoder, PieceBuilder};
use super::error::RedisProblem;
use super::link::{Call, Link, PATIENCE, SlotCall};
use super::memory::Acknowledged;
use super::options::SinkOptions;
use super::record::{self, Keys};
use super::scripts::Scripts;
use super::slots::{self, Part};

/// How long one WAIT takes at most, and half the time limit of an answer where that is less.
const REPLICAS_WAIT: Duration = Duration::from_millis(500);

/// Seconds after which a cluster forgets what a query that ran once has written in each slot.
const ONCE_FORGOTTEN_S: &str = "86400";

/// Who writes, and what.
pub(super) struct Writing {
    pub(super) options: Arc<SinkOptions>,
    pub(super) encoder: Encoder,
    pub(super) keys: Keys,
    pub(super) flow: String,
    /// Whether the query runs once, and leaves no record of progress.
    pub(super) is_once: bool,
    /// What the checkpoint says the server has acknowledged.
    pub(super) remembered: Option<BatchId>,
    pub(super) acknowledged: Acknowledged,
    pub(super) env: Env,
}

/// A micro-batch, or several in a row, on its way.
pub(super) struct Work {
    /// The last of them.
    pub(super) batch_id: BatchId,
    pub(super) end_offsets: EndOffsets,
    pub(super) pieces: Vec<PieceBuilder>,
}

/// Writes to one server.
pub(super) struct Writer {
    writing: Writing,
    link: Link,
    scripts: Arc<Scripts>,
    /// A name of this run.
    token: String,
    /// What the server calls this run.
    claim: String,
    /// Whether the server is part of a cluster.
    is_cluster: bool,
    /// The last micro-batch that the server has, as it writes it; empty before the first.
    published: String,
}

/// What a script answers.
enum Answer {
    /// It has done its work.
    Ok,
    /// The work was done before, or nothing is left to do.
    Done,
    /// This run may not write: who may.
    Claim(String),
    /// Another micro-batch is the last.
    At(String),
    /// The staged pieces are not there any more.
    Gone,
    /// Pieces of a micro-batch that is published wait to be applied.
    Unapplied,
    /// The next piece of a micro-batch that is applied in slots.
    Piece { number: String, index: String, piece: Vec<u8> },
    /// A key holds something else.
    Type { found: String, key: Vec<u8> },
}

impl Writer {
    pub(super) fn new(writing: Writing, link: Link) -> Self {
        let token = format!("{:016x}", writing.env.random_u64());
        let (claim, published) = (String::new(), String::new());
        Self {
            writing,
            link,
            scripts: Arc::new(Scripts::new()),
            token,
            claim,
            is_cluster: false,
            published,
        }
    }

    /// Takes the query over, applies what an earlier run has staged, and says what is published.
    pub(super) async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.check_server().await?;
        let record = self.take_over().await?;
        self.apply().await?;
        let published = match record.is_empty() {
            true => None,
            false => Some(record::decode(&record).map_err(|problem| self.unreadable(problem))?),
        };
        let found = published.as_ref().map(|published| published.batch_id);
        if let Some(remembered) = self.writing.remembered.filter(|known| found < Some(*known)) {
            self.lost(remembered)?;
        }
        Ok(published)
    }

    /// From now on the server may be away for a while.
    pub(super) fn is_patient(&mut self) {
        self.link.set_patience(PATIENCE);
    }

    /// The other queries that have written to the table.
    pub(super) async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        let keys = &self.writing.keys;
        let mut command = cmd("HGETALL");
        command.arg(&keys.record);
        let fields: Vec<(String, String)> = self.link.call(&Call::Command(&command)).await?;
        Ok(record::others(&fields, &keys.query))
    }

    /// Publishes `work`.
    pub(super) async fn write(&mut self, work: Work) -> Result<(), Failure> {
        let Work { batch_id, end_offsets, pieces } = work;
        let record = record::encode(batch_id, &end_offsets, &self.writing.flow);
        let pieces: Vec<Vec<u8>> = pieces.into_iter().map(PieceBuilder::finish).collect();
        let number = batch_id.to_string();
        crash_points::reached(Step::BeforeBegin);
        loop {
            let answer = match &*pieces {
                [piece] if !self.is_cluster => self.publish(&number, &record, piece).await?,
                pieces => self.publish_staged(&number, &record, pieces).await?,
            };
            match answer {
                Answer::Ok | Answer::Done => {
                    if self.has_replicas(&number).await? {
                        break;
                    }
                }
                // They are staged again.
                Answer::Gone => {}
                Answer::Unapplied => self.apply().await?,
                answer => self.resolve(answer, &number).await?,
            }
        }
        crash_points::reached(Step::AfterCommit);
        self.published = number;
        self.writing.acknowledged.set(batch_id);
        Ok(())
    }

    /// Removes the record of progress of a query that ran once, and what it has staged.
    pub(super) async fn forget(&mut self) -> Result<(), Failure> {
        let keys = &self.writing.keys;
        let mut command = cmd("HDEL");
        command.arg(&keys.record);
        for field in ["claim", "batch", "record", "staged", "applied", "seen"] {
            command.arg(format!("{}:{field}", keys.query));
        }
        let _: i64 = self.link.call(&Call::Command(&command)).await?;
        let mut command = cmd("DEL");
        command.arg(&keys.staged);
        let _: i64 = self.link.call(&Call::Command(&command)).await?;
        Ok(())
    }

    async fn publish(
        &mut self,
        number: &str,
        record: &str,
        piece: &[u8],
    ) -> Result<Answer, Failure> {
        crash_points::reached(Step::BeforeCommit);
        let Keys { record: key, query, .. } = &self.writing.keys;
        let arguments = [query, &self.claim, &self.published, number, record].map(str::as_bytes);
        let [query, claim, before, number, record] = arguments;
        let arguments = [query, claim, before, number, record, piece];
        let keys = [&**key];
        let script = &self.scripts.publish;
        let call = Call::Script { script, keys: &keys, arguments: &arguments };
        answer(&mut self.link, &call).await
    }

    async fn publish_staged(
        &mut self,
        number: &str,
        record: &str,
        pieces: &[Vec<u8>],
    ) -> Result<Answer, Failure> {
        // A claim that changes meanwhile is found by the script that follows.
        let (scripts, claim, before) =
            (Arc::clone(&self.scripts), self.claim.clone(), self.published.clone());
        let Keys { record: key, staged, query, .. } = self.writing.keys.clone();
        let keys = [&*key, &*staged];
        let header = format!("{claim} {number}");
        let common = [&query, &claim, &before, number, &header].map(str::as_bytes);
        let [query, claim, before, number, header] = common;
        for (index, piece) in pieces.iter().enumerate() {
            let index = index.to_string();
            let keys_are = if self.is_cluster { "elsewhere" } else { "here" };
            let (index, keys_are) = (index.as_bytes(), keys_are.as_bytes());
            let arguments = [query, claim, before, number, header, index, piece, keys_are];
            let script = &scripts.stage;
            let call = Call::Script { script, keys: &keys, arguments: &arguments };
            match answer(&mut self.link, &call).await? {
                Answer::Ok => crash_points::reached(Step::AfterProduce),
                // Published before, and perhaps not applied.
                Answer::Done => break,
                other => return Ok(other),
            }
        }
        crash_points::reached(Step::BeforeCommit);
        let count = pieces.len().to_string();
        let arguments = [query, claim, before, number, header, count.as_bytes(), record.as_bytes()];
        let script = &scripts.commit;
        let call = Call::Script { script, keys: &keys, arguments: &arguments };
        match answer(&mut self.link, &call).await? {
            Answer::Ok | Answer::Done => {
                crash_points::reached(Step::RowsStaged);
                self.apply().await?;
            }
            other => return Ok(other),
        }
        // A replica that took over meanwhile may lack the decision or what was applied; it says so.
        match answer(&mut self.link, &call).await? {
            // It had all pieces, and has decided only now.
            Answer::Ok => Ok(Answer::Unapplied),
            other => Ok(other),
        }
    }

    /// Applies the staged pieces of a micro-batch that is published.
    async fn apply(&mut self) -> Result<(), Failure> {
        if self.is_cluster {
            return self.apply_in_slots().await;
        }
        loop {
            let Keys { record, staged, query, .. } = &self.writing.keys;
            let keys = [&**record, &**staged];
            let arguments = [query.as_bytes(), self.claim.as_bytes()];
            let script = &self.scripts.apply;
            let call = Call::Script { script, keys: &keys, arguments: &arguments };
            match answer(&mut self.link, &call).await? {
                Answer::Ok => crash_points::reached(Step::RowsHalfApplied),
                Answer::Done => return Ok(()),
                other => self.resolve(other, "").await?,
            }
        }
    }

    /// The same in a cluster.
    async fn apply_in_slots(&mut self) -> Result<(), Failure> {
        let scripts = Arc::clone(&self.scripts);
        let mut done = String::new();
        loop {
            let Keys { record, staged, query, .. } = &self.writing.keys;
            let keys = [&**record, &**staged];
            let arguments = [query, &*self.claim, &*done].map(str::as_bytes);
            let script = &scripts.next;
            let call = Call::Script { script, keys: &keys, arguments: &arguments };
            let (number, index, piece) = match answer(&mut self.link, &call).await? {
                Answer::Piece { number, index, piece } => (number, index, piece),
                Answer::Done => return Ok(()),
                other => {
                    self.resolve(other, "").await?;
                    continue;
                }
            };
            let slots = self.slots(&number, &index, &piece)?;
            let call = Call::Slots { script: &scripts.slot, slots: &slots };
            let answers: Vec<Vec<Vec<u8>>> = self.link.call(&call).await?;
            for parts in answers {
                if let Answer::Type { found, key } = parse(&self.link, &parts)? {
                    return Err(self.writing.encoder.wrong_type(key, found));
                }
            }
            crash_points::reached(Step::RowsHalfApplied);
            done = format!("{number}:{index}");
        }
    }

    /// What is written in each slot for a piece.
    fn slots(&self, number: &str, index: &str, piece: &[u8]) -> Result<Vec<SlotCall>, Failure> {
        let not_ours = || self.unreadable("a staged piece is not one".to_owned());
        let parts = slots::parts(piece).ok_or_else(not_ours)?;
        let forgotten = if self.writing.is_once { ONCE_FORGOTTEN_S } else { "" };
        // Texts that sort as the numbers do.
        let place = format!("{number:0>20}:{index:0>10}");
        let call = |(slot, part): (u16, Part)| {
            let written = self.writing.keys.written(slots::tag_of(slot)).into_bytes();
            let keys = [vec![written], part.keys].concat();
            let (place, forgotten) = (place.clone().into_bytes(), forgotten.as_bytes().to_vec());
            SlotCall { keys, arguments: [place, part.piece, forgotten] }
        };
        Ok(parts.into_iter().map(call).collect())
    }

    /// Claims the query, and gives the record of its last micro-batch.
    async fn take_over(&mut self) -> Result<String, Failure> {
        let Keys { record, staged, query, .. } = &self.writing.keys;
        let keys = [&**record, &**staged];
        let mut command = cmd("HGET");
        command.arg(record).arg(format!("{query}:claim"));
        let former: Option<String> = self.link.call(&Call::Command(&command)).await?;
        let mut former = former.unwrap_or_default();
        loop {
            let arguments = [query, &self.token, &former].map(|text| text.as_bytes());
            let script = &self.scripts.claim;
            let call = Call::Script { script, keys: &keys, arguments: &arguments };
            let held: Vec<String> = self.link.call(&call).await?;
            match &*held {
                // Another one claimed it meanwhile.
                [answer, holder] if answer == "claim" => former = holder.clone(),
                [_, claim, batch, record, _] => {
                    (self.claim, self.published) = (claim.clone(), batch.clone());
                    return Ok(record.clone());
                }
                _ => {
                    return Err(self.unreadable("the claim has other parts".to_owned()).into());
                }
            }
        }
    }

    /// Does what can be done about a refusal, so that the work can be tried again. `number` is the
    /// micro-batch that is being published.
    async fn resolve(&mut self, answer: Answer, number: &str) -> Result<(), Failure> {
        let known = self.published.clone();
        match answer {
            Answer::Ok | Answer::Done | Answer::Gone | Answer::Unapplied | Answer::Piece { .. } => {
                return Ok(());
            }
            Answer::Type { found, key } => return Err(self.writing.encoder.wrong_type(key, found)),
            Answer::At(found) => self.published = found,
            Answer::Claim(holder) if epoch(&holder) >= epoch(&self.claim) => {
                let table = self.writing.options.name.clone();
                return Err(RedisProblem::Fenced { server: self.link.shown(), table }.into());
            }
            // The server does not know this run any more, and no later one.
            Answer::Claim(_) => drop(self.take_over().await?),
        }
        if self.published == known || self.published == number {
            return Ok(());
        }
        match known.parse() {
            Ok(acknowledged) => self.lost(BatchId(acknowledged)),
            // Nothing of this run was acknowledged.
            Err(_) => Ok(()),
        }
    }

    /// The server has lost what it had acknowledged.
    fn lost(&self, acknowledged: BatchId) -> Result<(), Failure> {
        let found = match &*self.published {
            "" => "nothing of this query".to_owned(),
            batch => format!("micro-batch {batch}"),
        };
        let (server, table) = (self.link.shown(), self.writing.options.name.clone());
        let problem = RedisProblem::Lost { server, table, acknowledged, found };
        if self.writing.options.fails_on_loss {
            return Err(problem.into());
        }
        tracing::warn!("going on, as 'failOnDataLoss' = 'false' says: {problem}");
        Ok(())
    }

    /// Waits until as many replicas as wanted have micro-batch `number`. False where the connection
    /// is another one by now: what the server behind it has must be asked anew.
    async fn has_replicas(&mut self, number: &str) -> Result<bool, Failure> {
        let wanted = self.writing.options.wait_replicas;
        if wanted == 0 {
            return Ok(true);
        }
        let limit = REPLICAS_WAIT.min(self.writing.options.server.timeout() / 2);
        // WAIT takes 0 as no limit.
        let limit_ms = (limit.as_millis() as u64).max(1);
        let (begun, connection) = (self.writing.env.monotonic(), self.link.connections());
        loop {
            // A connection waits for its own writes only, and the micro-batch may be of another.
            let mut touch = cmd("HSET");
            let Keys { record, query, .. } = &self.writing.keys;
            touch.arg(record).arg(format!("{query}:seen")).arg(number);
            let _: i64 = self.link.call(&Call::Command(&touch)).await?;
            let mut wait = cmd("WAIT");
            wait.arg(wanted).arg(limit_ms);
            let found: u32 = self.link.call(&Call::Command(&wait)).await?;
            if self.link.connections() != connection {
                return Ok(false);
            }
            if found >= wanted {
                return Ok(true);
            }
            let waited = self.writing.env.monotonic().saturating_sub(begun);
            if waited > PATIENCE {
                let server = self.link.shown();
                return Err(RedisProblem::Replicas { server, wanted, found, waited }.into());
            }
        }
    }

    /// Finds out whether there is a cluster, and warns of a server that may forget the progress.
    async fn check_server(&mut self) -> Result<(), Failure> {
        self.is_cluster = self.link.is_part_of_cluster().await?;
        if self.is_cluster && self.writing.options.wait_replicas > 0 {
            return Err(RedisProblem::Cluster { server: self.link.shown() }.into());
        }
        let memory = self.link.info("memory").await?;
        let policy = memory.value("maxmemory_policy").unwrap_or_default();
        if policy.starts_with("allkeys") {
            let (server, key) = (self.link.shown(), &self.writing.keys.record);
            tracing::warn!(
                server,
                policy,
                key,
                "this server drops keys when it is full, the \
                           query's record of progress among them; set maxmemory-policy to \
                           noeviction"
            );
        }
        if self.is_cluster {
            self.link.is_to_cluster();
        }
        Ok(())
    }

    fn unreadable(&self, problem: String) -> RedisProblem {
        let Keys { record, query, .. } = self.writing.keys.clone();
        RedisProblem::Record { server: self.link.shown(), key: record, query, problem }
    }
}

async fn answer(link: &mut Link, call: &Call<'_>) -> Result<Answer, Failure> {
    let parts: Vec<Vec<u8>> = link.call(call).await?;
    parse(link, &parts)
}

fn parse(link: &Link, parts: &[Vec<u8>]) -> Result<Answer, Failure> {
    let bytes = |index: usize| parts.get(index).cloned().unwrap_or_default();
    let text = |index: usize| String::from_utf8_lossy(&bytes(index)).into_owned();
    match &*text(0) {
        "ok" => Ok(Answer::Ok),
        "done" => Ok(Answer::Done),
        "claim" => Ok(Answer::Claim(text(1))),
        "at" => Ok(Answer::At(text(1))),
        "gone" => Ok(Answer::Gone),
        "unapplied" => Ok(Answer::Unapplied),
        "piece" => Ok(Answer::Piece { number: text(1), index: text(2), piece: bytes(3) }),
        "type" => Ok(Answer::Type { found: text(1), key: bytes(2) }),
        other => Err(link.unexpected(other.to_owned()).into()),
    }
}

/// How many had claimed the query when `claim` was made.
fn epoch(claim: &str) -> u64 {
    claim.split('-').next().and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
