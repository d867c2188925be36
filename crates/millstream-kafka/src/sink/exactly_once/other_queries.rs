//! Records of progress beside the one under this query's names.
//!
//! A record is named after the flow and the first characters of the query's id. So a flow that got
//! another name finds what it left under the former one by that id ([`Opening::former_names`]), and
//! takes the former transactional ids over as well. And a query that begins anew finds the records
//! of others that write to the same topic ([`Opening::other_queries`]): each says whose it is.
//!
//! Records that this user may not list or read stay unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use millstream_engine::api::sink::OtherQuery;

use super::Names;
use super::opening::Opening;
use super::progress::{self, CommittedOffset, NotARecord, Record};
use super::record_topic::LastRecords;
use crate::client::cluster::{CONNECT_PATIENCE, Cluster};
use crate::error::SinkError;

/// How long the records of others are looked through, at a query's first start.
const LOOKING_PATIENCE: Duration = Duration::from_secs(30);
/// How long listing consumer groups may take: every broker is asked.
const GROUPS_PATIENCE: Duration = Duration::from_secs(3);

/// The names of all topics and consumer groups.
pub struct Places {
    topics: Vec<String>,
    groups: Vec<String>,
}

impl Opening {
    /// Lists topics and groups. Blocks.
    pub fn places(&self) -> Result<Places, SinkError> {
        let cluster = Cluster::new(&self.settings, None, &self.env, &self.table);
        let cluster = cluster.map_err(SinkError::Cluster)?;
        let topics = cluster.topics(CONNECT_PATIENCE).map_err(SinkError::Cluster)?;
        let groups = cluster.groups(GROUPS_PATIENCE).unwrap_or_else(|error| {
            // Only librdkafka's transactions have their records there.
            tracing::debug!(table = self.table, %error, "consumer groups cannot be listed");
            Vec::new()
        });
        Ok(Places { topics, groups })
    }

    /// The names that this query had while its flow was called otherwise. Blocks.
    pub fn former_names(&self, places: &Places) -> Vec<Names> {
        let mut flows = BTreeSet::new();
        for topic in places.topics.iter().filter(|topic| **topic != self.names.topic()) {
            if let Some(in_topic) = Names::flow_of_record(topic, &self.origin.query, true) {
                flows.insert(self.flow_in(topic).unwrap_or(in_topic));
            }
        }
        for group in places.groups.iter().filter(|group| **group != self.names.group(0)) {
            flows.extend(Names::flow_of_record(group, &self.origin.query, false));
        }
        let names = flows.iter().map(|flow| Names::new(flow, &self.origin.query));
        names.filter(|names| *names != self.names).collect()
    }

    /// The flow that the last record of `topic` names: a topic's name has fewer characters.
    fn flow_in(&self, topic: &str) -> Option<String> {
        let last = LastRecords::new(self).and_then(|records| records.last_of(topic)).ok()??;
        Some(progress::parse(&last).ok()?.origin?.flow)
    }

    /// This opening with other names.
    pub fn under(&self, names: Names) -> Self {
        Self { names, ..self.clone() }
    }

    /// The other queries that are known to write where this one does. Blocks.
    pub fn other_queries(&self) -> Result<Vec<OtherQuery>, SinkError> {
        let places = self.places()?;
        let is_anothers = |name: &&String| Names::may_be_anothers(name, &self.origin.query);
        let begun = self.env.monotonic();
        let has_time = || self.env.monotonic().saturating_sub(begun) < LOOKING_PATIENCE;
        let mut found = Vec::new();
        if let Ok(records) = LastRecords::new(self) {
            for topic in places.topics.iter().filter(is_anothers).take_while(|_| has_time()) {
                match records.last_of(topic) {
                    Ok(Some(text)) => found.extend(progress::parse(&text).ok()),
                    Ok(None) => {}
                    Err(error) => tracing::debug!(topic, %error, "a record cannot be read"),
                }
            }
        }
        for group in places.groups.iter().filter(is_anothers).take_while(|_| has_time()) {
            found.extend(self.record_in(group));
        }
        if !has_time() {
            let table = &self.table;
            tracing::warn!(
                table,
                "not all records of other queries were looked at: there are many"
            );
        }
        Ok(found.into_iter().filter_map(|record| self.other(record)).collect())
    }

    /// The record of another query's group, if it belongs to the same topic.
    fn record_in(&self, group: &str) -> Option<Record> {
        let committed = |piece: usize| -> Result<Option<CommittedOffset>, NotARecord> {
            let group = if piece == 0 { group.to_owned() } else { format!("{group}-{piece}") };
            Ok(self.committed_now(&group).unwrap_or_else(|error| {
                tracing::debug!(group, %error, "a record cannot be read");
                None
            }))
        };
        progress::decode(committed).ok().flatten()
    }

    /// The query of a record, if it writes where this one does. Where rows name their topics, the
    /// table's name tells.
    fn other(&self, record: Record) -> Option<OtherQuery> {
        let Record { published, origin } = record;
        let origin = origin?;
        let writes_here = match (&origin.topic, &self.topic) {
            (Some(other), Some(own)) => **other == **own,
            (None, None) => origin.table.eq_ignore_ascii_case(&self.origin.table),
            _ => false,
        };
        let at_ms = published.end_offsets.map(|end_offsets| end_offsets.batch_time_ms);
        let (query_id, flow, batch_id) = (origin.query, Some(origin.flow), published.batch_id);
        writes_here.then_some(OtherQuery { query_id, flow, batch_id, at_ms })
    }
}
