//! `--restart`: whether a flow that failed is started again, and when.
//!
//! Only what the outside did is worth another start: brokers that were away for longer than a
//! transaction lives, a disk that was full, a password that was replaced, which each start looks
//! up again. A wrong setting, a damaged log or another instance that has taken over would be met
//! again. And a flow that has never run is not started again: an address or a password with a
//! mistake in it should be reported at once.

use std::time::Duration;

use millstream_store::env::Env;
use millstream_store::error::Kind;

/// How many times in a row, if the flag does not say: about an hour.
const TIMES_MAX: u32 = 60;
/// Before the first time; each further wait is twice as long.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A flow that ran for so long is healthy: failures before do not count any more.
const HEALTHY_AFTER: Duration = Duration::from_secs(600);

/// What `--restart` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A flow that failed stays so.
    Never,
    /// It is started again, so many times in a row at most.
    OnFailure(u32),
}

impl Default for Policy {
    fn default() -> Self {
        Self::OnFailure(TIMES_MAX)
    }
}

impl Policy {
    /// Reads `never`, `on-failure` or `on-failure:N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = || "write never, on-failure, or on-failure:N with N from 1".to_owned();
        match text.split_once(':') {
            None if text == "never" => Ok(Self::Never),
            None if text == "on-failure" => Ok(Self::default()),
            Some(("on-failure", times)) => match times.parse() {
                Ok(times) if times > 0 => Ok(Self::OnFailure(times)),
                _ => Err(wanted()),
            },
            _ => Err(wanted()),
        }
    }
}

/// The starts of one flow.
pub struct Starts {
    policy: Policy,
    failures: u32,
    has_run: bool,
}

/// Another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// How many times in a row, this one among them.
    pub count: u32,
    /// How many times in a row it may be.
    pub count_max: u32,
    /// After which time.
    pub wait: Duration,
}

impl Starts {
    /// A flow that was not started yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, has_run: false }
    }

    /// Whether a flow that failed so is started again. It `ran` for that long after everything was
    /// open, if it came that far.
    pub fn again(&mut self, env: &Env, failure: Kind, ran: Option<Duration>) -> Option<Again> {
        self.has_run |= ran.is_some();
        if ran.is_some_and(|ran| ran >= HEALTHY_AFTER) {
            self.failures = 0;
        }
        let Policy::OnFailure(count_max) = self.policy else { return None };
        let may_pass = matches!(failure, Kind::Retry | Kind::Credentials);
        if !may_pass || !self.has_run || self.failures == count_max {
            return None;
        }
        self.failures += 1;
        let longest = WAIT.saturating_mul(1 << (self.failures - 1).min(10)).min(WAIT_MAX);
        // Between half of it and all: flows that failed together do not come back together.
        let part = (env.random_u64() % 1_000) as f64 / 2_000.0;
        Some(Again { count: self.failures, count_max, wait: longest.mul_f64(0.5 + part) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: Option<Duration> = Some(Duration::from_secs(30));

    #[test]
    fn the_flag_is_read() {
        assert_eq!(Policy::parse("never"), Ok(Policy::Never));
        assert_eq!(Policy::parse("on-failure"), Ok(Policy::OnFailure(TIMES_MAX)));
        assert_eq!(Policy::parse("on-failure:3"), Ok(Policy::OnFailure(3)));
        for wrong in ["", "always", "on-failure:0", "on-failure:", "on-failure:x", "never:1"] {
            assert!(Policy::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_faults_of_the_outside_are_worth_another_start() {
        let env = Env::real();
        for kind in [Kind::Fenced, Kind::Config, Kind::Data, Kind::Bug] {
            assert_eq!(Starts::new(Policy::default()).again(&env, kind, RAN), None, "{kind:?}");
        }
        assert_eq!(Starts::new(Policy::Never).again(&env, Kind::Retry, RAN), None);
        for kind in [Kind::Retry, Kind::Credentials] {
            assert_eq!(Starts::new(Policy::default()).again(&env, kind, None), None, "{kind:?}");
            assert!(Starts::new(Policy::default()).again(&env, kind, RAN).is_some(), "{kind:?}");
        }
    }

    #[test]
    fn waits_grow_to_a_minute_and_end() {
        let (env, mut starts) = (Env::real(), Starts::new(Policy::OnFailure(12)));
        let mut ran = RAN;
        for count in 1..=12 {
            let again = starts.again(&env, Kind::Retry, ran).expect("it is not too often yet");
            let longest = Duration::from_secs(1 << (count - 1).min(6)).min(WAIT_MAX);
            assert_eq!((again.count, again.count_max), (count, 12));
            assert!(again.wait >= longest / 2 && again.wait <= longest, "{again:?}");
            // It did not get far again.
            ran = None;
        }
        assert_eq!(starts.again(&env, Kind::Retry, None), None);
    }

    #[test]
    fn a_healthy_stretch_is_a_new_beginning() {
        let (env, mut starts) = (Env::real(), Starts::new(Policy::OnFailure(2)));
        for _ in 0..2 {
            starts.again(&env, Kind::Retry, RAN).expect("it is not too often yet");
        }
        let again = starts.again(&env, Kind::Retry, Some(HEALTHY_AFTER));
        assert_eq!(again.map(|again| again.count), Some(1));
    }
}
