//! The thread that knows who leads which partition. It gives each a place, has a thread for each
//! broker that is read from, and finds out what became of offsets that are not there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Thread;

use super::assignment::{Leader, Unplaced};
use super::broker::{BrokerReader, Common};
use super::session::by_topic;
use super::trouble::{EndOfThread, Verdict};
use crate::brokers::request_error::RequestError;
use crate::brokers::{Brokers, Purpose};
use crate::error::{DataLoss, SourceError};
use crate::offsets::PartitionId;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::fetch::{self, AT_BEGINNING, AT_END, NO_EPOCH};
use crate::protocol::frame::LIST_OFFSETS;
use crate::protocol::responses::Topic;
use crate::source::orders::{Order, Orders};

/// How long a broker may be silent, beyond what it was allowed to wait, before the others are asked
/// whether it still leads. One that is frozen keeps its connections.
const SILENCE: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many refusals in a row end the query.
const REFUSALS: u32 = 3;

/// A partition without a place that cannot simply be read on.
struct Stray {
    id: PartitionId,
    position: i64,
    why: Unplaced,
    leader: Leader,
}

impl Stray {
    /// Where it is read on, if it goes from `earliest` to `latest`, and what is lost there.
    fn remedy(&self, earliest: i64, latest: i64) -> (i64, Option<DataLoss>) {
        let (id, position) = (self.id.clone(), self.position);
        match self.why {
            _ if position < 0 => (earliest, None),
            Unplaced::Diverged(common) => {
                (common.max(earliest), Some(DataLoss::CutBack { id, position, common }))
            }
            _ if position < earliest => {
                (earliest, Some(DataLoss::AgedOut { id, position, earliest }))
            }
            _ if position > latest => (earliest, Some(DataLoss::Shrunk { id, position, latest })),
            // A leader that has just become one may not have known its end.
            _ => (position, None),
        }
    }
}

/// Gives partitions their places.
pub struct Leaders {
    common: Common,
    orders: Arc<Orders>,
    fail_on_data_loss: bool,
    brokers: Brokers,
    threads: BTreeMap<i32, Thread>,
    looked: Duration,
    refusals: u32,
    /// The id of each topic when it was first described.
    ids: HashMap<String, [u8; 16]>,
}

impl Leaders {
    /// For the partitions of `common`, whose leaders `brokers` know.
    pub fn new(
        common: Common,
        brokers: Brokers,
        orders: Arc<Orders>,
        fail_on_data_loss: bool,
    ) -> Self {
        let looked = common.env.monotonic();
        let (threads, ids, refusals) = Default::default();
        Self { common, orders, fail_on_data_loss, brokers, threads, looked, refusals, ids }
    }

    /// Follows orders until one says to stop.
    pub fn run(mut self) {
        loop {
            let wanted = self.orders.take();
            if wanted.stop {
                self.common.assignment.end();
                return;
            }
            for order in wanted.list {
                match order {
                    Order::Start(id, offset) => self.common.assignment.start(id, offset),
                    Order::Stop(id) => self.common.assignment.stop(&id),
                }
            }
            self.place();
            self.look_for_silence();
            self.start_threads();
        }
    }

    fn place(&mut self) {
        let now = self.common.env.monotonic();
        let unplaced = self.common.assignment.unplaced(now);
        if unplaced.is_empty() {
            return;
        }
        let ids: Vec<&PartitionId> = unplaced.iter().map(|(id, ..)| id).collect();
        let described = match self.describe(&ids) {
            Ok(described) => described,
            Err(problem) => {
                self.no_answer(&problem);
                ids.iter().for_each(|id| self.common.assignment.postpone(id, now));
                return;
            }
        };
        let remade = self.remade(&described, &unplaced);
        let mut to_locate: BTreeMap<i32, Vec<Stray>> = BTreeMap::new();
        for (id, position, why) in unplaced {
            if remade.contains(&*id.topic) {
                continue;
            }
            let assignment = &self.common.assignment;
            match leader(&described, &id) {
                Some(Ok(leader)) if assignment.knows_later(&id, leader) => {
                    assignment.postpone(&id, now);
                }
                Some(Ok(leader)) if why == Unplaced::Lost && position >= 0 => {
                    assignment.place(&id, leader, position);
                }
                Some(Ok(leader)) => {
                    let stray = Stray { id, position, why, leader };
                    to_locate.entry(leader.node).or_default().push(stray);
                }
                Some(Err(code)) => self.unled(&id, position, code, now),
                None => self.common.assignment.postpone(&id, now),
            }
        }
        for (node, partitions) in to_locate {
            self.locate(node, partitions, now);
        }
    }

    /// The topics among `unplaced` that were deleted and made again since they were first
    /// described. Their offsets begin anew, and one that is there again would be that of another
    /// record.
    fn remade(
        &mut self,
        described: &[Topic],
        unplaced: &[(PartitionId, i64, Unplaced)],
    ) -> BTreeSet<Arc<str>> {
        let mut remade = BTreeSet::new();
        for (id, position, _) in unplaced {
            let topic = described.iter().find(|it| *it.name == *id.topic);
            let Some(now) = topic.map(|it| it.id).filter(|id| *id != [0; 16]) else { continue };
            let first = *self.ids.entry(id.topic.to_string()).or_insert(now);
            if first != now && remade.insert(Arc::clone(&id.topic)) {
                self.ids.insert(id.topic.to_string(), now);
                let loss = DataLoss::Gone { id: id.clone(), position: *position };
                if !self.is_end_of_query(id, loss, "the earliest offset") {
                    self.common.assignment.begin_anew(&id.topic);
                }
            }
        }
        remade
    }

    /// The topics of partitions as they are now.
    fn describe(&mut self, ids: &[&PartitionId]) -> Result<Vec<Topic>, RequestError> {
        let topics: BTreeSet<&str> = ids.iter().map(|id| &*id.topic).collect();
        let topics: Vec<&str> = topics.into_iter().collect();
        let described = self.brokers.describe(&topics)?;
        self.refusals = 0;
        self.common.assignment.know(self.brokers.nodes());
        Ok(described)
    }

    fn no_answer(&mut self, problem: &RequestError) {
        self.common.report.no_leaders(problem);
        self.refusals = if problem.may_pass() { 0 } else { self.refusals + 1 };
        if self.refusals == REFUSALS {
            self.common.report.turned_away(problem);
        }
    }

    fn unled(&self, id: &PartitionId, position: i64, code: ErrorCode, now: Duration) {
        let Common { assignment, report, .. } = &self.common;
        match Verdict::of(code) {
            Verdict::Hopeless(kind) => {
                report.refused(id, position, code, kind);
                assignment.stop(id);
            }
            // The thread that watches partitions reports a topic that is gone.
            _ => assignment.postpone(id, now),
        }
    }

    /// Finds out where partitions begin and end, for those that are read from their beginning, and
    /// for those whose leader does not have the offset, or not what was read before it.
    fn locate(&mut self, node: i32, partitions: Vec<Stray>, now: Duration) {
        let ids: Vec<&PartitionId> = partitions.iter().map(|stray| &stray.id).collect();
        let asked = self.offsets(node, &ids, AT_BEGINNING);
        let asked = asked.and_then(|first| Ok((first, self.offsets(node, &ids, AT_END)?)));
        let (first, last) = match asked {
            Ok(found) => found,
            Err(problem) => {
                self.common.report.unreachable(node, &problem);
                ids.iter().for_each(|id| self.common.assignment.postpone(id, now));
                return;
            }
        };
        for stray in partitions {
            let id = &stray.id;
            match (first.get(id), last.get(id)) {
                (Some(earliest), Some(latest)) => self.go_on(&stray, *earliest, *latest),
                _ => self.common.assignment.postpone(id, now),
            }
        }
    }

    /// Reads a partition, which goes from `earliest` to `latest`, from where that is possible.
    fn go_on(&self, stray: &Stray, earliest: i64, latest: i64) {
        let Common { assignment, buffer, .. } = &self.common;
        let Stray { id, leader, .. } = stray;
        let (offset, loss) = stray.remedy(earliest, latest);
        let was_cut_back = matches!(loss, Some(DataLoss::CutBack { .. }));
        if let Some(loss) = loss
            && self.is_end_of_query(id, loss, &format!("offset {offset}"))
        {
            return;
        }
        // Nothing comes of a partition that has no place, so rows of before and after do not mix.
        match was_cut_back {
            true => buffer.cut_back(id, offset, latest),
            false => buffer.begin_again(id, offset, latest),
        }
        assignment.place(id, *leader, offset);
    }

    /// Tells of lost records. True if the query ends with that.
    fn is_end_of_query(&self, id: &PartitionId, loss: DataLoss, next: &str) -> bool {
        if self.fail_on_data_loss {
            self.common.report.fail(SourceError::DataLoss { loss });
            self.common.assignment.stop(id);
            return true;
        }
        tracing::warn!("{loss}; continuing from {next}");
        false
    }

    fn offsets(
        &mut self,
        node: i32,
        ids: &[&PartitionId],
        time: i64,
    ) -> Result<BTreeMap<PartitionId, i64>, RequestError> {
        let address = self.common.assignment.address(node);
        let address = address.ok_or(RequestError::Refused(ErrorCode::LEADER_NOT_AVAILABLE))?;
        let only_committed = self.common.settings.limits.only_committed;
        let topics = by_topic(ids.iter().map(|id| (*id, time)));
        let listed = self.brokers.using(&(address, Purpose::Control), |connection| {
            let body = |body: &mut _| fetch::list_offsets(body, only_committed, &topics);
            connection.ask(LIST_OFFSETS, body, fetch::listed)
        })?;
        let mut found = BTreeMap::new();
        for listed in listed {
            let id = PartitionId::new(listed.topic, listed.partition);
            match listed.offset.map_err(|code| (code, Verdict::of(code))) {
                Ok(offset) => _ = found.insert(id, offset),
                Err((code, Verdict::Hopeless(kind))) => {
                    self.common.report.refused(&id, time, code, kind);
                    self.common.assignment.stop(&id);
                }
                Err((code, _)) => self.common.report.passing(&id, code),
            }
        }
        Ok(found)
    }

    /// Asks who leads the partitions of brokers that are silent. Those that are led elsewhere by
    /// now are read from there, and the wait for the silent one ends.
    fn look_for_silence(&mut self) {
        let now = self.common.env.monotonic();
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        let wait = Duration::from_millis(self.common.settings.limits.wait_ms.max(0) as u64);
        let Some(before) = now.checked_sub(wait + SILENCE) else { return };
        let stuck = self.common.assignment.stuck(before);
        if stuck.is_empty() {
            return;
        }
        let ids: Vec<&PartitionId> = stuck.iter().map(|(id, _)| id).collect();
        let Ok(described) = self.describe(&ids) else { return };
        for (id, node) in &stuck {
            if let Some(Ok(leader)) = leader(&described, id)
                && leader.node != *node
            {
                let to = leader.node;
                tracing::debug!(partition = %id, from = node, to, "read from its leader");
                self.common.assignment.take_away(id, *node, Unplaced::Lost, now);
                self.common.assignment.interrupt(*node);
            }
        }
        self.place();
    }

    fn start_threads(&mut self) {
        for node in self.common.assignment.nodes_in_use() {
            let common = &self.common;
            self.threads.entry(node).or_insert_with(|| {
                let reader = BrokerReader::new(node, common.clone());
                let end = EndOfThread(Arc::clone(&common.report));
                common.env.thread("kafka-fetch", move || {
                    let _end = end;
                    reader.run();
                })
            });
        }
    }
}

/// Who leads a partition, or why nobody does; `None` if there is no such partition.
fn leader(described: &[Topic], id: &PartitionId) -> Option<Result<Leader, ErrorCode>> {
    let topic = described.iter().find(|it| *it.name == *id.topic)?;
    if topic.code != ErrorCode::NONE {
        return Some(Err(topic.code));
    }
    let at = usize::try_from(id.partition).ok()?;
    let (node, epoch) = (*topic.leaders.get(at)?, *topic.epochs.get(at)?);
    // Epochs begin anew in a topic that is made again, which is noticed by its id alone.
    let epoch = if topic.id == [0; 16] { NO_EPOCH } else { epoch };
    Some(if node < 0 { Err(ErrorCode::LEADER_NOT_AVAILABLE) } else { Ok(Leader { node, epoch }) })
}
