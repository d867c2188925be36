//! Tables on a real disk, through the crate's public face.

mod append;
mod proxy_store;
mod support;
