use arrow::datatypes::{DataType, Field, Schema};

use millstream_engine::api::options::Options;

use super::*;
use crate::sink::Wanted;

fn connector() -> KafkaConnector {
    KafkaConnector::new(Path::new("."))
}

fn table(options: &[(&str, &str)]) -> Table {
    let mut all = Options::default();
    all.set("kafka.bootstrap.servers", "127.0.0.1:1");
    for (key, value) in options {
        all.set(*key, *value);
    }
    Table { name: "t".to_owned(), columns: None, options: all }
}

fn value_column() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Utf8, true)]))
}

#[test]
fn a_source_has_spark_s_columns() {
    let check = |options: &[(&str, &str)]| {
        let schema = connector().check_source(&table(options), ReadMode::Stream).unwrap();
        schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    let columns = check(&[("subscribe", "in")]);
    let expected = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"];
    assert_eq!(columns, expected);
    let columns = check(&[("subscribe", "in"), ("includeHeaders", "true")]);
    assert_eq!(columns.last().map(String::as_str), Some("headers"));
}

#[test]
fn delivery_is_one_of_two_and_fits_the_settings() {
    let check = |options: &[(&str, &str)]| {
        let table = table(&[&[("topic", "out")], options].concat());
        sink::parse(&table, &value_column(), &connector().registries).map(|(wanted, ..)| wanted)
    };
    assert_eq!(check(&[]), Ok(Wanted::Best));
    assert_eq!(check(&[("kafka.acks", "1")]), Ok(Wanted::AtLeastOnce));
    assert_eq!(check(&[("delivery", "At-Least-Once")]), Ok(Wanted::AtLeastOnce));
    assert_eq!(check(&[("delivery", "exactly-once")]), Ok(Wanted::ExactlyOnce));
    let contradiction = check(&[("delivery", "exactly-once"), ("kafka.acks", "1")]).unwrap_err();
    assert!(contradiction.problem.contains("kafka.acks"), "{contradiction:?}");
    assert!(check(&[("delivery", "perhaps")]).unwrap_err().problem.contains("perhaps"));
}

#[test]
fn settings_of_the_client_are_checked_on_both_sides() {
    let wrong = ("kafka.acks", "perhaps");
    let source = connector()
        .check_source(&table(&[("subscribe", "in"), wrong]), ReadMode::Stream)
        .unwrap_err();
    let sink =
        connector().check_sink(&table(&[("topic", "out"), wrong]), &value_column()).unwrap_err();
    assert_eq!(source.key.as_deref(), Some("kafka.acks"));
    assert_eq!(sink, source);
}

#[test]
fn every_option_is_documented_once() {
    let mut names: Vec<String> =
        known_options::options().iter().map(|option| option.name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known_options::options().len());
    assert!(known_options::options().iter().all(|option| !option.about.is_empty()));
}
