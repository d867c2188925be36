//! The checkpoint as a whole: golden scripts over both storages, and what text cannot show.

mod checkpoint;
mod cost;
mod faulty_store;
mod fuzz;
mod golden;
mod killed;
mod overlap;
mod refused;
mod sample;
mod script;

/// Held for writing while a process is started, and for reading where a lock is taken again that
/// was just let go: between fork and exec a child has the files of its parent, and their locks.
static FORKING: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());
