//! A runner that is a function of AWS Lambda, as Lambda starts it.
//!
//! The custom runtime `provided.al2023` starts the package's file `bootstrap`, without arguments.
//! What there is to know is in variables of the environment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_store::env::Env;

use super::runtime;
use crate::cluster::answer::WorkDirectory;
use crate::cluster::error::ClusterError;
use crate::cluster::runner::{Runner, RunnerSettings};
use crate::cluster::security::{Security, Token};
use crate::cluster::tls::TlsFiles;
use crate::error::QueryError;
use crate::state::Limits;

/// The name under which Lambda starts a program.
pub const BOOTSTRAP: &str = "bootstrap";
/// The variable with the address of the runtime API.
const ADDRESS: &str = "AWS_LAMBDA_RUNTIME_API";
/// The variable with the file of the certificates that nodes are checked against.
const AUTHORITIES: &str = "MILLSTREAM_TLS_CA";
/// The variable with the function's memory in MiB.
const MEMORY: &str = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE";
/// The function's memory in MiB if Lambda does not say.
const MEMORY_MIB: u64 = 1_770;
/// How much of the memory tasks may use before they spill, in percent. The rest is for the program
/// itself, for what is read and decoded, and for what is not counted.
const TASKS_PERCENT: u64 = 60;
/// What the names of directories begin with that have the files of a task.
const DIRECTORY: &str = "millstream-function-";

/// How a function is set up, if not as usual.
#[derive(Clone, Debug, Default)]
pub struct FunctionSettings {
    /// How much memory tasks may use before they spill, in bytes; `None` for 60 % of its own.
    pub memory_bytes: Option<u64>,
    /// Where a task's files are until they are sent back; `None` for a directory for temporary
    /// files.
    pub directory: Option<PathBuf>,
    /// What events have to show, and how the node is connected to.
    pub security: Security,
}

/// What events have to show, and how nodes are connected to. `token` and `ca`, a file with the
/// certificates of authorities, override what the environment says, of which `variable` gives the
/// value of a variable.
///
/// # Errors
/// As [`Token::new`] and [`Security::new`].
pub fn security(
    token: Option<Token>,
    ca: Option<PathBuf>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Security, ClusterError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let token = Token::or_variable(token, variable)?;
    let ca = ca.or_else(|| variable(AUTHORITIES).map(PathBuf::from));
    Security::new(token, &TlsFiles { ca, ..TlsFiles::default() })
}

/// Runs tasks that Lambda gives, until the process ends. `variable` gives the value of a variable
/// of the environment.
///
/// # Errors
/// [`ClusterError::Lambda`]: this is no function, or the runtime API fails.
pub async fn run(
    env: &Env,
    settings: FunctionSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), QueryError> {
    let missing = || ClusterError::Lambda {
        problem: format!("{ADDRESS} is not set, as it is where Lambda starts a function"),
    };
    let address = variable(ADDRESS).ok_or_else(missing)?;
    let mib = variable(MEMORY).and_then(|mib| mib.parse().ok()).unwrap_or(MEMORY_MIB);
    let memory_bytes = settings.memory_bytes.unwrap_or_else(|| tasks_bytes(mib));
    let mut temporary = None;
    let directory = match settings.directory {
        Some(directory) => directory,
        None => {
            let made = made_in(&std::env::temp_dir(), &env.secret())?;
            let directory = made.0.clone();
            temporary = Some(made);
            directory
        }
    };
    let memory_bytes = usize::try_from(memory_bytes).ok();
    let limits = Limits { partitions: 1, memory_bytes, spill_directory: None };
    let security = settings.security;
    let settings = RunnerSettings { limits, tasks: 1, directory, security };
    let runner = Arc::new(Runner::new(env.clone(), settings)?);
    let served = runtime::serve(env, &address, runner).await;
    drop(temporary);
    Ok(served?)
}

fn tasks_bytes(mib: u64) -> u64 {
    (mib << 20) / 100 * TASKS_PERCENT
}

/// A new directory in `parent`. Those of functions whose process is gone are removed: Lambda kills
/// what takes too long, and keeps the files for the process after it.
fn made_in(parent: &Path, unique: &str) -> Result<WorkDirectory, ClusterError> {
    let own = std::process::id();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(process_of);
        if process.is_some_and(|process| !is_running(process)) {
            // What cannot be removed is in nobody's way but the disk's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let path = parent.join(format!("{DIRECTORY}{own}-{unique}"));
    let failed =
        |error: io::Error| ClusterError::Directory { path: path.display().to_string(), error };
    fs::create_dir(&path).map_err(failed)?;
    Ok(WorkDirectory(path))
}

fn process_of(directory: &str) -> Option<u32> {
    directory.strip_prefix(DIRECTORY)?.split('-').next()?.parse().ok()
}

/// Whether another process of that number runs. Lambda may give the number again to the process
/// after it.
fn is_running(process: u32) -> bool {
    process != std::process::id() && Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use millstream_testkit::certificates::Authority;

    use super::*;

    #[test]
    fn a_function_of_1770_mib_has_1_gb_for_tasks() {
        assert_eq!(tasks_bytes(MEMORY_MIB) >> 20, 1_061);
    }

    #[test]
    fn directories_of_processes_that_are_gone_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).expect("it is new");
            path
        };
        // No process has so large a number; the first one always runs.
        let gone = directory("millstream-function-4194305-x");
        let running = directory("millstream-function-1-x");
        let other = directory("somebody's");
        let made = made_in(parent.path(), "y").expect("it can be made");
        assert!(!gone.exists() && running.exists() && other.exists() && made.0.exists());
        let path = made.0.clone();
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn the_environment_says_what_is_shown_to_nodes_unless_flags_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("authority");
        let files = Authority::new(&path).expect("one").issue("IP:127.0.0.1").expect("one");
        let ca = files.ca.display().to_string();
        let variable = |name: &str| match name {
            "MILLSTREAM_TOKEN" => Some("secret".to_owned()),
            AUTHORITIES => Some(ca.clone()),
            _ => None,
        };
        let said = security(None, None, variable).expect("the file is right");
        assert_eq!(said.authorization().as_deref(), Some("Bearer secret"));
        assert!(said.tls().is_some());
        let token = Token::new("other").expect("it is a token");
        let missing = Some(directory.path().join("missing"));
        let said = security(Some(token.clone()), None, |_| Some(String::new())).expect("a token");
        assert_eq!(said.authorization().as_deref(), Some("Bearer other"));
        assert!(said.tls().is_none(), "an empty variable is none");
        assert!(security(Some(token), missing, variable).is_err(), "the flag's file is read");
    }

    #[tokio::test]
    async fn elsewhere_it_says_what_is_missing() {
        let run = run(&Env::real(), FunctionSettings::default(), |_| None).await;
        assert!(format!("{:?}", run.expect_err("it is none")).contains(ADDRESS));
    }
}
