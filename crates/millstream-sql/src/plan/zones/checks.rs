//! What a node of a plan, or a function of several rows, does with TIMESTAMPs by itself.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Case, Lambda, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrameBound, WindowFrameUnits,
};

use super::{InZone, classes, compares, refused};
use crate::functions::known_as;
use crate::functions::zoned::holds_moment;
use crate::values::calendar::DAY_US;

/// Refuses a node that compares or joins values of types that only a cast makes equal.
pub(super) fn node(node: &LogicalPlan, zone: &str) -> Result<()> {
    let are_comparable = match node {
        LogicalPlan::Join(join) => {
            let (left, right) = (join.left.schema(), join.right.schema());
            let mut all = true;
            for (one, other) in &join.on {
                all &= compares(&type_in(one, left)?, &type_in(other, right)?);
            }
            all
        }
        LogicalPlan::Union(union) => {
            let of = |at: usize| union.schema.field(at).data_type();
            union.inputs.iter().all(|input| {
                let mut fields = input.schema().fields().iter().enumerate();
                fields.all(|(at, field)| compares(field.data_type(), of(at)))
            })
        }
        LogicalPlan::RecursiveQuery(query) => {
            let of = query.static_term.schema().fields().iter();
            let mut pairs = of.zip(query.recursive_term.schema().fields());
            pairs.all(|(one, other)| compares(one.data_type(), other.data_type()))
        }
        LogicalPlan::Values(values) => {
            let mut all = true;
            for row in &values.values {
                for (cell, field) in row.iter().zip(values.schema.fields()) {
                    all &= compares(&type_in(cell, &values.schema)?, field.data_type());
                }
            }
            all
        }
        _ => true,
    };
    match are_comparable {
        true => Ok(()),
        false => Err(refused("a TIMESTAMP beside a value of another type", zone)),
    }
}

fn type_in(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    expr.get_type(schema)
}

impl InZone<'_> {
    fn has_moment(&self, expr: &Expr) -> bool {
        self.type_of(expr).is_ok_and(|of| holds_moment(&of))
    }

    fn all_compare(&self, exprs: &[&Expr]) -> Result<bool> {
        let types = exprs.iter().map(|expr| self.type_of(expr)).collect::<Result<Vec<_>>>()?;
        let first = types.iter().find(|of| !of.is_null());
        Ok(first.is_none_or(|first| types.iter().all(|of| compares(first, of))))
    }

    /// Refuses a function of several rows that is not known.
    pub(super) fn aggregate(&self, name: &str, args: &[Expr]) -> Result<()> {
        if !args.iter().any(|arg| self.has_moment(arg)) {
            return Ok(());
        }
        // The value where there is no row is cast to the type of the others.
        let has_default = matches!(name, "lag" | "lead") && args.len() > 2;
        if has_default && !self.all_compare(&[&args[0], &args[2]])? {
            return Err(self.refused(&format!("function `{name}` with a default of another type")));
        }
        match classes::ROWS.contains(&name) {
            true => Ok(()),
            false => Err(self.refused(&format!("function `{}` of TIMESTAMPs", known_as(name)))),
        }
    }

    /// Refuses RANGE over TIMESTAMPs by days, which are not all as long.
    pub(super) fn frame(&self, params: &WindowFunctionParams) -> Result<()> {
        let frame = &params.window_frame;
        let is_by_moment = params.order_by.iter().any(|key| self.has_moment(&key.expr));
        if frame.units != WindowFrameUnits::Range || !is_by_moment {
            return Ok(());
        }
        let is_known = |bound: &WindowFrameBound| match bound {
            WindowFrameBound::CurrentRow => true,
            WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => is_short(by),
        };
        match is_known(&frame.start_bound) && is_known(&frame.end_bound) {
            true => Ok(()),
            false => Err(self.refused("RANGE BETWEEN of a day or more over TIMESTAMPs")),
        }
    }

    pub(super) fn lambdas(&self, name: &str, args: &[Expr]) -> Result<()> {
        let mut types = Vec::with_capacity(args.len());
        for arg in args {
            types.push(match arg {
                Expr::Lambda(Lambda { body, .. }) => self.type_of(body)?,
                value => self.type_of(value)?,
            });
        }
        if !types.iter().any(holds_moment) {
            return Ok(());
        }
        let is_same = |one: usize, other: usize| {
            let pair = types.get(one).zip(types.get(other));
            pair.is_none_or(|(one, other)| compares(one, other))
        };
        let is_known = classes::LAMBDAS.contains(&name)
            // What it makes is cast to the type of its start, and keys to those of the first map.
            && (name != "aggregate" || is_same(1, 2))
            && (name != "map_zip_with" || keys_compare(&types));
        match is_known {
            true => Ok(()),
            false => Err(self.refused(&format!("function `{name}` of these TIMESTAMPs"))),
        }
    }

    /// Refuses BETWEEN, IN and CASE of values that only a cast makes equal.
    pub(super) fn compared(&self, expr: &Expr) -> Result<()> {
        let are_comparable = match expr {
            Expr::Between(of) => {
                self.all_compare(&[of.expr.as_ref(), of.low.as_ref(), of.high.as_ref()])?
            }
            Expr::InList(of) => {
                let all: Vec<&Expr> = of.list.iter().chain([of.expr.as_ref()]).collect();
                self.all_compare(&all)?
            }
            Expr::Case(Case { expr, when_then_expr, else_expr }) => {
                let whens = when_then_expr.iter().map(|(when, _)| &**when);
                let whens: Vec<&Expr> = match expr {
                    Some(of) => whens.chain([&**of]).collect(),
                    None => Vec::new(),
                };
                let thens = when_then_expr.iter().map(|(_, then)| &**then);
                let thens: Vec<&Expr> = thens.chain(else_expr.as_deref()).collect();
                self.all_compare(&whens)? && self.all_compare(&thens)?
            }
            _ => true,
        };
        match are_comparable {
            true => Ok(()),
            false => Err(self.refused("a TIMESTAMP beside a value of another type")),
        }
    }

    /// Refuses an expression that has a TIMESTAMP in it.
    pub(super) fn without_moments(&self, expr: &Expr) -> Result<()> {
        let mut found = self.has_moment(expr);
        expr.apply_children(|part| {
            found |= self.has_moment(part);
            Ok(TreeNodeRecursion::Continue)
        })?;
        match found {
            true => Err(self.refused("this operator of a TIMESTAMP")),
            false => Ok(()),
        }
    }
}

fn keys_compare(types: &[DataType]) -> bool {
    let key = |of: &DataType| match of {
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => parts.first().map(|key| key.data_type().clone()),
            _ => None,
        },
        _ => None,
    };
    match types {
        [one, other, ..] => match (key(one), key(other)) {
            (Some(one), Some(other)) => compares(&one, &other),
            _ => true,
        },
        _ => true,
    }
}

/// Whether an offset is nothing that is counted on the calendar.
fn is_short(by: &ScalarValue) -> bool {
    let is_less = |us: i64| us.abs() < DAY_US;
    match by {
        by if by.is_null() => true,
        ScalarValue::DurationMicrosecond(Some(us)) => is_less(*us),
        ScalarValue::DurationSecond(Some(seconds)) => seconds.abs() < DAY_US / 1_000_000,
        ScalarValue::DurationNanosecond(Some(ns)) => is_less(ns / 1000),
        ScalarValue::IntervalMonthDayNano(Some(of)) => {
            of.months == 0 && of.days == 0 && is_less(of.nanoseconds / 1000)
        }
        _ => false,
    }
}
