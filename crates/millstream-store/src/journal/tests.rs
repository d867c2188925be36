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
}

impl Place {
    fn local() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory: Some(directory), ..Self::object() }
    }

    fn object() -> Self {
        Self { directory: None, memory: Storage::in_memory(), env: Env::real() }
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
        let settings = Settings { bytes_max: 512 << 10, ..Settings::default() };
        Journal::open(&self.log().await, position, settings, &self.env).await
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
    keys.renew(3, 5_000_000);
    keys.expire(5_500_000, 6);
    assert_eq!(keys.len(), 4, "they count from the restart");
    keys.expire(6_000_000, 6);
    assert_eq!(keys.len(), 2, "the last segment's stay");
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
