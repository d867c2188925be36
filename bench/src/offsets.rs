//! Where in a topic a consumer begins.

use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::Offset;

use crate::error::Error;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// All partitions of a topic, each from its first record.
pub fn beginnings(topic: &str, partitions: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        let added = list.add_partition_offset(topic, partition, Offset::Beginning);
        added.expect("the beginning is an offset");
    }
    list
}

/// All partitions of a topic, each from its end now: asked for first, so that a record written
/// after this call is read whenever the reading itself begins.
pub fn ends(consumer: &BaseConsumer, topic: &str) -> Result<TopicPartitionList, Error> {
    let metadata = consumer.fetch_metadata(Some(topic), REQUEST_LIMIT);
    let metadata = metadata.map_err(Error::kafka(format!("asking for topic {topic}")))?;
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        let watermarks = consumer.fetch_watermarks(topic, partition.id(), REQUEST_LIMIT);
        let (_, end) = watermarks.map_err(Error::kafka(format!("asking for {topic}'s end")))?;
        let added = list.add_partition_offset(topic, partition.id(), Offset::Offset(end));
        added.map_err(Error::kafka(format!("reading {topic} from {end}")))?;
    }
    Ok(list)
}
