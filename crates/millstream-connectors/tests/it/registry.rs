//! What is registered, and what is refused before anything is touched.

use std::path::Path;

use arrow::datatypes::DataType;
use millstream_connectors::registry;
use millstream_engine::api::connector::ReadMode;
use millstream_engine::api::options::OptionError;

use crate::support::{columns, connector, table};

const HERE: &str = "/a/directory/that/is/not/there";

fn source_error(name: &str, options: &[(&str, &str)]) -> OptionError {
    let mut all = vec![("path", HERE)];
    all.extend(options);
    let table = table(columns(&[("id", DataType::Int64)]), &all);
    connector(name, Path::new(HERE)).check_source(&table, ReadMode::Stream).unwrap_err()
}

#[test]
fn every_connector_is_there_whatever_its_case() {
    let registry = registry(Path::new(HERE));
    for name in [
        "rate", "console", "noop", "memory", "stats", "files", "json", "csv", "parquet", "TEXT",
        "email", "webhook",
    ] {
        assert!(registry.get(name).is_some(), "{name}");
    }
}

#[test]
fn no_option_is_known_twice() {
    let registry = registry(Path::new(HERE));
    for name in registry.names() {
        let options = registry.get(name).unwrap().options();
        let mut names: Vec<_> = options.iter().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), options.len(), "{name}");
    }
}

#[test]
fn options_that_are_not_supported_are_refused_by_name() {
    let refused = [
        ("cleanSource", "delete"),
        ("multiLine", "true"),
        ("latestFirst", "true"),
        ("dateFormat", "dd.MM.yyyy"),
        ("timestampFormat", "dd.MM.yyyy"),
        ("maxFileAge", "7d"),
        ("maxFilesPerTrigger", "0"),
        ("mode", "STRICT"),
        ("sep", "ab"),
        ("path", "s3://bucket/in"),
        ("format", "json"),
    ];
    for (key, value) in refused {
        let error = source_error("csv", &[(key, value)]);
        assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
    }
}

#[test]
fn options_about_keys_are_refused_where_streams_of_redis_are_read() {
    for (key, value) in [("key.column", "id"), ("model", "hash"), ("lookup.cache", "PARTIAL")] {
        let error = source_error("redis", &[("stream.keys", "orders"), (key, value)]);
        assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
    }
}

#[test]
fn files_in_an_object_store_are_never_passed_over() {
    for key in ["ignoreCorruptFiles", "ignoreMissingFiles"] {
        let check = |value: &str| {
            let options = [("path", "s3://bucket/in"), (key, value)];
            let table = table(columns(&[("id", DataType::Int64)]), &options);
            connector("parquet", Path::new(HERE)).check_source(&table, ReadMode::Batch)
        };
        assert_eq!(check("true").unwrap_err().key.as_deref(), Some(key));
        check("false").expect("nothing is asked for");
    }
}

#[test]
fn a_stream_of_records_needs_columns() {
    for name in ["json", "csv"] {
        let error = connector(name, Path::new(HERE))
            .check_source(&table(None, &[("path", HERE)]), ReadMode::Stream)
            .unwrap_err();
        assert!(error.problem.contains("must be declared"), "{error:?}");
    }
    let text = connector("text", Path::new(HERE));
    let schema = text.check_source(&table(None, &[("path", HERE)]), ReadMode::Stream).unwrap();
    assert_eq!(schema.field(0).name(), "value");
    let error = text.check_source(&table(None, &[]), ReadMode::Stream).unwrap_err();
    assert!(error.problem.contains("'path' is missing"), "{error:?}");
}

#[test]
fn sinks_check_the_columns_of_the_query() {
    let check = |name: &str, fields: &[(&str, DataType)], options: &[(&str, &str)]| {
        let mut all = vec![("path", HERE)];
        all.extend(options);
        connector(name, Path::new(HERE)).check_sink(&table(None, &all), &columns(fields).unwrap())
    };
    let list = DataType::new_list(DataType::Int64, true);
    assert!(check("text", &[("a", DataType::Utf8)], &[]).is_ok());
    assert!(check("text", &[("a", DataType::Int64)], &[]).is_err());
    assert!(check("text", &[("a", DataType::Utf8), ("b", DataType::Utf8)], &[]).is_err());
    assert!(check("csv", &[("a", list.clone())], &[]).is_err());
    assert!(check("json", &[("a", list)], &[]).is_ok());
    assert!(check("json", &[("a", DataType::Utf8)], &[("compression", "gzip")]).is_err());
    assert!(check("files", &[("a", DataType::Utf8)], &[]).is_err());
    assert!(check("files", &[("a", DataType::Utf8)], &[("format", "json")]).is_ok());
    for name in ["console", "noop", "memory"] {
        assert!(check(name, &[("a", DataType::Utf8)], &[]).is_ok());
    }
    assert!(check("rate", &[("a", DataType::Utf8)], &[]).is_err());
}
