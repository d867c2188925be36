//! The sinks, and a pipeline for each.

use std::path::Path;

use crate::engine::sql_options;

/// A sink that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Json,
    Csv,
    Parquet,
    Text,
    Delta,
    KafkaExactlyOnce,
    KafkaAtLeastOnce,
    Console,
    Stats,
    Noop,
}

impl Kind {
    /// Whether it needs a broker.
    pub fn is_kafka(self) -> bool {
        matches!(self, Self::KafkaExactlyOnce | Self::KafkaAtLeastOnce)
    }

    /// The pipeline that writes `rate` rows a second into it. What it writes goes to `directory`,
    /// or to the topic `topic` of `brokers`. `options` are for its table.
    pub fn pipeline(
        self,
        rate: u64,
        directory: &Path,
        (brokers, topic): (&str, &str),
        options: &[(String, String)],
    ) -> String {
        let (rate, output) = (rate.to_string(), directory.display().to_string());
        let path = ("path", output.as_str());
        let stats = directory.join("stats.jsonl").display().to_string();
        let kafka = |delivery| {
            vec![("kafka.bootstrap.servers", brokers), ("topic", topic), ("delivery", delivery)]
        };
        let (connector, own) = match self {
            Self::Json => ("json", vec![path]),
            Self::Csv => ("csv", vec![path]),
            Self::Parquet => ("parquet", vec![path]),
            Self::Text => ("text", vec![path]),
            Self::Delta => ("delta", vec![path]),
            Self::KafkaExactlyOnce => ("kafka", kafka("exactly-once")),
            Self::KafkaAtLeastOnce => ("kafka", kafka("at-least-once")),
            Self::Console => ("console", vec![]),
            Self::Stats => {
                ("stats", vec![("path", stats.as_str()), ("reportInterval", "1 minute")])
            }
            Self::Noop => ("noop", vec![]),
        };
        let columns = match self {
            Self::Text => "CAST(value AS STRING) AS value",
            Self::KafkaExactlyOnce | Self::KafkaAtLeastOnce => "CAST(value AS STRING) AS value",
            Self::Stats => "timestamp, value",
            _ => "value",
        };
        format!(
            "CREATE TABLE input USING rate OPTIONS ('rowsPerSecond' = '{rate}');\n\
             CREATE TABLE output USING {connector} OPTIONS ({});\n\
             CREATE FLOW sink AS INSERT INTO output SELECT {columns} FROM STREAM input;\n",
            sql_options(&own, options),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn each_pipeline_names_its_sink() {
        for kind in Kind::value_variants() {
            let options = [("commitInterval".to_owned(), "0".to_owned())];
            let text = kind.pipeline(200, Path::new("/tmp/x"), ("127.0.0.1:1", "t"), &options);
            assert!(text.contains("'rowsPerSecond' = '200'"), "{text}");
            assert!(text.contains("'commitInterval' = '0'"), "{text}");
            assert_eq!(text.contains("127.0.0.1:1"), kind.is_kafka(), "{text}");
        }
    }
}
