//! One commit, until it is known whose the version is.

use std::sync::Arc;
use std::time::Duration;

use delta_kernel::transaction::CommitResult;
use delta_kernel::{KernelError, KernelResult};

use super::{Appended, State, Table};
use crate::error::TableError;

/// Attempts at one commit before the store's trouble is reported. Each attempt that loses against
/// another writer is at a new version and does not count.
const ATTEMPTS_MAX: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Table {
    /// Makes `attempt` at the next version, until one with `mark` is published. `attempt` is asked
    /// anew after each commit by others; with `None` it gives up, and so does this.
    pub(super) fn commit(
        &self,
        state: &mut State,
        mark: &str,
        mut attempt: impl FnMut(&State) -> Result<Option<KernelResult<CommitResult>>, TableError>,
    ) -> Result<Option<Appended>, TableError> {
        let (mut attempts, mut conflicts) = (1, 0);
        loop {
            let version = state.snapshot.version() + 1;
            let Some(outcome) = attempt(state)? else { return Ok(None) };
            let problem = match outcome {
                Ok(CommitResult::Committed(committed)) => {
                    match committed.post_commit_snapshot() {
                        Some(snapshot) => state.snapshot = Arc::clone(snapshot),
                        None => self.advance(state, Some(mark))?,
                    }
                    return Ok(Some(Appended { version, conflicts }));
                }
                Ok(CommitResult::Conflicted(_)) => None,
                Ok(CommitResult::Retryable(retryable)) => Some(retryable.error),
                Err(error) => Some(error),
            };
            match self.entry(version)? {
                Some(entry) if entry.mark.as_deref() == Some(mark) => {
                    self.advance(state, Some(mark))?;
                    return Ok(Some(Appended { version, conflicts }));
                }
                Some(_) => {
                    conflicts += 1;
                    self.advance(state, Some(mark))?;
                }
                None => {
                    let problem = problem.unwrap_or_else(|| KernelError::MissingVersion(version));
                    if attempts == ATTEMPTS_MAX || !may_pass(&problem) {
                        return Err(self.kernel_error("written", problem));
                    }
                    attempts += 1;
                    let env = self.store.env();
                    env.block_on_cores(async { env.sleep(RETRY_AFTER * attempts).await });
                }
            }
        }
    }
}

/// False where another attempt cannot end otherwise.
fn may_pass(error: &KernelError) -> bool {
    use object_store::Error;
    match error {
        KernelError::Backtraced { source, .. } => may_pass(source),
        KernelError::ObjectStore(error) => {
            matches!(error, Error::Generic { .. } | Error::JoinError { .. })
                && !crate::error::is_local_refusal(error)
        }
        KernelError::FileAlreadyExists(_) | KernelError::MissingVersion(_) => true,
        _ => false,
    }
}
