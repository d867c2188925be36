//! Tests of the command as a whole: its documentation, and pipeline files made to break it.

mod docs;
mod fuzz;
mod hostile_pipelines;
