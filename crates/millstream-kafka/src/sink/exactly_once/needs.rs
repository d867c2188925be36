//! Rights that transactions and the record of progress need.

use millstream_engine::api::needs::Need;

use super::{Names, topic_characters};
use crate::client::settings::Implementation;

/// What a flow called `flow` needs for its transactions, for rows in `topic` or, without it, in the
/// topics that rows name.
pub fn needs(flow: &str, topic: Option<&str>, transactions: Implementation) -> Vec<Need> {
    let prefix = Names::new(flow, "").base;
    let in_topic: String = topic_characters(&prefix).collect();
    let ids = format!("transactional ids that begin with '{prefix}'");
    let group = format!("consumer groups that begin with '{prefix}'");
    let mut needs = vec![Need::rights(
        &["Write"],
        ids,
        "transactions; without it, and without 'delivery', rows are written at least once",
    )];
    if transactions == Implementation::Protocol {
        let purpose = "the topic that records progress; without it librdkafka writes, and slower";
        let on = format!("topics that begin with '{in_topic}'");
        needs.push(Need::rights(&["Create", "Read", "Write"], on, purpose));
    }
    let purpose = "the record of progress where librdkafka writes; else Describe is enough";
    needs.push(Need::rights(&["Read"], group, purpose));
    let topic = match topic {
        Some(topic) => format!("topic '{topic}'"),
        None => "topic '__consumer_offsets'".to_owned(),
    };
    let purpose = "the same record; else Describe is enough";
    needs.push(Need::rights(&["Read"], topic, purpose));
    needs
}
