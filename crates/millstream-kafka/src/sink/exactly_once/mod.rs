//! The Kafka sink, exactly once: a micro-batch, or a few that follow each other, is one
//! transaction, which holds their rows and a [`record`](progress) of how far the query came.
//!
//! A transaction is visible whole or not at all, so after a crash the record tells exactly which
//! micro-batches are published, and the checkpoint's logs are repaired from it. Nothing is logged
//! before publishing, and nothing is compared afterwards.
//!
//! ## Order
//!
//! The brokers end a transaction in two steps: they note the outcome, which is the answer the
//! client gets, and then write markers into all partitions. The same transactional id cannot go on
//! before the markers are written, which costs the client a back-off of 20 ms and more. So several
//! ids take turns, in [`rotation`]: a client each.
//!
//! One thread fills transactions, one at a time, with the micro-batches that came meanwhile, and
//! another ends them, in the same order:
//!
//! ```text
//! fill    |-- N: begin, rows, progress, reports in --|-- N+1: ... --|-- N+2 ...
//! end                                                |- N: commit -|     |- N+1: commit -|
//! ```
//!
//! - The rows of N+1 are sent once the brokers have acknowledged those of N, so in every partition
//!   they stand behind them.
//! - N+1 is committed once the commit of N is acknowledged, so it is never visible without N.
//! - If N fails, N+1 is aborted.
//!
//! A client is [librdkafka's](librdkafka), or one that [speaks the protocol](protocol) itself where
//! brokers and settings allow it: that takes a fraction of the time.
//!
//! ## Two instances
//!
//! The ids follow from the flow's name and the query's id; those of a flow that had another name
//! are found by the [record](other_queries) it left. Whoever opens the sink takes all of
//! them over, which ends transactions that were left open and makes the brokers refuse a former
//! owner from then on; only after that the record is read. So of two instances of a flow the later
//! one wins and misses nothing that the former one published.

mod librdkafka;
mod needs;
mod opening;
mod other_queries;
mod pacing;
mod progress;
mod protocol;
mod protocol_support;
mod record_topic;
mod rotation;
mod sink;

pub use needs::needs;
pub use opening::NotOpened;
pub use protocol::ProtocolSettings;
#[cfg(test)]
pub use rotation::Content;
pub use sink::ExactlyOnceSink;

/// How many transactional ids take turns. With a transaction every 4 ms an id is used again after
/// about 30 ms; writing its markers takes a few milliseconds.
const IDS: usize = 8;

/// How many rows may be under way to the brokers in transactions that are not filled yet.
const ROWS_AHEAD: u32 = 8_192;

/// How much of a query's id is in names.
const ID_LENGTH: usize = 8;
/// Characters of a whole query id; what follows names one of several sinks of the query.
const QUERY_ID_LENGTH: usize = 36;
/// Names of topics have at most 249 characters.
const FLOW_LENGTH_MAX: usize = 200;
const BRANCH_LENGTH_MAX: usize = 60;

/// What a query's transactions and its record are called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    base: String,
    topic: String,
}

impl Names {
    /// The names of the query `query_id` of `flow`.
    fn new(flow: &str, query_id: &str) -> Self {
        let branch = query_id.get(QUERY_ID_LENGTH..).unwrap_or_default();
        let id: String = query_id.chars().take(ID_LENGTH).collect();
        let (in_topic, flow) = (branch_in_topic(branch), format!("millstream-{flow}-"));
        let flow_part = topic_characters(&flow).take(FLOW_LENGTH_MAX - in_topic.len());
        let topic = format!("{}{id}{in_topic}-published", flow_part.collect::<String>());
        Self { base: format!("{flow}{id}{branch}"), topic }
    }

    /// The name of the flow, where `name` is that of a record of the query `query_id`.
    fn flow_of_record(name: &str, query_id: &str, is_topic: bool) -> Option<String> {
        let branch = query_id.get(QUERY_ID_LENGTH..).unwrap_or_default();
        let branch = if is_topic { branch_in_topic(branch) } else { branch.to_owned() };
        let id: String = query_id.chars().take(ID_LENGTH).collect();
        let middle = name.strip_prefix("millstream-")?.strip_suffix("-published")?;
        middle.strip_suffix(&branch)?.strip_suffix(&id)?.strip_suffix('-').map(str::to_owned)
    }

    /// True if `name` may belong to a record of another query than `query_id`.
    fn may_be_anothers(name: &str, query_id: &str) -> bool {
        let id: String = query_id.chars().take(ID_LENGTH).collect();
        let middle = name.strip_prefix("millstream-");
        let middle = middle.and_then(|name| name.strip_suffix("-published")).unwrap_or_default();
        // A flow's name may have dashes, and even a piece that looks like an id, so every piece
        // that looks like one is considered; the record itself then says whose it is.
        let is_id = |piece: &str| {
            piece.len() == ID_LENGTH && piece.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let mut pieces = middle.split('-').skip(1).filter(|piece| is_id(piece)).peekable();
        pieces.peek().is_some() && !pieces.any(|piece| piece == id)
    }

    /// The transactional id number `index`.
    fn transactional_id(&self, index: usize) -> String {
        format!("{}-{index}", self.base)
    }

    /// All of them, for people.
    fn transactional_ids(&self) -> String {
        format!("{}-*", self.base)
    }

    /// The topic that holds the record. Topics have fewer characters and shorter names than flows.
    fn topic(&self) -> String {
        self.topic.clone()
    }

    /// The consumer group that holds piece `piece` of the record.
    fn group(&self, piece: usize) -> String {
        match piece {
            0 => format!("{}-published", self.base),
            more => format!("{}-published-{more}", self.base),
        }
    }
}

fn topic_characters(name: &str) -> impl Iterator<Item = char> {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    name.chars().map(move |c| if allowed(&c) { c } else { '_' })
}

/// A sink's name as part of a topic's. Where it cannot be that as it is, a number of its own keeps
/// it apart from the other sinks of the query.
fn branch_in_topic(branch: &str) -> String {
    let name: String = topic_characters(branch).take(BRANCH_LENGTH_MAX).collect();
    if name == branch {
        return name;
    }
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{name}-{:08x}", branch.bytes().fold(0x811c_9dc5, fnv))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_flow_and_query() {
        let names = Names::new("alerts", "0a1b2c3d-0000-4000-8000-000000000000");
        assert_eq!(names.transactional_id(3), "millstream-alerts-0a1b2c3d-3");
        assert_eq!(names.group(0), "millstream-alerts-0a1b2c3d-published");
        assert_eq!(names.topic(), "millstream-alerts-0a1b2c3d-published");
        assert_eq!(names.group(2), "millstream-alerts-0a1b2c3d-published-2");
    }

    #[test]
    fn records_are_found_whatever_their_flow_was_called() {
        let id = "0a1b2c3d-0000-4000-8000-000000000000";
        let alerts = format!("{id}-alerts");
        for flow in ["pii", "a-b", "0a1b2c3d", "x-deadbeef-y"] {
            let (names, of_branch) = (Names::new(flow, id), Names::new(flow, &alerts));
            let found = |name: &str, id: &str, topic| Names::flow_of_record(name, id, topic);
            assert_eq!(found(&names.topic(), id, true).as_deref(), Some(flow));
            assert_eq!(found(&names.group(0), id, false).as_deref(), Some(flow));
            assert_eq!(found(&of_branch.topic(), &alerts, true).as_deref(), Some(flow));
            assert_eq!(found(&of_branch.topic(), id, true), None);
            assert_eq!(found(&names.topic(), &alerts, true), None);
            let other = "11111111-0000-4000-8000-000000000000";
            assert_eq!(found(&names.topic(), other, true), None);
            assert!(Names::may_be_anothers(&names.topic(), other));
            assert!(!Names::may_be_anothers(&names.topic(), id));
        }
        for foreign in ["", "millstream-published", "millstream-a-b-published", "orders"] {
            assert!(!Names::may_be_anothers(foreign, id), "{foreign}");
        }
    }

    #[test]
    fn any_flow_has_a_topic() {
        let id = "0a1b2c3d-0000-4000-8000-000000000000";
        let names = Names::new("Störung 7/b", id);
        assert_eq!(names.topic(), "millstream-St_rung_7_b-0a1b2c3d-published");
        let long = Names::new(&"ü".repeat(500), id).topic();
        assert!(long.len() < 249 && long.ends_with("0a1b2c3d-published"), "{long}");
    }

    #[test]
    fn sinks_of_one_query_share_no_name() {
        let names = |branch: &str| {
            Names::new("pii", &format!("0a1b2c3d-0000-4000-8000-000000000000{branch}"))
        };
        assert_eq!(names("-alerts").transactional_id(3), "millstream-pii-0a1b2c3d-alerts-3");
        assert_eq!(names("-alerts").topic(), "millstream-pii-0a1b2c3d-alerts-published");
        assert_eq!(names("-alerts").group(0), "millstream-pii-0a1b2c3d-alerts-published");
        let (x, y) = ("x".repeat(300), "x".repeat(301));
        let branches = ["", "-alerts", "-störung", "-st_rung", "-stärung", &x, &y];
        let topics: Vec<_> = branches.map(|branch| names(branch).topic()).into();
        for (index, topic) in topics.iter().enumerate() {
            assert!(topic.len() < 249 && !topics[..index].contains(topic), "{topics:?}");
        }
    }
}
