//! Integration tests of the engine, in one binary.

mod documented;
mod examples;
mod fuzz;
mod slt;
mod user_analytics;
