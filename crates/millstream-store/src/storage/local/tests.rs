use super::super::testing::WatchedDisk;
use super::*;

fn directory() -> (tempfile::TempDir, Directory) {
    let root = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::new(root.path(), &Env::real());
    (root, directory)
}

fn names(directory: &Directory, of: &str) -> Vec<String> {
    let mut names = directory.list(of).expect("listed");
    names.sort();
    names
}

#[test]
fn a_file_is_written_once() {
    for durability in [Durability::Process, Durability::Power] {
        let (_root, directory) = directory();
        directory.put("offsets/0", b"first", durability).expect("written");
        let error = directory.put("offsets/0", b"second", durability).expect_err("taken");
        assert!(matches!(error, PutError::AlreadyExists { .. }), "{error}");
        assert_eq!(directory.get("offsets/0"), Ok(Some(b"first".to_vec())));
        assert_eq!(names(&directory, "offsets"), ["0"], "the temporary file is gone");
        assert_eq!(names(&directory, ""), ["offsets/"]);
    }
}

#[test]
fn retired_files_are_written_again_and_hold_nothing_old() {
    let (_root, directory) = directory();
    directory.put("offsets/0", b"a long entry", Durability::Process).expect("written");
    directory.retire_many(&["offsets/0".to_owned(), "offsets/1".to_owned()]).expect("retired");
    let left = names(&directory, "offsets");
    assert_eq!(left.len(), 1);
    assert!(crate::layout::is_temporary(&left[0]), "{left:?}");
    assert_eq!(directory.get(&format!("offsets/{}", left[0])), Ok(Some(Vec::new())));

    directory.put("offsets/2", b"short", Durability::Process).expect("written");
    assert_eq!(names(&directory, "offsets"), ["2"]);
    assert_eq!(directory.get("offsets/2"), Ok(Some(b"short".to_vec())));
}

#[test]
fn a_backup_of_hard_links_keeps_its_bytes() {
    let (root, directory) = directory();
    directory.put("offsets/0", b"entry", Durability::Process).expect("written");
    std::fs::hard_link(root.path().join("offsets/0"), root.path().join("backup")).expect("linked");
    directory.retire_many(&["offsets/0".to_owned()]).expect("retired");
    assert_eq!(names(&directory, "offsets"), [""; 0]);
    assert_eq!(directory.get("backup"), Ok(Some(b"entry".to_vec())));
}

#[test]
fn spares_are_bounded_and_deleted_at_the_end() {
    let (root, directory) = directory();
    let all: Vec<String> = (0..SPARES_MAX + 10).map(|id| format!("offsets/{id}")).collect();
    for name in &all {
        directory.put(name, b"entry", Durability::Process).expect("written");
    }
    directory.retire_many(&all).expect("retired");
    assert_eq!(names(&directory, "offsets").len(), SPARES_MAX);
    drop(directory);
    assert_eq!(std::fs::read_dir(root.path().join("offsets")).expect("listed").count(), 0);
}

#[test]
fn a_spare_that_vanished_is_replaced() {
    let (root, directory) = directory();
    directory.put("offsets/0", b"entry", Durability::Process).expect("written");
    directory.retire_many(&["offsets/0".to_owned()]).expect("retired");
    std::fs::remove_dir_all(root.path().join("offsets")).expect("deleted");
    directory.put("offsets/1", b"next", Durability::Process).expect("written");
    assert_eq!(directory.get("offsets/1"), Ok(Some(b"next".to_vec())));
}

#[test]
fn errors_say_what_the_caller_should_do() {
    use crate::error::Classified;
    let path = Path::new("/checkpoint/offsets/1");
    let of = |code: i32| put_error(path, &io::Error::from_raw_os_error(code));
    assert!(matches!(of(libc::ENOSPC), PutError::DiskFull { .. }));
    assert!(matches!(of(libc::EDQUOT), PutError::DiskFull { .. }));
    assert!(matches!(of(libc::EACCES), PutError::NoPermission { .. }));
    assert!(matches!(of(libc::EROFS), PutError::NoPermission { .. }));
    assert!(matches!(of(libc::EEXIST), PutError::AlreadyExists { .. }));
    assert_eq!(of(libc::ENOSPC).kind(), Kind::Config);
    assert_eq!(of(libc::EEXIST).kind(), Kind::Fenced);
    assert!(of(libc::EACCES).to_string().contains("/checkpoint/offsets/1"));
}

#[test]
fn a_file_in_the_place_of_a_directory_is_an_error() {
    let (root, directory) = directory();
    std::fs::write(root.path().join("offsets"), "a file").expect("written");
    assert!(directory.put("offsets/0", b"entry", Durability::Process).is_err());
    assert!(directory.list("offsets").is_err());
}

#[test]
fn what_is_no_file_is_not_read() {
    let (root, directory) = directory();
    directory.put("offsets/0", b"entry", Durability::Process).expect("written");
    let socket = std::os::unix::net::UnixListener::bind(root.path().join("offsets/1"));
    let _socket = socket.expect("a socket that has the name of an entry");
    assert!(directory.get("offsets/1").is_err());
    std::os::unix::fs::symlink("/dev/null", root.path().join("offsets/2")).expect("linked");
    let error = directory.get("offsets/2").expect_err("a device is no entry");
    assert!(error.to_string().contains("it is no file"), "{error}");
}

/// What a disk was asked to do, in order, but for what reads.
type Asked = Arc<Mutex<Vec<String>>>;

/// A disk that notes what it is asked to do.
fn noting_disk(asked: &Asked) -> Arc<WatchedDisk> {
    let asked = Arc::clone(asked);
    Arc::new(WatchedDisk::new(move |what| {
        if !what.starts_with("list") {
            asked.lock().push(what.to_owned());
        }
    }))
}

#[test]
fn what_is_to_survive_a_power_cut_is_flushed_before_it_has_its_name() {
    let (root, asked) = (tempfile::tempdir().expect("a temporary directory"), Asked::default());
    let directory = Directory::on_disk(noting_disk(&asked), root.path().to_owned(), &Env::real());
    std::fs::create_dir(root.path().join("offsets")).expect("made");
    let asked_for = |name: &str, durability| {
        directory.put(name, b"entry", durability).expect("written");
        std::mem::take(&mut *asked.lock())
    };
    assert_eq!(asked_for("offsets/0", Durability::Power), ["write", "flush", "name 0"]);
    assert_eq!(asked_for("offsets/1", Durability::PowerAside), ["write", "flush", "name 1"]);
    assert_eq!(asked_for("offsets/2", Durability::Process), ["write", "name 2"]);
}

#[tokio::test]
async fn the_names_of_flushed_log_entries_are_flushed_before_their_tickets_complete() {
    use crate::checkpoint::Checkpoint;
    use crate::log_writer::{LogWriter, Settings};
    use crate::offset::BatchId;
    use crate::{offset_log, storage::Storage};
    let (root, asked) = (tempfile::tempdir().expect("a temporary directory"), Asked::default());
    let env = Env::real();
    let storage = Storage::local_on(noting_disk(&asked), root.path().to_owned(), &env);
    let checkpoint = Checkpoint::open_in(storage, &env).await.expect("opened");
    checkpoint.recover().await.expect("recovered");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    for (id, durability) in (0..).zip([Durability::Power, Durability::Process, Durability::Power]) {
        asked.lock().clear();
        let (batch_watermark_ms, batch_timestamp_ms) = (0, 0);
        let (conf, offsets) = (offset_log::default_conf(), vec![None]);
        let entry = offset_log::Entry { batch_watermark_ms, batch_timestamp_ms, conf, offsets };
        writer.intent(BatchId(id), entry, durability).await.written().await.expect("written");
        let asked = asked.lock().clone();
        let is_flushed = asked.iter().any(|asked| asked == "flush names in offsets");
        assert_eq!(is_flushed, durability == Durability::Power, "{asked:?}");
    }
    writer.close().await.expect("closed");
}
