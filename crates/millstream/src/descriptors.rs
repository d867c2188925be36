//! File descriptors: as many as the flows need, or a message that says what to raise.

use crate::human;
use crate::load::Loaded;
use crate::supervise::{SHARED_THREADS, share_threads};

/// The process's own: standard streams, the runtime's, the metrics page's, files that are opened
/// for a moment.
const OF_PROCESS: u64 = 64;
/// The handles of a runtime.
const OF_THREAD: u64 = 4;
/// What is asked for at most: there are programs that look at all that they may have.
const WANTED_MAX: u64 = 1 << 20;

/// Raises the limit as far as the process may, and holds it against what the flows need at least.
///
/// # Errors
/// What to raise: a sentence.
pub fn provide(loaded: &[Loaded]) -> Result<(), String> {
    let Some(limit) = raise() else { return Ok(()) };
    let needed = needed(loaded);
    if needed <= limit {
        return Ok(());
    }
    let round = needed.next_power_of_two();
    Err(format!(
        "{} need {} file descriptors at least, and this process may have {}: allow it more, with \
         `ulimit -n {round}` in the shell that starts it, or LimitNOFILE={round} in its systemd \
         unit",
        human::counted(loaded.len() as u64, "flow"),
        human::count(needed),
        human::count(limit),
    ))
}

/// What the flows need at least; brokers, files and tables that are open at once come on top.
fn needed(loaded: &[Loaded]) -> u64 {
    let threads = if share_threads(loaded.len()) { SHARED_THREADS } else { loaded.len() };
    let of_flow = |loaded: &Loaded| {
        let lock = u64::from(loaded.plan.is_stream());
        let sources = loaded.plan.sources().iter().map(|of| of_table(of.connector)).sum::<u64>();
        let sinks = loaded.flow.branches.iter().map(|of| of_table(of.connector.name()));
        lock + sources + sinks.sum::<u64>()
    };
    OF_PROCESS + threads as u64 * OF_THREAD + loaded.iter().map(of_flow).sum::<u64>()
}

/// What a table keeps open while a flow runs.
fn of_table(connector: &str) -> u64 {
    match connector {
        // Two clients, each with a wake-up and a broker.
        "kafka" => 8,
        "delta" => 2,
        _ => 0,
    }
}

/// Raises the limit of the process to what it may have; gives the limit, if there is one.
#[allow(unsafe_code)]
fn raise() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct outlives the call, which only writes it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    let wanted = limit.rlim_max.min(WANTED_MAX);
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: the struct outlives the call, which only reads it.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return Some(wanted);
        }
    }
    Some(limit.rlim_cur)
}
