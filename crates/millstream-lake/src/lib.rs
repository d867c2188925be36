//! Delta Lake tables: appends whose commit time stays flat, and everything around them.
//!
//! A table is a directory of Parquet files and a log, `_delta_log`, whose entry N says which files
//! version N added and removed. The protocol's rules are `delta_kernel`'s ([`kernel`] is its host);
//! what must be fast or must never be in the way is ours.
//!
//! - [`table`]: open, create, append; the sequence of our own commits. [`file_writer`],
//!   [`data_file`], [`columns`], [`bucket`]: rows to files. [`maintenance`]: what is due beside the
//!   stream. [`applications`]: who has published to a table.
//! - [`checkpoint`]: the log's checkpoints, and what keeps the log in order.
//! - [`compact`]: small files become large ones, on request and beside the stream.
//! - [`merge`]: rows of a stream take the place of those with the same key.
//! - [`stream`]: the log as a stream, file by file, version by version.
//! - [`read`]: tables as rows. [`history`], [`describe`], [`vacuum`]: what `millstream table` does.
//! - [`store`]: where a table's files are. [`error`]: what can go wrong.
//!
//! Everything here blocks and belongs on threads that may: the protocol library is synchronous.
//!
//! Origin: <https://github.com/delta-io/delta/blob/master/PROTOCOL.md>, cited as "protocol".

pub mod applications;
pub mod bucket;
pub mod checkpoint;
pub mod columns;
pub mod compact;
pub mod data_file;
pub mod describe;
mod entry;
pub mod error;
pub mod file_writer;
pub mod history;
#[doc(hidden)]
pub mod kernel;
pub mod maintenance;
pub mod merge;
mod parquet_file;
mod partition;
pub mod read;
mod statistics;
pub mod store;
pub mod stream;
pub mod table;
pub mod vacuum;
