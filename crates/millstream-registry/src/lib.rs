//! A client of schema registries that speak Confluent's REST protocol: Confluent's own, Karapace,
//! Apicurio (under `/apis/ccompat/v7`) and Redpanda.
//!
//! ```text
//! record ─ frame ─▶ id ──▶ cache ──▶ Registry ──▶ exchange ──▶ server (one of several URLs)
//!                            ▲           │  retries, the other URLs     │ one attempt
//!                            │           ▼                              ▼
//!                      Registered ◀─ references ◀──────────────────── answer
//! ```
//!
//! A record says with the id in its [`frame`] which schema it was written with. What an id stands
//! for never changes, so it is asked for once and kept; what is the latest version of a subject
//! does, so it is asked for each time.
//!
//! Callers are threads that may block. How long they wait for a registry that is away is said by
//! their [`Patience`]; what went wrong is sorted by what they should do, see [`RegistryError`].
//!
//! - [`settings`]: where the registry is and who asks. [`tls`]: certificates.
//! - [`ask`]: what can be asked. [`server`]: one URL, one attempt. [`answer`]: what an answer
//!   means.
//! - [`exchange`]: asking until there is an answer. [`patience`]: how long that may take.
//! - [`fetch`]: one schema. [`references`]: the schemas that it is made with. [`schema`]: all that
//!   is known of it then.
//! - [`cache`]: schemas by their ids. [`registry`]: all of it together.

mod answer;
mod ask;
mod cache;
mod error;
mod exchange;
mod fetch;
pub mod frame;
mod patience;
mod references;
mod registry;
mod schema;
mod server;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

pub use error::RegistryError;
pub use patience::Patience;
pub use registry::{Compatibility, Registry};
pub use schema::{Body, Draft, Link, Reference, Registered, SchemaKind};
pub use settings::{Auth, Pem, Settings, Tls, without_user};
