//! When the next micro-batch starts.

use std::str::FromStr;
use std::time::Duration;

use millstream_sql::nearest::nearest;
use millstream_sql::values::interval::parse_duration;

/// When the next micro-batch starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as the one before is done and there is input: `'0 seconds'`.
    #[default]
    BackToBack,
    /// Every so often.
    Interval(Duration),
    /// One micro-batch with all there is, whatever the limits; then the query ends.
    Once,
    /// Micro-batches within the limits until all there was at the start is read.
    AvailableNow,
}

impl FromStr for Trigger {
    /// What to write instead.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim().to_lowercase();
        match bare.as_str() {
            "once" => return Ok(Self::Once),
            "availablenow" => return Ok(Self::AvailableNow),
            _ => {}
        }
        match parse_duration(&bare) {
            Ok(Duration::ZERO) => Ok(Self::BackToBack),
            Ok(interval) => Ok(Self::Interval(interval)),
            Err(_) if nearest(&bare, ["once"]).is_some() => Err("did you mean 'once'?".into()),
            Err(_) if nearest(&bare, ["availablenow"]).is_some() => {
                Err("did you mean 'availableNow'?".into())
            }
            Err(help) => Err(format!(
                "{help}\na trigger is '0 seconds' (back to back), an interval such as \
                 '500 milliseconds' or '1 minute', 'once' or 'availableNow'"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_whatever_their_case() {
        let seconds = |count| Trigger::Interval(Duration::from_secs(count));
        let cases = [
            ("0 seconds", Trigger::BackToBack),
            ("ONCE", Trigger::Once),
            ("AvailableNow", Trigger::AvailableNow),
            ("1 minute 30 seconds", seconds(90)),
            ("interval 2 hours", seconds(7200)),
            ("500 milliseconds", Trigger::Interval(Duration::from_millis(500))),
            ("0.5 SECONDS", Trigger::Interval(Duration::from_millis(500))),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<Trigger>(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_trigger_gets_help() {
        let cases = [
            ("onse", "did you mean 'once'"),
            ("available now", "did you mean 'availableNow'"),
            ("10", "such as '10 seconds'"),
            ("5 secnds", "did you mean 'seconds'"),
            ("1 month", "write days"),
            ("100 ms", "did you mean 'milliseconds'"),
            ("-1 seconds", "'-1 seconds' is below 0"),
            ("1.5 minutes", "only seconds can have a fraction"),
            ("1e3 seconds", "'1e3' is not a number"),
        ];
        for (text, wanted) in cases {
            let help = text.parse::<Trigger>().unwrap_err();
            assert!(help.contains(wanted), "{text}: {help}");
        }
    }
}
