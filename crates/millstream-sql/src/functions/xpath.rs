//! `xpath` and its like: what an expression of XPath 1.0 finds in a text.
//!
//! As in Spark the expression is a literal, and a text that is no XML is an error.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use datafusion::common::{Result, exec_err};

use super::define::{
    Arguments, Function, Param, returns_boolean, returns_double, returns_int, returns_long,
    returns_text, returns_texts, within_column,
};
use crate::xml::{Found, Path, Tree, evaluate, parse};

use Param::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("xpath", &[Text, Text], returns_texts, nodes),
    Function::new("xpath_boolean", &[Text, Text], returns_boolean, |args| {
        let path = &path(args)?;
        args.booleans(|row| Ok(found(args, path, row)?.map(|(_, found)| found.boolean())))
    }),
    Function::new("xpath_double", &[Text, Text], returns_double, |args| {
        let path = &path(args)?;
        args.primitives::<Float64Type>(|row| number(args, path, row))
    })
    .aliases(&["xpath_number"]),
    Function::new(
        "xpath_float",
        &[Text, Text],
        |_| Ok(DataType::Float32),
        |args| {
            let path = &path(args)?;
            let float = |number: f64| number as f32;
            args.primitives::<Float32Type>(|row| Ok(number(args, path, row)?.map(float)))
        },
    ),
    Function::new("xpath_int", &[Text, Text], returns_int, |args| {
        let path = &path(args)?;
        let int = |number: f64| number as i32;
        args.primitives::<Int32Type>(|row| Ok(number(args, path, row)?.map(int)))
    }),
    Function::new("xpath_long", &[Text, Text], returns_long, |args| {
        let path = &path(args)?;
        let long = |number: f64| number as i64;
        args.primitives::<Int64Type>(|row| Ok(number(args, path, row)?.map(long)))
    }),
    Function::new(
        "xpath_short",
        &[Text, Text],
        |_| Ok(DataType::Int16),
        |args| {
            let path = &path(args)?;
            // As Java makes a short of a double: by way of an int.
            let short = |number: f64| number as i32 as i16;
            args.primitives::<Int16Type>(|row| Ok(number(args, path, row)?.map(short)))
        },
    ),
    Function::new("xpath_string", &[Text, Text], returns_text, |args| {
        let path = &path(args)?;
        args.write(|row, out| {
            let Some((tree, found)) = found(args, path, row)? else { return Ok(false) };
            out.push_str(&found.text(&tree));
            Ok(true)
        })
    }),
];

/// The expression; none where it is NULL or empty, for which everything is NULL.
fn path(args: &Arguments) -> Result<Option<Path>> {
    let (_, is_constant) = args.array(1);
    if !is_constant {
        return exec_err!("xpath: the expression is a literal, not a column");
    }
    let Some(text) = args.text(1).get(0).filter(|text| !text.is_empty()) else { return Ok(None) };
    match parse(text) {
        Ok(path) => Ok(Some(path)),
        Err(problem) => exec_err!("xpath: '{text}' is not read as XPath: {problem}"),
    }
}

/// What the expression finds in a row.
fn found(args: &Arguments, path: &Option<Path>, row: usize) -> Result<Option<(Tree, Found)>> {
    let text = args.text(0).get(row).filter(|text| !text.is_empty());
    let (Some(text), Some(path)) = (text, path) else { return Ok(None) };
    let tree = match Tree::of(text) {
        Ok(Some(tree)) => tree,
        Ok(None) => {
            let shown: String = text.chars().take(80).collect();
            return exec_err!("xpath: '{shown}' is no XML document");
        }
        Err(error) => return exec_err!("xpath: {error}"),
    };
    match evaluate(&tree, path) {
        Ok(found) => Ok(Some((tree, found))),
        Err(problem) => exec_err!("xpath: the expression is not evaluated: {problem}"),
    }
}

fn number(args: &Arguments, path: &Option<Path>, row: usize) -> Result<Option<f64>> {
    Ok(found(args, path, row)?.map(|(tree, found)| found.number(&tree)))
}

/// The texts of the nodes that were found, of which elements have none themselves.
fn nodes(args: &Arguments) -> Result<ArrayRef> {
    let path = &path(args)?;
    let mut out = ListBuilder::new(StringBuilder::new());
    let mut total = 0;
    for row in 0..args.rows {
        match found(args, path, row)? {
            None => out.append_null(),
            Some((tree, Found::Nodes(nodes))) => {
                for node in nodes {
                    let text = tree.own_text(node);
                    within_column(&mut total, text.map_or(0, str::len))?;
                    out.values().append_option(text);
                }
                out.append(true);
            }
            Some(_) => {
                return exec_err!("xpath: the expression finds no nodes; write xpath_string");
            }
        }
    }
    Ok(Arc::new(out.finish()))
}
