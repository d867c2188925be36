//! How long a table wants its past kept, by the properties in its metadata.

use serde_json::Value;

/// What readers are promised of removed files where the table does not say.
const DELETED_FILES_MS: i64 = 7 * DAY_MS;
pub(super) const DAY_MS: i64 = 86_400_000;

/// What is too old for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Removes from before this moment are left out.
    pub(super) oldest_remove_ms: i64,
    /// A remove may stay until this moment in a part that need not be written otherwise: else a
    /// table that is compacted all the time would have each of its parts written every time.
    pub(super) overdue_remove_ms: i64,
    /// Transactions from before this moment are left out, if the table asks for that.
    pub(super) oldest_transaction_ms: Option<i64>,
}

impl Limits {
    /// The limits by the `metaData` action, at the moment `now_ms`.
    pub(super) fn of(metadata: &Value, now_ms: i64) -> Self {
        let removes_ms = property(metadata, "delta.deletedFileRetentionDuration")
            .and_then(interval_ms)
            .unwrap_or(DELETED_FILES_MS);
        let oldest_remove_ms = now_ms.saturating_sub(removes_ms);
        Self {
            oldest_remove_ms,
            overdue_remove_ms: oldest_remove_ms.saturating_sub(removes_ms / 8),
            oldest_transaction_ms: property(metadata, "delta.setTransactionRetentionDuration")
                .and_then(interval_ms)
                .map(|kept_ms| now_ms.saturating_sub(kept_ms)),
        }
    }
}

/// A table property, by the `metaData` action.
pub(super) fn property<'a>(metadata: &'a Value, name: &str) -> Option<&'a str> {
    metadata.get("configuration")?.get(name)?.as_str()
}

/// The milliseconds of an interval as Spark writes it: `interval 1 week`, `2 days 12 hours`. None
/// if it is not one, or counts months, whose length is not fixed.
pub fn interval_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let mut words = text.split_whitespace().peekable();
    words.next_if_eq(&"interval");
    words.peek()?;
    let mut total_ms = 0_i64;
    while let Some(count) = words.next() {
        let count: i64 = count.parse().ok()?;
        let unit_ms = match words.next()?.trim_end_matches('s') {
            "week" => 7 * DAY_MS,
            "day" => DAY_MS,
            "hour" => 3_600_000,
            "minute" => 60_000,
            "second" => 1_000,
            "millisecond" => 1,
            "microsecond" => return (count == 0).then_some(total_ms),
            _ => return None,
        };
        total_ms = total_ms.checked_add(count.checked_mul(unit_ms)?)?;
    }
    Some(total_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_spark_writes_them() {
        assert_eq!(interval_ms("interval 1 week"), Some(7 * DAY_MS));
        assert_eq!(interval_ms("INTERVAL 2 days 12 hours"), Some(2 * DAY_MS + 43_200_000));
        assert_eq!(interval_ms("30 minutes"), Some(1_800_000));
        for wrong in ["", "interval", "interval 1 month", "interval days", "1"] {
            assert_eq!(interval_ms(wrong), None, "{wrong}");
        }
    }
}
