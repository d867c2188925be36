//! Whatever stands in the files of a checkpoint is read or refused.

use millstream_fuzz::{Target, outcome};
use millstream_store::directory_name::directory_name;
use millstream_store::state_log::{Facts, file};
use millstream_store::{commit_log, layout, metadata, offset_log, secrets, state_log};

const OFFSETS: &[&str] = &[
    "v1\n{\"batchWatermarkMs\":0,\"batchTimestampMs\":1767225600123,\"conf\":{\"a\":\"b\"}}\n\
     {\"in\":{\"0\":10,\"1\":12}}\n-\n7",
    "v1\n\n{\"logOffset\":3}",
    "v2\n{}\n1:-\n0:{\"in\":{\"0\":10}}",
];

#[test]
fn fuzz_offset_log_entries() {
    let words = &["v1\n", "v2\n", "\n", "-", "0:", "1:", "\"conf\"", "batchTimestampMs", "\r\n"];
    Target::text("offset_log").seeds(OFFSETS.iter().copied()).words(words).run(|input| {
        let entry = offset_log::Entry::decode(input);
        if let Ok(entry) = &entry {
            let _ = (entry.is_behind(entry), entry.shown());
            let again = offset_log::Entry::decode(&entry.encode());
            // A carriage return at the end of a line belongs to its break.
            assert!(input.contains(&b'\r') || again.as_ref() == Ok(entry), "{again:?}");
        }
        outcome(&entry)
    });
}

#[test]
fn fuzz_commit_log_entries() {
    let seeds = [
        "v1\n{\"nextBatchWatermarkMs\":1767225590000}",
        "v2\n{\"nextBatchWatermarkMs\":8,\"stateUniqueIds\":{\"0\":[[\"a\"]]}}",
        "v3\n{\"nextBatchWatermarkMs\":9,\"sinkMetadataMap\":{\"s\":{\"isActive\":true}}}",
    ];
    Target::text("commit_log").seeds(seeds).words(&["v1\n", "v3\n", "{}", "[]"]).run(|input| {
        let entry = commit_log::Entry::decode(input);
        if let Ok(entry) = &entry {
            assert_eq!(commit_log::Entry::decode(&entry.encode()).as_ref(), Ok(entry));
        }
        outcome(&entry)
    });
}

#[test]
fn fuzz_metadata_files() {
    let seeds = ["{\"id\":\"0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11\"}"];
    Target::text("metadata").seeds(seeds).words(&["\"id\""]).run(|input| {
        let id = metadata::decode(input);
        outcome(&id)
    });
}

fn facts() -> &'static str {
    r#"{"batchId":7,"batchTimeMs":1,"starts":[null,"{\"in\":{\"0\":1}}"],"ends":["7"],
        "watermarkMs":5,"lateMs":-1,"nextWatermarkMs":9,"seenMs":[null,3],"needs":2,
        "acknowledged":6,"pieces":["piece-7-abc"]}"#
}

fn state_file() -> Vec<u8> {
    let facts: Facts = serde_json::from_str(facts()).expect("facts");
    let mut encoder = file::Encoder::default();
    for section in [&b""[..], b"abc"] {
        let sections = vec![section.to_vec(), vec![0xff; 9]];
        encoder.add(&state_log::Entry { facts: facts.clone(), sections });
    }
    encoder.finish()
}

#[test]
fn fuzz_state_log_files() {
    Target::bytes("state_file").seeds([state_file()]).run(|input| {
        let entries = file::decode(input);
        if let Ok(entries) = &entries {
            let mut encoder = file::Encoder::default();
            entries.iter().for_each(|entry| encoder.add(entry));
            assert_eq!(file::decode(&encoder.finish()).as_ref(), Ok(entries));
        }
        outcome(&entries)
    });
}

/// What a checksum protects may still be wrong: the input is the content of an entry, whose length
/// and checksum are right.
#[test]
fn fuzz_state_log_entries() {
    let facts = facts().as_bytes();
    let length = u32::try_from(facts.len()).expect("few").to_le_bytes();
    let section = [&1_u32.to_le_bytes()[..], &3_u64.to_le_bytes(), b"abc"].concat();
    let whole = [&length[..], facts, &section].concat();
    Target::bytes("state_entry").seeds([whole]).words(&["\\n", "ends", "null"]).run(|content| {
        let length = (content.len() as u64 + 4).to_le_bytes();
        let checksum = crc32fast::hash(content).to_le_bytes();
        let end = [u64::MAX.to_le_bytes(), 1_u64.to_le_bytes()].concat();
        let bytes = [b"MLSTATE1", &length[..], content, &checksum, &end].concat();
        let entries = file::decode(&bytes);
        for entry in entries.iter().flatten() {
            let ends = entry.facts.ends.iter().chain(&entry.facts.starts).flatten();
            // An offset is a line of the offset log.
            ends.for_each(|end| assert!(!end.as_str().contains('\n'), "{end}"));
        }
        outcome(&entries)
    });
}

/// Names that people give, names of files that anybody has put there, and texts that may have
/// secrets in them.
#[test]
fn fuzz_names_and_secrets() {
    const SECRET: &str = "hunter2hunter2";
    secrets::remember(SECRET);
    let seeds = [
        "../x/ÄÖ e\u{301}",
        "12.compact",
        ".7.0b9e.tmp",
        "password=hunter2hunter2; sasl.jaas.config=org.Plain required username=\"a\" password=\"b\";",
        "https://user:pass@host/x?sig=abc&AWS_SECRET_ACCESS_KEY=zz",
    ];
    let words = &["password", "=", "://", "@", "token", "hunter2hunter2", "%", "..", "'option'"];
    Target::text("names").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let directory = directory_name(&text);
        assert!(!directory.is_empty() && directory.len() <= 255, "{directory}");
        assert!(!directory.contains('/') && directory != "." && directory != "..", "{directory}");
        let names = [text.as_ref().to_owned()];
        let _ = (layout::batch_ids(&names), layout::sidecar_of(&text));
        let _ = (layout::is_temporary(&text), layout::sidecar(&text));
        let _ = (secrets::redacted_source(&text), secrets::masked(&text));
        assert!(!secrets::redacted(&text).contains(SECRET));
        format!("{:?}", secrets::credentials_in_url(&text).is_some())
    });
}
