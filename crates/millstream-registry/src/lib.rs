//! A client of schema registries.
