//! Child processes that never outlive this process.
//!
//! A test or a benchmark may panic, be interrupted or be killed while a broker, a Spark session or
//! the binary runs. Linux can send a child a signal when its parent dies, but "parent" means the thread that
//! started it, and libtest ends a test's thread with the test. So one thread, which lives as long
//! as the process, starts all children.
#![allow(unsafe_code)] // signals and settings between fork and exec have no safe interface

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Request = (Command, Sender<io::Result<Child>>);

/// Starts `command` so that it is killed when this process ends, however it ends.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    detach(&mut command);
    let spawner = SPAWNER.get_or_init(start_spawner);
    let (reply, answer) = channel();
    spawner.send((command, reply)).expect("the spawning thread lives as long as the process");
    answer.recv().expect("the spawning thread answers every request")
}

fn start_spawner() -> Sender<Request> {
    let (requests, inbox) = channel::<Request>();
    let serve = move || {
        for (mut command, reply) in inbox {
            // A test that no longer waits for its child has panicked; the child dies with us.
            let _ = reply.send(command.spawn());
        }
    };
    std::thread::Builder::new().name("spawner".into()).spawn(serve).expect("a thread can start");
    requests
}

/// Has `command` die with this process, and have none of its descriptors but the first three:
/// librdkafka lets its pipes be inherited, and one would keep what another has closed.
fn detach(command: &mut Command) {
    let parent = std::process::id();
    let set = move || {
        // SAFETY: all calls are async-signal-safe and take plain numbers.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Linux before 5.11 cannot; only a test that counts descriptors needs it.
            let to_exec = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
            libc::close_range(3, libc::c_uint::MAX, to_exec);
            // The parent may ignore Ctrl-C, as one in the background of a shell does.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            // The parent may have died before the line above took effect.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(set) };
}

/// Makes permission bits count for `command` even when the tests run as root: takes away the two
/// capabilities that let root pass over them. Files of the same user are still its own.
pub fn respect_permissions(command: &mut Command) {
    const DAC_OVERRIDE: libc::c_ulong = 1;
    const DAC_READ_SEARCH: libc::c_ulong = 2;
    // SAFETY: `geteuid` has no conditions.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let drop_capabilities = || {
        for capability in [DAC_OVERRIDE, DAC_READ_SEARCH] {
            // SAFETY: async-signal-safe, plain numbers. Exec computes root's capabilities from
            // the bounding set, so what is dropped here is gone in the new program.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(drop_capabilities) };
}

/// Limits the size of every file that `command` writes; a write beyond it fails as on a full
/// disk, with an error instead of a signal.
pub fn limit_file_size(command: &mut Command, bytes_max: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: bytes_max, rlim_max: bytes_max };
        // SAFETY: async-signal-safe; the struct outlives the call. An ignored signal stays
        // ignored across exec.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(limit) };
}

/// Limits how many descriptors `command` may have open, and how far it may raise that itself.
pub fn limit_descriptors(command: &mut Command, soft: u64, hard: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: async-signal-safe; the struct outlives the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(limit) };
}

/// Makes a pipe with a name, which nobody writes to.
pub fn make_pipe(path: &std::path::Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo is installed");
    assert!(made.success(), "{} cannot be made", path.display());
}

/// Lets `command` give what it makes any permission bits that it asks for.
pub fn allow_all_modes(command: &mut Command) {
    let allow = || {
        // SAFETY: async-signal-safe, and cannot fail.
        unsafe { libc::umask(0) };
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(allow) };
}

/// What Ctrl-C sends.
pub fn interrupt(child: &Child) {
    signal(child, libc::SIGINT);
}

/// What a service manager sends.
pub fn terminate(child: &Child) {
    signal(child, libc::SIGTERM);
}

/// Makes it stand still until [`go_on`].
pub fn pause(child: &Child) {
    signal(child, libc::SIGSTOP);
}

/// Lets it go on after [`pause`].
pub fn go_on(child: &Child) {
    signal(child, libc::SIGCONT);
}

fn signal(child: &Child, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(child.id()).expect("process ids are small");
    // SAFETY: plain numbers. The child was not waited for yet, so its id is still its own.
    unsafe { libc::kill(pid, signal) };
}

/// Runs `work` when this process exits normally: statics are not dropped.
pub fn at_exit(work: extern "C" fn()) {
    // SAFETY: `work` is a plain function that lives as long as the process.
    unsafe { libc::atexit(work) };
}
