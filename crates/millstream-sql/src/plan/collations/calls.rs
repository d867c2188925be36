//! Calls of functions that have a STRING with a collation among their arguments.
//!
//! A function that is not named here is refused then: it may compare texts.

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{BinaryExpr, Case, ScalarFunction};
use datafusion::logical_expr::{Expr, Operator, cast, lit};

use super::compare::determined;
use super::leaves::{Leaf, Leaves, Strength, all_merged, are_plain, of_type, pointed};
use super::scope::Scope;
use super::{Resolver, Typed};
use crate::functions::collated::{COLLATE, COLLATION, KEYS, PREFIX};
use crate::types::collation::{Collation, KNOWN, Letters};

/// What a function does with texts.
enum Rule {
    /// It does not compare them, and gives no text of theirs.
    Blind,
    /// It does not compare them; its result has what the arguments have at these places, or at all.
    Keeps(&'static [usize]),
    /// It compares the arguments at these places, or all, and another function does so here.
    Compares(&'static [usize]),
    /// It is the same, and its result has what these have.
    Chooses(&'static [usize]),
    /// It compares elements of arrays, and can compare their keys.
    ByKeys,
}

fn rule(name: &str) -> Option<Rule> {
    Some(match name {
        "array_size" | "ascii" | "base64" | "bit_length" | "cardinality" | "character_length"
        | "encode" | "format_number" | "is_valid_utf8" | "isnotnull" | "isnull" | "length"
        | "levenshtein" | "luhn_check" | "octet_length" | "size" | "soundex" | "to_binary"
        | "try_to_binary" | "unbase64" => Rule::Blind,
        "array" | "array_to_string" | "coalesce" | "concat" | "concat_ws" | "elt" | "flatten"
        | "lower" | "lpad" | "make_array" | "make_valid_utf8" | "mask" | "nvl" | "overlay"
        | "reverse" | "rpad" | "try_validate_utf8" | "upper" | "validate_utf8" => Rule::Keeps(&[]),
        "__apart" | "array_repeat" | "array_slice" | "format_string" | "left" | "repeat"
        | "right" | "shuffle" | "slice" | "substr" | "substring" => Rule::Keeps(&[0]),
        "nvl2" => Rule::Keeps(&[1, 2]),
        "contains" | "endswith" | "find_in_set" | "instr" | "locate" | "startswith" => {
            Rule::Compares(&[0, 1])
        }
        "array_distinct" | "array_except" | "array_intersect" | "array_union" | "greatest"
        | "initcap" | "least" | "replace" | "translate" => Rule::Chooses(&[]),
        "btrim" | "ltrim" | "rtrim" | "split_part" | "substr_index" => Rule::Chooses(&[0, 1]),
        "array_contains" | "array_has" | "array_position" | "arrays_overlap" => Rule::ByKeys,
        _ => return None,
    })
}

impl Resolver<'_> {
    pub(super) fn call(&self, call: ScalarFunction, scope: &Scope<'_>) -> Result<Typed> {
        let name = call.func.name().to_owned();
        if name == COLLATE {
            return self.collate(call.args, scope);
        }
        let args = call.args.into_iter().map(|arg| self.expr(arg, scope));
        let args = args.collect::<Result<Vec<_>>>()?;
        if name == COLLATION {
            return collation(&args, scope);
        }
        let made = |args: Vec<Expr>| {
            Expr::ScalarFunction(ScalarFunction::new_udf(call.func.clone(), args))
        };
        if args.iter().all(|arg| are_plain(&arg.leaves)) {
            let leaves = args.iter().flat_map(|arg| arg.leaves.iter().copied());
            let leaf = all_merged(leaves)?;
            return self.alike(made(args.into_iter().map(|arg| arg.expr).collect()), leaf, scope);
        }
        match name.as_str() {
            "named_struct" => return Ok(super::parts::structure(args, made)),
            "get_field" => return super::parts::field(args, made, scope),
            "at_index" | "element_at" | "get" | "try_element_at" => {
                return super::parts::item(args, made, scope);
            }
            "nullif" => return self.null_if(args, scope),
            "typeof" => return type_of(&args, scope),
            _ => {}
        }
        let given = args.first().map(|arg| arg.expr.clone());
        let answer = match rule(&name) {
            Some(rule) => self.by_rule(&name, rule, args, made, scope),
            None => Err(refused(&name)),
        };
        answer.map_err(|error| match &given {
            Some(given) => pointed(given, error),
            None => error,
        })
    }

    fn by_rule(
        &self,
        name: &str,
        rule: Rule,
        args: Vec<Typed>,
        made: impl Fn(Vec<Expr>) -> Expr,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let of = match rule {
            Rule::Blind | Rule::ByKeys => &[][..],
            Rule::Keeps(of) | Rule::Compares(of) | Rule::Chooses(of) => of,
        };
        let is_meant = |at: &usize| of.is_empty() || of.contains(at);
        let meant = args.iter().enumerate().filter(|(at, _)| is_meant(at));
        let leaf = all_merged(meant.flat_map(|(_, arg)| arg.leaves.iter().copied()));
        let plain = |typed: Vec<Typed>| typed.into_iter().map(|arg| arg.expr).collect::<Vec<_>>();
        let types = args.iter().map(|arg| scope.type_of(&arg.expr));
        let types = types.collect::<Result<Vec<_>>>()?;
        let is_of_arrays = name.starts_with("array_");
        let is_plain_array = |of: &DataType| match of {
            DataType::List(item) => item.data_type().is_string() || item.data_type().is_null(),
            _ => false,
        };
        match rule {
            Rule::Blind => {
                if name == "levenshtein" {
                    leaf?;
                }
                self.alike(made(plain(args)), Some(Leaf::plain(Strength::Implicit)), scope)
            }
            Rule::Keeps(_) if args.iter().any(|arg| arg.leaves.len() > 1) => Err(refused(name)),
            Rule::Keeps(_) => {
                let leaf = leaf?;
                let changes_case = matches!(name, "lower" | "upper");
                if changes_case && has_own_capitals(collation_in(leaf)?) {
                    return Err(refused(name));
                }
                self.kept(made(plain(args)), leaf, scope)
            }
            Rule::ByKeys => {
                let collation = collation_in(leaf?)?;
                let keyed = args.into_iter().map(|arg| self.keyed(arg, collation, scope));
                let expr = made(keyed.collect::<Result<_>>()?);
                Ok(Typed { expr, leaves: Leaves::new() })
            }
            Rule::Chooses(_) if is_of_arrays && !types.iter().all(is_plain_array) => {
                Err(refused(name))
            }
            _ if !is_of_arrays && types.iter().any(DataType::is_nested) => Err(refused(name)),
            Rule::Compares(_) | Rule::Chooses(_) => {
                let leaf = leaf?;
                let expr = self.other(name, plain(args), collation_in(leaf)?, &made)?;
                match rule {
                    Rule::Chooses(_) => self.kept(expr, leaf, scope),
                    _ => Ok(Typed { expr, leaves: Leaves::new() }),
                }
            }
        }
    }

    /// A result whose STRINGs have what `leaf` has; its type must be known.
    fn kept(&self, expr: Expr, leaf: Option<Leaf>, scope: &Scope<'_>) -> Result<Typed> {
        let of = scope.type_of(&expr)?;
        let leaves = of_type(&of, leaf.unwrap_or(Leaf::plain(Strength::Default)));
        Ok(Typed { expr, leaves })
    }

    /// The call of the function that knows the collation.
    fn other(
        &self,
        name: &str,
        mut args: Vec<Expr>,
        collation: Collation,
        made: impl Fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let is_trim = matches!(name, "btrim" | "ltrim" | "rtrim");
        let by_keys =
            matches!(name, "find_in_set" | "greatest" | "least") || name.starts_with("array_");
        let is_same = collation.is_binary()
            || (is_trim && args.len() == 1)
            || (name == "initcap" && collation.letters == Letters::Bytes);
        // Spark trims before the blanks at the end, and keeps these.
        if is_trim && args.len() == 2 && collation.trims && collation.letters == Letters::Bytes {
            return Err(refused(name));
        }
        if is_same {
            return Ok(made(args));
        }
        if !by_keys && !collation.is_by_characters() {
            return Err(refused(name));
        }
        match (name, args.len()) {
            ("locate", 2) => args.push(lit(1_i32)),
            ("replace", 2) => args.push(lit("")),
            _ => {}
        }
        args.push(lit(collation.to_string()));
        self.called(&format!("{PREFIX}{name}"), args)
    }

    /// The key of a text, or the keys of those in an array.
    fn keyed(&self, arg: Typed, collation: Collation, scope: &Scope<'_>) -> Result<Expr> {
        match scope.type_of(&arg.expr)? {
            _ if collation.is_binary() => Ok(arg.expr),
            DataType::List(item) if item.data_type().is_string() || item.data_type().is_null() => {
                self.called(KEYS, vec![arg.expr, lit(collation.to_string())])
            }
            of if of.is_string() || of.is_null() => self.key(arg.expr, collation),
            _ => plan_err!("arrays of more than STRINGs with a collation cannot be compared here"),
        }
    }

    /// `text COLLATE name`.
    fn collate(&self, args: Vec<Expr>, scope: &Scope<'_>) -> Result<Typed> {
        let [value, name] = <[Expr; 2]>::try_from(args).map_err(|args| {
            plan_datafusion_err!("collate takes 2 arguments, not {}", args.len())
        })?;
        let name = match &name {
            Expr::Literal(name, _) => name.try_as_str().flatten(),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("collate takes the name of a collation as a literal: 'UTF8_LCASE'");
        };
        let Some(collation) = Collation::parse(name) else {
            return plan_err!(
                "there is no collation `{name}` (COLLATION_INVALID_NAME); the collations are \
                 {KNOWN}"
            );
        };
        let value = self.expr(value, scope)?;
        let expr = match scope.type_of(&value.expr)? {
            of if of.is_string() => value.expr,
            of if of.is_null() => cast(value.expr, DataType::Utf8),
            of => {
                let of = crate::types::spark_type(&of);
                let error = plan_datafusion_err!("a {of} has no collation; CAST it to STRING");
                return Err(pointed(&value.expr, error));
            }
        };
        let leaf = Leaf { collation, strength: Strength::Explicit };
        Ok(Typed { expr, leaves: vec![leaf] })
    }

    fn null_if(&self, args: Vec<Typed>, scope: &Scope<'_>) -> Result<Typed> {
        let [value, other] = <[Typed; 2]>::try_from(args)
            .map_err(|args| plan_datafusion_err!("nullif takes 2 arguments, not {}", args.len()))?;
        let (leaves, of) = (value.leaves.clone(), scope.type_of(&value.expr)?);
        let sides = [(of.clone(), &value.leaves), (scope.type_of(&other.expr)?, &other.leaves)];
        let found = self.collation_of(&sides).map_err(|error| pointed(&value.expr, error))?;
        let then = value.expr.clone();
        let (left, right) = match found {
            None => (value.expr, other.expr),
            Some(collation) => (self.key(value.expr, collation)?, self.key(other.expr, collation)?),
        };
        let (left, right) = (Box::new(left), Box::new(right));
        let equal = Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right });
        let null = cast(Expr::Literal(ScalarValue::Null, None), of);
        let pairs = vec![(Box::new(equal), Box::new(null))];
        Ok(Typed { expr: Expr::Case(Case::new(None, pairs, Some(Box::new(then)))), leaves })
    }
}

/// The collation to compare by; that of bytes where there is no STRING.
fn collation_in(leaf: Option<Leaf>) -> Result<Collation> {
    leaf.map_or(Ok(Collation::default()), determined)
}

/// Whether the capitals of some letters are others than elsewhere.
fn has_own_capitals(collation: Collation) -> bool {
    matches!(collation.letters, Letters::Unicode(unicode) if !unicode.has_common_capitals())
}

fn refused(name: &str) -> DataFusionError {
    plan_datafusion_err!(
        "`{name}` is not supported for STRINGs with a collation; write x COLLATE UTF8_BINARY for \
         each of them"
    )
}

/// `collation(text)`.
fn collation(args: &[Typed], scope: &Scope<'_>) -> Result<Typed> {
    let [value] = args else {
        return plan_err!("collation takes 1 argument, not {}", args.len());
    };
    let of = scope.type_of(&value.expr)?;
    let collation = match value.leaves.as_slice() {
        [leaf] if of.is_string() => {
            determined(*leaf).map_err(|error| pointed(&value.expr, error))?
        }
        [] if of.is_null() => Collation::default(),
        _ => {
            let of = crate::types::spark_type(&of);
            let error = plan_datafusion_err!("a {of} has no collation; CAST it to STRING");
            return Err(pointed(&value.expr, error));
        }
    };
    let leaves = vec![Leaf::plain(Strength::Default)];
    Ok(Typed { expr: lit(collation.full_name()), leaves })
}

/// `typeof(text)`.
fn type_of(args: &[Typed], scope: &Scope<'_>) -> Result<Typed> {
    match args {
        [Typed { expr, leaves }] if scope.type_of(expr)?.is_string() => {
            let name = format!("string collate {}", determined(leaves[0])?);
            Ok(Typed { expr: lit(name), leaves: vec![Leaf::plain(Strength::Default)] })
        }
        _ => Err(refused("typeof")),
    }
}
