//! Values of several types beside each other, before types are coerced.
//!
//! With ANSI mode a STRING becomes what is beside it, and without it both become STRINGs, or it a
//! number of another type. So a STRING is compared with a value of another type as Spark does it,
//! and anywhere else both have to be of one kind. So have FLOATs and whole numbers, which without
//! ANSI mode are FLOATs and not DOUBLEs.

use std::iter::once;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{
    DFSchema, DataFusionError, NullEquality, Result, plan_datafusion_err, plan_err,
};
use datafusion::logical_expr::expr::{
    Between, BinaryExpr, Case, Cast, InList, InSubquery, ScalarFunction, SetComparison,
    WindowFunction,
};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, cast};

use super::super::known_as;
use super::WithoutAnsi;
use crate::types::spark_type;

/// Functions whose arguments have a common type. Names of DataFusion's are among them.
const OF_ONE_TYPE: &[&str] = &[
    "array",
    "array_concat",
    "array_except",
    "array_intersect",
    "array_union",
    "arrays_overlap",
    "coalesce",
    "greatest",
    "ifnull",
    "least",
    "make_array",
    "map_concat",
    "nvl",
];

/// Functions of two numbers, of whose types that of the result is made.
const OF_NUMBERS: &[&str] = &[
    "div",
    "mod",
    "nanvl",
    "pmod",
    "try_add",
    "try_divide",
    "try_mod",
    "try_multiply",
    "try_subtract",
];

/// Functions that compare their two arguments.
const COMPARING: &[&str] = &["equal_null", "nullif"];

/// What becomes of two values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// The same as with ANSI mode.
    Same,
    /// The STRING becomes a value of the other one's type.
    TextAsOther,
    /// It is not known to be the same.
    Unknown,
}

fn compared(one: &DataType, other: &DataType) -> Beside {
    match (one.is_string(), other.is_string()) {
        _ if one.is_null() || other.is_null() => Beside::Same,
        (true, false) => text_beside(other),
        (false, true) => text_beside(one),
        _ if are_of_one_kind(one, other) => Beside::Same,
        _ => Beside::Unknown,
    }
}

fn text_beside(other: &DataType) -> Beside {
    match other {
        DataType::Boolean
        | DataType::Date32
        | DataType::Timestamp(..)
        | DataType::Float64
        | DataType::Decimal128(..) => Beside::Same,
        DataType::Float32 => Beside::TextAsOther,
        whole if whole.is_signed_integer() => Beside::TextAsOther,
        _ => Beside::Unknown,
    }
}

/// Whether values of both types have the same common type in both modes.
fn are_of_one_kind(one: &DataType, other: &DataType) -> bool {
    use DataType::{Date32, Duration, Float32, Interval, List, Map, Struct, Timestamp};
    let is_time = |of: &DataType| matches!(of, Date32 | Timestamp(..));
    let is_span = |of: &DataType| matches!(of, Duration(_) | Interval(_));
    match (one, other) {
        (one, other) if one == other || one.is_null() || other.is_null() => true,
        (Float32, whole) | (whole, Float32) if whole.is_signed_integer() => false,
        (List(one), List(other)) | (Map(one, _), Map(other, _)) => {
            are_of_one_kind(one.data_type(), other.data_type())
        }
        (Struct(one), Struct(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| are_of_one_kind(one.data_type(), other.data_type()))
        }
        (one, other) => {
            let both = |is: &dyn Fn(&DataType) -> bool| is(one) && is(other);
            both(&DataType::is_numeric)
                || both(&DataType::is_string)
                || both(&DataType::is_binary)
                || both(&is_time)
                || both(&is_span)
        }
    }
}

/// What is beside each other and not of one kind.
fn refused(one: &DataType, other: &DataType) -> DataFusionError {
    plan_datafusion_err!(
        "{} beside {} is not supported where spark.sql.ansi.enabled is false; cast one to the type \
         of the other, CAST(x AS {}), or write SET spark.sql.ansi.enabled = true",
        spark_type(one),
        spark_type(other),
        spark_type(if one.is_string() { other } else { one })
    )
}

/// Refuses types that are not all of one kind.
pub(crate) fn check_kind<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<()> {
    let mut known = types.into_iter().filter(|of| !of.is_null());
    let Some(first) = known.next() else { return Ok(()) };
    let mut seen = vec![first];
    for of in known {
        // Of three numbers the first may be a DOUBLE, which hides a FLOAT from the others.
        if let Some(one) = seen.iter().find(|one| !are_of_one_kind(one, of)) {
            return Err(refused(one, of));
        }
        if !seen.contains(&of) {
            seen.push(of);
        }
    }
    Ok(())
}

/// `expr`, whose parts are as they should be already, as a session without ANSI mode takes it.
pub(in crate::functions) fn taken(
    expr: Expr,
    schema: &DFSchema,
    options: &ConfigOptions,
) -> Result<Expr> {
    if !WithoutAnsi::is_in(options) {
        return Ok(expr);
    }
    Sides { schema }.taken(expr)
}

/// Values over columns of a schema.
struct Sides<'a> {
    schema: &'a DFSchema,
}

impl Sides<'_> {
    fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(self.schema)
    }

    fn types<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<Vec<DataType>> {
        exprs.into_iter().map(|expr| self.type_of(expr)).collect()
    }

    fn taken(&self, expr: Expr) -> Result<Expr> {
        match expr {
            Expr::BinaryExpr(binary) => self.binary(binary),
            Expr::Between(between) => self.between(between),
            Expr::Case(case) => self.case(case),
            other => {
                self.check(&other)?;
                Ok(other)
            }
        }
    }

    /// Refuses what has values of several kinds that only a cast makes equal.
    fn check(&self, expr: &Expr) -> Result<()> {
        match expr {
            Expr::InList(InList { expr, list, .. }) => {
                check_kind(&self.types(once(expr.as_ref()).chain(list))?)
            }
            Expr::InSubquery(InSubquery { expr, subquery, .. })
            | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
                let one = self.type_of(expr)?;
                let fields = subquery.subquery.schema().fields().iter();
                check_kind(once(&one).chain(fields.map(|field| field.data_type())))
            }
            Expr::Not(of) => match self.type_of(of)? {
                of if of.is_string() => Err(refused(&of, &DataType::Boolean)),
                _ => Ok(()),
            },
            Expr::WindowFunction(call) => self.window(call),
            Expr::ScalarFunction(call) => self.call(call),
            _ => Ok(()),
        }
    }

    fn window(&self, call: &WindowFunction) -> Result<()> {
        match (call.fun.name(), call.params.args.as_slice()) {
            ("lag" | "lead", [value, _, default, ..]) => check_kind(&self.types([value, default])?),
            _ => Ok(()),
        }
    }

    /// A value as it is compared with one of the type `of`.
    fn beside(&self, of: &DataType, other: Expr) -> Result<Expr> {
        let given = self.type_of(&other)?;
        match compared(of, &given) {
            Beside::Same => Ok(other),
            Beside::TextAsOther if given.is_string() => Ok(cast(other, of.clone())),
            _ => Err(refused(of, &given)),
        }
    }

    fn binary(&self, binary: BinaryExpr) -> Result<Expr> {
        use Operator as Op;
        let BinaryExpr { left, op, right } = binary;
        let types = [self.type_of(&left)?, self.type_of(&right)?];
        let (left, right) = match op {
            Op::Eq
            | Op::NotEq
            | Op::Lt
            | Op::LtEq
            | Op::Gt
            | Op::GtEq
            | Op::IsDistinctFrom
            | Op::IsNotDistinctFrom => {
                if types[0].is_string() {
                    (self.beside(&types[1], *left)?, *right)
                } else {
                    (*left, self.beside(&types[0], *right)?)
                }
            }
            Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo => {
                self.check_text_as_long([&left, &right])?;
                check_sum(&types)?;
                (*left, *right)
            }
            Op::And | Op::Or | Op::BitwiseAnd | Op::BitwiseOr | Op::BitwiseXor => {
                check_kind(&types)?;
                (*left, *right)
            }
            Op::BitwiseShiftLeft | Op::BitwiseShiftRight => {
                check_sum(&types)?;
                (*left, *right)
            }
            _ => (*left, *right),
        };
        Ok(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) }))
    }

    /// Refuses a STRING beside a whole number, of which both have become BIGINTs by now.
    fn check_text_as_long(&self, sides: [&Expr; 2]) -> Result<()> {
        let before = |side: &Expr| match side {
            Expr::Cast(Cast { expr, field }) if *field.data_type() == DataType::Int64 => {
                self.type_of(expr).ok()
            }
            _ => None,
        };
        let [Some(left), Some(right)] = sides.map(before) else { return Ok(()) };
        let is_pair = |text: &DataType, whole: &DataType| {
            text.is_string() && (whole.is_signed_integer() || whole.is_null())
        };
        if !is_pair(&left, &right) && !is_pair(&right, &left) {
            return Ok(());
        }
        plan_err!(
            "a STRING beside a whole number is not supported where spark.sql.ansi.enabled is \
             false; cast the STRING alone, CAST(x AS DOUBLE), or write SET spark.sql.ansi.enabled \
             = true"
        )
    }

    fn between(&self, between: Between) -> Result<Expr> {
        let Between { expr, negated, low, high } = between;
        let of = self.type_of(&expr)?;
        let (low, high) = (self.beside(&of, *low)?, self.beside(&of, *high)?);
        Ok(Expr::Between(Between { expr, negated, low: Box::new(low), high: Box::new(high) }))
    }

    fn case(&self, case: Case) -> Result<Expr> {
        let Case { expr, when_then_expr, else_expr } = case;
        let thens = when_then_expr.iter().map(|(_, then)| &**then);
        check_kind(&self.types(thens.chain(else_expr.as_deref()))?)?;
        let of = expr.as_ref().map(|expr| self.type_of(expr)).transpose()?;
        let compared = |(when, then): (Box<Expr>, Box<Expr>)| -> Result<(Box<Expr>, Box<Expr>)> {
            match &of {
                Some(of) => Ok((Box::new(self.beside(of, *when)?), then)),
                None => Ok((when, then)),
            }
        };
        let when_then_expr = when_then_expr.into_iter().map(compared).collect::<Result<_>>()?;
        Ok(Expr::Case(Case { expr, when_then_expr, else_expr }))
    }

    fn call(&self, call: &ScalarFunction) -> Result<()> {
        let name = call.name();
        let types = || self.types(&call.args);
        match name {
            "concat" => {
                let types = types()?;
                match types.iter().any(|of| matches!(of, DataType::List(_))) {
                    true => check_kind(&types),
                    false => Ok(()),
                }
            }
            "nvl2" | "if" => check_kind(types()?.iter().skip(1)),
            "map" => {
                let types = types()?;
                check_kind(types.iter().step_by(2))?;
                check_kind(types.iter().skip(1).step_by(2))
            }
            name if OF_ONE_TYPE.contains(&name) => check_kind(&types()?),
            name if OF_NUMBERS.contains(&name) => check_sum(&types()?),
            "date_add" | "date_sub" => check_sum(types()?.get(1..).unwrap_or_default()),
            name if COMPARING.contains(&name) => match types()?.as_slice() {
                [one, other] if compared(one, other) != Beside::Same => Err(refused(one, other)),
                _ => Ok(()),
            },
            name => check_element(name, &types()?),
        }
    }
}

/// Refuses a STRING as a number, and a FLOAT beside a whole number.
fn check_sum(types: &[DataType]) -> Result<()> {
    let is_text = |of: &&DataType| of.is_string();
    if let Some(text) = types.iter().find(is_text) {
        return Err(refused(text, &DataType::Float64));
    }
    let is_float = types.contains(&DataType::Float32);
    match types.iter().find(|of| is_float && of.is_signed_integer()) {
        Some(whole) => Err(refused(&DataType::Float32, whole)),
        None => Ok(()),
    }
}

/// Refuses an element or a key of another kind than those beside it.
fn check_element(name: &str, types: &[DataType]) -> Result<()> {
    let at = match known_as(name) {
        "array_append" | "array_contains" | "array_position" | "array_prepend" | "array_remove"
        | "element_at" | "get_field" | "map_contains_key" | "try_element_at" => 1,
        "array_insert" => 2,
        _ => return Ok(()),
    };
    let (Some(of), Some(given)) = (types.first(), types.get(at)) else { return Ok(()) };
    match (of, name) {
        (DataType::List(_), "element_at" | "try_element_at" | "get_field") => Ok(()),
        (DataType::List(item), _) => check_kind([item.data_type(), given]),
        (DataType::Map(entries, _), _) => match entries.data_type() {
            DataType::Struct(parts) => check_kind([parts[0].data_type(), given]),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses a node that brings values of several kinds into one column.
pub(in crate::functions) fn check_columns(
    plan: &LogicalPlan,
    options: &ConfigOptions,
) -> Result<()> {
    if !WithoutAnsi::is_in(options) {
        return Ok(());
    }
    match plan {
        LogicalPlan::Union(union) => {
            let width = union.schema.fields().len();
            (0..width).try_for_each(|at| {
                let fields =
                    union.inputs.iter().filter_map(|input| input.schema().fields().get(at));
                check_kind(fields.map(|field| field.data_type()))
            })
        }
        LogicalPlan::RecursiveQuery(query) => {
            let fields = query.static_term.schema().fields().iter();
            let mut pairs = fields.zip(query.recursive_term.schema().fields());
            pairs.try_for_each(|(one, other)| check_kind([one.data_type(), other.data_type()]))
        }
        LogicalPlan::Values(values) => {
            let columns = values.schema.fields().len();
            (0..columns).try_for_each(|at| {
                let cells = values.values.iter().filter_map(|row| row.get(at));
                let types = cells.map(|cell| of_cell(cell, &values.schema));
                check_kind(&types.collect::<Result<Vec<_>>>()?)
            })
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (join.left.schema(), join.right.schema());
            // INTERSECT and EXCEPT have common types, and do not compare as `=` does.
            let is_set = join.null_equality == NullEquality::NullEqualsNull;
            join.on.iter().try_for_each(|(one, other)| {
                let (one, other) = (type_in(one, left)?, type_in(other, right)?);
                match compared(&one, &other) {
                    Beside::Same if !is_set => Ok(()),
                    Beside::Same => check_kind([&one, &other]),
                    _ => Err(refused(&one, &other)),
                }
            })
        }
        _ => Ok(()),
    }
}

fn type_in(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    expr.get_type(schema)
}

/// The type of a cell of VALUES, without the cast to the type of its column that was added to it.
fn of_cell(cell: &Expr, schema: &DFSchema) -> Result<DataType> {
    let of = cell.get_type(schema)?;
    match cell {
        Expr::Cast(Cast { expr, .. }) => match expr.get_type(schema)? {
            inner if inner.is_numeric() && !of.is_numeric() => Ok(inner),
            _ => Ok(of),
        },
        _ => Ok(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{list_of, timestamp};

    #[test]
    fn a_text_is_compared_as_the_value_beside_it() {
        for (other, expected) in [
            (DataType::Utf8, Beside::Same),
            (DataType::Null, Beside::Same),
            (DataType::Date32, Beside::Same),
            (timestamp(), Beside::Same),
            (DataType::Float64, Beside::Same),
            (DataType::Decimal128(3, 1), Beside::Same),
            (DataType::Int32, Beside::TextAsOther),
            (DataType::Float32, Beside::TextAsOther),
            (DataType::Binary, Beside::Unknown),
            (list_of(DataType::Utf8), Beside::Unknown),
        ] {
            assert_eq!(compared(&DataType::Utf8, &other), expected, "{other}");
            assert_eq!(compared(&other, &DataType::Utf8), expected, "{other}");
        }
    }

    #[test]
    fn floats_and_whole_numbers_are_not_of_one_kind() {
        let float = DataType::Float32;
        assert!(!are_of_one_kind(&float, &DataType::Int64));
        assert!(!are_of_one_kind(&list_of(DataType::Int8), &list_of(float.clone())));
        assert!(are_of_one_kind(&float, &DataType::Float64));
        assert!(are_of_one_kind(&float, &DataType::Decimal128(3, 1)));
        assert!(are_of_one_kind(&DataType::Int8, &DataType::Decimal128(3, 1)));
        assert!(are_of_one_kind(&DataType::Date32, &timestamp()));
        assert!(!are_of_one_kind(&DataType::Date32, &DataType::Utf8));
        assert!(check_kind([&DataType::Float64, &float, &DataType::Int64]).is_err());
        assert!(check_kind([&DataType::Null, &float]).is_ok());
    }
}
