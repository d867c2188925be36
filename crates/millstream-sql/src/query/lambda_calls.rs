//! Calls of functions that take a function: how many parameters it has, and what stands in its
//! place where nothing is a parameter.
//!
//! `transform(a, 0)` is `transform(a, x -> 0)`.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, Spanned,
};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::ast::{arguments, function_name, rename};
use crate::diagnostic::Diagnostic;
use crate::functions::lambda_sorts::SORTED_BY;
use crate::syntax::cursor::Cursor;
use crate::syntax::lexer::{Lexed, Lexeme};

/// The names of a function's parameters in lower case, by which DataFusion knows them.
pub(super) fn parameters(lambda: &mut LambdaFunction) -> Vec<String> {
    let parameters = match &mut lambda.params {
        OneOrManyWithParens::One(parameter) => std::slice::from_mut(parameter),
        OneOrManyWithParens::Many(parameters) => parameters.as_mut_slice(),
    };
    let names = parameters.iter_mut().map(|parameter| {
        parameter.name.value = parameter.name.value.to_lowercase();
        parameter.name.value.clone()
    });
    names.collect()
}

/// A function, how many values come before its functions, and how many parameters each of those
/// has, at least and at most.
struct Shape {
    name: &'static str,
    values: usize,
    parameters: &'static [(usize, usize)],
}

const fn shape(name: &'static str, values: usize, parameters: &'static [(usize, usize)]) -> Shape {
    Shape { name, values, parameters }
}

const SHAPES: &[Shape] = &[
    shape("transform", 1, &[(1, 2)]),
    shape("filter", 1, &[(1, 2)]),
    shape("aggregate", 2, &[(2, 2), (1, 1)]),
    shape("reduce", 2, &[(2, 2), (1, 1)]),
    shape("exists", 1, &[(1, 1)]),
    shape("forall", 1, &[(1, 1)]),
    shape("zip_with", 2, &[(2, 2)]),
    shape("transform_keys", 1, &[(2, 2)]),
    shape("transform_values", 1, &[(2, 2)]),
    shape("map_filter", 1, &[(2, 2)]),
    shape("map_zip_with", 2, &[(3, 3)]),
    shape(SORTED_BY, 1, &[(2, 2)]),
];

/// Checks the functions of a call, and makes functions of values that stand in their places.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = expr else { return Ok(()) };
    sorted_by(function);
    let name = function_name(function);
    let Some(shape) = SHAPES.iter().find(|shape| shape.name == name) else { return Ok(()) };
    let given = arguments(function).count();
    let most = shape.values + shape.parameters.len();
    if given <= shape.values || given > most {
        return Ok(());
    }
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    for (arg, (least, most)) in list.args[shape.values..].iter_mut().zip(shape.parameters) {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else { continue };
        match arg {
            Expr::Lambda(lambda) => {
                let given = lambda.params.len();
                if !(*least..=*most).contains(&given) {
                    let wanted = if least == most {
                        least.to_string()
                    } else {
                        format!("{least} to {most}")
                    };
                    let name = if name == SORTED_BY { "array_sort" } else { name.as_str() };
                    let message =
                        format!("the function of `{name}` has {wanted} parameters, not {given}");
                    let span = lexed.span(lambda.body.span());
                    return Err(Diagnostic { span, ..Diagnostic::nowhere(message) });
                }
            }
            constant => *constant = of_nothing(constant.clone(), *least),
        }
    }
    Ok(())
}

/// `array_sort` with a function that compares two elements is another one than that without.
fn sorted_by(function: &mut Function) {
    let has_order = matches!(arguments(function).nth(1), Some(Expr::Lambda(_)));
    if has_order && function_name(function) == "array_sort" {
        rename(function, SORTED_BY);
    }
}

/// A function that does not look at its parameters.
fn of_nothing(body: Expr, parameters: usize) -> Expr {
    let parameter = |at: usize| LambdaFunctionParameter {
        name: Ident::new(format!("__unused_{at}")),
        data_type: None,
    };
    Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::Many((0..parameters).map(parameter).collect()),
        body: Box::new(body),
        syntax: LambdaSyntax::Arrow,
    })
}

/// Whether `EXISTS (` comes next. If no query is in the parenthesis it is a function's name, which
/// sqlparser must see in quotation marks.
pub(super) fn is_exists_call(cursor: &Cursor<'_>) -> bool {
    cursor.is_word("EXISTS")
        && cursor.nth(1).is_some_and(|next| next.token == Token::LParen)
        && !cursor.nth(2).is_some_and(|next| next.is_word("TABLE") || next.is_word("FROM"))
}

/// Whether `ARRAY((` or `ARRAY(SELECT` comes next. sqlparser would take what is in the parenthesis
/// for a query whose rows are the elements, unless it sees the name in quotation marks; to Spark
/// `array((SELECT 1), 2)` has elements as any call has arguments.
pub(super) fn is_array_of_query(cursor: &Cursor<'_>) -> bool {
    let is_query = |next: &Lexeme| {
        next.token == Token::LParen
            || ["SELECT", "WITH", "VALUES"].iter().any(|word| next.is_word(word))
    };
    cursor.is_word("ARRAY")
        && cursor.nth(1).is_some_and(|next| next.token == Token::LParen)
        && cursor.nth(2).is_some_and(is_query)
}
