//! Aggregation over a stream.
//!
//! The plan below it computes partial aggregates of a micro-batch, on all cores: rows of keys and
//! states, which DataFusion's accumulators can merge ([`spec`]). They are what the state log keeps.
//! Here they are spread by their keys over shards, and each shard merges its own into what it has.
//! What it has depends on the output mode:
//! - append: groups are kept by the time at which they close, and published then ([`closing`]);
//! - update and complete: groups are kept by key, and published as they change ([`changing`]);
//! - sessions, which may merge with each other, have a form of their own ([`sessions`]).

mod bucket;
pub mod changing;
pub mod closing;
pub mod sessions;
pub mod spec;
