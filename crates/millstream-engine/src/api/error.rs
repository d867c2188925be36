//! Errors that sources, sinks and plans have in common.

use arrow::error::ArrowError;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;

/// Arrow refuses columns that were made or chosen here, and not by a user: a fault of this program.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ArrowBug(pub ArrowError);

impl Classified for ArrowBug {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}
