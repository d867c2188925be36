//! How a flow ended, in words.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use millstream_engine::api::progress::ConstraintProgress;
use millstream_engine::driver::Finished;
use millstream_store::error::{Failure, Kind};

use crate::human;

/// How the system says that the process has as many descriptors as it may.
const TOO_MANY_FILES: &str = "(os error 24)";
const MORE_FILES: &str = "allow the process more file descriptors, with `ulimit -n` in the shell \
    that starts it, or LimitNOFILE in its systemd unit";

/// The message of a flow that failed: what, why, and what to do.
pub fn failure(flow: &str, failure: &Failure) -> String {
    let mut text = format!("error: flow '{flow}' failed: {failure}\n");
    for cause in causes(failure) {
        let _ = writeln!(text, "  because: {cause}");
    }
    let too_many_files = text.contains(TOO_MANY_FILES);
    let advice = if too_many_files { MORE_FILES } else { advice(failure.kind()) };
    let _ = write!(text, "  what to do: {advice}");
    text
}

/// The message of a flow that was stopped and leaves something to the next run.
pub fn left(flow: &str, failure: &Failure) -> String {
    format!("warning: flow '{flow}': {failure}")
}

/// Why a flow failed, on one line.
pub fn reason(failure: &Failure) -> String {
    let mut text = failure.to_string();
    for cause in causes(failure) {
        let _ = write!(text, ": {cause}");
    }
    text.replace('\n', " ")
}

/// The causes behind a failure's own message, without those that the message already contains.
fn causes(failure: &Failure) -> Vec<String> {
    let mut told = failure.to_string();
    let mut causes = Vec::new();
    let mut next = failure.cause().source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !told.contains(&text) {
            told.push_str(&text);
            causes.push(text);
        }
        next = Error::source(cause);
    }
    causes
}

fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Retry => {
            "run the same command again once what it reads from or writes to is back; it continues where this run stopped"
        }
        Kind::Fenced => {
            "another process runs on this checkpoint; stop that one first, or give this flow a \
             checkpoint of its own with --checkpoint"
        }
        Kind::Credentials => "correct the user, the password or the key, then run it again",
        Kind::Config => "change the setting, the SQL or the permission, then run it again",
        Kind::Data => {
            "look at the input or log that the message names; nothing was skipped or overwritten"
        }
        Kind::Bug => {
            "this is a fault in millstream; please report it with the output of a run with -vv"
        }
    }
}

/// The line of a flow that did not fail.
pub fn totals(flow: &str, finished: &Finished, took: Duration, stopped: bool) -> String {
    format!(
        "{flow}: {} after {}: {}, {} in, {} out",
        if stopped { "stopped" } else { "done" },
        human::duration(took),
        human::counted(finished.micro_batches, "micro-batch"),
        human::counted(finished.rows_in, "row"),
        human::counted(finished.rows_out, "row"),
    )
}

/// How many rows met a constraint of a flow.
pub fn constraint(flow: &str, counts: &ConstraintProgress) -> String {
    let ConstraintProgress { name, passed, failed } = counts;
    let (passed, failed) = (human::counted(*passed, "row"), human::counted(*failed, "row"));
    format!("{flow}: constraint {name}: {passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use std::io;

    use millstream_store::error::Classified;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the offset log cannot be written")]
    struct Outer(#[source] io::Error);

    impl Classified for Outer {
        fn kind(&self) -> Kind {
            Kind::Retry
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Repeating(#[source] io::Error);

    impl Classified for Repeating {
        fn kind(&self) -> Kind {
            Kind::Bug
        }
    }

    #[test]
    fn a_failure_says_what_why_and_what_to_do() {
        let cause = Outer(io::Error::other("no space left on device"));
        let text = failure("pii", &cause.into());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "error: flow 'pii' failed: the offset log cannot be written");
        assert_eq!(lines[1], "  because: no space left on device");
        assert!(lines[2].starts_with("  what to do: run the same command again"), "{text}");
    }

    #[test]
    fn a_cause_is_told_once() {
        let text = failure("pii", &Repeating(io::Error::other("a: b")).into());
        assert_eq!(text.matches("a: b").count(), 1, "{text}");
    }

    #[test]
    fn totals_count_in_plain_words() {
        let finished = Finished { micro_batches: 1, rows_in: 1_000, rows_out: 0 };
        assert_eq!(
            totals("pii", &finished, Duration::from_millis(1_500), false),
            "pii: done after 1.5 s: 1 micro-batch, 1,000 rows in, 0 rows out"
        );
    }
}
