//! A runner that is a function of AWS Lambda: what Lambda says about where it runs.
//!
//! The custom runtime `provided.al2023` starts the package's file `bootstrap` without arguments. So
//! this binary, under that name, is such a runner.

use std::ffi::OsString;
use std::path::Path;

use millstream_query::cluster::error::ClusterError;
use millstream_query::cluster::lambda::runtime::ADDRESS;

/// The name under which Lambda starts a binary.
const BOOTSTRAP: &str = "bootstrap";
/// The variable with the function's memory in MiB.
const MEMORY: &str = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE";
/// The function's memory in MiB if Lambda does not say.
const MEMORY_MIB: u64 = 1_770;
/// How much of the memory tasks may use before they spill, in percent. The rest is for the program
/// itself, for what is read and decoded, and for what is not counted.
const TASKS_PERCENT: u64 = 60;

/// The arguments of the process; those of a runner if it is called `bootstrap`.
pub fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let given: Vec<OsString> = given.collect();
    let name = given.first().and_then(|path| Path::new(path).file_name());
    if name.is_some_and(|name| name == BOOTSTRAP) {
        return ["millstream", "runner", "--lambda"].map(OsString::from).to_vec();
    }
    given
}

/// The address of the runtime API.
///
/// # Errors
/// [`ClusterError::Lambda`]: this is no function.
pub fn runtime_api() -> Result<String, ClusterError> {
    std::env::var(ADDRESS).map_err(|_| {
        let problem = format!("{ADDRESS} is not set: Lambda starts functions");
        ClusterError::Lambda { problem }
    })
}

/// How much memory tasks may use, in bytes.
pub fn memory_bytes() -> u64 {
    let mib = std::env::var(MEMORY).ok().and_then(|mib| mib.parse().ok()).unwrap_or(MEMORY_MIB);
    tasks_bytes(mib)
}

fn tasks_bytes(mib: u64) -> u64 {
    (mib << 20) / 100 * TASKS_PERCENT
}

/// What the name of the directory for a task's files has in it. Those of functions whose process is
/// gone are removed: Lambda kills what takes too long, and keeps the files for the next process.
pub fn directory_name() -> String {
    let own = std::process::id();
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(process_of);
        if process.is_some_and(|process| process == own || !is_running(process)) {
            // What cannot be removed is in nobody's way but the disk's.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    format!("function-{own}")
}

fn process_of(directory: &str) -> Option<u32> {
    directory.strip_prefix("millstream-function-")?.split('-').next()?.parse().ok()
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bootstrap_is_a_runner() {
        let parsed = |given: &[&str]| arguments(given.iter().map(OsString::from));
        assert_eq!(parsed(&["/var/task/bootstrap"]), ["millstream", "runner", "--lambda"]);
        assert_eq!(parsed(&["bin/millstream", "query"]), ["bin/millstream", "query"]);
        assert_eq!(parsed(&["bootstrapped"]), ["bootstrapped"]);
    }

    #[test]
    fn a_function_of_1770_mib_has_1_gb_for_tasks() {
        assert_eq!(tasks_bytes(MEMORY_MIB) >> 20, 1_061);
    }

    #[test]
    fn directories_name_their_process() {
        assert_eq!(process_of("millstream-function-12-Ab3"), Some(12));
        assert_eq!(process_of("millstream-runner-12"), None);
        assert!(is_running(std::process::id()));
    }
}
