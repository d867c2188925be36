//! Connectors through the registry, on real directories.

mod delta_sink;
mod files_hour;
mod files_sink;
mod files_source;
mod needs;
mod registry;
mod support;
