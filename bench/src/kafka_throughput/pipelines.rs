//! What the engine runs: pipelines that keep key and value as they are, and end where the topic
//! ended at their start.

use crate::engine::{BY_LIBRDKAFKA, sql_options};

/// Where the topics are, and whose client goes there.
#[derive(Clone, Copy)]
pub struct Kafka<'a> {
    /// HOST:PORT
    pub brokers: &'a str,
    /// librdkafka, or else the engine's own client.
    pub librdkafka: bool,
}

impl Kafka<'_> {
    /// What a source table that reads `topic` from its beginning uses, with its options; `given`
    /// are the user's.
    pub fn source(&self, topic: &str, given: &[(String, String)]) -> String {
        self.options(&[("subscribe", topic), ("startingOffsets", "earliest")], given)
    }

    /// What a table that is written to `topic` uses.
    pub fn sink(&self, topic: &str) -> String {
        let own = [("topic", topic), ("delivery", "at-least-once"), ("trigger", "availableNow")];
        self.options(&own, &[])
    }

    fn options(&self, own: &[(&str, &str)], given: &[(String, String)]) -> String {
        let client: &[_] = if self.librdkafka { &BY_LIBRDKAFKA } else { &[] };
        let own = [&[("kafka.bootstrap.servers", self.brokers)][..], client, own].concat();
        format!("kafka OPTIONS ({})", sql_options(&own, given))
    }
}

/// Reads what `source` is, into nothing.
pub fn read(source: &str) -> String {
    write(source, "noop OPTIONS ('trigger' = 'availableNow')")
}

/// Writes what `source` is into what `sink` is.
pub fn write(source: &str, sink: &str) -> String {
    format!(
        "CREATE TABLE input USING {source};\n\
         CREATE TABLE output USING {sink};\n\
         CREATE FLOW throughput AS INSERT INTO output BY NAME\n\
         SELECT key, value FROM STREAM input;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_say_whose_client_it_is() {
        let kafka = Kafka { brokers: "h:1", librdkafka: true };
        let given = [("maxOffsetsPerTrigger".to_owned(), "9".to_owned())];
        let pipeline = write(&kafka.source("in", &given), &kafka.sink("out"));
        assert_eq!(
            pipeline,
            "CREATE TABLE input USING kafka OPTIONS ('kafka.bootstrap.servers' = 'h:1', \
             'kafka.millstream.client' = 'librdkafka', \
             'kafka.millstream.transactions' = 'librdkafka', 'subscribe' = 'in', \
             'startingOffsets' = 'earliest', 'maxOffsetsPerTrigger' = '9');\n\
             CREATE TABLE output USING kafka OPTIONS ('kafka.bootstrap.servers' = 'h:1', \
             'kafka.millstream.client' = 'librdkafka', \
             'kafka.millstream.transactions' = 'librdkafka', 'topic' = 'out', \
             'delivery' = 'at-least-once', 'trigger' = 'availableNow');\n\
             CREATE FLOW throughput AS INSERT INTO output BY NAME\n\
             SELECT key, value FROM STREAM input;\n"
        );
        let own = Kafka { librdkafka: false, ..kafka };
        assert!(!own.sink("out").contains("millstream"));
    }
}
