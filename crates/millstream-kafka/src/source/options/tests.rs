use super::*;

fn parse_as(mode: ReadMode, entries: &[(&str, &str)]) -> Result<SourceOptions, OptionError> {
    let mut options = Options::default();
    options.set("kafka.bootstrap.servers", "localhost:9092");
    for (key, value) in entries {
        options.set(*key, *value);
    }
    SourceOptions::parse(&options, mode)
}

fn stream(entries: &[(&str, &str)]) -> Result<SourceOptions, OptionError> {
    parse_as(ReadMode::Stream, entries)
}

fn id(topic: &str, partition: i32) -> PartitionId {
    PartitionId::new(topic, partition)
}

#[test]
fn defaults_are_spark_s() {
    let options = stream(&[("subscribe", "b, a,b")]).unwrap();
    assert_eq!(options.subscription.description(), "KafkaV2[Subscribe[a, b]]");
    assert_eq!(options.starting, ("startingOffsets", Place::Latest));
    assert!(options.fail_on_data_loss && !options.include_headers);
    assert_eq!(options.limits, Limits::default());
    let batch = parse_as(ReadMode::Batch, &[("subscribe", "a")]).unwrap();
    assert_eq!(batch.starting.1, Place::Earliest);
    assert_eq!(batch.ending.1, Place::Latest);
}

#[test]
fn exactly_one_way_to_subscribe() {
    assert!(stream(&[]).unwrap_err().help.unwrap().contains("subscribePattern"));
    let two = stream(&[("subscribe", "a"), ("ASSIGN", r#"{"a":[0]}"#)]).unwrap_err();
    assert_eq!(two.key.as_deref(), Some("assign"));
    assert!(stream(&[("subscribe", " , ")]).is_err());
}

#[test]
fn a_pattern_matches_whole_names() {
    let options = stream(&[("subscribePattern", "log|audit.*")]).unwrap();
    let Subscription::Pattern { regex, .. } = &options.subscription else { panic!() };
    assert!(regex.is_match("log") && regex.is_match("audit-1"));
    assert!(!regex.is_match("logs") && !regex.is_match("my-audit"));
    assert!(stream(&[("subscribePattern", "(")]).is_err());
}

#[test]
fn partitions_are_assigned() {
    let options = stream(&[("assign", r#"{"b":[1],"a":[2,0]}"#)]).unwrap();
    assert_eq!(options.subscription.description(), "KafkaV2[Assign[a-0, a-2, b-1]]");
    for wrong in ["a", "{}", r#"{"a":[-1]}"#, r#"{"a":0}"#] {
        assert_eq!(stream(&[("assign", wrong)]).unwrap_err().key.as_deref(), Some("assign"));
    }
}

#[test]
fn starting_positions_have_an_order() {
    let all = [
        ("subscribe", "a"),
        ("startingOffsets", "earliest"),
        ("startingOffsetsByTimestamp", r#"{"a":{"0":5}}"#),
        ("startingTimestamp", "1000"),
    ];
    assert_eq!(stream(&all).unwrap().starting, ("startingTimestamp", Place::Time(1000)));
    let times = Place::Times([(id("a", 0), 5)].into());
    assert_eq!(stream(&all[..3]).unwrap().starting, ("startingOffsetsByTimestamp", times));
    assert_eq!(stream(&all[..2]).unwrap().starting.1, Place::Earliest);
}

#[test]
fn starting_offsets_are_read() {
    let json = r#"{"a":{"0":23,"1":-2,"2":-1}}"#;
    let options = stream(&[("subscribe", "a"), ("startingOffsets", json)]).unwrap();
    let expected = [(id("a", 0), 23), (id("a", 1), EARLIEST), (id("a", 2), LATEST)];
    assert_eq!(options.starting.1, Place::Offsets(expected.into()));
    assert!(stream(&[("subscribe", "a"), ("startingOffsets", "LATEST")]).is_ok());
    for wrong in ["newest", r#"{"a":{"0":-3}}"#, r#"{"a":[1]}"#] {
        let error = stream(&[("subscribe", "a"), ("startingOffsets", wrong)]).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("startingOffsets"), "{wrong}");
    }
}

#[test]
fn every_partition_must_be_named() {
    let partitions: BTreeSet<PartitionId> = [id("a", 0), id("a", 1)].into();
    let place = |ids: &[i32]| Place::Offsets(ids.iter().map(|n| (id("a", *n), 7)).collect());
    assert_eq!(place(&[0, 1]).mismatch(&partitions), None);
    assert!(place(&[0]).mismatch(&partitions).unwrap().starts_with("lacks a-1."));
    assert!(place(&[0, 1, 2]).mismatch(&partitions).unwrap().starts_with("names a-2,"));
    assert_eq!(Place::Latest.mismatch(&partitions), None);
    let json = r#"{"a":{"0":1}}"#;
    let error = stream(&[("assign", r#"{"a":[0,1]}"#), ("startingOffsets", json)]).unwrap_err();
    assert!(error.problem.contains("a-1"), "{error:?}");
}

#[test]
fn a_stream_has_no_end_and_a_batch_does_not_start_at_it() {
    for key in ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"] {
        let error = stream(&[("subscribe", "a"), (key, "latest")]).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key));
    }
    let batch = |key, value| parse_as(ReadMode::Batch, &[("subscribe", "a"), (key, value)]);
    assert!(batch("endingOffsets", r#"{"a":{"0":5}}"#).is_ok());
    assert!(batch("endingOffsets", "earliest").is_err());
    assert!(batch("endingOffsets", r#"{"a":{"0":-2}}"#).is_err());
    assert!(batch("startingOffsets", "latest").is_err());
    assert!(batch("startingOffsets", r#"{"a":{"0":-1}}"#).is_err());
}

#[test]
fn limits_are_read() {
    let options = stream(&[
        ("subscribe", "a"),
        ("maxOffsetsPerTrigger", "100"),
        ("minOffsetsPerTrigger", "10"),
        ("maxTriggerDelay", "2m"),
    ])
    .unwrap();
    let delay_max = Duration::from_secs(120);
    let expected = Limits { rows_max: Some(100), rows_min: Some(10), delay_max };
    assert_eq!(options.limits, expected);
    for (key, value) in [
        ("maxOffsetsPerTrigger", "many"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxTriggerDelay", "15 fortnights"),
        ("failOnDataLoss", "maybe"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("minPartitions", "x"),
    ] {
        let error = stream(&[("subscribe", "a"), (key, value)]).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key));
    }
    let wrong = [("subscribe", "a"), ("maxOffsetsPerTrigger", "1"), ("minOffsetsPerTrigger", "2")];
    assert_eq!(stream(&wrong).unwrap_err().key.as_deref(), Some("minOffsetsPerTrigger"));
}
