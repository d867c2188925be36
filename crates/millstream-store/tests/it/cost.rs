//! What an entry costs. Prints; `cargo test -p millstream-store cost -- --nocapture` shows it.

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::{LogWriter, Settings};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::storage::Durability;
use millstream_store::{commit_log, offset_log};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_thousand_micro_batches() {
    // Not under /tmp, which may be in memory.
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let env = Env::real();
    let checkpoint =
        Checkpoint::open(&root.path().display().to_string(), &env).await.expect("opened");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    let mut id = 0;
    for (durability, waits, count) in [
        (Durability::Process, false, 1_000),
        (Durability::Process, true, 1_000),
        (Durability::Power, false, 200),
        (Durability::Power, true, 200),
    ] {
        let start = env.monotonic();
        for _ in 0..count {
            let entry = offset_log::Entry {
                batch_watermark_ms: 0,
                batch_timestamp_ms: id,
                conf: offset_log::default_conf(),
                offsets: vec![Some(SourceOffset::new("{\"in\":{\"0\":10,\"1\":12}}"))],
            };
            let batch_id = BatchId(id.unsigned_abs());
            let intent = writer.intent(batch_id, entry, durability).await;
            if waits {
                intent.written().await.expect("written");
            }
            let commit = writer.commit(batch_id, commit_log::Entry::default()).await;
            if waits {
                commit.written().await.expect("written");
            }
            id += 1;
        }
        writer.flush().await.expect("written");
        let each_us = (env.monotonic() - start).as_micros() / count;
        println!("{durability:?}, waiting for each: {waits}: {each_us} us a micro-batch");
    }
    writer.close().await.expect("written");
}
