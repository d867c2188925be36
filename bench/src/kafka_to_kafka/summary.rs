//! What the rounds at one rate come to: medians of each system, and how many times the relay's they
//! are.

use serde::Serialize;

use super::{KafkaToKafkaLine, Setup, System};
use crate::engine::Delivery;
use crate::report;
use crate::round::Medians;

/// Medians over the rounds at one rate.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    setup: Setup,
    rounds: u32,
    /// Of all rounds of all systems.
    pub missing: u64,
    duplicated: u64,
    relay: Option<Medians>,
    millstream: Option<Medians>,
    secure: Option<Medians>,
    /// Engine over relay; 1 means that the engine costs nothing.
    ratio_p50: Option<f64>,
    ratio_p99: Option<f64>,
    /// The engine by TLS over the engine in plain text.
    secure_ratio_p50: Option<f64>,
    secure_ratio_p99: Option<f64>,
    /// Every system that was measured, in the order of the first round.
    systems: Vec<OfSystem>,
}

/// What a system's rounds come to.
#[derive(Clone, Debug, Serialize)]
struct OfSystem {
    configuration: String,
    delivery: Delivery,
    missing: u64,
    duplicated: u64,
    #[serde(flatten)]
    medians: Medians,
    /// Over the relay; `None` if that was not measured.
    #[serde(flatten)]
    over_relay: OverRelay,
    /// Over the transactional relay, for what has transactions itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_p50_transactions: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_p99_transactions: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct OverRelay {
    ratio_p50: Option<f64>,
    ratio_p99: Option<f64>,
    ratio_max: Option<f64>,
}

impl Summary {
    /// Of `lines`, which are all of one rate. `systems` are those that took part.
    pub fn of(setup: Setup, rounds: u32, systems: &[System], lines: &[KafkaToKafkaLine]) -> Self {
        let medians = |system: System| {
            let of_it =
                lines.iter().filter(move |line| line.configuration == report::name(&system));
            Medians::of(of_it.map(|line| &line.outcome))
        };
        let (relay, millstream) = (medians(System::Relay), medians(System::Millstream));
        let (secure, transactions) = (medians(System::Secure), medians(System::RelayTransactions));
        let of = |system: &System| {
            let medians = medians(*system)?;
            let asked = setup.delivery;
            let transactions = transactions.filter(|_| system.has_transactions(asked));
            Some(OfSystem::of(*system, asked, lines, medians, (relay, transactions)))
        };
        Self {
            rounds,
            missing: lines.iter().map(|line| line.outcome.missing).sum(),
            duplicated: lines.iter().map(|line| line.outcome.duplicated).sum(),
            ratio_p50: over(millstream, relay, p50),
            ratio_p99: over(millstream, relay, p99),
            secure_ratio_p50: over(secure, millstream, p50),
            secure_ratio_p99: over(secure, millstream, p99),
            systems: systems.iter().filter_map(of).collect(),
            relay,
            millstream,
            secure,
            setup,
        }
    }

    /// The table for a person. Names have `width` characters.
    pub fn table(&self, width: usize) -> String {
        let mut lines = vec![table_head(width, self.setup.rate)];
        lines.extend(self.systems.iter().map(|system| system.table_row(width)));
        lines.join("\n")
    }
}

impl OfSystem {
    fn of(
        system: System,
        asked: Delivery,
        lines: &[KafkaToKafkaLine],
        medians: Medians,
        (relay, transactions): (Option<Medians>, Option<Medians>),
    ) -> Self {
        let configuration = report::name(&system);
        let of_it = lines.iter().filter(|line| line.configuration == configuration);
        let (mut missing, mut duplicated) = (0, 0);
        for line in of_it {
            missing += line.outcome.missing;
            duplicated += line.outcome.duplicated;
        }
        let it = Some(medians);
        Self {
            configuration,
            delivery: system.delivery(asked),
            missing,
            duplicated,
            medians,
            over_relay: OverRelay {
                ratio_p50: over(it, relay, p50),
                ratio_p99: over(it, relay, p99),
                ratio_max: over(it, relay, |medians| medians.max_ms),
            },
            ratio_p50_transactions: over(it, transactions, p50),
            ratio_p99_transactions: over(it, transactions, p99),
        }
    }

    fn table_row(&self, width: usize) -> String {
        let times = |ratio: Option<f64>| ratio.map_or_else(String::new, |it| format!("x{it:.2}"));
        let Self { configuration, medians, over_relay, .. } = self;
        let broker = medians.broker_cpu_seconds;
        let broker = broker.map_or_else(String::new, |seconds| format!("{seconds:.2}"));
        format!(
            "{configuration:<width$} {:>9.2} {:>8} {:>8} {:>9.2} {:>8} {:>8} {:>9.2} {:>8} {:>8} \
             {:>8} {:>7.2} {:>9} {:>8.1}",
            medians.p50_ms,
            times(over_relay.ratio_p50),
            times(self.ratio_p50_transactions),
            medians.p99_ms,
            times(over_relay.ratio_p99),
            times(self.ratio_p99_transactions),
            medians.max_ms,
            times(over_relay.ratio_max),
            self.missing,
            self.duplicated,
            medians.cpu_seconds,
            broker,
            medians.peak_rss_mb
        )
    }
}

fn table_head(width: usize, rate: u64) -> String {
    format!(
        "{:<width$} {:>9} {:>8} {:>8} {:>9} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>9} {:>8}",
        format!("medians, {rate}/s"),
        "p50 ms",
        "x relay",
        "x tx",
        "p99 ms",
        "x relay",
        "x tx",
        "max ms",
        "x relay",
        "missing",
        "doubled",
        "CPU s",
        "broker s",
        "RSS MB"
    )
}

fn p50(medians: &Medians) -> f64 {
    medians.p50_ms
}

fn p99(medians: &Medians) -> f64 {
    medians.p99_ms
}

/// `value` of one over that of the other; `None` if either was not measured, or is 0.
fn over(of: Option<Medians>, floor: Option<Medians>, value: fn(&Medians) -> f64) -> Option<f64> {
    let (of, floor) = (value(&of?), value(&floor?));
    (floor > 0.0).then(|| report::rounded(of / floor, 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Replication;
    use crate::quantiles::Quantiles;
    use crate::round::RoundOutcome;

    fn setup() -> Setup {
        Setup {
            rate: 1_000,
            size: 100,
            partitions: 4,
            seconds: 1,
            generator_linger_ms: 0,
            broker_warmup_seconds: 0,
            engine_options: Vec::new(),
            delivery: Delivery::AtLeastOnce,
            replication: Replication {
                brokers: 3,
                replication_factor: 3,
                min_insync_replicas: Some(2),
            },
        }
    }

    fn line(system: System, p50_ms: f64) -> KafkaToKafkaLine {
        let quantiles = Quantiles {
            p50_ms,
            p90_ms: p50_ms * 2.0,
            p99_ms: p50_ms * 4.0,
            p999_ms: p50_ms * 8.0,
            max_ms: p50_ms * 10.0,
        };
        let outcome = RoundOutcome {
            start_ms: 1,
            records: 1_000,
            missing: 1,
            duplicated: 2,
            foreign: 0,
            latency: quantiles,
            throughput_rows_per_s: 1_000.0,
            generator_late_p50_ms: 0.0,
            generator_late_p99_ms: 0.0,
            cpu_seconds: 0.5,
            peak_rss_mb: 50.0,
            broker_cpu_seconds: Some(0.75),
        };
        let setup = Setup { delivery: system.delivery(Delivery::AtLeastOnce), ..setup() };
        KafkaToKafkaLine { configuration: report::name(&system), round: 1, setup, outcome }
    }

    #[test]
    fn ratios_are_over_the_relay_and_of_transactions_over_the_transactional_one() {
        use System::{MillstreamExactlyOnce, MillstreamLibrdkafka, Relay, RelayTransactions};

        let systems = [MillstreamExactlyOnce, Relay, RelayTransactions, MillstreamLibrdkafka];
        let lines = [
            line(Relay, 2.0),
            line(Relay, 4.0),
            line(RelayTransactions, 6.0),
            line(MillstreamExactlyOnce, 9.0),
            line(MillstreamLibrdkafka, 6.0),
        ];
        let summary = Summary::of(setup(), 1, &systems, &lines);
        let exactly_once = &summary.systems[0];
        // The relay's median is 3.
        assert_eq!(exactly_once.configuration, "millstream-exactly-once");
        assert_eq!(exactly_once.over_relay.ratio_p50, Some(3.0));
        assert_eq!(exactly_once.ratio_p99_transactions, Some(1.5));
        assert_eq!(exactly_once.delivery, Delivery::ExactlyOnce);
        let at_least_once = &summary.systems[3];
        assert_eq!(at_least_once.over_relay.ratio_max, Some(2.0));
        assert_eq!(at_least_once.ratio_p50_transactions, None);
        assert_eq!((summary.missing, summary.duplicated), (5, 10));
        assert_eq!(summary.ratio_p50, None, "the engine's usual way was not measured");
    }

    #[test]
    fn the_table_has_a_column_for_every_heading() {
        let lines = [line(System::Relay, 2.0), line(System::Millstream, 3.0)];
        let systems = [System::Relay, System::Millstream];
        let table = Summary::of(setup(), 1, &systems, &lines).table(33);
        let lengths: Vec<_> = table.lines().map(str::len).collect();
        assert_eq!(lengths, [lengths[0]; 3], "{table}");
        assert!(table.contains("x1.50") && table.contains("0.75"), "{table}");
    }
}
