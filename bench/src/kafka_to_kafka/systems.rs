//! Who takes part in a run.

use clap::ValueEnum;

use crate::engine::{Delivery, EngineOptions, Millstream};
use crate::system::{Relay, SystemUnderTest};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// The Kafka client alone.
    Relay,
    /// The Kafka client alone, with a transaction for the records that are there.
    RelayTransactions,
    /// `millstream run`, whose own client reads and writes.
    Millstream,
    /// `millstream run`, where librdkafka reads and writes.
    MillstreamLibrdkafka,
    /// `millstream run`, exactly once whatever `--delivery` says.
    MillstreamExactlyOnce,
    /// The same, where librdkafka reads and writes.
    MillstreamExactlyOnceLibrdkafka,
    /// `millstream run` by TLS, with a user and with compression.
    Secure,
}

impl System {
    /// What it promises, where the user has asked for `asked`.
    pub fn delivery(self, asked: Delivery) -> Delivery {
        match self {
            Self::RelayTransactions
            | Self::MillstreamExactlyOnce
            | Self::MillstreamExactlyOnceLibrdkafka => Delivery::ExactlyOnce,
            Self::Relay | Self::Millstream | Self::MillstreamLibrdkafka | Self::Secure => asked,
        }
    }

    /// Whether it is the Kafka client alone.
    pub fn is_relay(self) -> bool {
        matches!(self, Self::Relay | Self::RelayTransactions)
    }

    /// Whether it writes in transactions, where the user has asked for `asked`. The relay does not,
    /// whatever its lines say of the engine's delivery.
    pub fn has_transactions(self, asked: Delivery) -> bool {
        self != Self::Relay && self.delivery(asked) == Delivery::ExactlyOnce
    }

    /// How it is started; `options` are the engine's, `by_tls` those of a client by TLS.
    pub fn system_under_test(
        self,
        options: &EngineOptions,
        by_tls: &[(String, String)],
    ) -> Box<dyn SystemUnderTest> {
        if self.is_relay() {
            return Box::new(Relay { transactions: self == Self::RelayTransactions });
        }
        let mut options = options.clone();
        options.delivery = self.delivery(options.delivery);
        options.librdkafka =
            matches!(self, Self::MillstreamLibrdkafka | Self::MillstreamExactlyOnceLibrdkafka);
        if self == Self::Secure {
            options.client = by_tls.to_vec();
        }
        Box::new(Millstream { options })
    }
}

/// Those of a run, in the order of its first round: the one of `only`, or else those `listed`, or
/// else the relay and the engine; with `secure` also the engine by TLS. Each takes part once.
pub fn chosen(listed: &[System], only: Option<System>, secure: bool) -> Vec<System> {
    if let Some(only) = only {
        return vec![only];
    }
    let usual = [System::Relay, System::Millstream];
    let listed: &[System] = if listed.is_empty() { &usual } else { listed };
    let mut chosen = Vec::new();
    for system in listed.iter().chain(secure.then_some(&System::Secure)) {
        if !chosen.contains(system) {
            chosen.push(*system);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_and_the_engine_are_measured_unless_something_else_is_asked_for() {
        use System::{Millstream, Relay, RelayTransactions, Secure};

        assert_eq!(chosen(&[], None, false), [Relay, Millstream]);
        assert_eq!(chosen(&[], None, true), [Relay, Millstream, Secure]);
        assert_eq!(chosen(&[], Some(Secure), true), [Secure]);
        let listed = [RelayTransactions, Relay, RelayTransactions];
        assert_eq!(chosen(&listed, None, false), [RelayTransactions, Relay]);
        assert_eq!(chosen(&[Secure, Relay], None, true), [Secure, Relay]);
    }

    #[test]
    fn what_names_a_delivery_has_it() {
        let exactly = System::MillstreamExactlyOnceLibrdkafka;
        assert_eq!(exactly.delivery(Delivery::AtLeastOnce), Delivery::ExactlyOnce);
        let asked = System::MillstreamLibrdkafka;
        assert_eq!(asked.delivery(Delivery::ExactlyOnce), Delivery::ExactlyOnce);
        assert!(!asked.has_transactions(Delivery::AtLeastOnce));
        assert!(!System::Relay.has_transactions(Delivery::ExactlyOnce));
        assert!(System::RelayTransactions.has_transactions(Delivery::AtLeastOnce));
    }
}
