//! What a flow's run has to say besides its progress, on standard error: where a new query begins,
//! what does not answer, and that it starts again. Once at each change.

use std::fmt::Write as _;
use std::sync::Arc;

use millstream_engine::api::progress::{Contact, Listener, Progress, Restart, SourceBeginning};

use crate::human;
use crate::screen::Screen;

/// Offsets of many partitions are cut after so many characters.
const OFFSET_CHARACTERS_MAX: usize = 160;

/// Says on the screen what one flow has to say.
pub struct Announcer {
    flow: String,
    checkpoint: String,
    screen: Screen,
}

impl Announcer {
    /// For the flow `flow`, whose checkpoint is at `checkpoint`.
    pub fn listener(flow: &str, checkpoint: &str, screen: &Screen) -> Arc<dyn Listener> {
        let (flow, checkpoint) = (flow.to_owned(), checkpoint.to_owned());
        Arc::new(Self { flow, checkpoint, screen: screen.clone() })
    }
}

impl Listener for Announcer {
    fn begins(&self, sources: &[SourceBeginning]) {
        self.screen.say(&beginning(&self.flow, &self.checkpoint, sources));
    }

    fn contact(&self, contact: &Contact) {
        self.screen.say(&change(&self.flow, contact));
    }

    fn restarts(&self, restart: &Restart) {
        self.screen.say(&start(&self.flow, restart));
    }

    fn published(&self, _: &Progress) {}
}

fn beginning(flow: &str, checkpoint: &str, sources: &[SourceBeginning]) -> String {
    let mut text = format!("{flow}: begins anew, the checkpoint {checkpoint} has no micro-batch");
    for SourceBeginning { description, start, option } in sources {
        let start = start.as_str();
        let shown = match start.char_indices().nth(OFFSET_CHARACTERS_MAX) {
            Some((end, _)) => format!("{}...", &start[..end]),
            None => start.to_owned(),
        };
        let _ = write!(text, "; {description} from {shown}");
        if let Some(option) = option {
            let _ = write!(text, " ({option})");
        }
    }
    text
}

fn change(flow: &str, contact: &Contact) -> String {
    let Contact { with, at_ms, since_ms, is_back } = contact;
    let lasted = human::milliseconds(at_ms.saturating_sub(*since_ms));
    if *is_back {
        format!("{flow}: {with} answered again after {lasted}")
    } else {
        let since = human::moment(*since_ms);
        format!("{flow}: no answer from {with} since {since}, for {lasted}; waiting")
    }
}

fn start(flow: &str, restart: &Restart) -> String {
    let Restart { count, count_max, wait, reason, .. } = restart;
    let wait = human::duration(*wait);
    format!("{flow}: failed, and starts again in {wait} ({count} of {count_max}): {reason}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_store::offset::SourceOffset;

    use super::*;

    #[test]
    fn a_beginning_says_where_and_why() {
        let source = |option: Option<&str>| SourceBeginning {
            description: "KafkaV2[Subscribe[in]]".into(),
            start: SourceOffset::new(r#"{"in":{"0":5}}"#),
            option: option.map(str::to_owned),
        };
        assert_eq!(
            beginning("pii", "/c", &[source(Some("'startingOffsets' = 'latest'"))]),
            r#"pii: begins anew, the checkpoint /c has no micro-batch; KafkaV2[Subscribe[in]] "#
                .to_owned()
                + r#"from {"in":{"0":5}} ('startingOffsets' = 'latest')"#
        );
        assert!(beginning("pii", "/c", &[source(None)]).ends_with(r#"from {"in":{"0":5}}"#));
    }

    #[test]
    fn each_change_is_a_sentence() {
        let lost = Contact {
            with: "the brokers of KafkaV2[Subscribe[in]]".into(),
            at_ms: 1_767_225_606_000,
            since_ms: 1_767_225_601_000,
            is_back: false,
        };
        assert_eq!(
            change("pii", &lost),
            "pii: no answer from the brokers of KafkaV2[Subscribe[in]] since 2026-01-01 00:00:01 \
             UTC, for 5.0 s; waiting"
        );
        let back = Contact { is_back: true, ..lost };
        assert!(change("pii", &back).ends_with("answered again after 5.0 s"));
        let restart = Restart {
            at_ms: 0,
            count: 2,
            count_max: 60,
            wait: Duration::from_millis(1_500),
            reason: "gone".into(),
        };
        let said = start("pii", &restart);
        assert_eq!(said, "pii: failed, and starts again in 1.5 s (2 of 60): gone");
    }
}
