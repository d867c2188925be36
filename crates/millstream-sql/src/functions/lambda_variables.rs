//! The variables of functions in a query (`x -> x + 1`), with the types that their values have by
//! now.
//!
//! A variable keeps the type that it had when the query was planned. All whole numbers in a query
//! were BIGINTs then; since they have Spark's types, `sequence(0, 2)` is an array of INTs.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{HigherOrderFunction, Lambda};
use datafusion::logical_expr::type_coercion::functions::value_fields_with_higher_order_udf;
use datafusion::logical_expr::{
    Expr, ExprSchemable, HigherOrderUDF, LambdaParametersProgress, ValueOrLambda,
};

/// `expr`, changed from the inside out. Where a call takes functions its values are changed before
/// these, so that their variables are of the types that the values have then.
pub(super) fn transform_up<F>(
    expr: Expr,
    schema: &DFSchema,
    change: &F,
) -> Result<Transformed<Expr>>
where
    F: Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
{
    expr.transform_down_up(
        |expr| match expr {
            Expr::HigherOrderFunction(call) => {
                of_call(call, schema, |part| transform_up(part, schema, change))
            }
            other => Ok(Transformed::no(other)),
        },
        |expr| change(expr, schema),
    )
}

/// A call whose parts are changed by `change`; what is around it goes on behind them.
fn of_call(
    call: HigherOrderFunction,
    schema: &DFSchema,
    change: impl Fn(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    let HigherOrderFunction { func, mut args } = call;
    let mut changed = false;
    for arg in args.iter_mut().filter(|arg| !matches!(arg, Expr::Lambda(_))) {
        let value = change(std::mem::take(arg))?;
        changed |= value.transformed;
        *arg = value.data;
    }
    let mut fields = parameters(&func, &args, schema)?.into_iter();
    for arg in &mut args {
        let Expr::Lambda(Lambda { params, body }) = arg else { continue };
        let variables = params.iter().cloned().zip(fields.next().unwrap_or_default());
        let body_typed = typed(std::mem::take(body.as_mut()), &variables.collect::<Vec<_>>())?;
        let body_changed = change(body_typed.data)?;
        changed |= body_typed.transformed || body_changed.transformed;
        **body = body_changed.data;
    }
    let call = Expr::HigherOrderFunction(HigherOrderFunction::new(func, args));
    Ok(Transformed::new(call, changed, TreeNodeRecursion::Jump))
}

/// The fields of the parameters of each function among `args`.
fn parameters(
    func: &HigherOrderUDF,
    args: &[Expr],
    schema: &DFSchema,
) -> Result<Vec<Vec<FieldRef>>> {
    let mut given: Vec<ValueOrLambda<FieldRef, Option<FieldRef>>> = Vec::with_capacity(args.len());
    for arg in args {
        given.push(match arg {
            Expr::Lambda(_) => ValueOrLambda::Lambda(None),
            value => ValueOrLambda::Value(value.to_field(schema)?.1),
        });
    }
    let given = value_fields_with_higher_order_udf(&given, func)?;
    match func.lambda_parameters(0, &given)? {
        LambdaParametersProgress::Complete(parameters) => Ok(parameters),
        // Those of Spark's functions follow from the values alone.
        LambdaParametersProgress::Partial(_) => Ok(Vec::new()),
    }
}

/// `body`, in which these variables have these fields, but where a function within it has a
/// parameter of the same name.
fn typed(body: Expr, variables: &[(String, FieldRef)]) -> Result<Transformed<Expr>> {
    body.transform_down(|expr| match expr {
        Expr::LambdaVariable(mut variable) => {
            let found = variables.iter().find(|(name, _)| *name == variable.name);
            let Some((name, field)) = found else {
                return Ok(Transformed::no(Expr::LambdaVariable(variable)));
            };
            let field = Some(Arc::new(field.as_ref().clone().with_name(name)));
            let changed = variable.field != field;
            variable.field = field;
            Ok(Transformed::new_transformed(Expr::LambdaVariable(variable), changed))
        }
        Expr::Lambda(Lambda { params, body }) => {
            let seen = variables.iter().filter(|(name, _)| !params.contains(name));
            let body = typed(*body, &seen.cloned().collect::<Vec<_>>())?;
            let lambda = Expr::Lambda(Lambda { params, body: Box::new(body.data) });
            Ok(Transformed::new(lambda, body.transformed, TreeNodeRecursion::Jump))
        }
        other => Ok(Transformed::no(other)),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::col;
    use datafusion::logical_expr::expr::LambdaVariable;

    use super::*;

    fn list(of: DataType) -> DataType {
        DataType::new_list(of, true)
    }

    fn schema() -> DFSchema {
        let fields = vec![
            Field::new("numbers", list(DataType::Int32), true),
            Field::new("lists", list(list(DataType::Int32)), true),
            Field::new("texts", list(DataType::Utf8), true),
        ];
        DFSchema::try_from(Schema::new(fields)).expect("names differ")
    }

    /// A variable as it was planned, when it was a BIGINT.
    fn planned(name: &str) -> Expr {
        let field = Arc::new(Field::new(name, DataType::Int64, true));
        Expr::LambdaVariable(LambdaVariable::new(name.to_owned(), Some(field)))
    }

    fn transform(values: Expr, name: &str, body: Expr) -> Expr {
        let functions = crate::functions::lambdas::functions();
        let function = functions.into_iter().find(|function| function.name() == "transform");
        let function = function.expect("there is such a function");
        let lambda = Expr::Lambda(Lambda::new(vec![name.to_owned()], body));
        Expr::HigherOrderFunction(HigherOrderFunction::new(function, vec![values, lambda]))
    }

    fn unchanged(expr: Expr, _: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(Transformed::no(expr))
    }

    fn type_of(expr: Expr) -> DataType {
        let schema = schema();
        let made = transform_up(expr, &schema, &unchanged).expect("its types are known").data;
        made.get_type(&schema).expect("it has a type")
    }

    #[test]
    fn a_variable_is_of_the_type_of_the_elements() {
        assert_eq!(type_of(transform(col("numbers"), "x", planned("x"))), list(DataType::Int32));
        let inner = transform(planned("x"), "y", planned("y"));
        assert_eq!(type_of(transform(col("lists"), "x", inner)), list(list(DataType::Int32)));
        let outer = transform(transform(col("numbers"), "x", planned("x")), "y", planned("y"));
        assert_eq!(type_of(outer), list(DataType::Int32));
    }

    #[test]
    fn a_variable_hides_another_one_of_its_name() {
        let inner = transform(col("texts"), "x", planned("x"));
        assert_eq!(type_of(transform(col("numbers"), "x", inner)), list(list(DataType::Utf8)));
        let inner = transform(col("texts"), "y", planned("x"));
        assert_eq!(type_of(transform(col("numbers"), "x", inner)), list(list(DataType::Int32)));
    }
}
