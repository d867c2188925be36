//! Values that are made of others, and the parts that are taken of them.

use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::logical_expr::Expr;

use super::Typed;
use super::leaves::{Leaves, are_plain, pointed};
use super::scope::Scope;
use crate::types::collations::strings_in;

/// `named_struct(name, value, ...)`: each value keeps what it has.
pub(super) fn structure(args: Vec<Typed>, made: impl Fn(Vec<Expr>) -> Expr) -> Typed {
    let values = args.iter().skip(1).step_by(2);
    let leaves = values.flat_map(|value| value.leaves.iter().copied()).collect();
    Typed { expr: made(args.into_iter().map(|arg| arg.expr).collect()), leaves }
}

/// `get_field(value, name, ...)`: a part of a struct, or the value of a key.
pub(super) fn field(
    args: Vec<Typed>,
    made: impl Fn(Vec<Expr>) -> Expr,
    scope: &Scope<'_>,
) -> Result<Typed> {
    let Some((value, names)) = args.split_first() else {
        return plan_err!("get_field takes a value and names");
    };
    let (mut of, mut leaves) = (scope.type_of(&value.expr)?, value.leaves.clone());
    for name in names {
        (of, leaves) = part(&of, &leaves, &name.expr)?;
    }
    let args = args.into_iter().map(|arg| arg.expr).collect();
    Ok(Typed { expr: made(args), leaves })
}

/// The type of the part that a name or a key stands for, and what it has.
fn part(of: &DataType, leaves: &Leaves, name: &Expr) -> Result<(DataType, Leaves)> {
    let name = match name {
        Expr::Literal(name, _) => name.try_as_str().flatten(),
        _ => None,
    };
    match (of, name) {
        (DataType::Struct(fields), Some(name)) => {
            let Some((at, field)) = fields.find(name) else {
                return plan_err!("there is no field `{name}`");
            };
            let before = fields.iter().take(at).map(|field| strings_in(field.data_type()));
            let before: usize = before.sum();
            let own = strings_in(field.data_type());
            let leaves = leaves.iter().skip(before).take(own).copied().collect();
            Ok((field.data_type().clone(), leaves))
        }
        (DataType::Map(entries, _), _) => value_of(entries.data_type(), leaves),
        _ => plan_err!("a part of a value with collations must be named; take it in a subquery"),
    }
}

/// The value of a key, if keys are compared byte by byte.
fn value_of(entry: &DataType, leaves: &Leaves) -> Result<(DataType, Leaves)> {
    let DataType::Struct(fields) = entry else { return plan_err!("a MAP has keys and values") };
    let [key, value] = &fields[..] else { return plan_err!("a MAP has keys and values") };
    let (keys, values) = leaves.split_at(strings_in(key.data_type()).min(leaves.len()));
    if !are_plain(keys) {
        return plan_err!(
            "keys of a MAP that have a collation cannot be looked up; CAST them to STRING"
        );
    }
    Ok((value.data_type().clone(), values.to_vec()))
}

/// An element of an array, or the value of a key.
pub(super) fn item(
    args: Vec<Typed>,
    made: impl Fn(Vec<Expr>) -> Expr,
    scope: &Scope<'_>,
) -> Result<Typed> {
    let Some(value) = args.first() else { return plan_err!("this takes an ARRAY or a MAP") };
    let leaves = match scope.type_of(&value.expr)? {
        DataType::List(_) => value.leaves.clone(),
        DataType::Map(entries, _) if args[1..].iter().all(|key| are_plain(&key.leaves)) => {
            value_of(entries.data_type(), &value.leaves)?.1
        }
        _ => {
            let error = plan_datafusion_err!("a key with a collation cannot be looked up");
            return Err(pointed(&value.expr, error));
        }
    };
    let args = args.into_iter().map(|arg| arg.expr).collect();
    Ok(Typed { expr: made(args), leaves })
}
