//! Stateful operators: aggregations, deduplication and joins, whose output depends on earlier rows.
//!
//! A query with state is cut at its stateful operators ([`crate::plan::stages`]). Below each lies a
//! plan that is run for every micro-batch like any other; its rows are the operator's input, and
//! the operator's output is a leaf of the plan above.
//!
//! ```text
//! source ─▶ plan ─▶ input rows ─▶ operator + state ─▶ output rows ─▶ plan ─▶ sink
//!                       └─▶ state log
//! ```
//!
//! What an operator is given in a micro-batch goes to the state log, together with where the
//! sources stand and the watermarks; state follows from that alone ([`operator::Operator`]). So a
//! restart applies the entries again, and reads no source for it. Where a sink lacks a micro-batch
//! whose entry exists, applying the entry gives its rows again.

pub mod aggregate;
pub mod codec;
pub mod deduplicate;
pub mod event_times;
mod expiry_index;
pub mod join;
mod keyed;
mod late_rows;
pub mod micro_batch;
pub mod operator;
mod retained_micro_batches;
mod row_log;
pub mod shard;
pub mod sharded;
mod sharded_snapshot_builder;
mod slot;
pub mod snapshot_builder;
mod spill;
mod spread;
pub mod watermark;

#[cfg(test)]
mod tests;
