//! Which partitions a table means.

use std::collections::BTreeSet;

use regex::Regex;

use crate::offsets::PartitionId;

/// Which partitions are read.
#[derive(Clone, Debug)]
pub enum Subscription {
    /// `subscribe`: all partitions of some topics.
    Topics(Vec<String>),
    /// `subscribePattern`: all partitions of topics whose whole name matches.
    Pattern {
        /// The pattern as written.
        text: String,
        /// The pattern, anchored.
        regex: Regex,
    },
    /// `assign`: some partitions.
    Partitions(BTreeSet<PartitionId>),
}

impl Subscription {
    /// The topic that all records are from, if there is one.
    pub fn only_topic(&self) -> Option<&str> {
        match self {
            Self::Topics(topics) => match topics.as_slice() {
                [topic] => Some(topic),
                _ => None,
            },
            Self::Pattern { .. } => None,
            Self::Partitions(partitions) => {
                let first = &*partitions.first()?.topic;
                partitions.iter().all(|id| &*id.topic == first).then_some(first)
            }
        }
    }

    /// The option that says it.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Topics(_) => "subscribe",
            Self::Pattern { .. } => "subscribePattern",
            Self::Partitions(_) => "assign",
        }
    }

    /// The source's description, in Spark's words.
    pub fn description(&self) -> String {
        match self {
            Self::Topics(topics) => format!("KafkaV2[Subscribe[{}]]", topics.join(", ")),
            Self::Pattern { text, .. } => format!("KafkaV2[SubscribePattern[{text}]]"),
            Self::Partitions(partitions) => {
                let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
                format!("KafkaV2[Assign[{}]]", names.join(", "))
            }
        }
    }
}
