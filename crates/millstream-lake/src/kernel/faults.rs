//! Files of the log that cannot be used, and doing without them.
//!
//! A checkpoint sums up what the commits say, so one that is damaged can be done without as long as
//! an older checkpoint and the commits above it are there, or all commits from the first version
//! on. The protocol library takes the newest checkpoint it sees and fails if that one is damaged.
//! So the handlers note here which file failed, and what [`Faults::hide`] names they leave out of
//! listings: the library then takes another checkpoint.

use std::collections::BTreeSet;
use std::fmt::Display;

use delta_kernel::KernelError;
use parking_lot::Mutex;

use crate::checkpoint::fallback::{Fault, is_of_a_checkpoint};

#[derive(Default)]
pub(super) struct Faults {
    hidden: Mutex<BTreeSet<String>>,
    seen: Mutex<Vec<Fault>>,
}

impl Faults {
    /// Remembers that the file `name` failed, if it is one that can be done without and the store
    /// is not the reason.
    pub(super) fn note(&self, name: &str, error: &KernelError) {
        if is_of_a_checkpoint(name) && !is_of_the_store(error) {
            let problem = match error {
                KernelError::FileNotFound(_) => "it is not there".to_owned(),
                error => plain(error),
            };
            self.seen.lock().push(Fault { file: name.to_owned(), problem });
        }
    }

    /// The first file that failed since the last call.
    pub(super) fn take(&self) -> Option<Fault> {
        std::mem::take(&mut *self.seen.lock()).into_iter().next()
    }

    pub(super) fn hide(&self, names: Vec<String>) {
        self.hidden.lock().extend(names);
    }

    pub(super) fn hides(&self, name: &str) -> bool {
        self.hidden.lock().contains(name)
    }

    pub(super) fn hidden(&self) -> BTreeSet<String> {
        self.hidden.lock().clone()
    }
}

fn is_of_the_store(error: &KernelError) -> bool {
    match error {
        KernelError::Backtraced { source, .. } => is_of_the_store(source),
        KernelError::ObjectStore(_) | KernelError::IOError(_) => true,
        _ => false,
    }
}

/// The words of an error without the library's own.
fn plain(error: &KernelError) -> String {
    match error {
        KernelError::Backtraced { source, .. } => plain(source),
        KernelError::Generic(text) => text.clone(),
        error => error.to_string(),
    }
}

/// That a file's content is wrong, with its name, which the library does not know.
pub(super) fn unreadable(name: &str, error: &impl Display) -> KernelError {
    KernelError::Generic(format!("{name}: {error}"))
}
