//! When a message is tried again.

use std::time::Duration;

use millstream_engine::api::options::{OptionError, Options};
use millstream_store::env::Env;

use super::options::time;

/// Receivers may ask for more time than a person would wait.
const ASKED_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// How often and how fast a message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Attempts after the first; `None` for as many as it takes.
    pub max: Option<u32>,
    /// The wait after the first attempt; each further one is twice as long.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Retries {
    /// Reads `maxRetries`, `retryBackoff` and `retryBackoffMax`.
    pub fn parse(options: &Options) -> Result<Self, OptionError> {
        let max = options.parse("maxRetries", "a whole number")?;
        let backoff = time(options, "retryBackoff", Duration::from_millis(500))?;
        let backoff_max = time(options, "retryBackoffMax", Duration::from_secs(30))?;
        Ok(Self { max, backoff, backoff_max: backoff_max.max(backoff) })
    }

    /// How long to wait after so many failed attempts: between half of the time and all of it, so
    /// that queries that failed together do not come back together, and never less than the
    /// receiver asks for.
    pub fn wait(&self, failed: u32, asked: Option<Duration>, env: &Env) -> Duration {
        let doublings = failed.saturating_sub(1).min(20);
        let longest = self.backoff.saturating_mul(1 << doublings).min(self.backoff_max);
        let part = (env.random_u64() % 1_000) as f64 / 2_000.0;
        let wait = longest.mul_f64(0.5 + part);
        asked.map_or(wait, |asked| wait.max(asked.min(ASKED_WAIT_MAX)))
    }
}

/// How long a receiver asks to be left alone by `Retry-After`: a number of seconds, or a moment.
///
/// Origin: RFC 9110, section 10.2.3.
pub fn retry_after(text: &str, now_ms: i64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let moment = chrono::DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    Some(Duration::from_millis(u64::try_from(moment - now_ms).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_are_never_shorter_than_asked() {
        let options = Options::new([("retryBackoff".to_owned(), "100ms".to_owned())]);
        let (retries, env) = (Retries::parse(&options).unwrap(), Env::real());
        for failed in 1..=40 {
            let wait = retries.wait(failed, None, &env);
            let longest = Duration::from_millis(100 << (failed - 1).min(20));
            let longest = longest.min(retries.backoff_max);
            assert!(wait >= longest / 2 && wait <= longest, "{failed}: {wait:?}");
        }
        let asked = Duration::from_secs(90);
        assert_eq!(retries.wait(1, Some(asked), &env), asked);
        assert_eq!(retries.wait(1, Some(Duration::MAX), &env), ASKED_WAIT_MAX);
    }

    #[test]
    fn a_receiver_asks_for_seconds_or_for_a_moment() {
        let now_ms = 784_111_777_000;
        assert_eq!(retry_after(" 120 ", now_ms), Some(Duration::from_secs(120)));
        let moment = "Sun, 06 Nov 1994 08:50:00 GMT";
        assert_eq!(retry_after(moment, now_ms), Some(Duration::from_secs(23)));
        assert_eq!(retry_after(moment, now_ms + 60_000), Some(Duration::ZERO));
        for wrong in ["", "-1", "soon", "1.5"] {
            assert_eq!(retry_after(wrong, now_ms), None, "{wrong:?}");
        }
    }
}
