use proptest::prelude::*;

use super::*;

fn json() -> impl Strategy<Value = Option<SourceOffset>> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
    ];
    let object = proptest::collection::btree_map(any::<String>(), leaf, 0..4);
    proptest::option::of(object.prop_map(|object| {
        SourceOffset::new(serde_json::to_string(&object).expect("strings and integers are JSON"))
    }))
}

prop_compose! {
    fn entries()(
        batch_watermark_ms: i64,
        batch_timestamp_ms: i64,
        conf in proptest::collection::vec(any::<(String, String)>(), 0..4),
        offsets in proptest::collection::vec(json(), 1..4),
    ) -> Entry {
        Entry { batch_watermark_ms, batch_timestamp_ms, conf, offsets }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(entry in entries()) {
        prop_assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = Entry::decode(&bytes);
    }

    /// A file cut anywhere is either refused as torn, or lacks whole lines of sources at its end,
    /// which the driver notices by their number.
    #[test]
    fn torn_entries_are_no_other_entry(entry in entries(), part in 0.0..1.0_f64) {
        let bytes = entry.encode();
        let cut = (bytes.len() as f64 * part) as usize;
        match Entry::decode(&bytes[..cut]) {
            Err(error) => prop_assert!(error.is_torn()),
            Ok(read) => {
                prop_assert!(read.offsets.len() < entry.offsets.len());
                prop_assert_eq!(&read.offsets[..], &entry.offsets[..read.offsets.len()]);
                prop_assert_eq!(read.conf, entry.conf);
            }
        }
    }
}

fn decode(text: &str) -> Result<Entry, DecodeError> {
    Entry::decode(text.as_bytes())
}

fn offset_of(json: &str) -> Option<SourceOffset> {
    Some(SourceOffset::new(json))
}

#[test]
fn old_forms_of_line_2_are_read() {
    let bare = Entry {
        batch_watermark_ms: 0,
        batch_timestamp_ms: 0,
        conf: Vec::new(),
        offsets: vec![offset_of("{\"logOffset\":3}"), None],
    };
    assert_eq!(decode("v1\n\n{\"logOffset\":3}\n-"), Ok(bare.clone()));
    assert_eq!(decode("v1\n{}\n{\"logOffset\":3}\n-"), Ok(bare.clone()));
    assert_eq!(
        decode(
            "v1\n{\"batchWatermarkMs\":5,\"batchTimestampMs\":1480732570644}\n{\"logOffset\":3}\n-\n"
        ),
        Ok(Entry { batch_watermark_ms: 5, batch_timestamp_ms: 1_480_732_570_644, ..bare })
    );
}

#[test]
fn the_conf_of_a_file_is_kept() {
    let text = "v1\n{\"batchWatermarkMs\":0,\"batchTimestampMs\":1,\"conf\":{\"z\":\"1\",\"a\":\"2\"}}\n12";
    let entry = decode(text).expect("readable");
    assert_eq!(entry.encode(), text.as_bytes());
}

#[test]
fn version_2_is_read_in_the_order_of_the_plan() {
    let text = "v2\n{\"batchWatermarkMs\":0,\"batchTimestampMs\":1,\"conf\":{},\"sourceMetadataInfo\":{}}\n\
                1:{\"logOffset\":3}\n0:{\"in\":{\"0\":10}}\n2:-";
    let offsets = decode(text).expect("readable").offsets;
    assert_eq!(offsets, [offset_of("{\"in\":{\"0\":10}}"), offset_of("{\"logOffset\":3}"), None]);
    assert!(matches!(decode("v2\n{}\norders:{}"), Err(DecodeError::Unsupported { .. })));
    assert!(matches!(decode("v2\n{}\n0:{}\n2:{}"), Err(DecodeError::Malformed { .. })));
}

#[test]
fn a_newer_version_is_told_from_damage() {
    assert_eq!(
        decode("v3\nwhatever"),
        Err(DecodeError::NewerVersion { found: 3, supported: VERSION_MAX })
    );
    assert_eq!(decode(""), Err(DecodeError::Empty));
    for damaged in
        ["\0\0", "v", "v1", "v1\n", "v1\n{", "v1\n{}", "v1\n{}\n", "v1\n{}\n{\"in\":{\"0\":1"]
    {
        assert!(decode(damaged).is_err_and(|error| error.is_torn()), "{damaged:?}");
    }
}

#[test]
fn shuffle_partitions_are_the_only_difference() {
    let differing: Vec<_> = spark_conf(7)
        .into_iter()
        .zip(default_conf())
        .filter(|(ours, theirs)| ours != theirs)
        .collect();
    assert_eq!(differing.len(), 1);
    assert_eq!(differing[0].0, ("spark.sql.shuffle.partitions".to_owned(), "7".to_owned()));
}
