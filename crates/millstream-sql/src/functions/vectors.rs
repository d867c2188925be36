//! Functions of vectors, which are arrays of FLOAT: their lengths, products and distances.
//!
//! A vector with a NULL in it has none of these.

use std::sync::Arc;

use arrow::array::builder::{Float32Builder, ListBuilder};
use arrow::array::{Array, ArrayRef, AsArray, Float32Array, ListArray};
use arrow::datatypes::{DataType, Float32Type};
use datafusion::common::{Result, exec_err, plan_err};

use super::define::{Arguments, Function, Param};
use crate::types::{list_of, spark_type};

use Param::Any;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("vector_norm", &[Any, Any], |args| one(args, DataType::Float32), norm)
        .required(1),
    Function::new(
        "vector_normalize",
        &[Any, Any],
        |args| one(args, list_of(DataType::Float32)),
        normalize,
    )
    .required(1),
    Function::new("vector_inner_product", &[Any, Any], two, |args| {
        of_two(args, "vector_inner_product", |left, right| Some(inner_product(left, right)))
    }),
    Function::new("vector_cosine_similarity", &[Any, Any], two, |args| {
        of_two(args, "vector_cosine_similarity", cosine_similarity)
    }),
    Function::new("vector_l2_distance", &[Any, Any], two, |args| {
        of_two(args, "vector_l2_distance", |left, right| Some(distance(left, right)))
    }),
];

/// # Errors
/// The type is not that of a vector; nothing is cast to it.
pub(super) fn is_vector(given: &DataType) -> Result<()> {
    match given {
        DataType::List(item) if *item.data_type() == DataType::Float32 => Ok(()),
        other => plan_err!(
            "a vector is an ARRAY<FLOAT>, not {}; write CAST(x AS ARRAY<FLOAT>)",
            spark_type(other)
        ),
    }
}

fn one(args: &[DataType], returns: DataType) -> Result<DataType> {
    is_vector(&args[0])?;
    match args.get(1) {
        None | Some(DataType::Float32) => Ok(returns),
        Some(other) => {
            plan_err!("the degree of a norm is a FLOAT, not {}; write 2.0F", spark_type(other))
        }
    }
}

fn two(args: &[DataType]) -> Result<DataType> {
    is_vector(&args[0])?;
    is_vector(&args[1])?;
    Ok(DataType::Float32)
}

fn lists(args: &Arguments, at: usize) -> Result<ListArray> {
    match args.expanded(at)?.as_list_opt::<i32>() {
        Some(lists) => Ok(lists.clone()),
        None => exec_err!("expected an ARRAY"),
    }
}

/// The vectors of a column, by row; none where there is a NULL in one.
fn vectors(lists: &ListArray) -> Vec<Option<Float32Array>> {
    let of_row = |row: usize| {
        let vector = lists.is_valid(row).then(|| lists.value(row))?;
        let vector = vector.as_primitive_opt::<Float32Type>()?.clone();
        (vector.null_count() == 0).then_some(vector)
    };
    (0..lists.len()).map(of_row).collect()
}

fn of_two(args: &Arguments, name: &str, of: fn(&[f32], &[f32]) -> Option<f32>) -> Result<ArrayRef> {
    let (left_lists, right_lists) = (lists(args, 0)?, lists(args, 1)?);
    let (left, right) = (vectors(&left_lists), vectors(&right_lists));
    args.primitives::<Float32Type>(|row| {
        if left_lists.is_null(row) || right_lists.is_null(row) {
            return Ok(None);
        }
        let (a, b) = (left_lists.value_length(row), right_lists.value_length(row));
        if a != b {
            return exec_err!("{name}: the vectors have {a} and {b} dimensions");
        }
        Ok(match (&left[row], &right[row]) {
            (Some(left), Some(right)) => of(left.values(), right.values()),
            _ => None,
        })
    })
}

/// How many terms Spark adds before it adds them to the sum: what is rounded follows from it.
const AT_ONCE: usize = 8;

fn sum_of(terms: impl Iterator<Item = f32>) -> f32 {
    let (mut sum, mut held, mut count) = (0.0_f32, [0.0_f32; AT_ONCE], 0);
    for term in terms {
        held[count] = term;
        count += 1;
        if count == AT_ONCE {
            sum += held[1..].iter().fold(held[0], |sum, term| sum + term);
            count = 0;
        }
    }
    held[..count].iter().fold(sum, |sum, term| sum + term)
}

fn root(square: f32) -> f32 {
    f64::from(square).sqrt() as f32
}

fn inner_product(left: &[f32], right: &[f32]) -> f32 {
    sum_of(left.iter().zip(right).map(|(a, b)| a * b))
}

fn cosine_similarity(left: &[f32], right: &[f32]) -> Option<f32> {
    let lengths = root(inner_product(left, left) * inner_product(right, right));
    let is_zero = left.is_empty() || lengths < f32::MIN_POSITIVE;
    (!is_zero).then(|| inner_product(left, right) / lengths)
}

fn distance(left: &[f32], right: &[f32]) -> f32 {
    root(sum_of(left.iter().zip(right).map(|(a, b)| (a - b) * (a - b))))
}

fn degrees(args: &Arguments) -> Result<Vec<Option<f32>>> {
    if args.len() < 2 {
        return Ok(vec![Some(2.0); args.rows]);
    }
    let degrees = args.primitive::<Float32Type>(1);
    Ok((0..args.rows).map(|row| degrees.get(row)).collect())
}

/// The norm of a degree: the sum of the amounts, the length, or the greatest amount.
fn norm_of(vector: &[f32], degree: f32) -> Result<f32> {
    match degree {
        1.0 => Ok(sum_of(vector.iter().map(|value| value.abs()))),
        2.0 => Ok(root(inner_product(vector, vector))),
        f32::INFINITY => Ok(vector.iter().fold(0.0, |most, value| value.abs().max(most))),
        other => exec_err!("the degree of a norm is 1.0, 2.0 or float('inf'), not {other}"),
    }
}

fn norm(args: &Arguments) -> Result<ArrayRef> {
    let (vectors, degrees) = (vectors(&lists(args, 0)?), degrees(args)?);
    args.primitives::<Float32Type>(|row| match (&vectors[row], degrees[row]) {
        (Some(vector), Some(degree)) => norm_of(vector.values(), degree).map(Some),
        _ => Ok(None),
    })
}

fn normalize(args: &Arguments) -> Result<ArrayRef> {
    let (vectors, degrees) = (vectors(&lists(args, 0)?), degrees(args)?);
    let mut out = ListBuilder::new(Float32Builder::new());
    for row in 0..args.rows {
        let (Some(vector), Some(degree)) = (&vectors[row], degrees[row]) else {
            out.append_null();
            continue;
        };
        let norm = norm_of(vector.values(), degree)?;
        let is_zero = norm < f32::MIN_POSITIVE && !vector.is_empty();
        if !is_zero {
            vector.values().iter().for_each(|value| out.values().append_value(value / norm));
        }
        out.append(!is_zero);
    }
    Ok(Arc::new(out.finish()))
}
