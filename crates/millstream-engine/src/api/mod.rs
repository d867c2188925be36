//! What the engine asks of the world, and tells it: sources, sinks and connectors, and the words
//! that they share with whoever declares and runs a query.
//!
//! Whoever writes a connector needs this module alone. It knows nothing of the rest of the crate:
//! no plan, no state, no driver.

pub mod connector;
pub mod contact;
pub mod dead_letter;
pub mod drained;
pub mod duration;
pub mod error;
pub mod filter;
pub mod lookup;
pub mod needs;
pub mod options;
pub mod progress;
pub mod references;
pub mod refusals;
pub mod settings;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod trigger;
