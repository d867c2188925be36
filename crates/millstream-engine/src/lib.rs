//! What computes: the SQL of a pipeline file, the plan of a query, its operators, and the
//! micro-batch driver.
//!
//! This crate knows no Kafka, no file and no terminal. What touches the world comes in by [`api`]:
//! as a source, a sink or a connector.

pub mod api;
pub mod constraints;
pub mod dead_letters;
pub mod driver;
pub mod failures;
pub mod flow;
pub mod pipeline;
pub mod plan;
pub mod state;
