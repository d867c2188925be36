//! Tables on a real disk, through the crate's public face.

mod append;
mod busy_cores;
mod compact;
mod foreign;
mod fuzz;
mod history;
mod live;
mod log;
mod merge;
mod moving_table;
mod proxy_store;
mod reading;
mod stream;
mod support;
mod vacuum;
