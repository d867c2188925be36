//! The columns of messages, with the names that Spark's connector has.

use arrow::datatypes::{DataType, TimeUnit};

/// The message itself.
pub(crate) const VALUE: &str = "value";
/// Its key, by which it has its partition.
pub(crate) const KEY: &str = "__key";
/// The topic, of a partition with its number.
pub(crate) const TOPIC: &str = "__topic";
/// The place in the topic.
pub(crate) const MESSAGE_ID: &str = "__messageId";
/// When the producer sent it.
pub(crate) const PUBLISH_TIME: &str = "__publishTime";
/// The time that the producer has given it.
pub(crate) const EVENT_TIME: &str = "__eventTime";
/// Names and values that go along.
pub(crate) const PROPERTIES: &str = "__messageProperties";

/// Spark's TIMESTAMP.
pub(crate) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Whether a type is MAP<STRING, STRING>.
pub(crate) fn is_map_of_texts(data_type: &DataType) -> bool {
    let DataType::Map(entries, _) = data_type else { return false };
    let DataType::Struct(fields) = entries.data_type() else { return false };
    let is_text = |data_type: &DataType| {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    fields.iter().all(|field| is_text(field.data_type()))
}
