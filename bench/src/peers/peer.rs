//! Who takes part, and how each is started.

use clap::ValueEnum;

use super::flink::Flink;
use super::spark::Spark;
use crate::broker::ClientOptions;
use crate::engine::{Delivery, EngineOptions, Millstream};
use crate::error::Error;
use crate::system::{Relay, SystemUnderTest};

/// Who takes part, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// The Kafka client alone.
    Relay,
    /// The Kafka client alone, with transactions.
    RelayTransactions,
    /// The engine, at least once.
    Millstream,
    /// The engine, exactly once.
    MillstreamExactlyOnce,
    /// The same, where librdkafka reads and writes.
    MillstreamExactlyOnceLibrdkafka,
    /// The same by its own client, by TLS, with a user and with compression.
    MillstreamExactlyOnceTls,
    /// Flink 2.2, at least once, a checkpoint a second.
    Flink,
    /// Flink 2.2, exactly once, a checkpoint each 50 ms.
    #[value(name = "flink-exactly-once-50ms")]
    FlinkExactlyOnce50Ms,
    /// Flink 2.2, exactly once, a checkpoint each 100 ms.
    #[value(name = "flink-exactly-once-100ms")]
    FlinkExactlyOnce100Ms,
    /// Flink 2.2, exactly once, a checkpoint each 200 ms.
    #[value(name = "flink-exactly-once-200ms")]
    FlinkExactlyOnce200Ms,
    /// Flink 2.2, exactly once, a checkpoint a second.
    #[value(name = "flink-exactly-once-1s")]
    FlinkExactlyOnce1S,
    /// Spark 4.2 in micro-batches, at least once.
    SparkMicroBatch,
    /// The same with asynchronous progress tracking.
    SparkAsync,
    /// Spark 4.2 in Real-Time Mode, with its default of a checkpoint each 5 minutes.
    SparkRealTime,
    /// The same with a checkpoint each 10 seconds.
    #[value(name = "spark-real-time-10s")]
    SparkRealTime10S,
}

impl Peer {
    /// Those that are asked for, in the order of a round; all of them if none is.
    pub fn chosen(asked: &[Self]) -> Vec<Self> {
        let is_chosen = |peer: &Self| asked.is_empty() || asked.contains(peer);
        Self::value_variants().iter().copied().filter(is_chosen).collect()
    }

    /// Whether it is Millstream.
    pub fn is_engine(self) -> bool {
        matches!(
            self,
            Self::Millstream
                | Self::MillstreamExactlyOnce
                | Self::MillstreamExactlyOnceLibrdkafka
                | Self::MillstreamExactlyOnceTls
        )
    }

    /// Whether it reaches the brokers by TLS.
    pub fn is_by_tls(self) -> bool {
        self == Self::MillstreamExactlyOnceTls
    }

    /// Whether it writes in transactions.
    pub fn has_transactions(self) -> bool {
        matches!(
            self,
            Self::RelayTransactions
                | Self::MillstreamExactlyOnce
                | Self::MillstreamExactlyOnceLibrdkafka
                | Self::MillstreamExactlyOnceTls
                | Self::FlinkExactlyOnce50Ms
                | Self::FlinkExactlyOnce100Ms
                | Self::FlinkExactlyOnce200Ms
                | Self::FlinkExactlyOnce1S
        )
    }

    /// Downloads what it needs, if need be. `by_tls` has the options of a client by TLS.
    pub fn system_under_test(
        self,
        partitions: i32,
        by_tls: &ClientOptions,
    ) -> Result<Box<dyn SystemUnderTest>, Error> {
        let flink = |checkpoints| -> Result<Box<dyn SystemUnderTest>, Error> {
            Ok(Box::new(Flink::new(Delivery::ExactlyOnce, checkpoints)?))
        };
        let spark = |mode| -> Result<Box<dyn SystemUnderTest>, Error> {
            Ok(Box::new(Spark::new(mode, partitions)?))
        };
        match self {
            Self::Relay => Ok(Box::new(Relay { transactions: false })),
            Self::RelayTransactions => Ok(Box::new(Relay { transactions: true })),
            Self::Millstream
            | Self::MillstreamExactlyOnce
            | Self::MillstreamExactlyOnceLibrdkafka
            | Self::MillstreamExactlyOnceTls => {
                Ok(Box::new(Millstream { options: self.engine_options(by_tls) }))
            }
            Self::Flink => Ok(Box::new(Flink::new(Delivery::AtLeastOnce, "1 s")?)),
            Self::FlinkExactlyOnce50Ms => flink("50 ms"),
            Self::FlinkExactlyOnce100Ms => flink("100 ms"),
            Self::FlinkExactlyOnce200Ms => flink("200 ms"),
            Self::FlinkExactlyOnce1S => flink("1 s"),
            Self::SparkMicroBatch => spark("micro-batch"),
            Self::SparkAsync => spark("async"),
            Self::SparkRealTime => spark("real-time:5 minutes"),
            Self::SparkRealTime10S => spark("real-time:10 seconds"),
        }
    }

    fn engine_options(self, by_tls: &ClientOptions) -> EngineOptions {
        EngineOptions {
            delivery: match self {
                Self::Millstream => Delivery::AtLeastOnce,
                _ => Delivery::ExactlyOnce,
            },
            librdkafka: self == Self::MillstreamExactlyOnceLibrdkafka,
            client: if self.is_by_tls() { by_tls.clone() } else { ClientOptions::new() },
            ..EngineOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_takes_part_once_and_in_the_order_of_a_round() {
        assert_eq!(Peer::chosen(&[]), Peer::value_variants());
        let asked = [Peer::Flink, Peer::Relay, Peer::Flink];
        assert_eq!(Peer::chosen(&asked), [Peer::Relay, Peer::Flink]);
    }

    #[test]
    fn the_engine_has_the_options_that_its_name_says() {
        let by_tls = vec![("kafka.security.protocol".to_owned(), "SASL_SSL".to_owned())];
        let options = |peer: Peer| peer.engine_options(&by_tls);
        assert_eq!(options(Peer::Millstream), EngineOptions::default());
        let exactly = EngineOptions { delivery: Delivery::ExactlyOnce, ..EngineOptions::default() };
        assert_eq!(options(Peer::MillstreamExactlyOnce), exactly);
        let librdkafka = EngineOptions { librdkafka: true, ..exactly.clone() };
        assert_eq!(options(Peer::MillstreamExactlyOnceLibrdkafka), librdkafka);
        let secure = EngineOptions { client: by_tls.clone(), ..exactly };
        assert_eq!(options(Peer::MillstreamExactlyOnceTls), secure);
        let engines = Peer::chosen(&[]).into_iter().filter(|peer| peer.is_engine());
        let with = engines.filter(|peer| peer.has_transactions());
        assert_eq!(with.count(), 3);
    }
}
