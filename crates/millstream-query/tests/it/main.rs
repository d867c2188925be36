//! Queries here and on a cluster, over real files.

mod faulty;
mod lake;
mod local;
mod remote;
mod security;
