//! Single values as Spark reads and writes them: times, numbers and intervals as text, and texts as
//! collations compare them and as their sentences and words.

pub(crate) mod calendar;
pub(crate) mod collated_text;
pub(crate) mod digits;
pub mod interval;
pub(crate) mod interval_literal;
pub(crate) mod java_math;
pub(crate) mod java_numbers;
pub(crate) mod java_text;
pub(crate) mod json_text;
mod microseconds;
pub(crate) mod sentences;
pub(crate) mod time_of_day;
pub(crate) mod time_units;
mod unicode_order;
pub(crate) mod zone;
