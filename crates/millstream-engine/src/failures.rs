//! Failures on their way through DataFusion, and DataFusion's errors as failures.

use std::any::Any;
use std::fmt;

use datafusion::error::DataFusionError;
use millstream_store::error::{Classified, Failure, Kind};
use parking_lot::Mutex;
use thiserror::Error;

/// Carries a failure through DataFusion; [`from_datafusion`] gets it out again.
#[derive(Debug)]
struct Carried(Mutex<Option<Failure>>, String);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for Carried {}

/// `failure` on its way through DataFusion, for [`from_datafusion`].
pub fn into_datafusion(failure: Failure) -> DataFusionError {
    let text = failure.to_string();
    DataFusionError::External(Box::new(Carried(Mutex::new(Some(failure)), text)))
}

/// The failure that a split, or DataFusion itself, met while running a plan.
///
/// What DataFusion reports by itself at run time (a cast that overflows, a regular expression in a
/// column that does not parse) comes from the data.
pub fn from_datafusion(error: DataFusionError) -> Failure {
    let root = error.find_root();
    if let DataFusionError::External(inner) = root {
        let inner: &(dyn Any + Send + Sync) = match inner.downcast_ref::<Carried>() {
            Some(carried) => carried,
            None => return computed(error),
        };
        let carried = inner.downcast_ref::<Carried>().and_then(|carried| carried.0.lock().take());
        if let Some(failure) = carried {
            return failure;
        }
    }
    computed(error)
}

fn computed(error: DataFusionError) -> Failure {
    match ComputeError::of(&error) {
        Some(computed) => computed.into(),
        None => PlanError(error).into(),
    }
}

/// DataFusion cannot run a plan over these rows, for another reason than an expression.
#[derive(Debug, Error)]
#[error("{}", .0.strip_backtrace())]
struct PlanError(DataFusionError);

impl Classified for PlanError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// An expression could not be computed, with which row is not known.
#[derive(Debug, Error)]
#[error("{text}")]
pub struct ComputeError {
    /// What DataFusion says.
    text: String,
    /// The same without its names for kinds of errors.
    pub problem: String,
}

impl Classified for ComputeError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

impl ComputeError {
    /// The error, where it comes from computing values and not from the engine.
    pub fn of(error: &DataFusionError) -> Option<Self> {
        match error.find_root() {
            DataFusionError::ArrowError(..)
            | DataFusionError::Execution(_)
            | DataFusionError::External(_) => {
                let text = error.strip_backtrace();
                Some(Self { problem: tidy(&text), text })
            }
            _ => None,
        }
    }
}

/// Whether `failure` is that of an expression.
pub fn is_computed(failure: &Failure) -> bool {
    failure.cause().is::<ComputeError>()
}

/// A message without the prefixes that say which library found it.
fn tidy(text: &str) -> String {
    let mut rest = text.trim();
    for prefix in ["Execution error: ", "External error: ", "Arrow error: "] {
        while let Some(shorter) = rest.strip_prefix(prefix) {
            rest = shorter;
        }
    }
    for prefix in ["Cast error: ", "Parser error: ", "Compute error: ", "Invalid argument error: "]
    {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    match rest {
        "Divide by zero error" => "division by zero".to_owned(),
        other => other.trim_end_matches('.').to_owned(),
    }
}
