//! From a query's tokens to a statement that DataFusion plans as Spark would.
//!
//! [`prepare`] is the way through; each of its steps is a module: [`forms`] and [`streams`] take
//! out what sqlparser does not know, [`routines`] puts in what declared functions stand for,
//! [`relations`] finds the tables that are read, [`stateless`] refuses what needs state over a
//! stream, and [`rewrite`] says in DataFusion's words what Spark says in others.

/// The condition of a join that has one; by shared or mutable reference, as the operator is given.
macro_rules! join_constraint {
    ($operator:expr) => {
        match $operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::Semi(constraint)
            | JoinOperator::LeftSemi(constraint)
            | JoinOperator::RightSemi(constraint)
            | JoinOperator::Anti(constraint)
            | JoinOperator::LeftAnti(constraint)
            | JoinOperator::RightAnti(constraint) => Some(constraint),
            _ => None,
        }
    };
}

mod aggregates;
pub(crate) mod ast;
mod blocks;
mod brackets;
mod cast_twins;
mod casts;
mod commuted;
mod dialects;
pub mod file_metadata;
mod forms;
mod frame;
mod generators;
mod grouping;
mod hidden_sides;
mod in_sight;
mod inline_tables;
mod interval_columns;
mod intervals;
mod joins;
mod lambda_calls;
mod lateral;
mod lateral_alias;
mod lateral_values;
mod laterals;
mod left_out;
mod legacy;
mod like;
mod listagg;
mod naming;
mod nearest_sides;
mod nesting;
mod offsets;
mod operators;
mod outer_aggregates;
pub(crate) mod parse;
mod paths;
mod patterns;
mod percentiles;
mod places;
pub mod prepare;
pub mod prepared;
pub(crate) mod recursion;
mod refusals;
mod relations;
mod result_names;
pub(crate) mod rewrite;
pub mod routines;
pub(crate) mod rows;
mod same_names;
mod schema_calls;
mod schema_names;
mod scope;
mod scripts;
pub mod settings;
mod several_generators;
mod shapes;
mod sorting;
mod star_tokens;
mod stars;
mod stateless;
pub mod streams;
mod structs;
mod table_calls;
mod time_literals;
mod token_ends;
pub mod twins;
mod typed_numbers;
mod uncovered;
mod units;
mod using;
pub mod variables;
mod variant_paths;
mod wildcards;
mod window_calls;
mod words;
mod wrong_fields;
