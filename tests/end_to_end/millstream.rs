//! The binary as a user runs it: a pipeline file in a directory, flags, output, exit status.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::checkpoint::Checkpoint;
use crate::{process, wait};

/// How long a run that ends by itself may take, if a test does not say otherwise.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Names the step at which a process is to end itself: `STEP`, or `STEP:N` for the Nth time.
pub const CRASH_AT: &str = "MILLSTREAM_CRASH_AT";

/// Writes a `CREATE TABLE` statement. `columns` is empty or stands in parentheses.
pub fn table(name: &str, columns: &str, connector: &str, options: &[(&str, &str)]) -> String {
    let option = |(key, value): &(&str, &str)| format!("'{key}' = '{}'", value.replace('\'', "''"));
    let options: Vec<_> = options.iter().map(option).collect();
    format!("CREATE TABLE {name} {columns}\nUSING {connector}\nOPTIONS ({});\n", options.join(", "))
}

/// A directory with `pipeline.sql` in it; the checkpoint of its single flow is beside the file.
pub struct Pipeline {
    directory: TempDir,
    runs: AtomicU32,
    variables: Vec<(&'static str, &'static str)>,
}

impl Pipeline {
    /// A new directory that holds `sql`.
    pub fn new(sql: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let pipeline = Self { directory, runs: AtomicU32::new(0), variables: Vec::new() };
        pipeline.rewrite(sql);
        pipeline
    }

    /// The same, with these variables in the environment of all commands.
    pub fn with_variables(self, variables: &[(&'static str, &'static str)]) -> Self {
        Self { variables: variables.to_vec(), ..self }
    }

    /// Replaces the pipeline file.
    pub fn rewrite(&self, sql: &str) {
        fs::write(self.path("pipeline.sql"), sql).expect("the directory is writable");
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The checkpoint that `start` and `run` use.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::at(self.path("checkpoint"))
    }

    /// `millstream run pipeline.sql --checkpoint checkpoint` with more flags.
    pub fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.bare_command(&["run", "pipeline.sql", "--checkpoint", "checkpoint"]);
        command.args(flags);
        command
    }

    /// `millstream` in the directory with `arguments`.
    pub fn bare_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).current_dir(self.directory.path()).env_remove("RUST_LOG");
        command.envs(self.variables.iter().copied());
        command
    }

    /// Starts [`Pipeline::command`].
    pub fn start(&self, flags: &[&str]) -> Running {
        self.spawn(self.command(flags))
    }

    /// Runs [`Pipeline::command`] to its own end.
    pub fn run(&self, flags: &[&str]) -> Finished {
        self.start(flags).wait(RUN_LIMIT)
    }

    /// Runs everything that is there, and expects that it works.
    pub fn run_available(&self) -> Finished {
        self.run(&["--trigger", "availableNow"]).expect_success()
    }

    /// Starts any command, its output caught in files.
    pub fn spawn(&self, mut command: Command) -> Running {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let stdout = self.path(&format!("stdout.{run}"));
        let stderr = self.path(&format!("stderr.{run}"));
        let create = |path: &Path| File::create(path).expect("the directory is writable");
        command.stdin(Stdio::null()).stdout(create(&stdout)).stderr(create(&stderr));
        let shown = format!("{command:?}");
        let child = process::spawn(command).expect("the binary can start");
        Running { child, stdout, stderr, shown, ended: None }
    }
}

/// A running `millstream`; killed when dropped. If the test panics its output is shown.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    shown: String,
    ended: Option<ExitStatus>,
}

impl Running {
    /// The most memory that it has had so far, in bytes.
    pub fn memory_peak(&self) -> u64 {
        self.memory_peak_so_far().expect("it runs")
    }

    /// The same of one that may have ended: `None` if it has.
    pub fn memory_peak_so_far(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kilobytes = line.trim().strip_suffix(" kB")?.trim().parse::<u64>();
        Some(kilobytes.expect("a number") << 10)
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many files and connections it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// How long it has computed so far, in hundredths of a second.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let (_, rest) = stat.rsplit_once(')').expect("its name ends");
        let mut times = rest.split_whitespace().skip(11).map(|ticks| ticks.parse::<u64>());
        let mut next = || times.next().expect("it is there").expect("a number");
        next() + next()
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        fs::read_dir(tasks).map_or(0, Iterator::count)
    }

    /// Sends what Ctrl-C sends.
    pub fn interrupt(&self) {
        process::interrupt(&self.child);
    }

    /// Makes it stand still until [`go_on`](Self::go_on).
    pub fn pause(&self) {
        process::pause(&self.child);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(&self.child);
    }

    /// Ends it at once, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("the process is ours");
        self.ended = Some(self.child.wait().expect("the process is ours"));
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until `condition` holds; fails at once, with its messages, if the process ends.
    pub fn wait_while_running(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        wait::until_true(what, RUN_LIMIT, || {
            let holds = condition();
            assert!(
                holds || self.is_running(),
                "millstream ended while the test waited for {what}"
            );
            holds
        });
    }

    /// Sends Ctrl-C and waits for the end.
    pub fn stop(self) -> Finished {
        self.interrupt();
        self.wait(wait::SOON)
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// After `limit`.
    pub fn wait(mut self, limit: Duration) -> Finished {
        let what = format!("the end of {}", self.shown);
        let status = wait::until(&what, limit, || self.status());
        Finished { status, stdout: self.stdout(), stderr: self.stderr() }
    }

    fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the process is ours");
        }
        self.ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // An error here means that it had ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}\nstdout:\n{}\nstderr:\n{}", self.shown, self.stdout(), self.stderr());
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// What a run left behind.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Fails, with what the process said, unless it ended with status 0.
    pub fn expect_success(self) -> Self {
        self.expect_exit(0)
    }

    /// Fails, with what the process said, unless it ended with `code`.
    pub fn expect_exit(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}", self.said());
        self
    }

    /// Fails, with what the process said, unless it ended itself at the crash point `step`, which
    /// is written as in `MILLSTREAM_CRASH_AT`. The signal alone does not show that, since a stack
    /// overflow raises the same one.
    pub fn expect_crash(self, step: &str) -> Self {
        let name = step.split(':').next().unwrap_or(step);
        let last_words = format!("{CRASH_AT}: the process ends at {name}\n");
        let at_step = self.stderr.contains(&last_words);
        let signal = self.status.signal();
        assert!(
            signal == Some(libc::SIGABRT) && at_step,
            "it did not crash at {step}: {}",
            self.said()
        );
        self
    }

    /// Fails unless standard error has each of `words`, in any case of letters.
    pub fn says(self, words: &[&str]) -> Self {
        let heard = self.stderr.to_lowercase();
        for word in words {
            assert!(heard.contains(&word.to_lowercase()), "no '{word}' in:\n{}", self.said());
        }
        self
    }

    /// Fails if standard error has one of `words`, in any case of letters.
    pub fn says_not(self, words: &[&str]) -> Self {
        let heard = self.stderr.to_lowercase();
        for word in words {
            assert!(!heard.contains(&word.to_lowercase()), "'{word}' in:\n{}", self.said());
        }
        self
    }

    /// Fails if the process panicked or showed the inside of the program.
    pub fn without_internals(self) -> Self {
        for inside in ["panicked at", "RUST_BACKTRACE", "DataFusionError", "ArrowError"] {
            assert!(!self.stderr.contains(inside), "'{inside}' in:\n{}", self.said());
        }
        self
    }

    /// The progress objects of `--progress json`.
    pub fn progress(&self) -> Vec<Value> {
        progress(&self.stdout)
    }

    fn said(&self) -> String {
        format!("{}\nstdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr)
    }
}

/// The progress objects in the whole lines of `stdout`.
pub fn progress(stdout: &str) -> Vec<Value> {
    let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
    };
    whole.lines().map(parse).collect()
}
