use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::file::{DecodeError, Encoder, Section, decode};
use super::*;
use crate::checkpoint::Checkpoint;
use crate::env::Env;
use crate::error::{Classified, Kind};
use crate::layout;
use crate::offset::SourceOffset;
use crate::storage::Storage;
use crate::storage::testing::WatchedDisk;

fn entry(id: u64, sections: Vec<Vec<u8>>) -> Entry {
    let ends = vec![Some(SourceOffset::new(format!("{{\"at\":{id}}}"))), None];
    Entry { facts: Facts { batch_id: id, ends, ..Facts::default() }, sections }
}

/// A section that is made when it is written.
fn section(bytes: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static) -> Section<'static> {
    Box::new(|to: &mut dyn Write| to.write_all(&bytes()?).map_err(|error| error.to_string()))
}

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    entries.iter().for_each(|entry| encoder.add(entry));
    encoder.finish()
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        sections in prop::collection::vec(prop::collection::vec(any::<Vec<u8>>(), 0..3), 0..4),
    ) {
        let entries: Vec<_> = (0..).zip(sections).map(|(id, of)| entry(id, of)).collect();
        prop_assert_eq!(decode(&encoded(&entries)), Ok(entries));
    }

    #[test]
    fn a_cut_file_is_known(
        sections in prop::collection::vec(any::<Vec<u8>>(), 0..3),
        cut in 0.0..1.0,
    ) {
        let bytes = encoded(&[entry(0, sections.clone()), entry(1, sections)]);
        let cut = (bytes.len() as f64 * cut) as usize;
        prop_assert_eq!(decode(&bytes[..cut]), Err(DecodeError::CutOff));
    }

    #[test]
    fn a_flipped_bit_is_known(section: Vec<u8>, at: prop::sample::Index, bit in 0..8_u32) {
        let mut bytes = encoded(&[entry(0, vec![section])]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = decode(&bytes);
    }
}

#[test]
fn an_entry_that_cannot_be_made_is_not_in_the_file() {
    let mut encoder = Encoder::default();
    let (before, after) = (entry(0, vec![vec![1; 9]]), entry(2, vec![vec![], vec![2]]));
    encoder.add(&before);
    let sections = vec![section(|| Ok(vec![7; 5])), section(|| Err("it is torn".to_owned()))];
    let added = encoder.add_sections(&entry(1, vec![]).facts, sections);
    assert_eq!(added, Err("it is torn".to_owned()));
    encoder.add(&after);
    assert_eq!(decode(&encoder.finish()), Ok(vec![before, after]));
}

async fn checkpoint(directory: &std::path::Path, env: &Env) -> Checkpoint {
    Checkpoint::open_in(Storage::local(directory, env), env).await.unwrap()
}

fn settings(gathering_ms: u64) -> WriteSettings {
    WriteSettings { gathering: Duration::from_millis(gathering_ms) }
}

async fn append(log: &StateLog, id: u64, needs: u64) -> Ticket {
    let facts = Facts { needs, ..entry(id, vec![]).facts };
    log.append(facts, 10, vec![section(move || Ok(vec![id as u8; 10]))]).await
}

async fn ids(reader: &mut StateReader) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(entry) = reader.next().await.unwrap() {
        assert_eq!(entry.sections, [vec![entry.facts.batch_id as u8; 10]]);
        ids.push(entry.facts.batch_id);
    }
    ids
}

#[tokio::test]
async fn who_waits_is_served_at_once_and_all_that_came_before() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    // Without anybody waiting, nothing would be written for an hour.
    let log = StateLog::start(&checkpoint, &env, settings(3_600_000), &reader);
    for id in 0..5 {
        append(&log, id, 0).await;
    }
    append(&log, 5, 0).await.written().await.unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    assert_eq!(reader.last().unwrap().id(), BatchId(5));
    assert_eq!(ids(&mut reader).await, [0, 1, 2, 3, 4, 5]);
    append(&log, 6, 0).await;
    log.close().await.unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    assert_eq!(ids(&mut reader).await, [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn entries_that_are_not_needed_go_and_a_snapshot_stands_for_them() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    for id in 0..200 {
        append(&log, id, 0).await.written().await.unwrap();
    }
    let mut snapshot = log.begin_snapshot(entry(150, vec![]).facts);
    snapshot.add(vec![b"all".to_vec()]).await.unwrap();
    assert_eq!(snapshot.finish().await.unwrap(), 3);
    append(&log, 200, 151).await.written().await.unwrap();
    log.close().await.unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    assert_eq!(reader.files().first(), Some(&(BatchId(151), BatchId(151))));
    let mut snapshot = reader.snapshot().await.unwrap().unwrap();
    assert_eq!(snapshot.facts().id(), BatchId(150));
    assert_eq!(pieces(&mut snapshot).await, [[b"all".to_vec()]]);
    assert_eq!(ids(&mut reader).await, (151..=200).collect::<Vec<_>>());
}

async fn pieces(snapshot: &mut SnapshotReader) -> Vec<SnapshotPiece> {
    let mut pieces = Vec::new();
    while let Some(piece) = snapshot.next().await.unwrap() {
        pieces.push(piece);
    }
    pieces
}

#[tokio::test]
async fn a_snapshot_in_pieces_is_there_with_its_last_file() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    let names = || {
        let found = std::fs::read_dir(directory.path().join(layout::STATE)).unwrap();
        let names = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with(CHANGES)).collect::<Vec<_>>()
    };
    for id in [3, 5] {
        append(&log, id, 0).await.written().await.unwrap();
        // One that a crash cuts off, and one that comes to its end.
        let all: Vec<SnapshotPiece> = (0..3).map(|at| vec![vec![], vec![at; 7]]).collect();
        let mut cut_off = log.begin_snapshot(entry(id, vec![]).facts);
        let mut whole = log.begin_snapshot(entry(id, vec![]).facts);
        for piece in &all {
            cut_off.add(piece.clone()).await.unwrap();
            whole.add(piece.clone()).await.unwrap();
        }
        match id {
            3 => drop(cut_off),
            _ => cut_off.abandon().await,
        }
        let mut reader = StateReader::beside_a_writer(&checkpoint).await.unwrap();
        let before = reader.snapshot().await.unwrap().map(|known| known.facts().id());
        assert_eq!(before, (id == 5).then_some(BatchId(3)));
        // Two pieces of each try, and of the snapshot before three and its last file.
        assert_eq!(names().len(), if id == 3 { 4 } else { 6 }, "{:?}", names());
        assert_eq!(whole.finish().await.unwrap(), 21);
        let mut reader = StateReader::open(&checkpoint).await.unwrap();
        let mut snapshot = reader.snapshot().await.unwrap().unwrap();
        assert_eq!(snapshot.facts().id(), BatchId(id));
        assert_eq!(pieces(&mut snapshot).await, all);
        assert_eq!(names().len(), 4, "{:?}", names());
    }
    let piece = names().into_iter().find(|name| name.starts_with(PIECE)).unwrap();
    std::fs::remove_file(directory.path().join(layout::STATE).join(piece)).unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    let mut snapshot = reader.snapshot().await.unwrap().unwrap();
    let error = loop {
        match snapshot.next().await {
            Ok(piece) => assert!(piece.is_some(), "a piece is missing"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Data, "{error}");
}

#[tokio::test]
async fn a_snapshot_leaves_no_pieces_of_an_earlier_attempt_at_the_same_micro_batch() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    append(&log, 3, 0).await.written().await.unwrap();
    for is_killed in [true, false] {
        let mut snapshot = log.begin_snapshot(entry(3, vec![]).facts);
        for piece in 0..3 {
            snapshot.add(vec![vec![piece; 7]]).await.unwrap();
        }
        if !is_killed {
            snapshot.finish().await.unwrap();
        }
    }
    let names = checkpoint.storage().list(layout::STATE).await.unwrap();
    let pieces = names.iter().filter(|name| name.starts_with(PIECE));
    assert_eq!(pieces.count(), 3, "{names:?}");
}

#[tokio::test]
async fn what_a_killed_process_left_goes_at_the_restart_and_nothing_else() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    append(&log, 3, 0).await.written().await.unwrap();
    for is_killed in [false, true] {
        let mut snapshot = log.begin_snapshot(entry(3, vec![]).facts);
        for piece in 0..3 {
            snapshot.add(vec![vec![piece; 7]]).await.unwrap();
        }
        if !is_killed {
            snapshot.finish().await.unwrap();
        }
    }
    log.close().await.unwrap();
    let state = directory.path().join(layout::STATE);
    for name in [".piece-3-x.0b9e.tmp", ".changes-4.0b9e.tmp", ".changes-4.torn-0b9e"] {
        std::fs::write(state.join(name), "half").unwrap();
    }
    let count = || std::fs::read_dir(&state).unwrap().count();
    let before = count();
    let mut beside = StateReader::beside_a_writer(&checkpoint).await.unwrap();
    beside.snapshot().await.unwrap().unwrap();
    assert_eq!(count(), before, "who reads beside a writer deletes nothing");
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    let mut snapshot = reader.snapshot().await.unwrap().unwrap();
    assert_eq!(pieces(&mut snapshot).await.len(), 3);
    // Two pieces of the killed try, and what was half-written.
    assert_eq!(count(), before - 4);
    assert!(state.join(".changes-4.torn-0b9e").exists(), "it may be all there is of an entry");
}

#[tokio::test]
async fn files_stay_while_they_are_read() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    let kept = log.keep_files().await;
    for id in 0..100 {
        append(&log, id, id).await.written().await.unwrap();
    }
    let mut reader = StateReader::beside_a_writer(&checkpoint).await.unwrap();
    assert_eq!(ids(&mut reader).await, (0..100).collect::<Vec<_>>());
    drop(kept);
    append(&log, 100, 100).await.written().await.unwrap();
    log.close().await.unwrap();
    let mut reader = StateReader::beside_a_writer(&checkpoint).await.unwrap();
    assert_eq!(ids(&mut reader).await, [100]);
}

#[tokio::test]
async fn who_is_to_read_waits_while_files_are_deleted() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    // Nothing is deleted before this end of the channel is dropped.
    let (closed, gate) = std::sync::mpsc::channel::<()>();
    let (gate, deleted) = (Mutex::new(gate), Arc::new(AtomicBool::new(false)));
    let begun = Arc::clone(&deleted);
    let disk = WatchedDisk::new(move |what| {
        if what.starts_with("delete changes-") {
            begun.store(true, Ordering::Relaxed);
            let _ = gate.lock().recv();
        }
    });
    let storage = Storage::local_on(Arc::new(disk), directory.path().to_owned(), &env);
    let checkpoint = Checkpoint::open_in(storage, &env).await.unwrap();
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    for id in 0..=50 {
        append(&log, id, if id == 50 { 50 } else { 0 }).await.written().await.unwrap();
    }
    while !deleted.load(Ordering::Relaxed) {
        env.sleep(Duration::from_millis(1)).await;
    }
    tokio::select! {
        _ = log.keep_files() => panic!("files are being deleted"),
        () = env.sleep(Duration::from_millis(100)) => {}
    }
    drop(closed);
    let kept = log.keep_files().await;
    let mut reader = StateReader::beside_a_writer(&checkpoint).await.unwrap();
    assert_eq!(ids(&mut reader).await, [50]);
    drop(kept);
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_snapshot_is_told_where_its_rows_are_nowhere_else() {
    for (needs, is_refused) in [(4, true), (5, false), (0, false)] {
        let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
        let checkpoint = checkpoint(directory.path(), &env).await;
        let reader = StateReader::open(&checkpoint).await.unwrap();
        let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
        for id in 0..=3 {
            append(&log, id, 0).await.written().await.unwrap();
        }
        let mut snapshot = log.begin_snapshot(entry(3, vec![]).facts);
        snapshot.add(vec![b"all".to_vec()]).await.unwrap();
        snapshot.finish().await.unwrap();
        append(&log, 4, needs).await.written().await.unwrap();
        std::fs::write(directory.path().join(snapshot_name(BatchId(3))), "MLSTATE1 no").unwrap();
        let mut reader = StateReader::open(&checkpoint).await.unwrap();
        match reader.snapshot().await {
            Err(error) => {
                assert!(is_refused && error.to_string().contains("snapshot-3"), "{error}")
            }
            Ok(found) => assert!(!is_refused && found.is_none(), "{needs}"),
        }
    }
}

#[tokio::test]
async fn a_second_process_that_goes_on_from_the_same_place_is_stopped() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let one = StateLog::start(&checkpoint, &env, settings(0), &reader);
    let other = StateLog::start(&checkpoint, &env, settings(0), &reader);
    append(&one, 0, 0).await.written().await.unwrap();
    let refused = append(&other, 0, 0).await.written().await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Fenced, "{refused}");
    assert!(append(&other, 1, 0).await.settled().await.is_err(), "nothing is written after that");
    assert!(other.close().await.is_err());
    assert!(!directory.path().join(changes_name(BatchId(1))).exists());
}

#[tokio::test]
async fn a_torn_last_file_goes_aside_and_any_other_damage_is_told() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    for id in 0..3 {
        append(&log, id, 0).await.written().await.unwrap();
    }
    log.close().await.unwrap();
    let file = |id: u64| directory.path().join(changes_name(BatchId(id)));
    let whole = std::fs::read(file(2)).unwrap();
    std::fs::write(file(2), &whole[..whole.len() - 3]).unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    assert_eq!(ids(&mut reader).await, [0, 1]);
    assert!(!file(2).exists());

    let mut damaged = std::fs::read(file(0)).unwrap();
    damaged[40] ^= 1;
    std::fs::write(file(0), damaged).unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    let error = reader.next().await.unwrap_err();
    assert!(error.to_string().contains("changes-0 is damaged"), "{error}");
}

#[tokio::test]
async fn state_of_another_query_is_refused_with_what_changed() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    reader.check_form("one", |_| unreachable!()).await.unwrap();
    reader.check_form("one", |_| unreachable!()).await.unwrap();
    let changed = |known: &str| format!("{known} became two");
    let error = reader.check_form("two", changed).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("one became two"), "{error}");
}

#[tokio::test]
async fn who_waits_is_told_when_the_writer_ends_by_a_panic() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(0), &reader);
    let facts = entry(0, vec![]).facts;
    let ticket = log.append(facts, 10, vec![section(|| panic!("on purpose"))]).await;
    assert_eq!(ticket.written().await, Err(crate::log_writer::WriteError::Stopped));
}

/// A state log with entries `0..=3` and a snapshot of them, and the directory of its files.
async fn with_a_snapshot(directory: &std::path::Path, env: &Env) -> (Checkpoint, StateLog) {
    let checkpoint = checkpoint(directory, env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, env, settings(0), &reader);
    for id in 0..=3 {
        append(&log, id, 0).await.written().await.unwrap();
    }
    let mut snapshot = log.begin_snapshot(entry(3, vec![]).facts);
    snapshot.add(vec![b"all".to_vec()]).await.unwrap();
    snapshot.finish().await.unwrap();
    (checkpoint, log)
}

#[tokio::test]
async fn after_a_snapshot_the_next_entry_follows_and_no_other() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let (checkpoint, log) = with_a_snapshot(directory.path(), &env).await;
    append(&log, 4, 0).await.written().await.unwrap();
    log.close().await.unwrap();
    let path = |id: u64| directory.path().join(snapshot_name(BatchId(id)));
    for is_copied in [false, true] {
        if is_copied {
            std::fs::copy(path(3), path(9)).unwrap();
        }
        let mut reader = StateReader::open(&checkpoint).await.unwrap();
        assert_eq!(reader.snapshot().await.unwrap().unwrap().facts().id(), BatchId(3));
        assert_eq!(reader.next_id().await.unwrap(), Some(BatchId(4)), "copied: {is_copied}");
    }
}

#[tokio::test]
async fn a_snapshot_alone_is_the_last_of_the_state() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let (checkpoint, log) = with_a_snapshot(directory.path(), &env).await;
    log.close().await.unwrap();
    for id in 0..=3 {
        std::fs::remove_file(directory.path().join(changes_name(BatchId(id)))).unwrap();
    }
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    reader.snapshot().await.unwrap().unwrap();
    assert_eq!(reader.last().map(Facts::id), Some(BatchId(3)));
}

#[tokio::test]
async fn entries_are_read_up_to_the_one_asked_for() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let (checkpoint, log) = with_a_snapshot(directory.path(), &env).await;
    log.close().await.unwrap();
    let mut reader = StateReader::open(&checkpoint).await.unwrap();
    for id in 0..=2 {
        let entry = reader.next_up_to(BatchId(2)).await.unwrap().unwrap();
        assert_eq!(entry.id(), BatchId(id));
    }
    assert_eq!(reader.next_up_to(BatchId(2)).await.unwrap(), None);
}

#[tokio::test]
async fn files_under_names_that_are_not_theirs_are_damage() {
    for impossible in [changes_name, snapshot_name] {
        let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
        let (checkpoint, log) = with_a_snapshot(directory.path(), &env).await;
        log.close().await.unwrap();
        let path = |name: String| directory.path().join(name);
        let impossible = impossible(BatchId(layout::BATCH_ID_MAX.0 + 1));
        std::fs::copy(path(changes_name(BatchId(3))), path(impossible.clone())).unwrap();
        let error = StateReader::open(&checkpoint).await.err().unwrap();
        assert!(matches!(error, ReadError::OutOfReach { .. }), "{error}");

        std::fs::rename(path(impossible), path(changes_name(BatchId(7)))).unwrap();
        let error = StateReader::open(&checkpoint).await.err().unwrap();
        let problem = DecodeError::OfAnother;
        assert!(matches!(error, ReadError::Damaged { problem: of, .. } if of == problem));
    }
}

#[test]
fn bytes_after_the_end_are_damage() {
    let mut bytes = encoded(&[entry(0, vec![b"rows".to_vec()])]);
    assert!(decode(&bytes).is_ok());
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(DecodeError::CutOff));
}

#[tokio::test]
async fn who_waits_wakes_the_writer() {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::real());
    let checkpoint = checkpoint(directory.path(), &env).await;
    let reader = StateReader::open(&checkpoint).await.unwrap();
    let log = StateLog::start(&checkpoint, &env, settings(3_600_000), &reader);
    let ticket = append(&log, 0, 0).await;
    // By then the writer knows of the entry, and sleeps.
    env.sleep(Duration::from_millis(50)).await;
    tokio::select! {
        written = ticket.written() => written.unwrap(),
        () = env.sleep(Duration::from_secs(20)) => panic!("the writer was not woken"),
    }
}
