use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::*;

fn parse(options: &[(&str, &str)]) -> Result<SinkOptions, OptionError> {
    let fixed = [
        ("bigQueryStorageGrpcEndpoint", "http://127.0.0.1:1"),
        ("bigQueryHttpEndpoint", "http://127.0.0.1:2"),
    ];
    let all = fixed.iter().chain(options);
    let options = Options::new(all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let table = Table { name: "t".to_owned(), columns: None, options };
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    SinkOptions::parse(&table, &schema, Path::new(""))
}

fn problem(options: &[(&str, &str)]) -> String {
    let error = parse(options).expect_err("it is wrong");
    format!("{:?}: {} {}", error.key, error.problem, error.help.unwrap_or_default())
}

#[test]
fn a_table_may_be_named_in_each_form() {
    let name = |options: &[(&str, &str)]| parse(options).expect("it is right").name.to_string();
    assert_eq!(name(&[("table", "p.d.t")]), "p.d.t");
    assert_eq!(name(&[("table", "p:d.t")]), "p.d.t");
    assert_eq!(name(&[("table", "google.com:p:d.t")]), "google.com:p.d.t");
    let scoped = parse(&[("table", "google.com:p.d.t")]).expect("it is right").name;
    let parts = (scoped.project.as_deref(), &*scoped.dataset, &*scoped.table);
    assert_eq!(parts, (Some("google.com:p"), "d", "t"));
    assert_eq!(name(&[("table", "d.x"), ("project", "p")]), "p.d.x");
    assert_eq!(name(&[("dataset", "d"), ("parentProject", "p")]), "p.d.t");
    assert_eq!(name(&[("dataset", "d")]), "d.t");
    assert!(problem(&[]).contains("dataset"));
    for wrong in ["p.d.", "a.p.d.t", "p:t", "p/x.d.t"] {
        assert!(problem(&[("table", wrong)]).contains("PROJECT.DATASET.TABLE"), "{wrong}");
    }
}

#[test]
fn delivery_and_pace_are_read() {
    let plain = parse(&[("table", "p.d.t")]).expect("it is right");
    assert!(!plain.is_at_least_once);
    assert_eq!((plain.interval, plain.streams_max), (INTERVAL, STREAMS));
    let template = [
        ("table", "p.d.t"),
        ("numStorageWriteApiStreams", "200"),
        ("storageWriteApiTriggeringFrequencySec", "5"),
    ];
    let template = parse(&template).expect("it is right");
    assert_eq!((template.interval, template.streams_max), (Duration::from_secs(5), 200));
    let spark = parse(&[("table", "p.d.t"), ("writeAtLeastOnce", "true")]).expect("it is right");
    assert!(spark.is_at_least_once && spark.interval.is_zero());
}

#[test]
fn what_contradicts_itself_or_is_not_there_is_refused() {
    let table = ("table", "p.d.t");
    for (options, wanted) in [
        (&[("delivery", "exactly-once"), ("writeAtLeastOnce", "true")][..], "contradict"),
        (&[("writeMethod", "indirect")], "Cloud Storage"),
        (&[("numStreams", "0")], "1 to 1000"),
        (&[("triggeringFrequency", "soon")], "duration"),
        (&[("createDisposition", "maybe")], "CREATE_IF_NEEDED"),
        (&[("partitionField", "n")], "CREATE_IF_NEEDED"),
        (&[("createDisposition", "create_if_needed"), ("clusteredFields", "n,x")], "no column 'x'"),
        (&[("bigQueryHttpEndpoint", "ftp://x")], "http://HOST:PORT"),
        (&[("bigQueryHttpEndpoint", "https://x")], "readable on its way"),
    ] {
        let text = problem(&[&[table], options].concat());
        assert!(text.contains(wanted), "{options:?}: {text}");
    }
}
