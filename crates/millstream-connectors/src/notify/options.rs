//! Options that webhooks and mails have in common.

use std::time::Duration;

use millstream_engine::api::options::{OptionError, Options};

use crate::{duration, paths};

/// The file for what is refused.
pub const REFUSED_PATH: &str = "refusedPath";

/// The option `key` as a local file; relative to the pipeline's base directory.
pub fn file(options: &Options, key: &str) -> Result<Option<String>, OptionError> {
    let Some(path) = options.get(key) else { return Ok(None) };
    paths::check_local(key, path)?;
    Ok(Some(path.to_owned()))
}

/// The option `key` as a time that is longer than nothing.
pub fn time(options: &Options, key: &str, default: Duration) -> Result<Duration, OptionError> {
    let time = duration::option(options, key)?.unwrap_or(default);
    if time.is_zero() {
        let text = options.get(key).unwrap_or_default();
        return Err(OptionError::invalid(key, text, "longer than nothing"));
    }
    Ok(time)
}

/// The option `key` as a number from 1 to `max`.
pub fn count(
    options: &Options,
    key: &str,
    default: usize,
    max: usize,
) -> Result<usize, OptionError> {
    let wanted = format!("a whole number from 1 to {max}");
    let count = options.parse(key, &wanted)?.unwrap_or(default);
    if count == 0 || count > max {
        let text = options.get(key).unwrap_or_default();
        return Err(OptionError::invalid(key, text, &wanted));
    }
    Ok(count)
}

/// The time between two of the messages of which the option `key` says how many there may be in
/// `period`; nothing without it.
pub fn interval(options: &Options, key: &str, period: Duration) -> Result<Duration, OptionError> {
    let wanted = "a number greater than 0";
    let Some(count) = options.parse::<f64>(key, wanted)? else { return Ok(Duration::ZERO) };
    let text = options.get(key).unwrap_or_default();
    let interval = Duration::try_from_secs_f64(period.as_secs_f64() / count);
    match interval {
        Ok(interval) if count > 0.0 && count.is_finite() => Ok(interval),
        _ => Err(OptionError::invalid(key, text, wanted)),
    }
}
