//! Programs that run beside this one: each has a name, a log, and figures of what it uses of the
//! machine.
#![allow(unsafe_code)] // signals and usage have no safe interface

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::process;
use crate::wait::Deadline;

/// Unit of the times in `/proc/PID/stat`. The kernel shows them in hundredths on every platform.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a process may take to stop when asked to.
const STOP_LIMIT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What of a process's output is shown when it fails.
const LOG_TAIL_BYTES: usize = 4_000;

/// A running program. Killed when dropped, and by the kernel if this process dies.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time in user and kernel mode, all threads.
    pub cpu_seconds: f64,
    /// The most memory it ever had in RAM.
    pub peak_rss_mb: f64,
}

impl Process {
    /// Starts `command`; everything it prints goes to the file `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, Error> {
        let output = open_log(log)?;
        command.stdout(output);
        Self::spawn(name, command, log)
    }

    /// As [`Self::start`], but gives what it prints on standard output.
    pub fn start_piped(
        name: &str,
        mut command: Command,
        log: &Path,
    ) -> Result<(Self, ChildStdout), Error> {
        command.stdout(Stdio::piped());
        let mut process = Self::spawn(name, command, log)?;
        let output = process.child.stdout.take().expect("it was asked for");
        Ok((process, output))
    }

    fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self, Error> {
        command.stdin(Stdio::null()).stderr(open_log(log)?);
        let child = start(command, "check that it is installed and on the PATH")?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// What to call it in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.status()? {
            None => Ok(()),
            Some(status) => {
                Err(Error::Ended { program: self.name.clone(), status, log: self.log_tail() })
            }
        }
    }

    /// Processor time and memory, of the processes that it has started, too. Zero once it has
    /// ended.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for usage in family(self.child.id()).into_iter().filter_map(usage_of) {
            sum.cpu_seconds += usage.cpu_seconds;
            sum.peak_rss_mb += usage.peak_rss_mb;
        }
        sum
    }

    /// The memory that it and what it has started have in RAM.
    pub fn resident_mb(&self) -> f64 {
        let status = |pid| fs::read_to_string(format!("/proc/{pid}/status")).ok();
        let statuses = family(self.child.id()).into_iter().filter_map(status);
        statuses.filter_map(|status| status_mb(&status, "VmRSS:")).sum()
    }

    /// Descriptors that it and what it has started have open.
    pub fn descriptors(&self) -> usize {
        self.entries("fd")
    }

    /// Threads that it and what it has started have.
    pub fn threads(&self) -> usize {
        self.entries("task")
    }

    fn entries(&self, of: &str) -> usize {
        let entries = |pid| fs::read_dir(format!("/proc/{pid}/{of}")).into_iter().flatten().count();
        family(self.child.id()).into_iter().map(entries).sum()
    }

    /// Waits until it ends by itself, and gives what it has used. Nothing else may be started or
    /// ended meanwhile by this program, whose children's times the kernel adds up.
    pub fn wait(&mut self, limit: Duration) -> Result<Usage, Error> {
        let (deadline, before) = (Deadline::after(limit), children_cpu_seconds());
        let mut peak_rss_mb = 0.0;
        let status = loop {
            peak_rss_mb = self.usage().peak_rss_mb.max(peak_rss_mb);
            if let Some(status) = self.status()? {
                break status;
            }
            if deadline.is_over() {
                let (program, waited_s) = (self.name.clone(), limit.as_secs());
                return Err(Error::Endless { program, waited_s, log: self.log_tail() });
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        if !status.success() {
            let (program, log) = (self.name.clone(), self.log_tail());
            return Err(Error::Ended { program, status, log });
        }
        Ok(Usage { cpu_seconds: children_cpu_seconds() - before, peak_rss_mb })
    }

    /// Asks it to stop as Ctrl-C would and waits; kills it if that takes too long.
    pub fn stop(&mut self) -> Result<ExitStatus, Error> {
        let started_by_it = family(self.child.id()).split_off(1);
        if self.status()?.is_none() {
            process::interrupt(&self.child);
        }
        let status = self.wait_or_kill()?;
        end(&started_by_it);
        Ok(status)
    }

    fn wait_or_kill(&mut self) -> Result<ExitStatus, Error> {
        let deadline = Deadline::after(STOP_LIMIT);
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if deadline.is_over() {
                eprintln!("{} did not stop within {STOP_LIMIT:?} and is killed", self.name);
                self.child.kill().map_err(Error::file("kill", &self.name))?;
                return self.child.wait().map_err(Error::file("wait for", &self.name));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The end of what it printed.
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(LOG_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).into_owned()
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(Error::file("wait for", &self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let family = family(self.child.id());
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        family.into_iter().skip(1).for_each(|pid| send(pid, libc::SIGKILL));
    }
}

fn open_log(log: &Path) -> Result<File, Error> {
    File::options().create(true).append(true).open(log).map_err(Error::file("write", log))
}

/// Runs a program to its end, and gives what it printed on standard output. `what` is for messages,
/// `remedy` for the case that it is not installed.
pub fn output(what: &'static str, command: Command, remedy: &str) -> Result<String, Error> {
    let Output { status, stdout, stderr } = finish(command, remedy)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = &stderr[stderr.len().saturating_sub(LOG_TAIL_BYTES)..];
    Err(Error::Failed { what, status, output: String::from_utf8_lossy(said).into_owned() })
}

/// As [`output`], where what it prints matters only if it fails.
pub fn run(what: &'static str, command: Command, remedy: &str) -> Result<(), Error> {
    printed(what, command, remedy).map(drop)
}

/// As [`output`], where all that it printed is in the message if it fails.
pub fn printed(what: &'static str, command: Command, remedy: &str) -> Result<String, Error> {
    let Output { status, stdout, stderr } = finish(command, remedy)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = [stdout, stderr].concat();
    Err(Error::Failed { what, status, output: String::from_utf8_lossy(&said).into_owned() })
}

fn finish(mut command: Command, remedy: &str) -> Result<Output, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = start(command, remedy)?;
    child.wait_with_output().map_err(Error::file("wait for", "a program"))
}

fn start(command: Command, remedy: &str) -> Result<Child, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let remedy = remedy.to_owned();
    process::spawn(command).map_err(|source| Error::Program { program, remedy, source })
}

/// What this process has used up to now, processor time to the microsecond.
pub fn own_usage() -> Usage {
    let cpu_seconds = cpu_seconds_of(libc::RUSAGE_SELF);
    Usage { cpu_seconds, ..usage_of(std::process::id()).unwrap_or_default() }
}

/// Processor time of all children that have ended and were waited for.
fn children_cpu_seconds() -> f64 {
    cpu_seconds_of(libc::RUSAGE_CHILDREN)
}

fn cpu_seconds_of(whose: libc::c_int) -> f64 {
    // SAFETY: a structure of numbers, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn send(pid: u32, signal: i32) {
    let pid = libc::pid_t::try_from(pid).expect("process ids are small");
    // SAFETY: plain numbers.
    unsafe { libc::kill(pid, signal) };
}

/// A process and all that it has started, directly or not; itself first.
fn family(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut family = vec![pid];
    let mut looked_at = 0;
    while let Some(&parent) = family.get(looked_at) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        looked_at += 1;
    }
    family
}

/// Waits for processes that should end by themselves, and kills them if they do not.
fn end(pids: &[u32]) {
    let deadline = Deadline::after(STOP_LIMIT);
    let is_alive = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
    while pids.iter().any(is_alive) {
        if deadline.is_over() {
            pids.iter().for_each(|pid| send(*pid, libc::SIGKILL));
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What a process has used up to now; `None` once it has ended.
pub(crate) fn usage_of(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage { cpu_seconds: cpu_seconds(&stat)?, peak_rss_mb: status_mb(&status, "VmHWM:")? })
}

fn parent_of(pid: u32) -> Option<u32> {
    parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields of `/proc/PID/stat` from the third. The second is the program's name in parentheses and
/// may hold anything, so fields are counted from its end.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, after_name) = stat.rsplit_once(')')?;
    Some(after_name.split_ascii_whitespace())
}

/// Field 4.
fn parent(stat: &str) -> Option<u32> {
    fields(stat)?.nth(1)?.parse().ok()
}

/// Fields 14 and 15.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = fields(stat)?.skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

/// A line such as `VmHWM:   123 kB` of `/proc/PID/status`; the kernel's kB is 1024 bytes.
fn status_mb(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_a_hostile_name() {
        let stat = "7 (a) b) 1 (2) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(parent(stat), Some(1));
        assert_eq!(status_mb("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t 2048 kB\n", "VmHWM:"), Some(2.0));
        assert_eq!(cpu_seconds("7 (a) S"), None);
        assert_eq!(status_mb("Name:\tx\n", "VmHWM:"), None);
    }

    #[test]
    fn usage_of_this_process_is_plausible() {
        let usage = usage_of(std::process::id()).expect("proc is mounted");
        assert!(usage.peak_rss_mb > 0.5 && usage.peak_rss_mb < 100_000.0, "{usage:?}");
    }

    #[test]
    fn what_a_child_has_started_ends_with_it() {
        let log = std::env::temp_dir().join(format!("millstream-family-{}", std::process::id()));
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & wait"]);
        let process = Process::start("shell", shell, &log).expect("sh is there");
        let family = || family(process.child.id());
        while family().len() < 2 {
            std::thread::sleep(LOOK_AGAIN);
        }
        let started_by_it = family().split_off(1);
        drop(process);
        end(&started_by_it);
        assert!(!Path::new("/proc").join(started_by_it[0].to_string()).exists());
        fs::remove_file(log).expect("it was written");
    }

    #[test]
    fn a_child_stops_when_asked_and_its_end_is_noticed() {
        let log = std::env::temp_dir().join(format!("millstream-process-{}", std::process::id()));
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "echo started; exec sleep 60"]);
        let mut process = Process::start("sleeper", sleep, &log).expect("sh is there");
        process.check().expect("it runs");
        std::thread::sleep(Duration::from_millis(200));
        process.stop().expect("it can be stopped");
        match process.check() {
            Err(Error::Ended { program, log, .. }) => {
                assert_eq!((program.as_str(), log.as_str()), ("sleeper", "started\n"));
            }
            other => panic!("the end was not noticed: {other:?}"),
        }
        fs::remove_file(log).expect("it was written");
    }
}
