//! From a query that was read to DataFusion's logical plan, with Spark's types and meaning.
//!
//! [`logical`] plans the query against registered tables: it compares STRINGs by their
//! [`collations`], refuses what Spark refuses ([`checks`], [`variants`], [`recursion`]), makes
//! joins of subqueries ([`lateral`], [`subqueries`]), and columns of windows of time ([`windows`]);
//! [`grouping_sets`] have no rows without rows, [`map_keys`] are compared by groups alone, where
//! values that are equal have one form ([`key_forms`]), and [`zeros`] are equal whatever their
//! signs. A session may have another time zone than UTC ([`zones`]), and no ANSI mode
//! ([`without_ansi`]). [`project`] fits the columns to those of a sink. [`optimize`] makes a plan
//! ready to run, [`short_circuit`] its conditions. [`row_test`] holds a condition against rows at
//! hand. What DataFusion refuses is said in the words of the text ([`blame`]).

/// A pattern for DataFusion's messages.
macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new($text).expect("a fixed pattern is valid")
        });
    };
}

pub mod blame;
mod checks;
mod collations;
pub mod condition;
mod grouping_sets;
mod key_forms;
mod lateral;
pub mod logical;
mod map_keys;
pub mod optimize;
pub mod project;
pub(crate) mod recursion;
pub mod row_test;
pub mod short_circuit;
mod subqueries;
#[cfg(test)]
mod tests;
mod type_words;
mod variants;
pub mod windows;
mod without_ansi;
mod zeros;
mod zones;
