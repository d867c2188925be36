//! The journal on a local disk and in an object store: what a crash leaves, what damage is.

use std::path::Path;

use millstream_fuzz::{Target, outcome};

use super::*;
use crate::checkpoint::Checkpoint;
use crate::commit_log;
use crate::error::Classified as _;
use crate::offset::BatchId;
use crate::source_log::SourceLog;
use crate::storage::Durability;
use crate::{layout, offset_log};

fn record(text: &str) -> Record {
    let mut key = [0; 16];
    key[..text.len()].copy_from_slice(text.as_bytes());
    Record { key: Some(key), content: bytes::Bytes::copy_from_slice(text.as_bytes()) }
}

fn texts(records: Vec<(u64, Record)>) -> Vec<String> {
    let text = |(position, record): (u64, Record)| {
        format!("{position} {}", String::from_utf8_lossy(&record.content))
    };
    records.into_iter().map(text).collect()
}

/// A checkpoint in a directory, or in memory as in an object store.
struct Place {
    directory: Option<tempfile::TempDir>,
    memory: Storage,
    env: Env,
    settings: Settings,
}

impl Place {
    fn local() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory: Some(directory), ..Self::object() }
    }

    fn object() -> Self {
        let settings = Settings { bytes_max: 512 << 10, ..Settings::default() };
        Self { directory: None, memory: Storage::in_memory(), env: Env::real(), settings }
    }

    fn storage(&self) -> Storage {
        match &self.directory {
            Some(directory) => Storage::local(directory.path(), &self.env),
            None => self.memory.clone(),
        }
    }

    async fn log(&self) -> SourceLog {
        let checkpoint = Checkpoint::open_in(self.storage(), &self.env).await.expect("it opens");
        checkpoint.source_log(0)
    }

    async fn open(&self, position: Option<u64>) -> Result<Journal, JournalError> {
        Journal::open(&self.log().await, position, self.settings, &self.env).await
    }

    async fn filled(&self, records: &[&str]) -> Journal {
        let journal = self.open(None).await.expect("it opens");
        for text in records {
            let ticket = journal.append(vec![record(text)]);
            ticket.durable().await.expect("it is written");
        }
        journal
    }

    /// The paths of the files that begin with `prefix`.
    fn files(&self, prefix: &str) -> Vec<std::path::PathBuf> {
        let directory = self.directory.as_ref().expect("it is local").path().join("sources/0");
        let files = std::fs::read_dir(directory).expect("it is there");
        let mut files: Vec<_> = files.map(|entry| entry.expect("it is there").path()).collect();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        files.retain(|path| name(path).starts_with(prefix));
        files.sort_by_key(|path| (name(path).len(), name(path)));
        files
    }

    /// The names of the files that begin with `prefix`, here or in an object store.
    async fn names(&self, prefix: &str) -> Vec<String> {
        let mut names = self.storage().list("sources/0").await.expect("it can be listed");
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    }

    /// The logs say that the query is at `position` after micro-batch `id`.
    async fn commit(&self, id: u64, position: u64) {
        let entry = offset_log::Entry {
            batch_watermark_ms: 0,
            batch_timestamp_ms: 0,
            conf: Vec::new(),
            offsets: vec![Some(offset(position))],
        };
        let storage = self.storage();
        let put = async |name: String, bytes| {
            let put = storage.put_if_absent(&name, bytes, Durability::Process).await;
            put.expect("it is written");
        };
        put(layout::intent(BatchId(id)), entry.encode()).await;
        put(layout::commit(BatchId(id)), commit_log::Entry::default().encode()).await;
    }
}

#[tokio::test]
async fn what_is_durable_is_there_after_a_restart() {
    for place in [Place::local(), Place::object()] {
        let journal = place.filled(&["a", "b"]).await;
        let group = journal.append(vec![record("c"), record("d")]);
        group.durable().await.expect("it is written");
        assert_eq!((&*group.positions, journal.durable()), (&[2, 3][..], 4));
        let again = journal.append(vec![record("d"), record("x"), record("x"), record("a")]);
        assert_eq!((again.first, &*again.positions), (4, &[3, 4, 4, 0][..]), "known by their keys");
        again.durable().await.expect("it is written");
        assert_eq!(journal.position_of(&record("c").key.unwrap()), Some(2));
        drop(journal);
        let journal = place.open(Some(1)).await.expect("it opens");
        assert_eq!((journal.first(), journal.durable()), (0, 5));
        assert_eq!(journal.position_of(&record("d").key.unwrap()), Some(3));
        journal.append(vec![record("e")]).durable().await.expect("it is written");
        let mut found = Vec::new();
        let mut position = 1;
        while position < 6 {
            let read = journal.read(position, 6).await.expect("it is there");
            position = read.last().expect("there is more").0 + 1;
            found.extend(texts(read));
        }
        assert_eq!(found, ["1 b", "2 c", "3 d", "4 x", "5 e"]);
    }
}

#[tokio::test]
async fn a_torn_end_is_cut_wherever_it_is_torn() {
    let place = Place::local();
    place.filled(&["a", "bb", "ccc"]).await.close().await;
    let path = place.files("journal-").pop().expect("there is one");
    let whole = std::fs::read(&path).expect("it can be read");
    let frame = whole.len() - 36 - 5 - 16 - 3 - 4;
    for length in (0..whole.len()).rev() {
        std::fs::write(&path, &whole[..length]).expect("it can be written");
        let journal = place.open(None).await.expect("a crash explains it");
        let left = journal.durable();
        assert!(left <= 2, "{left} of {length} bytes");
        assert_eq!(left == 2, length >= frame, "{length} of {} bytes", whole.len());
        let written = journal.append(vec![record("d")]);
        written.durable().await.expect("it goes on there");
        assert_eq!(written.positions, [left]);
        journal.close().await;
        // The torn segment is now one of two, unless nothing of it was left.
        let journal = place.open(None).await.expect("it opens again");
        assert_eq!(journal.durable(), left + 1);
        drop(journal);
        for path in place.files("journal-") {
            std::fs::remove_file(path).expect("it can be removed");
        }
    }
}

#[tokio::test]
async fn a_damaged_record_is_an_error_wherever_it_is_damaged() {
    let place = Place::local();
    place.filled(&["a", "bb", "ccc"]).await.close().await;
    let path = place.files("journal-").pop().expect("there is one");
    let whole = std::fs::read(&path).expect("it can be read");
    let frame = whole.len() - 36 - 5 - 16 - 3 - 4;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).expect("it can be written");
        let opened = place.open(Some(2)).await;
        if at < frame {
            let error = opened.err().unwrap_or_else(|| panic!("byte {at} is not noticed"));
            assert_eq!(error.kind(), crate::error::Kind::Data);
            assert!(error.to_string().contains("damaged"), "{error}");
        } else {
            // The last frame could be torn; who has its records in the offset log notices.
            assert_eq!(opened.expect("it may be torn").durable(), 2);
            let error = place.open(Some(3)).await.err().expect("records are missing");
            assert!(error.to_string().contains("no records from 2 up to 3"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_segment_that_is_gone_is_missed() {
    for place in [Place::local(), Place::object()] {
        for text in ["a", "b", "c"] {
            let journal = place.open(None).await.expect("it opens");
            journal.append(vec![record(text)]).durable().await.expect("it is written");
            journal.close().await;
        }
        place.log().await.delete(&["journal-1".to_owned()]).await.expect("it can be deleted");
        let error = place.open(Some(0)).await.err().expect("it is missed");
        assert!(error.to_string().contains("no records from 1 up to 2"), "{error}");
    }
}

#[tokio::test]
async fn content_that_looks_like_a_frame_is_content() {
    let place = Place::local();
    let journal = place.filled(&["a"]).await;
    journal.close().await;
    let path = place.files("journal-").pop().expect("there is one");
    let frame = std::fs::read(&path).expect("it can be read")[segment::HEADER..].to_vec();
    let hostile = Record { key: None, content: [frame.clone(), frame].concat().into() };
    let journal = place.open(None).await.expect("it opens");
    journal.append(vec![hostile]).durable().await.expect("it is written");
    journal.close().await;
    let path = place.files("journal-").pop().expect("there is one");
    let whole = std::fs::read(&path).expect("it can be read");
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("it can be written");
    assert_eq!(place.open(None).await.expect("it is torn").durable(), 1);
}

#[tokio::test]
async fn what_the_commit_log_is_past_is_deleted_and_its_keys_are_known() {
    let place = Place::local();
    let journal = place.open(None).await.expect("it opens");
    let large = |text: &str| Record { content: vec![7; 40 << 10].into(), ..record(text) };
    for number in 0..10 {
        let written = journal.append(vec![large(&number.to_string())]);
        written.durable().await.expect("it is written");
    }
    assert_eq!(place.files("journal-").len(), 5, "64 kB each");
    let bytes = journal.bytes();
    journal.acknowledged(10);
    journal.released(7);
    place.env.sleep(Duration::from_millis(50)).await;
    assert_eq!(journal.bytes(), bytes, "the commit log knows nothing of it");
    place.commit(0, 6).await;
    journal.shared.wait_for(|state| state.segments.len() == 2).await;
    assert_eq!((journal.first(), place.files("journal-").len()), (6, 2));
    assert_eq!(place.files("keys-").len(), 1);
    assert_eq!(journal.position_of(&record("0").key.unwrap()), Some(0));
    journal.close().await;
    drop(journal);
    let journal = place.open(Some(6)).await.expect("it opens");
    assert!(journal.position_of(&record("0").key.unwrap()).is_some(), "over a restart");
    assert_eq!(journal.keys(), (10, 0));
    let error = journal.read(2, 6).await.expect_err("they are deleted");
    assert!(error.to_string().contains("no records from 2"), "{error}");
    drop(journal);
    let error = place.open(Some(2)).await.err().expect("they are deleted");
    assert!(error.to_string().contains("no records from 2 up to 6"), "{error}");
}

#[tokio::test]
async fn a_full_journal_has_no_room_until_something_is_deleted() {
    let place = Place::local();
    let journal = place.open(None).await.expect("it opens");
    let mut count = 0;
    while journal.bytes() < 512 << 10 {
        let large = Record { key: None, content: vec![7; 40 << 10].into() };
        journal.append(vec![large]).durable().await.expect("it is written");
        count += 1;
    }
    let mut room = std::pin::pin!(journal.room());
    assert!(futures::poll!(&mut room).is_pending());
    place.commit(0, count - 1).await;
    journal.released(count - 1);
    room.await;
}

#[tokio::test]
async fn a_second_writer_is_refused_in_an_object_store() {
    let place = Place::object();
    let (one, other) = (place.open(None).await.unwrap(), place.open(None).await.unwrap());
    one.append(vec![record("a")]).durable().await.expect("it is written");
    let error = other.append(vec![record("b")]).durable().await.expect_err("it is there");
    assert_eq!(error.kind(), crate::error::Kind::Fenced);
    assert!(other.failure().is_some());
}

#[test]
fn keys_are_forgotten_in_time_and_not_while_their_acknowledgement_is_open() {
    let key = |number: u8| [number; 16];
    let mut keys = Keys::new(Duration::from_secs(1), 4);
    for generation in 0..3_u8 {
        keys.begin(u64::from(generation) * 2);
        for place in 0..2 {
            let number = generation * 2 + place;
            keys.add(Some(key(number)), u64::from(number), 1_000_000 * i64::from(generation));
        }
    }
    keys.expire(1_500_000, 0);
    assert_eq!(keys.len(), 6, "all acknowledgements are open");
    keys.expire(500_000, 6);
    assert_eq!((keys.len(), keys.forgotten_early()), (4, 2), "there may be four");
    assert!(keys.position(&key(1)).is_none() && keys.position(&key(2)).is_some());
    keys.confirmed(3, 4, 5_000_000);
    assert!(keys.of_dropped(4, 5_500_000, 6).is_some(), "they count from the confirmation");
    keys.expire(5_500_000, 6);
    assert_eq!(keys.len(), 4);
    assert!(keys.of_dropped(4, 6_000_000, 6).is_none());
    assert!(keys.of_dropped(4, 6_000_000, 3).is_some(), "an acknowledgement is open");
    keys.expire(6_000_000, 6);
    assert_eq!(keys.len(), 2, "the last segment's stay");
}

#[tokio::test]
async fn keys_are_known_over_a_restart_until_somebody_confirms_their_acknowledgements() {
    let mut place = Place::local();
    place.settings.key_window = Duration::from_millis(100);
    let key = |text: &str| record(text).key.unwrap();
    let journal = place.filled(&["a", "b"]).await;
    journal.acknowledged(1);
    journal.close().await;
    drop(journal);
    place.env.sleep(Duration::from_millis(200)).await;
    let journal = place.open(Some(2)).await.expect("it opens");
    assert_eq!(journal.acknowledged_below(), 0, "the frame of b was written before");
    journal.append(vec![record("c")]).durable().await.expect("it is written");
    place.commit(0, 2).await;
    journal.released(2);
    journal.shared.wait_for(|state| state.segments.len() == 1).await;
    place.env.sleep(Duration::from_millis(200)).await;
    // It is past its window, and nobody has said anything: it may come again.
    assert_eq!(place.names("keys-").await, ["keys-0"]);
    let again = journal.append(vec![record("a"), record("b")]);
    assert_eq!(again.positions, [0, 1]);
    drop(journal);
    let journal = place.open(Some(2)).await.expect("it opens");
    assert_eq!(journal.position_of(&key("b")), Some(0), "of the file that begins there");
    place.env.sleep(Duration::from_millis(200)).await;
    journal.acknowledged(3);
    assert_eq!(journal.keys(), (3, 0));
    journal.append(vec![record("d")]).durable().await.expect("it is written");
    assert_eq!(journal.keys(), (4, 0), "the window begins with the confirmation");
    place.env.sleep(Duration::from_millis(200)).await;
    place.commit(1, 3).await;
    journal.released(3);
    journal.shared.wait_for(|state| state.segments.len() == 1).await;
    assert_eq!(journal.keys(), (1, 0), "it is over");
}

#[tokio::test]
async fn a_restart_takes_no_more_keys_than_there_may_be() {
    let mut place = Place::object();
    for text in ["a", "b", "c", "d"] {
        place.filled(&[text]).await.close().await;
    }
    place.settings.keys_max = 2;
    let journal = place.open(None).await.expect("it opens");
    assert_eq!(journal.keys(), (2, 2));
    assert_eq!(journal.position_of(&record("c").key.unwrap()), Some(2));
}

#[tokio::test]
async fn the_last_segment_that_has_records_stays_while_the_next_is_being_written() {
    let mut place = Place::object();
    let latency = Duration::from_millis(200);
    place.memory = Storage::in_memory_with_put_latency(&place.env, latency);
    // It is full, so the cleaner looks often; and without keys deleting waits for no put.
    place.settings.bytes_max = 1;
    let keyless = |text| Record { key: None, ..record(text) };
    let journal = place.open(None).await.expect("it opens");
    journal.append(vec![keyless("a")]).durable().await.expect("it is written");
    place.commit(0, 1).await;
    let next = journal.append(vec![keyless("b")]);
    journal.released(1);
    place.env.sleep(latency / 2).await;
    assert_eq!(place.names("journal-").await, ["journal-0"], "it may be the last");
    next.durable().await.expect("it is written");
    journal.append(vec![keyless("c")]).durable().await.expect("it is written");
    journal.shared.wait_for(|state| state.segments[0].first == 1).await;
    // A put that fails ends that.
    let name = "journal-3".to_owned();
    place.log().await.put_if_absent(&name, b"of somebody else".to_vec()).await.expect("it is free");
    let refused = journal.append(vec![keyless("d")]).durable().await;
    assert_eq!(refused.expect_err("it is there").kind(), crate::error::Kind::Fenced);
    place.commit(1, 3).await;
    journal.released(3);
    place.env.sleep(4 * latency).await;
    assert_eq!(place.names("journal-").await, ["journal-1", "journal-2", "journal-3"]);
}

#[tokio::test]
async fn a_segment_without_a_whole_record_is_put_aside_when_the_others_suffice() {
    let place = Place::local();
    let journal = place.filled(&["a"]).await;
    place.commit(0, 1).await;
    journal.released(1);
    journal.close().await;
    drop(journal);
    let path = place.files("journal-").pop().expect("it is the last, and stays");
    for _ in 0..3 {
        let torn = path.with_file_name("journal-1");
        std::fs::write(&torn, segment::encode_header(7, 1)).expect("it can be written");
        let error = place.open(Some(2)).await.err().expect("there is too little");
        assert!(error.to_string().contains("no records from 1 up to 2"), "{error}");
        assert!(torn.exists(), "nothing is moved where that does not help");
        let journal = place.open(Some(1)).await.expect("a crash explains it");
        assert_eq!((journal.durable(), torn.exists()), (1, false));
        assert_eq!(place.files(".journal-1.torn-").len(), 1, "those of earlier crashes are gone");
    }
    let journal = place.filled(&["b", "c"]).await;
    place.commit(1, 3).await;
    journal.released(3);
    drop(journal);
    let journal = place.filled(&["d"]).await;
    journal.released(3);
    journal.shared.wait_for(|state| state.segments.len() == 1).await;
    drop(journal);
    place.open(Some(3)).await.expect("it opens");
    assert!(place.files(".journal-").is_empty(), "the query is past it");
}

#[tokio::test]
async fn what_is_left_of_segments_that_were_to_be_deleted_is_deleted() {
    for place in [Place::local(), Place::object()] {
        for text in ["a", "b", "c", "d"] {
            place.filled(&[text]).await.close().await;
        }
        let log = place.log().await;
        // They are deleted in any order.
        log.delete(&["journal-1".to_owned()]).await.expect("it can be deleted");
        let error = place.open(Some(2)).await.err().expect("it is missed");
        assert!(error.to_string().contains("no records from 1 up to 2"), "{error}");
        place.commit(0, 2).await;
        let journal = place.open(Some(2)).await.expect("nobody needs it");
        assert_eq!((journal.first(), journal.keys().0), (2, 2));
        assert_eq!(place.names("journal-").await, ["journal-2", "journal-3"]);
        drop(journal);
        // Their keys are in a file, and this one is still there.
        let keys = vec![record("a").key.unwrap(), record("c").key.unwrap()];
        let file = segment::KeysFile { newest_us: place.env.now_us(), end: 3, keys };
        log.put_if_absent("keys-0", file.encode()).await.expect("it is written");
        let journal = place.open(Some(3)).await.expect("the logs are older than the file");
        assert_eq!((journal.first(), journal.keys().0), (2, 2));
        assert!(place.names("keys-").await.is_empty(), "so that counts nothing");
        drop(journal);
        log.put_if_absent("keys-0", file.encode()).await.expect("it is written");
        place.commit(1, 3).await;
        let journal = place.open(Some(3)).await.expect("it opens");
        assert_eq!(place.names("").await, ["journal-3", "keys-0"]);
        assert_eq!((journal.first(), journal.keys().0), (3, 3));
    }
}

#[tokio::test]
async fn a_record_that_is_larger_than_the_journal_is_taken() {
    let place = Place::local();
    let journal = place.open(None).await.expect("it opens");
    let large = |size: usize| Record { key: None, content: vec![7; size].into() };
    journal.append(vec![large(2 << 20)]).durable().await.expect("it is written");
    journal.room().await;
    journal.append(vec![large(2 << 20)]).durable().await.expect("it is written");
    let mut room = std::pin::pin!(journal.room());
    assert!(futures::poll!(&mut room).is_pending(), "the first can be deleted");
    place.commit(0, 2).await;
    journal.released(2);
    room.await;
    assert_eq!(place.names("journal-").await, ["journal-1"]);
    let on_disk = place.files("journal-1")[0].metadata().expect("it is there").len();
    assert_eq!(journal.bytes(), on_disk);
    // What comes at once is no larger segment than what comes bit by bit.
    let place = Place::local();
    let journal = place.open(None).await.expect("it opens");
    let many = journal.append((0..10).map(|_| large(40 << 10)).collect());
    many.durable().await.expect("they are written");
    assert_eq!(place.names("journal-").await.len(), 5, "two records make 64 kB");
}

/// A clock that a test moves.
struct MovedClock {
    real: Env,
    ahead_ms: std::sync::atomic::AtomicU64,
}

impl MovedClock {
    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(std::sync::atomic::Ordering::Relaxed))
    }
}

impl crate::env::Clock for MovedClock {
    fn now_us(&self) -> i64 {
        self.real.now_us() + self.ahead().as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + self.ahead()
    }

    fn sleep(&self, duration: Duration) -> futures::future::BoxFuture<'static, ()> {
        self.real.sleep(duration)
    }
}

impl crate::env::Rng for MovedClock {
    fn next_u64(&self) -> u64 {
        self.real.random_u64()
    }
}

#[tokio::test]
async fn a_process_that_stood_still_does_not_write_where_another_has_deleted() {
    let mut place = Place::object();
    let clock = Arc::new(MovedClock { real: Env::real(), ahead_ms: Default::default() });
    let real = std::mem::replace(&mut place.env, Env::new(clock.clone(), clock.clone()));
    let stands_still = place.filled(&["a"]).await;
    place.env = real;
    let other = place.filled(&["b", "c"]).await;
    place.commit(0, 3).await;
    other.released(3);
    other.shared.wait_for(|state| state.segments.len() == 1).await;
    assert_eq!(place.names("journal-").await, ["journal-2"]);
    clock.ahead_ms.store(60_000, std::sync::atomic::Ordering::Relaxed);
    let error = stands_still.append(vec![record("d")]).durable().await.expect_err("it is gone");
    assert_eq!(error.kind(), crate::error::Kind::Fenced);
    assert_eq!(stands_still.durable(), 1, "nothing of it is acknowledged");
    assert_eq!(place.names("journal-").await, ["journal-2"], "it is in nobody's way");
    other.append(vec![record("e")]).durable().await.expect("it goes on");
}

#[test]
fn offsets_are_positions() {
    assert_eq!(position(&offset(7)).expect("it is one"), 7);
    assert!(!offset(7).is_behind(&offset(7)) && offset(7).is_behind(&offset(8)));
    let foreign = SourceOffset::new("{\"in\":{\"0\":1}}");
    assert!(position(&foreign).expect_err("it is none").to_string().contains("another source"));
}

#[test]
fn fuzz_journal_segments() {
    let salt = 7;
    let mut seed = segment::encode_header(salt, 3);
    for position in [3, 5] {
        let records = [record("a"), record("b")];
        segment::encode_frame(&mut seed, salt, (position, 1, 9), records.iter());
    }
    let keys = segment::KeysFile { newest_us: 1, end: 2, keys: vec![[1; 16], [2; 16]] };
    Target::bytes("journal").seeds([seed, keys.encode()]).run(|input| {
        let input = bytes::Bytes::copy_from_slice(input);
        let segment = segment::decode(&input, 3);
        if let Ok(segment) = &segment {
            let records = segment.frames.iter().map(|frame| frame.records.len() as u64);
            assert_eq!(segment.end() - 3, records.sum::<u64>());
        }
        let keys = segment::KeysFile::decode(&input);
        if let Ok(keys) = &keys {
            assert_eq!(keys.encode(), input);
        }
        let frames = segment.map(|segment| (segment.frames.len(), segment.rest));
        format!("{frames:?} {}", outcome(&keys))
    });
}
