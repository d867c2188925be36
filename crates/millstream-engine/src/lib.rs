//! What computes: the SQL of a pipeline file, the plan of a query, its operators, and the
//! micro-batch driver.
//!
//! This crate knows no Kafka, no file and no terminal. What touches the world comes in as a
//! [`source::Source`], a [`sink::Sink`] or a [`connector::Connector`].

pub mod connector;
pub mod constraints;
pub mod contact;
pub mod dead_letters;
pub mod driver;
mod filter;
pub mod flow;
pub mod functions;
pub mod json;
pub mod plan;
pub mod progress;
pub mod references;
pub mod sink;
pub mod source;
pub mod sql;
pub mod state;
