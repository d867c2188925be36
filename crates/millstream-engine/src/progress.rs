//! What the driver tells the outside after each micro-batch.
//!
//! Facts only; the binary turns them into a terminal line, Spark's StreamingQueryProgress JSON or
//! Prometheus metrics.
