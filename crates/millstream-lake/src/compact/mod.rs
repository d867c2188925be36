//! Compaction: many small data files become few large ones, and rows that deletion vectors name go.
//!
//! A stream leaves a file for each commit, partition and bucket, and whoever reads the table opens
//! all of them. From the log to a commit:
//! 1. files that are too small, or have many deleted rows, are found in the log, or were written
//!    by this process a moment ago ([`small_files`]);
//! 2. files of one partition and one bucket are put into bins, each of which becomes a file
//!    ([`bins`]);
//! 3. the names of the new files are written down, so that they are recognized should the process
//!    end before they are in the table ([`left_behind`]);
//! 4. a bin is read and written anew, one after the other ([`rewrite`]): columns go from files to
//!    files as they are, so names, partition values and types are not touched;
//! 5. a commit puts the new files in place of the old ones
//!    ([`replace`](crate::table::replace)). It says that no data changed, so whoever follows the
//!    table passes over it.
//!
//! [`optimize`] does this on request. [`background`] does it beside a stream: a commit never waits
//! for files to be rewritten, only, at most, for the one request that swaps them.
//!
//! Files are removed from the log alone: readers of older versions find them until `vacuum`.
//! Tables whose files have an order or rows an identity of their own (`clustering`,
//! `rowTracking`) are refused, since both would be lost.

pub mod background;
mod bins;
mod left_behind;
pub mod optimize;
mod rewrite;
mod small_files;
