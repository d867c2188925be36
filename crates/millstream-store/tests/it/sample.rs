//! A whole checkpoint of Spark 4.2, byte for byte: two committed micro-batches of a query on a
//! Kafka topic with two partitions.

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::{LogWriter, Settings};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::storage::{Durability, Storage};
use millstream_store::{commit_log, metadata, offset_log};
use sha2::{Digest, Sha256};

const QUERY_ID: &str = "0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11";

/// Name, size and SHA-256 of every file, as Spark 4.2 writes them.
const FILES: [(&str, usize, &str); 6] = [
    ("metadata", 45, "a814045c5baf4628547d00ad21c96fa4f7caf186a1da66ec4ebc108a69369c0c"),
    ("sources/0/0", 24, "673ce102c6a2f62b886dd2fa402f9d8149fae17d81deb06a310857395c96f2bd"),
    ("offsets/0", 1040, "9c58d68b1273d6e971c1524828b3658b1daf9fe313b9ea031fbbb618b9c72844"),
    ("commits/0", 41, "5b9951d2bb231561ab7db211f1538192a506f018c2349f10ffff4d761e07b732"),
    ("offsets/1", 1052, "4d0470751082f76974241181223df3668beae2eefa92e664689f2c1e2c76173a"),
    ("commits/1", 41, "04cae1dcbd8a95a33463a0055839da4740211c156f79b8f337cc93f1f40a8b82"),
];

fn intents() -> [offset_log::Entry; 2] {
    let entry = |batch_watermark_ms, batch_timestamp_ms, offset: &str| offset_log::Entry {
        batch_watermark_ms,
        batch_timestamp_ms,
        conf: offset_log::default_conf(),
        offsets: vec![Some(SourceOffset::new(offset))],
    };
    [
        entry(0, 1_767_225_600_123, "{\"in\":{\"0\":10,\"1\":12}}"),
        entry(1_767_225_590_000, 1_767_225_601_123, "{\"in\":{\"0\":20,\"1\":24}}"),
    ]
}

fn commits() -> [commit_log::Entry; 2] {
    [1_767_225_590_000, 1_767_225_591_000]
        .map(|next_batch_watermark_ms| commit_log::Entry { next_batch_watermark_ms })
}

#[tokio::test]
async fn every_byte_is_sparks() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let env = Env::real();
    let location = root.path().display().to_string();
    let storage = Storage::local(root.path(), &env);
    let id = QUERY_ID.parse().expect("a UUID");
    let put = storage.put_if_absent("metadata", metadata::encode(&id), Durability::Power);
    put.await.expect("written");

    let checkpoint = Checkpoint::open(&location, &env).await.expect("opened");
    assert_eq!(checkpoint.query_id(), QUERY_ID);
    let source_log = checkpoint.source_log(0);
    let initial = b"\0v1\n{\"in\":{\"0\":0,\"1\":0}}".to_vec();
    source_log.put_if_absent("0", initial.clone()).await.expect("written");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    for (id, (intent, commit)) in (0..).map(BatchId).zip(intents().into_iter().zip(commits())) {
        writer.intent(id, intent, Durability::Power).await;
        writer.commit(id, commit).await;
    }
    writer.close().await.expect("written");

    for (name, bytes, sha256) in FILES {
        let content = storage.get(name).await.expect("readable").expect("there");
        let digest = Sha256::digest(&content);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((content.len(), digest.as_str()), (bytes, sha256), "{name}");
    }
    assert_eq!(source_log.get("0").await.expect("readable"), Some(initial));
    assert_eq!(source_log.list().await.expect("listed"), ["0"]);

    let recovered = checkpoint.recover().await.expect("recovered");
    let [first, second] = intents();
    assert_eq!(recovered.previous_intent, Some((BatchId(0), first)));
    assert_eq!(recovered.last_intent, Some((BatchId(1), second)));
    assert_eq!(recovered.last_commit, Some((BatchId(1), commits()[1].clone())));
    assert_eq!(recovered.unfinished, []);
}
