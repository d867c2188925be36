//! Aggregates and window functions of STRINGs with a collation.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{
    Column, DataFusionError, Result, internal_datafusion_err, plan_datafusion_err,
};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Case, Cast, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::{AggregateUDF, Expr, lit};

use super::compare::determined;
use super::leaves::{
    Leaf, Leaves, Strength, all_merged, are_plain, of_column, of_type, one_of, pointed,
};
use super::scope::Scope;
use super::{Resolver, Typed};
use crate::functions::collated::PREFIX;
use crate::functions::{MAX_FIRST, MIN_FIRST};

impl Resolver<'_> {
    /// The aggregate of this name.
    pub(super) fn aggregate_function(&self, name: &str) -> Result<Arc<AggregateUDF>> {
        let found: Option<&Arc<AggregateUDF>> = self.state.aggregate_functions().get(name);
        found.cloned().ok_or_else(|| internal_datafusion_err!("there is no {name}"))
    }

    pub(super) fn aggregate(&self, call: AggregateFunction, scope: &Scope<'_>) -> Result<Typed> {
        let AggregateFunction { mut func, params } = call;
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
        let is_listed = func.name() == "string_agg";
        let args = args.into_iter().map(|arg| match arg {
            Expr::Cast(cast) if is_listed => self.listed(cast, scope),
            arg => self.expr(arg, scope),
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let filter = filter.map(|filter| self.expr(*filter, scope)).transpose()?;
        let filter = filter.map(|filter| Box::new(filter.expr));
        let order_by = order_by.into_iter().map(|sort| self.sort_key(sort, scope));
        let order_by = order_by.collect::<Result<Vec<_>>>()?;
        let name = func.name().to_owned();
        let are_all_plain = args.iter().all(|arg| are_plain(&arg.leaves));
        let (args, leaves) = match name.as_str() {
            _ if are_all_plain => (exprs(args), None),
            "count" if !distinct => (exprs(args), Some(Leaves::new())),
            "count" => {
                let keys = args.into_iter().map(|arg| self.key_in(arg, scope));
                (keys.collect::<Result<Vec<_>>>()?, Some(Leaves::new()))
            }
            "min" | "max" if args.len() == 1 => {
                let first = if name == "min" { MIN_FIRST } else { MAX_FIRST };
                func = self.aggregate_function(first)?;
                let (value, leaves) = (args[0].expr.clone(), args[0].leaves.clone());
                let keys = args.into_iter().map(|arg| self.key_in(arg, scope));
                let keys = keys.collect::<Result<Vec<_>>>()?;
                (std::iter::once(value).chain(keys).collect(), Some(leaves))
            }
            "min_by" | "max_by" => {
                let leaves = args.first().map(|arg| arg.leaves.clone());
                let args = args.into_iter().enumerate().map(|(at, arg)| match at {
                    1 => self.key_in(arg, scope),
                    _ => Ok(arg.expr),
                });
                (args.collect::<Result<Vec<_>>>()?, leaves)
            }
            "string_agg" if !distinct => {
                let all = args.iter().flat_map(|arg| arg.leaves.iter().copied());
                let leaves = all_merged(all)?.into_iter().collect();
                (exprs(args), Some(leaves))
            }
            "any_value" | "array_agg" | "collect_list" | "first_value" | "last_value"
                if !distinct =>
            {
                let leaves = args.first().map(|arg| arg.leaves.clone());
                (exprs(args), leaves)
            }
            _ => return Err(refused(&name, &args)),
        };
        let call =
            AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
        self.computed(Expr::AggregateFunction(call), leaves, scope)
    }

    /// `listagg(DISTINCT x)` of STRINGs that are not compared byte by byte, the aggregate number
    /// `at`: all of them in a list, and what is joined of that. `None` for other aggregates.
    pub(super) fn distinct_list(
        &self,
        at: usize,
        expr: &Expr,
        scope: &Scope<'_>,
    ) -> Result<Option<(Typed, Expr)>> {
        let Expr::AggregateFunction(call) = expr else { return Ok(None) };
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } =
            &call.params;
        let [Expr::Cast(value), delimiter @ Expr::Literal(..)] = args.as_slice() else {
            return Ok(None);
        };
        if call.func.name() != "string_agg" || !distinct || !order_by.is_empty() {
            return Ok(None);
        }
        let value = self.listed(value.clone(), scope)?;
        let [leaf] = value.leaves.as_slice() else { return Ok(None) };
        if are_plain(&value.leaves) {
            return Ok(None);
        }
        let collation = determined(*leaf).map_err(|error| pointed(&value.expr, error))?;
        let filter = filter.clone().map(|filter| self.expr(*filter, scope)).transpose()?;
        let filter = filter.map(|filter| Box::new(filter.expr));
        let list = self.aggregate_function("collect_list")?;
        let (value, leaves) = (value.expr, value.leaves);
        let list = AggregateFunction::new_udf(
            list,
            vec![value],
            false,
            filter,
            Vec::new(),
            *null_treatment,
        );
        let name = format!("__collation_list_{at}");
        let column = Expr::Column(Column::new_unqualified(&name));
        let distinct = vec![column.clone(), lit(collation.to_string())];
        let joined =
            vec![self.called(&format!("{PREFIX}array_distinct"), distinct)?, delimiter.clone()];
        let joined = self.called("array_to_string", joined)?;
        let is_there = self.called("array_size", vec![column])?.gt(lit(0_i32));
        let pairs = vec![(Box::new(is_there), Box::new(joined))];
        let typed = Typed { expr: Expr::AggregateFunction(list).alias(name), leaves };
        Ok(Some((typed, Expr::Case(Case::new(None, pairs, None)))))
    }

    /// What `listagg` joins: it is cast to STRING before it comes here, and keeps what it has.
    fn listed(&self, cast: Cast, scope: &Scope<'_>) -> Result<Typed> {
        let Cast { expr, field } = cast;
        let value = self.expr(*expr, scope)?;
        let is_text = scope.type_of(&value.expr).is_ok_and(|of| of.is_string());
        let leaves = match is_text {
            true => value.leaves,
            false => of_type(field.data_type(), Leaf::plain(Strength::Default)),
        };
        let expr = Expr::Cast(Cast { expr: Box::new(value.expr), field });
        Ok(Typed { expr, leaves })
    }

    pub(super) fn window_call(&self, call: WindowFunction, scope: &Scope<'_>) -> Result<Typed> {
        let WindowFunction { fun, params } = call;
        let WindowFunctionParams {
            args,
            partition_by,
            order_by,
            window_frame,
            filter,
            null_treatment,
            distinct,
        } = params;
        let args = args.into_iter().map(|arg| self.expr(arg, scope));
        let args = args.collect::<Result<Vec<_>>>()?;
        let partition_by =
            partition_by.into_iter().map(|key| self.key_in(self.expr(key, scope)?, scope));
        let partition_by = partition_by.collect::<Result<Vec<_>>>()?;
        let order_by = order_by.into_iter().map(|sort| self.sort_key(sort, scope));
        let order_by = order_by.collect::<Result<Vec<_>>>()?;
        let filter = filter.map(|filter| self.expr(*filter, scope)).transpose()?;
        let filter = filter.map(|filter| Box::new(filter.expr));
        let leaves = match fun.name() {
            _ if args.iter().all(|arg| are_plain(&arg.leaves)) => None,
            "count" if !distinct => Some(Leaves::new()),
            "lag" | "lead" => {
                Some(one_of(&args.iter().map(|arg| &arg.leaves).collect::<Vec<_>>())?)
            }
            "array_agg" | "collect_list" | "first_value" | "last_value" | "nth_value"
                if !distinct =>
            {
                args.first().map(|arg| arg.leaves.clone())
            }
            name => return Err(refused(name, &args)),
        };
        let params = WindowFunctionParams {
            args: exprs(args),
            partition_by,
            order_by,
            window_frame,
            filter,
            null_treatment,
            distinct,
        };
        let call = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
        self.computed(call, leaves, scope)
    }

    /// A value that is computed of several rows. Without `leaves` its STRINGs are plain ones.
    fn computed(&self, expr: Expr, leaves: Option<Leaves>, scope: &Scope<'_>) -> Result<Typed> {
        match leaves {
            Some(leaves) => Ok(Typed { expr, leaves: of_column(leaves) }),
            None => self.alike(expr, Some(Leaf::plain(Strength::Implicit)), scope),
        }
    }
}

/// Whether `expr` is `min` or `max` of STRINGs that are not compared byte by byte.
pub(super) fn is_extreme(expr: &Expr) -> bool {
    let is_extreme = |expr: &Expr| {
        Ok(match expr {
            Expr::AggregateFunction(call) => [MIN_FIRST, MAX_FIRST].contains(&call.func.name()),
            _ => false,
        })
    };
    expr.exists(is_extreme).unwrap_or(true)
}

fn exprs(args: Vec<Typed>) -> Vec<Expr> {
    args.into_iter().map(|arg| arg.expr).collect()
}

fn refused(name: &str, args: &[Typed]) -> DataFusionError {
    let error = plan_datafusion_err!(
        "`{name}` is not supported for STRINGs with a collation; write x COLLATE UTF8_BINARY"
    );
    match args.first() {
        Some(arg) => pointed(&arg.expr, error),
        None => error,
    }
}
