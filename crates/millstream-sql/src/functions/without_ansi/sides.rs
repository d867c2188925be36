//! Values of several types beside each other, before types are coerced.
//!
//! With ANSI mode a STRING becomes what is beside it. Without it, it is compared as a value of the
//! type of the other side, and where both are values of one column, argument or list, numbers and
//! times become STRINGs. FLOATs and whole numbers are FLOATs then, and not DOUBLEs. Elsewhere both
//! have to be of one kind.

use std::iter::once;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{
    Between, BinaryExpr, Case, Cast, InList, InSubquery, ScalarFunction, SetComparison,
    WindowFunction,
};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, cast};

use super::super::known_as;
use super::super::operators::is_comparison;
use super::WithoutAnsi;
use super::kinds::{Beside, check_kind, common, compared, gives_way, refused};

/// Functions whose arguments have a common type, which is STRING where one is. Names of
/// DataFusion's are among them.
const OF_ONE_TYPE: &[&str] = &["array", "coalesce", "ifnull", "make_array", "nvl"];

/// Functions whose arguments have a common type, and STRINGs none with others.
const OF_ONE_KIND: &[&str] = &[
    "array_concat",
    "array_except",
    "array_intersect",
    "array_union",
    "arrays_overlap",
    "greatest",
    "least",
    "map_concat",
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
            Expr::InList(InList { expr, list, negated }) => {
                let mut all = self.together(once(*expr).chain(list).collect())?;
                let list = all.split_off(1);
                let expr = Box::new(all.swap_remove(0));
                Ok(Expr::InList(InList { expr, list, negated }))
            }
            Expr::ScalarFunction(call) => self.call(call).map(Expr::ScalarFunction),
            other => {
                self.check(&other)?;
                Ok(other)
            }
        }
    }

    /// Refuses what has values of several kinds that only a cast makes equal.
    fn check(&self, expr: &Expr) -> Result<()> {
        match expr {
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
            _ => Ok(()),
        }
    }

    /// Values of one argument, list or column.
    fn together(&self, values: Vec<Expr>) -> Result<Vec<Expr>> {
        let types = self.types(&values)?;
        let Some(to) = common(&types)? else { return Ok(values) };
        let cast_to = |(value, of): (Expr, DataType)| {
            let stays = of.is_null() || of == to || (of.is_string() && to.is_string());
            if stays { value } else { cast(value, to.clone()) }
        };
        Ok(values.into_iter().zip(types).map(cast_to).collect())
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
            Beside::Cast if gives_way(&given, of) => Ok(cast(other, of.clone())),
            _ => Err(refused(of, &given)),
        }
    }

    fn binary(&self, binary: BinaryExpr) -> Result<Expr> {
        use Operator as Op;
        let BinaryExpr { left, op, right } = binary;
        let types = [self.type_of(&left)?, self.type_of(&right)?];
        let (left, right) = match op {
            op if is_comparison(op) => {
                if gives_way(&types[0], &types[1]) {
                    (self.beside(&types[1], *left)?, *right)
                } else {
                    (*left, self.beside(&types[0], *right)?)
                }
            }
            Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo => {
                self.check_text_as_long([&left, &right])?;
                match &types {
                    [one, other] if one.is_string() || other.is_string() => {
                        return Err(refused(one, other));
                    }
                    [one, other] if gives_way(one, other) => (cast(*left, other.clone()), *right),
                    [one, other] if gives_way(other, one) => (*left, cast(*right, one.clone())),
                    _ => (*left, *right),
                }
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
        let Between { mut expr, negated, low, high } = between;
        let of = self.type_of(&expr)?;
        let bounds = [self.type_of(&low)?, self.type_of(&high)?];
        if bounds[0] == bounds[1] && gives_way(&of, &bounds[0]) {
            expr = Box::new(cast(*expr, bounds[0].clone()));
            return Ok(Expr::Between(Between { expr, negated, low, high }));
        }
        let (low, high) = (self.beside(&of, *low)?, self.beside(&of, *high)?);
        Ok(Expr::Between(Between { expr, negated, low: Box::new(low), high: Box::new(high) }))
    }

    fn case(&self, case: Case) -> Result<Expr> {
        let Case { expr, when_then_expr, else_expr } = case;
        let (whens, thens): (Vec<_>, Vec<_>) =
            when_then_expr.into_iter().map(|(when, then)| (*when, *then)).unzip();
        let count = thens.len();
        let results = thens.into_iter().chain(else_expr.map(|expr| *expr)).collect();
        let mut results = self.together(results)?;
        let else_expr = results.split_off(count).pop().map(Box::new);
        let of = expr.as_ref().map(|expr| self.type_of(expr)).transpose()?;
        let compared = |when: Expr| match &of {
            Some(of) => self.beside(of, when),
            None => Ok(when),
        };
        let whens = whens.into_iter().map(compared).collect::<Result<Vec<Expr>>>()?;
        let pairs = whens.into_iter().zip(results);
        let when_then_expr = pairs.map(|(when, then)| (Box::new(when), Box::new(then))).collect();
        Ok(Expr::Case(Case { expr, when_then_expr, else_expr }))
    }

    /// A call whose arguments are as they should be.
    fn call(&self, call: ScalarFunction) -> Result<ScalarFunction> {
        let ScalarFunction { func, mut args } = call;
        match func.name() {
            name if OF_ONE_TYPE.contains(&name) => args = self.together(args)?,
            "nvl2" | "if" if args.len() > 1 => {
                let results = args.split_off(1);
                args.extend(self.together(results)?);
            }
            "map" => {
                let is_key = |at: &usize| at.is_multiple_of(2);
                let (keys, values): (Vec<_>, Vec<_>) =
                    args.into_iter().enumerate().partition(|(at, _)| is_key(at));
                let part = |part: Vec<(usize, Expr)>| {
                    self.together(part.into_iter().map(|(_, value)| value).collect())
                };
                let (keys, mut values) = (part(keys)?, part(values)?.into_iter());
                args = keys.into_iter().flat_map(|key| once(key).chain(values.next())).collect();
            }
            name => self.check_call(name, &args)?,
        }
        Ok(ScalarFunction { func, args })
    }

    /// Refuses arguments of several kinds that only a cast makes equal.
    fn check_call(&self, name: &str, args: &[Expr]) -> Result<()> {
        let is_list = |of: &DataType| matches!(of, DataType::List(_));
        let types = self.types(args)?;
        match (name, types.as_slice()) {
            ("concat", types) if types.iter().any(is_list) => check_kind(types),
            ("date_add" | "date_sub", [_, days]) => check_sum(std::slice::from_ref(days)),
            (name, types) if OF_ONE_KIND.contains(&name) => check_kind(types),
            (name, types) if OF_NUMBERS.contains(&name) => check_sum(types),
            (name, [one, other]) if COMPARING.contains(&name) => match compared(one, other) {
                Beside::Same => Ok(()),
                _ => Err(refused(one, other)),
            },
            (name, types) => check_element(name, types),
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
