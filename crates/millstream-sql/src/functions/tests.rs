//! The clock across micro-batches, the calendar, and schemas.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use millstream_fuzz::{Target, outcome};
use std::sync::Arc;

use super::clock::BatchClock;
use super::pattern::{Replacement, compile};
use super::time_pattern::TimePattern;
use super::types::schema_of;
use crate::session::session;
use crate::types::spark_type;
use crate::values::calendar::{civil_of, days_of, parse_timestamp, write_timestamp};
use crate::values::zone::zone_offset_us;

#[tokio::test]
async fn one_plan_reads_the_time_of_every_micro_batch() {
    let clock = BatchClock::default();
    let context = session(SessionConfig::new().with_target_partitions(1), &clock);
    let sql = "SELECT current_timestamp() AS t WHERE now() >= timestamp_micros(0) \
               AND unix_timestamp() >= 0";
    let frame = context.sql(sql).await.expect("the query is right");
    let plan = frame.create_physical_plan().await.expect("the query can be planned");
    for us in [1_000_000, 2_500_000] {
        clock.set(us);
        let plan = Arc::clone(&plan).reset_state().expect("the plan can run again");
        let batches = collect(plan, context.task_ctx()).await.expect("the query runs");
        let times = batches[0].column(0).as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.value(0), us);
    }
    clock.set(-1);
    let batches = collect(plan, context.task_ctx()).await.expect("the query runs");
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 0);
}

#[test]
fn days_and_civil_dates_agree_with_chrono() {
    for days in (-1_000_000..1_000_000).step_by(997) {
        let date = chrono::NaiveDate::from_epoch_days(days).expect("within chrono's range");
        use chrono::Datelike;
        let civil = (i64::from(date.year()), date.month(), date.day());
        assert_eq!(civil_of(days), civil);
        assert_eq!(days_of(civil.0, civil.1, civil.2), Some(days));
    }
    assert_eq!(days_of(2026, 2, 29), None);
    assert_eq!(days_of(2026, 0, 1), None);
}

#[test]
fn timestamps_are_read_back_as_they_are_written() {
    for us in [0, -1, 1_772_895_845_006_007, -62_135_596_800_000_000, 253_402_300_799_999_999] {
        let mut text = String::new();
        write_timestamp(us, &mut text);
        assert_eq!(parse_timestamp(&text), Some(us), "{text}");
    }
}

#[test]
fn zones_are_offsets_or_regions() {
    let hour = 3_600_000_000;
    assert_eq!(zone_offset_us("+01:30", 0), Some(hour + hour / 2));
    assert_eq!(zone_offset_us("-0800", 0), Some(-8 * hour));
    assert_eq!(zone_offset_us("UTC+2", 0), Some(2 * hour));
    assert_eq!(zone_offset_us("UTC", 0), Some(0));
    assert_eq!(zone_offset_us("Europe/Berlin", 0), Some(hour));
    // 2026-03-29 02:30 does not exist in Berlin; the offset before the change counts.
    assert_eq!(zone_offset_us("Europe/Berlin", 1_774_751_400_000_000), Some(hour));
    for wrong in ["+19:00", "+1:60", "Atlantis/Capital", "+", "+1:2:3:4"] {
        assert_eq!(zone_offset_us(wrong, 0), None, "{wrong}");
    }
}

#[test]
fn schemas_are_read_as_columns_or_as_one_type() {
    let columns = schema_of("a INT NOT NULL, c ARRAY<STRING>, d: STRUCT<e: DECIMAL(5,2)>");
    let expected = "STRUCT<a: INT, c: ARRAY<STRING>, d: STRUCT<e: DECIMAL(5,2)>>";
    assert_eq!(spark_type(&columns.expect("it is a schema")), expected);
    let map = schema_of("map<string, bigint>").expect("it is a type");
    assert_eq!(spark_type(&map), "MAP<STRING, BIGINT>");
    assert_eq!(schema_of("decimal"), Ok(DataType::Decimal128(10, 0)));
    let error = schema_of("a INT, b WRONG").expect_err("there is no such type");
    assert!(error.reason.contains("WRONG"), "{error}");
    for wrong in ["", "a", "a INT b INT", "ARRAY<INT", "a DECIMAL(39,0)", "a INT NOT", "`a INT"] {
        assert!(schema_of(wrong).is_err(), "{wrong}");
    }
}

/// A pattern, a line break, and a text to read by it.
#[test]
fn fuzz_patterns_of_times() {
    let seeds = [
        "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\n2026-03-02T01:02:03.004005+01:00",
        "d. MMMM yy hh:mm a[ G]\n2. March 26 01:02 PM AD",
        "D/y Q q L\n61/2026 1 1 3",
    ];
    let words = &[
        "yyyy",
        "MM",
        "MMM",
        "dd",
        "HH",
        "mm",
        "ss",
        "SSSSSSSSS",
        "'",
        "''",
        "[",
        "]",
        "XXX",
        "zzzz",
        "a",
        "G",
        "\n",
    ];
    Target::text("time_patterns").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (pattern, text) = text.split_once('\n').unwrap_or((&text, "2026"));
        let pattern = TimePattern::parse(pattern);
        let mut read = None;
        if let Ok(pattern) = &pattern {
            read = pattern.read(text);
            let mut out = String::new();
            for us in [0, -1, i64::MIN, i64::MAX, 1_772_895_845_006_007, read.unwrap_or(5)] {
                out.clear();
                if pattern.write(us, &mut out) {
                    let _ = pattern.read(&out);
                }
            }
        }
        format!("{} {}", outcome(&pattern), read.is_some())
    });
}

/// A pattern, and by lines a replacement and a text.
#[test]
fn fuzz_regular_expressions() {
    let seeds = [
        "(a+)b|[^c-e]\n$1-${0}\nxaab",
        "\\p{Alpha}\\d{2,}\\Q.*\\E(?i)x\n\\$\nb12",
        "^\\w+@(?<host>[\\w.]+)$\n${host}\na@b",
    ];
    let words = &[
        "(", ")", "[", "]", "[^", "&&", "\\Q", "\\E", "\\p{", "\\P{", "}", "{1,", "{1000}", "*",
        "+", "?", "|", "(?", "(?i)", "\\h", "\\R", "\\x{", "\\0", "$1", "${", "\\", "\n",
    ];
    Target::text("regex").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let mut lines = text.splitn(3, '\n');
        let mut next = || lines.next().unwrap_or("aab");
        let (pattern, replacement, text) = (next(), next(), next());
        let regex = compile(pattern);
        let mut parsed = String::new();
        if let Ok(regex) = &regex {
            let replacement = Replacement::parse(replacement, regex);
            parsed = outcome(&replacement);
            if let (Ok(replacement), Some(groups)) = (replacement, regex.groups_at(text, 0)) {
                replacement.write(&groups, text, &mut String::new());
            }
        }
        format!("{} {parsed}", outcome(&regex))
    });
}

#[test]
fn fuzz_timestamps_and_zones() {
    let seeds = [
        "2026-03-02T01:02:03.004005+01:00\nEurope/Berlin",
        "-0001-1-1 1:2\n+18:00",
        "1970-01-01\nUTC",
    ];
    let words = &["2026-", "T", ":", ".", "Z", "+", "-", "UTC", "GMT+1", "Europe/Berlin", "\n"];
    Target::text("timestamps").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (text, zone) = text.split_once('\n').unwrap_or((&text, "UTC"));
        let read = parse_timestamp(text);
        let us = read.unwrap_or(i64::MAX);
        let mut out = String::new();
        write_timestamp(us, &mut out);
        format!("{} {}", read.is_some(), zone_offset_us(zone, us).is_some())
    });
}
