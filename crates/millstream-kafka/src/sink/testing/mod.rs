//! What the tests of both sinks share: rows to write, and a broker that notes what it is asked.

pub mod broker;
pub mod rows;
