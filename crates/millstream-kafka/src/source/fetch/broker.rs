//! The thread that reads from one broker: one request after the other, for all partitions that are
//! placed there.
//!
//! ```text
//! ask  ──►  answer  ──►  small: copy, hand over, ask again
//!                   └─►  large: ask again, copy meanwhile, hand over
//! ```
//!
//! The headers of an answer say where the next request begins, so that the broker works while the
//! records of a large answer are copied. Those of a small one are handed over first: the request
//! would cost them more than they cost it.

use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;

use super::assignment::{Assignment, Progress, Share, Unplaced};
use super::rows::{Copying, end_of, is_compressed};
use super::session::{Session, by_topic};
use super::settings::FetchSettings;
use super::trouble::{Report, Verdict};
use crate::brokers::request_error::RequestError;
use crate::brokers::{Brokers, Channel, Purpose};
use crate::offsets::PartitionId;
use crate::protocol::connection::ANSWER_PATIENCE;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::fetch::{self, FetchAnswer, Fetched, Position};
use crate::protocol::frame::FETCH;
use crate::source::read_ahead::{Arrival, ReadAhead};

/// How long a thread without partitions, or without space for records, looks away.
const IDLE: Duration = Duration::from_millis(100);
/// From so many bytes on the next request goes out before the answer is copied.
const LARGE: usize = 64 << 10;
/// The longest answer that is read. A record batch comes whole, however large it is.
const ANSWER_BYTES_MAX: usize = i32::MAX as usize;
/// How long a broker that cannot be reached is left alone.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// So many refusals in a row end the query.
const REFUSALS: u32 = 3;

/// What all threads of a reader have.
#[derive(Clone)]
pub struct Common {
    /// How to ask.
    pub settings: Arc<FetchSettings>,
    /// Who reads what.
    pub assignment: Arc<Assignment>,
    /// Where records go.
    pub buffer: Arc<ReadAhead>,
    /// Where problems are reported.
    pub report: Arc<Report>,
    /// Whether rows have headers.
    pub include_headers: bool,
    /// Clock and chance.
    pub env: Env,
}

/// Reads from one broker.
pub struct BrokerReader {
    node: i32,
    common: Common,
    brokers: Brokers,
    channel: Option<Channel>,
    session: Session,
    share: Share,
    copying: Copying,
    /// True while an answer is awaited.
    is_asked: bool,
    /// The last answer's space.
    space: Vec<u8>,
    /// How often in a row the broker could not be read from, and how often of these it refused.
    failures: u32,
    refusals: u32,
}

impl BrokerReader {
    /// Of the broker `node`.
    pub fn new(node: i32, common: Common) -> Self {
        let FetchSettings { connections, limits, checks, .. } = &*common.settings;
        let throttling = Arc::clone(common.report.throttling());
        let brokers = Brokers::new(connections.clone(), throttling, common.env.clone());
        // Beside what a request lets the broker wait.
        let wait = Duration::from_millis(limits.wait_ms.max(0) as u64);
        let brokers = brokers.with_patience(ANSWER_PATIENCE + wait);
        let copying = Copying::new(common.include_headers, limits.only_committed, *checks);
        Self {
            node,
            common,
            brokers,
            channel: None,
            session: Session::default(),
            share: Share::default(),
            copying,
            is_asked: false,
            space: Vec::new(),
            failures: 0,
            refusals: 0,
        }
    }

    /// Reads until the assignment ends.
    pub fn run(mut self) {
        while !self.common.assignment.has_ended() {
            if !self.is_asked && !self.prepare() {
                continue;
            }
            if let Err(problem) = self.step() {
                self.fail(&problem);
            }
        }
    }

    /// Learns what to read. Returns false if there is nothing to ask now.
    fn prepare(&mut self) -> bool {
        let Common { assignment, buffer, .. } = &self.common;
        if let Some(share) = assignment.share(self.node, &self.share, IDLE) {
            self.share = share;
        }
        !self.share.positions.is_empty() && buffer.wait_for_space(IDLE)
    }

    fn step(&mut self) -> Result<(), RequestError> {
        if !self.is_asked {
            self.ask()?;
        }
        let mut space = std::mem::take(&mut self.space);
        let channel = self.channel()?;
        let answer = self.brokers.using(&channel, |connection| {
            connection.receive_into(&mut space, ANSWER_BYTES_MAX, fetch::fetched)
        })?;
        self.is_asked = false;
        self.common.assignment.answered(self.node);
        self.take(&answer)?;
        (self.failures, self.refusals) = (0, 0);
        drop(answer);
        // A record that was larger than any other does not keep its space for good.
        space.shrink_to(2 * usize::try_from(self.common.settings.limits.bytes_max).unwrap_or(0));
        self.space = space;
        Ok(())
    }

    fn channel(&mut self) -> Result<Channel, RequestError> {
        let address = self.common.assignment.address(self.node);
        let address = address.ok_or(RequestError::Refused(ErrorCode::LEADER_NOT_AVAILABLE))?;
        if let Some(channel) = &self.channel {
            // An answer comes where it was asked for.
            if self.is_asked || channel.0 == address {
                return Ok(channel.clone());
            }
            self.session.forget();
        }
        Ok(self.channel.insert((address, Purpose::Rows)).clone())
    }

    fn ask(&mut self) -> Result<(), RequestError> {
        let channel = self.channel()?;
        let changes = self.session.ask(&self.share.positions);
        let wanted = by_topic(changes.wanted.iter().map(|(id, position)| (id, *position)));
        let unwanted = by_topic(changes.unwanted.iter().map(|id| (id, ())));
        let (number, mut limits) = (self.session.number(), self.common.settings.limits.clone());
        if self.common.settings.shares {
            let brokers = self.common.assignment.nodes_in_use().len().max(1);
            limits.bytes_max /= i32::try_from(brokers).unwrap_or(i32::MAX);
        }
        let socket = self.brokers.using(&channel, |connection| {
            let socket = if connection.is_new() { Some(connection.socket()?) } else { None };
            connection
                .send(FETCH, |body| fetch::fetch(body, &limits, number, &wanted, &unwanted))?;
            Ok(socket)
        })?;
        self.is_asked = true;
        self.common.assignment.waits(self.node, self.common.env.monotonic(), socket);
        Ok(())
    }

    fn take(&mut self, answer: &FetchAnswer<'_>) -> Result<(), RequestError> {
        match answer.code {
            ErrorCode::NONE => self.session.answered(answer.session),
            code if code.is_about_session() => {
                self.session.forget();
                return Ok(());
            }
            code => return Err(RequestError::Refused(code)),
        }
        let bytes: usize = answer.partitions.iter().map(|it| it.records.len()).sum();
        let mut asked = Vec::with_capacity(answer.partitions.len());
        for fetched in &answer.partitions {
            let id = PartitionId::new(fetched.topic, fetched.partition);
            // What was not asked for is not wanted.
            let Some(from) = self.session.asked(&id) else { continue };
            asked.push((fetched, id, from));
        }
        let Common { assignment, buffer, .. } = &self.common;
        let is_plain = || answer.partitions.iter().all(|it| !is_compressed(it.records));
        let goes_on = bytes >= LARGE && buffer.has_space() && assignment.is_as_in(&self.share);
        if goes_on && is_plain() {
            for (fetched, id, from) in &asked {
                self.share.positions.insert(id.clone(), end_of(fetched.records, *from));
            }
            self.ask()?;
        }
        let arrival_us = self.common.env.now_us();
        for (fetched, id, from) in asked {
            self.take_partition(fetched, id, from, arrival_us);
        }
        self.common.buffer.notify();
        Ok(())
    }

    fn take_partition(
        &mut self,
        fetched: &Fetched<'_>,
        id: PartitionId,
        asked: Position,
        arrival_us: i64,
    ) {
        if fetched.code != ErrorCode::NONE {
            return self.refused(&id, asked.offset, fetched.code);
        }
        if let Some(diverging) = fetched.diverging {
            let Common { assignment, report, env, .. } = &self.common;
            assignment.diverges(&id, self.node, asked, diverging, env.monotonic());
            return report.wake();
        }
        let Common { assignment, buffer, report, env, settings, .. } = &self.common;
        let copied = self.copying.copy(fetched.records, asked, &fetched.aborted, arrival_us);
        let seen = match settings.limits.only_committed {
            true => fetched.last_stable,
            false => fetched.high_watermark,
        };
        let (end, epochs) = (copied.end, &copied.epochs);
        let epoch = epochs.last().map_or(asked.epoch, |last| last.epoch);
        let next = Position { offset: end, epoch, ..asked };
        // A request that is under way already was for an end that this may not have come to.
        let is_ahead = self.is_asked && self.share.positions.get(&id).is_some_and(|at| *at != next);
        if !self.is_asked {
            self.share.positions.insert(id.clone(), next);
        }
        let progress = Progress { asked: asked.offset, end, epochs, seen };
        assignment.advance(&id, self.node, progress, || {
            let rows = copied.chunks.into_iter().map(Arrival::Rows);
            // Offsets behind the last row are those of records that are left out.
            let arrivals = rows.chain((end > asked.offset).then_some(Arrival::End(end)));
            buffer.push(arrivals.map(|arrival| (id.clone(), arrival)));
        });
        if is_ahead {
            assignment.is_elsewhere(&id);
        }
        if buffer.has_all_of(&id) {
            assignment.stop(&id);
        }
        if let Some(malformed) = copied.malformed {
            report.malformed(&id, end, malformed);
            assignment.stop(&id);
        }
        if fetched.other_replica >= 0 && fetched.other_replica != self.node {
            assignment.follow(&id, self.node, fetched.other_replica, env.monotonic());
            report.wake();
        }
    }

    fn refused(&self, id: &PartitionId, asked: i64, code: ErrorCode) {
        let Common { assignment, report, env, .. } = &self.common;
        let why = match Verdict::of(code) {
            Verdict::OutOfRange => Unplaced::OutOfRange,
            Verdict::Hopeless(kind) => {
                report.refused(id, asked, code, kind);
                return assignment.stop(id);
            }
            Verdict::Passing => {
                report.passing(id, code);
                Unplaced::Lost
            }
        };
        assignment.take_away(id, self.node, why, env.monotonic());
        report.wake();
    }

    /// The broker cannot be reached, or has refused a whole request.
    fn fail(&mut self, problem: &RequestError) {
        let Common { assignment, report, env, .. } = &self.common;
        self.is_asked = false;
        self.session.forget();
        self.channel = None;
        assignment.lost(self.node, env.monotonic());
        if assignment.has_ended() {
            return;
        }
        report.unreachable(self.node, problem);
        self.refusals += u32::from(!problem.may_pass());
        if self.refusals == REFUSALS {
            report.turned_away(problem);
        }
        report.wake();
        let pause = PAUSE.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        self.failures += 1;
        std::thread::sleep(pause);
    }
}
