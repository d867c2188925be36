//! Times of day.

use crate::error::Problem;
use crate::functions::Action;
use crate::java::calendar::DAY_MS;
use crate::java::time_pattern::{DEFAULT, TimePattern, parse_second_of_day};
use crate::state::State;

/// A time of day that messages decide, and how it is written.
#[derive(Debug)]
pub(crate) struct TimeOfDay {
    /// Seconds of the day, the second one excluded; none is the present time.
    range: Option<(i64, i64)>,
    pattern: TimePattern,
}

impl TimeOfDay {
    pub(crate) fn write(&self, state: &mut State, out: &mut Vec<u8>) {
        let ms = match self.range {
            None => state.now_ms.rem_euclid(DAY_MS),
            Some((begin, end)) => (begin + state.random.below((end - begin) as u64) as i64) * 1_000,
        };
        self.pattern.write(ms * 1_000_000, out);
    }
}

/// `time()`, `time(out)` and `time(begin, end, out)`.
pub(crate) fn time<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (range, pattern) = match arguments {
        [] => (None, DEFAULT),
        [begin, end, pattern, ..] => (Some(between(begin, end)?), *pattern),
        [pattern, ..] => (None, *pattern),
    };
    Ok(Action::Time(TimeOfDay { range, pattern: TimePattern::parse(pattern)? }))
}

fn between(begin: &str, end: &str) -> Result<(i64, i64), Problem> {
    let range = (parse_second_of_day(begin)?, parse_second_of_day(end)?);
    if range.0 >= range.1 {
        let what = format!("{begin} is not before {end}");
        return Err(Problem::new(what, "write the earlier time first"));
    }
    Ok(range)
}
