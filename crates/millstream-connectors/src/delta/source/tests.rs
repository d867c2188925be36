//! Micro-batches of a table whose log is written by hand, and loses versions.

use std::fs;
use std::sync::Arc;

use millstream_engine::api::options::Options;
use millstream_lake::store::TableStore;

use super::*;

/// A table of which only the log is there.
struct Log {
    directory: tempfile::TempDir,
    env: Env,
}

impl Log {
    /// With so many versions behind the first, each of which adds a file.
    fn new(versions: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let log = Self { directory, env: Env::real() };
        fs::create_dir(log.directory.path().join("_delta_log")).expect("a directory");
        let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;
        let protocol = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
        let metadata = format!(
            r#"{{"metaData":{{"id":"t","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{schema}","partitionColumns":[],"configuration":{{}},"createdTime":1}}}}"#
        );
        fs::write(log.path(0), format!("{protocol}\n{metadata}\n")).expect("it is writable");
        (1..=versions).for_each(|version| log.commit(version));
        log
    }

    fn path(&self, version: u64) -> std::path::PathBuf {
        self.directory.path().join(format!("_delta_log/{version:020}.json"))
    }

    fn commit(&self, version: u64) {
        let add = format!(
            r#"{{"add":{{"path":"f{version}","partitionValues":{{}},"size":7,"modificationTime":5,"dataChange":true,"stats":"{{\"numRecords\":3}}"}}}}"#
        );
        fs::write(self.path(version), add).expect("it is writable");
    }

    fn lose(&self, versions: std::ops::RangeInclusive<u64>) {
        versions.for_each(|version| fs::remove_file(self.path(version)).expect("it is there"));
    }

    fn options(&self, more: &[(&str, &str)]) -> StreamOptions {
        let path = self.directory.path().display().to_string();
        let all = [&[("path", path.as_str()), ("pollInterval", "5ms")], more].concat();
        let owned = all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        StreamOptions::parse(&Options::new(owned)).expect("right")
    }

    fn open(&self) -> Arc<StreamTable> {
        let path = self.directory.path().display().to_string();
        let store = TableStore::parse(&path, &self.env).expect("a path");
        Arc::new(self.env.blocking(|| StreamTable::open(&store, false)).expect("a table"))
    }

    fn between(
        &self,
        table: Arc<StreamTable>,
        options: &[(&str, &str)],
        end: Position,
    ) -> Result<Vec<String>, Failure> {
        let options = self.options(options);
        let files =
            self.env.blocking(|| files_between(table, &options, (Position::before(2), end)));
        Ok(files?.into_iter().map(|file| file.path).collect())
    }

    /// What a query that ends with version `last` has read ahead.
    async fn reading(&self, table: Arc<StreamTable>, last: u64, more: &[(&str, &str)]) -> Read {
        let options = Arc::new(self.options(more));
        let (rules, position) = (options.rules, Position::before(1));
        let opening = move || {
            let counter = table.scan(&[]).expect("a scan");
            (Follower::new(table, position, rules).expect("a follower"), counter)
        };
        let (follower, counter) = self.env.spawn_blocking("open", opening).join().await;
        let buffer = Arc::new(Buffer::new(position));
        buffer.fix_end(last);
        let (_commits, seen) = watch::channel(0);
        let tail = Tail {
            follower,
            counter,
            buffer: Arc::clone(&buffer),
            options: Arc::clone(&options),
            env: self.env.clone(),
            poll_interval: Duration::from_millis(5),
            commits: seen,
        };
        Read { task: self.env.spawn("tail", tail.run()), buffer, options, _commits }
    }
}

struct Read {
    task: Task<()>,
    buffer: Arc<Buffer>,
    options: Arc<StreamOptions>,
    _commits: watch::Sender<u64>,
}

impl Read {
    /// Takes micro-batches up to the query's end: the names of all files.
    async fn all(self) -> Result<Vec<String>, Failure> {
        let mut files = Vec::new();
        let taken = loop {
            self.buffer.filled().await;
            match self.buffer.take(ReadLimit::Configured, &self.options, u64::MAX) {
                Ok(Some(taken)) => files.extend(taken.files.into_iter().map(|file| file.path)),
                Ok(None) if self.buffer.is_at_end() => break Ok(files),
                Ok(None) => {}
                Err(failure) => break Err(failure),
            }
        };
        self.task.stop().await;
        taken
    }
}

const LAX: [(&str, &str); 1] = [("failOnDataLoss", "false")];

fn file(version: u64, index: u64) -> Position {
    Position { version, index: Some(index), is_in_snapshot: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_that_ends_among_lost_versions_is_read_again_as_far_as_it_is_there() {
    let log = Log::new(6);
    let table = log.open();
    for end in [file(3, 0), Position::before(4)] {
        let files = log.between(Arc::clone(&table), &[], end).expect("all is there");
        assert_eq!(files, ["f2", "f3"]);
    }
    log.lose(3..=4);
    for end in [file(3, 0), Position::before(4), file(4, 0)] {
        let error = log.between(Arc::clone(&table), &[], end).expect_err("it is lost");
        assert!(error.to_string().contains("failOnDataLoss"), "{error}");
        let files = log.between(Arc::clone(&table), &LAX, end).expect("that is allowed");
        assert_eq!(files, ["f2"], "{end:?}");
    }
    let files = log.between(Arc::clone(&table), &LAX, file(5, 0)).expect("it is there");
    assert_eq!(files, ["f2", "f5"]);
    let error = log.between(table, &LAX, file(2, 7)).expect_err("no commit is lost there");
    assert!(error.to_string().contains("delete the query's checkpoint"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_micro_batch_of_sparks_from_the_newest_version_on_is_not_guessed() {
    let log = Log::new(6);
    let table = log.open();
    let begin = |start: &str, end| {
        let options = log.options(&[("startingVersion", start)]);
        log.env.blocking(|| beginning_of(&table, &options, end))
    };
    for (end, last) in [(Position::before(5), "4"), (file(4, 0), "4")] {
        let error = begin("latest", end).expect_err("nobody knows").to_string();
        assert!(error.contains("'startingVersion'") && error.contains(last), "{error}");
        assert_eq!(begin("3", end).expect("it is said"), Position::before(3));
    }
}

/// Longer than anything here takes.
async fn in_time<T>(env: &Env, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        () = env.sleep(Duration::from_secs(30)) => panic!("it hangs"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_ends_does_not_wait_for_versions_that_are_gone() {
    let log = Log::new(6);
    let table = log.open();
    let read = log.reading(Arc::clone(&table), 6, &[]).await;
    let files = in_time(&log.env, read.all()).await.expect("all is there");
    assert_eq!(files, ["f1", "f2", "f3", "f4", "f5", "f6"]);

    log.lose(5..=6);
    let read = log.reading(Arc::clone(&table), 6, &LAX).await;
    let error = in_time(&log.env, read.all()).await.expect_err("it was put back");
    assert!(error.to_string().contains("older copy"), "{error}");

    log.commit(6);
    log.lose(4..=4);
    let read = log.reading(Arc::clone(&table), 5, &LAX).await;
    let files = in_time(&log.env, read.all()).await.expect("the loss is allowed");
    assert_eq!(files, ["f1", "f2", "f3"]);
    let read = log.reading(table, 4, &LAX).await;
    let files = in_time(&log.env, read.all()).await.expect("the loss goes beyond the end");
    assert_eq!(files, ["f1", "f2", "f3"]);
}
