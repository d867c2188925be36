//! Fetches entries all the time, as long as there is room for them.

use std::sync::Arc;

use millstream_engine::api::source::Failure;
use millstream_store::env::Env;
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::sync::Notify;

use super::offsets::{Id, Position};
use super::options::{SourceOptions, Starting};
use super::rows::Entry;
use crate::redis::error::RedisProblem;
use crate::redis::link::{Call, Link, PATIENCE};

/// Entries of one answer where a range is read again.
const RANGE_SIZE: usize = 5_000;
/// Answers without an entry of a stream, after the end of a query was fixed, that show that all of
/// it was read. The first may have been asked for before.
const EMPTY_ANSWERS: u64 = 2;

/// What is said of an answer that makes no sense; it may contain rows of the users.
const NO_ENTRIES: &str = "it is not entries of the streams";

/// Entries by stream, on their way to the driver.
pub(super) struct Taken {
    pub(super) streams: Vec<Vec<Entry>>,
    /// When the oldest arrived, microseconds since the epoch.
    pub(super) oldest_arrival_us: i64,
}

/// What was read and not taken.
pub(super) struct Buffer {
    state: Mutex<State>,
    arrived: Notify,
    has_room: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    streams: Vec<Vec<Entry>>,
    /// By stream, whether entries came that are behind the end of the query.
    passed: Vec<bool>,
    /// By stream, answers without an entry of it since the end of the query was fixed.
    empty_answers: Vec<u64>,
    bytes: usize,
    oldest_arrival_us: Option<i64>,
    failure: Option<Failure>,
}

impl Buffer {
    pub(super) fn new(streams: usize, bytes_max: usize) -> Self {
        let state = State {
            streams: vec![Vec::new(); streams],
            passed: vec![false; streams],
            empty_answers: vec![0; streams],
            ..State::default()
        };
        let (arrived, has_room) = (Notify::new(), Notify::new());
        Self { state: Mutex::new(state), arrived, has_room, bytes_max }
    }

    /// Up to `rows_max` entries, none behind `ends`; `None` where there is none.
    pub(super) fn take(
        &self,
        rows_max: usize,
        ends: Option<&[Id]>,
    ) -> Result<Option<Taken>, Failure> {
        let mut state = self.state.lock();
        let State { streams: waiting, passed, bytes, .. } = &mut *state;
        let mut left = rows_max;
        let mut streams = Vec::with_capacity(waiting.len());
        for (at, entries) in waiting.iter_mut().enumerate() {
            let end = ends.map(|ends| ends[at]);
            let wanted = entries.partition_point(|entry| end.is_none_or(|end| entry.id <= end));
            // What came behind the end of a query is not part of it.
            let beyond: usize = entries.drain(wanted..).map(|entry| entry.bytes()).sum();
            *bytes -= beyond;
            passed[at] |= beyond > 0;
            let rest = entries.split_off(wanted.min(left));
            let taken = std::mem::replace(entries, rest);
            left -= taken.len();
            streams.push(taken);
        }
        let taken: usize = streams.iter().flatten().map(Entry::bytes).sum();
        state.bytes -= taken;
        let oldest_arrival_us = state.oldest_arrival_us.unwrap_or_default();
        if state.bytes == 0 {
            state.oldest_arrival_us = None;
        }
        // Entries behind the end leave room too.
        self.has_room.notify_one();
        if taken == 0 {
            return state.failure.take().map_or(Ok(None), Err);
        }
        Ok(Some(Taken { streams, oldest_arrival_us }))
    }

    /// Whether something can be taken, or the reader has failed.
    pub(super) fn is_filled(&self) -> bool {
        let state = self.state.lock();
        state.bytes > 0 || state.failure.is_some()
    }

    /// Completes when the reader had an answer, or has failed, since the last time.
    pub(super) async fn changed(&self) {
        self.arrived.notified().await;
    }

    /// The end of the query was fixed just now.
    pub(super) fn end_is_fixed(&self) {
        let mut state = self.state.lock();
        state.passed.fill(false);
        state.empty_answers.fill(0);
    }

    /// Whether all entries of a stream up to `end` were read and taken, where that one itself may
    /// have been removed before it was read.
    pub(super) fn has_passed(&self, stream: usize, end: Id) -> bool {
        let state = self.state.lock();
        match state.streams[stream].first() {
            Some(entry) => entry.id > end,
            None => state.passed[stream] || state.empty_answers[stream] >= EMPTY_ANSWERS,
        }
    }

    /// Adds the entries of an answer, by stream.
    fn put(&self, found: Vec<(usize, Vec<Entry>)>, now_us: i64) {
        let mut state = self.state.lock();
        for (stream, answers) in state.empty_answers.iter_mut().enumerate() {
            if !found.iter().any(|(of, _)| *of == stream) {
                *answers += 1;
            }
        }
        for (stream, entries) in found {
            state.bytes += entries.iter().map(Entry::bytes).sum::<usize>();
            state.oldest_arrival_us.get_or_insert(now_us);
            state.streams[stream].extend(entries);
        }
        drop(state);
        self.arrived.notify_one();
    }

    fn fail(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
        self.arrived.notify_one();
    }

    async fn wait_for_room(&self) {
        while self.state.lock().bytes >= self.bytes_max {
            self.has_room.notified().await;
        }
    }
}

/// Reads on from `positions` until it is stopped, or fails.
pub(super) async fn read(
    mut streams: Streams,
    mut positions: Vec<Position>,
    buffer: Arc<Buffer>,
    env: Env,
) {
    streams.link.set_patience(PATIENCE);
    loop {
        buffer.wait_for_room().await;
        match streams.next(&mut positions).await {
            Ok(found) => buffer.put(found, env.now_us()),
            Err(failure) => return buffer.fail(failure),
        }
    }
}

/// Questions about streams.
pub(super) struct Streams {
    link: Link,
    options: SourceOptions,
}

/// What the server says of a stream.
#[derive(Default)]
struct Info {
    /// How many entries were ever added; Redis 6 does not say.
    added: Option<u64>,
    length: u64,
    last_generated: Id,
}

impl Info {
    /// How many entries were added before the first that is there.
    fn before_first(&self) -> u64 {
        self.added.map_or(0, |added| added.saturating_sub(self.length))
    }
}

impl Streams {
    pub(super) fn new(link: Link, options: SourceOptions) -> Self {
        Self { link, options }
    }

    /// Refuses a cluster, where one question cannot ask for several streams.
    pub(super) async fn check_server(&mut self) -> Result<(), Failure> {
        if self.link.is_part_of_cluster().await? {
            return Err(RedisProblem::ClusterSource { server: self.link.shown() }.into());
        }
        Ok(())
    }

    /// Where a new query begins.
    pub(super) async fn beginning(&mut self) -> Result<Vec<Position>, Failure> {
        let mut positions = Vec::new();
        for stream in 0..self.options.keys.len() {
            let info = self.info(stream).await?;
            positions.push(match &self.options.starting {
                Starting::Earliest => Position { id: Id::default(), read: info.before_first() },
                Starting::Latest => {
                    Position { id: info.last_generated, read: info.added.unwrap_or(0) }
                }
                Starting::After(ids) => self.behind(stream, ids[stream], &info).await?,
            });
        }
        Ok(positions)
    }

    /// The position behind the entry `id`, whose place is counted from the stream's beginning.
    async fn behind(&mut self, stream: usize, id: Id, info: &Info) -> Result<Position, Failure> {
        let (mut from, mut read) = ("-".to_owned(), info.before_first());
        loop {
            let mut command = cmd("XRANGE");
            command.arg(&self.options.keys[stream]).arg(from).arg(id.to_string());
            command.arg("COUNT").arg(RANGE_SIZE);
            let entries = self.entries(&command).await?;
            let Some(last) = entries.last() else { return Ok(Position { id, read }) };
            read += entries.len() as u64;
            from = format!("({}", last.id);
        }
    }

    /// The last entry of each stream.
    pub(super) async fn last_ids(&mut self) -> Result<Vec<Id>, Failure> {
        let mut ids = Vec::new();
        for key in self.options.keys.clone() {
            let mut command = cmd("XREVRANGE");
            command.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
            let last = self.entries(&command).await?.pop();
            ids.push(last.map_or(Id::default(), |entry| entry.id));
        }
        Ok(ids)
    }

    /// Entries behind `positions`, which move on; waits some time for the first.
    async fn next(
        &mut self,
        positions: &mut [Position],
    ) -> Result<Vec<(usize, Vec<Entry>)>, Failure> {
        let SourceOptions { keys, read_size, read_block, .. } = &self.options;
        let mut command = cmd("XREAD");
        // COUNT is for each stream.
        command.arg("COUNT").arg((*read_size / keys.len()).max(1));
        command.arg("BLOCK").arg(read_block.as_millis() as u64);
        command.arg("STREAMS").arg(keys);
        positions.iter().for_each(|position| {
            command.arg(position.id.to_string());
        });
        let answer: Option<Vec<(String, Value)>> = self.link.call(&Call::Command(&command)).await?;
        let mut found = Vec::new();
        for (key, entries) in answer.unwrap_or_default() {
            let stream = self.options.keys.iter().position(|known| *known == key);
            let (Some(stream), Some(entries)) = (stream, parse(entries)) else {
                return Err(self.link.unexpected(NO_ENTRIES.to_owned()).into());
            };
            let mut entries = entries;
            let Some(last) = entries.last() else { continue };
            let last = last.id;
            // After the entries: what was there then was not trimmed before.
            let read = self.rank(stream, positions[stream], &entries).await?;
            let first = read.saturating_sub(entries.len() as u64);
            for (entry, rank) in entries.iter_mut().zip(first + 1..) {
                entry.rank = rank;
            }
            positions[stream] = Position { id: last, read };
            found.push((stream, entries));
        }
        Ok(found)
    }

    /// All entries from behind `start` up to `end`.
    pub(super) async fn range(
        &mut self,
        stream: usize,
        start: Position,
        end: Position,
    ) -> Result<Vec<Entry>, Failure> {
        let mut found: Vec<Entry> = Vec::new();
        let mut from = start.id;
        while from < end.id {
            let mut command = cmd("XRANGE");
            command.arg(&self.options.keys[stream]).arg(format!("({from}")).arg(end.id.to_string());
            command.arg("COUNT").arg(RANGE_SIZE);
            let entries = self.entries(&command).await?;
            let Some(last) = entries.last() else { break };
            from = last.id;
            found.extend(entries);
        }
        let wanted = end.read.saturating_sub(start.read);
        if found.len() as u64 != wanted || (wanted > 0 && from != end.id) {
            self.lost(stream, start.id, wanted.saturating_sub(found.len() as u64))?;
        }
        Ok(found)
    }

    /// Notices that entries behind `positions` are gone.
    pub(super) async fn check_untrimmed(&mut self, positions: &[Position]) -> Result<(), Failure> {
        for (stream, position) in positions.iter().enumerate() {
            self.rank(stream, *position, &[]).await?;
        }
        Ok(())
    }

    /// How many entries were added up to the last of `entries`, which were read behind `position`.
    /// Where that is more than were read, some are gone.
    async fn rank(
        &mut self,
        stream: usize,
        position: Position,
        entries: &[Entry],
    ) -> Result<u64, Failure> {
        let expected = position.read + entries.len() as u64;
        let last = entries.last().map_or(position.id, |entry| entry.id);
        let mut upto = cmd("XRANGE");
        upto.arg(&self.options.keys[stream]).arg(position.id.to_string()).arg(last.to_string());
        upto.arg("COUNT").arg(1);
        // The oldest are trimmed: while this one is there, so are all behind it, but for what XDEL
        // has removed. That is found once this one is gone too.
        if self.entries(&upto).await?.first().is_some_and(|entry| entry.id == position.id) {
            return Ok(expected);
        }
        let info = self.info(stream).await?;
        let Some(added) = info.added else { return Ok(expected) };
        if added < position.read {
            // Another stream has the name now.
            self.lost(stream, position.id, 0)?;
            return Ok(entries.len() as u64);
        }
        let mut left = cmd("XRANGE");
        left.arg(&self.options.keys[stream]).arg("-").arg(last.to_string());
        left.arg("COUNT").arg(entries.len() + 1);
        let left = self.entries(&left).await?;
        let has_older = left.first().is_some_and(|entry| entry.id <= position.id);
        // If all that was just read is trimmed by now, the next time shows whether more was.
        if has_older || (left.is_empty() && !entries.is_empty()) {
            return Ok(expected);
        }
        let found = info.before_first() + left.len() as u64;
        if found > expected {
            self.lost(stream, position.id, found - expected)?;
        }
        Ok(found.max(expected))
    }

    fn lost(&self, stream: usize, after: Id, entries: u64) -> Result<(), Failure> {
        let problem = RedisProblem::EntriesLost {
            table: self.options.table.clone(),
            stream: self.options.keys[stream].clone(),
            after: after.to_string(),
            entries,
        };
        if self.options.fails_on_loss {
            return Err(problem.into());
        }
        tracing::warn!("going on, as 'failOnDataLoss' = 'false' says: {problem}");
        Ok(())
    }

    async fn info(&mut self, stream: usize) -> Result<Info, Failure> {
        let key = self.options.keys[stream].clone();
        let mut exists = cmd("TYPE");
        exists.arg(&key);
        let found: String = self.link.call(&Call::Command(&exists)).await?;
        match &*found {
            "none" => return Ok(Info::default()),
            "stream" => {}
            _ => {
                let table = self.options.table.clone();
                return Err(RedisProblem::NoStream { table, key, found }.into());
            }
        }
        let mut command = cmd("XINFO");
        command.arg("STREAM").arg(key);
        let answer: Vec<Value> = self.link.call(&Call::Command(&command)).await?;
        let value = |name: &str| {
            let is_it = |pair: &&[Value]| {
                String::from_redis_value(pair[0].clone()).is_ok_and(|is| is == name)
            };
            answer.chunks_exact(2).find(is_it).map(|pair| pair[1].clone())
        };
        let number = |name| value(name).and_then(|value| u64::from_redis_value(value).ok());
        let text = |name| value(name).and_then(|value| String::from_redis_value(value).ok());
        let last_generated = text("last-generated-id").and_then(|id| id.parse().ok());
        Ok(Info {
            added: number("entries-added"),
            length: number("length").unwrap_or(0),
            last_generated: last_generated.unwrap_or_default(),
        })
    }

    async fn entries(&mut self, command: &Cmd) -> Result<Vec<Entry>, Failure> {
        let answer: Value = self.link.call(&Call::Command(command)).await?;
        parse(answer).ok_or_else(|| self.link.unexpected(NO_ENTRIES.to_owned()).into())
    }
}

fn parse(entries: Value) -> Option<Vec<Entry>> {
    let Value::Array(entries) = entries else { return None };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let id = String::from_redis_value(id).ok()?.parse().ok()?;
    let Value::Array(fields) = fields else { return None };
    let mut texts = fields.into_iter().map(|field| match field {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    let mut pairs = Vec::with_capacity(texts.len() / 2);
    while let Some(name) = texts.next() {
        pairs.push((name?, texts.next()??));
    }
    Some(Entry { id, rank: 0, fields: pairs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        text.parse().unwrap()
    }

    fn entries(ids: &[&str]) -> Vec<Entry> {
        ids.iter().map(|text| Entry { id: id(text), rank: 0, fields: Vec::new() }).collect()
    }

    #[test]
    fn an_end_that_is_removed_before_it_is_read_is_passed() {
        let buffer = Buffer::new(2, 1 << 20);
        buffer.put(vec![(0, entries(&["3"]))], 1);
        buffer.end_is_fixed();
        let ends = [id("5"), id("5")];
        let take = || buffer.take(usize::MAX, Some(&ends)).unwrap();
        buffer.put(vec![(0, entries(&["4", "7"]))], 2);
        assert!(!buffer.has_passed(0, ends[0]), "entries wait");
        let taken = take().expect("there are some");
        assert_eq!(taken.streams, [entries(&["3", "4"]), Vec::new()]);
        assert!(buffer.has_passed(0, ends[0]), "one behind the end came");
        assert!(!buffer.has_passed(1, ends[1]), "that answer may be older than the end");
        buffer.put(vec![(0, entries(&["8"]))], 3);
        assert!(buffer.has_passed(0, ends[0]) && buffer.has_passed(1, ends[1]));
        assert!(buffer.is_filled());
        assert!(take().is_none(), "only entries behind the end wait");
        assert!(!buffer.is_filled());
    }
}
