//! Whatever stands in the logs of a directory of files is read or refused.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::parquet::arrow::ArrowWriter;
use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use millstream_engine::api::source::SourceLog;
use millstream_fuzz::{Target, outcome};
use millstream_store::env::Env;

use super::commit_record::Records;
use super::manifest::Manifest;
use super::metadata_log::{Entry, Numbers};
use super::options::LogSettings;
use super::parquet;
use super::source_log::FileLog;
use super::uri;

fn settings() -> LogSettings {
    let retention = Some(Duration::from_secs(3_600));
    LogSettings { compact_interval: 3, deletion: true, cleanup_delay: Duration::ZERO, retention }
}

/// A directory's files in one text: a line `@name` begins each.
fn files(input: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        match (line.strip_prefix(b"@"), files.last_mut()) {
            (Some(name), _) => {
                let name = String::from_utf8_lossy(name).replace(['/', '\0'], "_");
                if name.is_empty() || name.len() > 100 || name.starts_with('.') {
                    continue;
                }
                files.push((name, Vec::new()));
            }
            (None, Some((_, content))) if content.is_empty() => content.extend_from_slice(line),
            (None, Some((_, content))) => {
                content.push(b'\n');
                content.extend_from_slice(line);
            }
            (None, None) => {}
        }
    }
    files
}

const ENTRY: &str = r#"{"path":"file:///in/a%20b.json","timestamp":1767225600000,"batchId":0}"#;

#[test]
fn fuzz_lists_of_files_in_a_checkpoint() {
    let later = ENTRY.replace("\"batchId\":0", "\"batchId\":3");
    let seeds =
        [format!("@0\nv1\n{ENTRY}"), format!("@2.compact\nv1\n{ENTRY}\n@3\nv1\n{later}\n@0\nv1")];
    let words = &["@0\n", "@1\n", "@2.compact\n", "v1\n", "file:///", "%2F", "%", "\"path\":"];
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    Target::text("file_source_log").seeds(seeds).words(words).run(move |input| {
        runtime.block_on(async {
            let log = SourceLog::in_memory();
            for (name, content) in files(input) {
                let _ = log.put_if_absent(&name, content).await;
            }
            let mut read = FileLog::open(log.clone(), settings()).await;
            if let Ok(read) = &mut read {
                for _ in 0..5 {
                    read.append(Vec::new(), Duration::ZERO).await.expect("an entry can follow");
                }
                let again = FileLog::open(log, settings()).await;
                let again = again.map_err(|error| error.to_string()).expect("it is readable");
                assert_eq!((again.files(), again.last()), (read.files(), read.last()));
            }
            outcome(&read)
        })
    });
}

#[test]
fn fuzz_manifests_of_a_directory() {
    let line = r#"{"path":"file:///out/part-1","size":9,"isDir":false,"modificationTime":1767225600000,"blockReplication":1,"blockSize":33554432,"action":"add"}"#;
    let seeds = [format!("@0\nv1\n{line}"), format!("@2.compact\nv1\n{line}\n@3\nv1\n@0\nv1")];
    let words = &["@0\n", "@1\n", "@2.compact\n", "v1\n", "\"modificationTime\":", "-1"];
    let env = Env::real();
    Target::text("file_manifest").seeds(seeds).words(words).run(move |input| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("_spark_metadata");
        fs::create_dir(&path).expect("a directory");
        for (name, content) in files(input) {
            fs::write(path.join(name), content).expect("a file");
        }
        let mut manifest = Manifest::open(directory.path(), settings(), "me", &env);
        let mut appended = Ok(());
        if let Ok(manifest) = &mut manifest {
            for _ in 0..4 {
                let entry = manifest.next();
                appended = appended.and_then(|()| manifest.append(entry, directory.path(), &[]));
            }
        }
        format!("{} {}", outcome(&manifest), outcome(&appended))
    });
}

#[test]
fn fuzz_records_of_commits() {
    let seeds = [r#"{"entry":12,"isCompact":false,"batchId":700,"batchTimestampMs":1767225600000,
            "offsets":["{\"logOffset\":3}",null],
            "files":[{"written":".m-1","name":"part-1","size":9,"modifiedMs":1767225600000}]}"#];
    let words = &["\"offsets\":", "\\n", "null", "\"name\":", "\"/\"", "\\u0000"];
    Target::text("file_commit_record").seeds(seeds).words(words).run(|input| {
        let directory = tempfile::tempdir().expect("a directory");
        let records = Records::open(directory.path().to_owned()).expect("a directory");
        fs::write(directory.path().join("12"), input).expect("a file");
        let last = records.last();
        let shown = outcome(&last);
        if let Ok(Some(record)) = last {
            let (_, published) = (record.entry(), record.published());
            // The micro-batch after it has a number.
            let _ = published.batch_id.next();
        }
        shown
    });
}

#[test]
fn fuzz_paths_and_numbers() {
    let seeds = ["file:///d/100%25%23%3F.csv", "file:/a", "9.compact 19.compact 20 21", "0 1 2"];
    let words = &["file:", "//", "%", "%2", "%+f", ".compact", " "];
    Target::text("file_names").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let path = uri::decode(&text);
        if let Some(path) = &path {
            assert_eq!(uri::decode(&uri::encode(path)).as_ref(), Some(path));
        }
        let mut entries: Vec<Entry> = text.split(' ').filter_map(Entry::parse).collect();
        entries.sort_unstable();
        // A directory has each name once.
        entries.dedup();
        let numbers = Numbers::of(&entries, 10);
        if let Ok(mut numbers) = numbers.clone() {
            let next = numbers.next(true);
            numbers.wrote(next);
            let _ = (numbers.current().len(), numbers.next(false), numbers.previous());
        }
        format!("{} {}", path.is_some(), outcome(&numbers))
    });
}

/// A small file of several types.
fn parquet_file(schema: &SchemaRef) -> Vec<u8> {
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec![Some("a"), Some("b")])),
        Arc::new(lists),
    ];
    let rows = RecordBatch::try_new(schema.clone(), columns).expect("rows");
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), None).expect("a writer");
    writer.write(&rows).expect("rows are written");
    writer.into_inner().expect("a file")
}

/// Parquet of other writers, damaged.
#[test]
fn fuzz_parquet_files() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
        Field::new_list("l", Field::new_list_field(DataType::Int32, true), true),
    ]));
    Target::bytes("parquet_file").seeds([parquet_file(&schema)]).run(move |input| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(input).expect("a file");
        let open = || file.try_clone().expect("the file again");
        let path = Path::new("a.parquet");
        let counted = parquet::count(open(), path);
        let columns = parquet::columns(open(), path);
        let rows = parquet::rows(open(), path.to_owned(), &schema, &[0, 1, 2]);
        let read = rows.and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
        format!("{} {} {}", outcome(&counted), outcome(&columns), outcome(&read))
    });
}
