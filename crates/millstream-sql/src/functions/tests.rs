//! The clock across micro-batches, the calendar, and schemas.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use std::sync::Arc;

use super::clock::BatchClock;
use super::types::schema_of;
use crate::session::session;
use crate::types::spark_type;
use crate::values::calendar::{
    civil_of, days_of, parse_timestamp, write_timestamp, zone_offset_us,
};

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
