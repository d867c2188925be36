//! Whether an object is what a schema says.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::Value;

use super::numbers::{canonical, compare, equal};
use super::{DEPTH_MAX, JsonSchema};

/// Schemas that a row is compared with at most, besides some for each value in it. Alternatives
/// within alternatives double with each level.
const STEPS_MAX: usize = 1_000_000;
const STEPS_PER_VALUE: usize = 1_000;

/// What is wrong with a value, and where: the innermost name first.
struct Fault {
    path: Vec<String>,
    problem: String,
    /// Whether it ends the check, also where a value may be something else instead.
    ends: bool,
}

impl Fault {
    fn within(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self
    }
}

fn fault(problem: impl Into<String>) -> Fault {
    Fault { path: Vec::new(), problem: problem.into(), ends: false }
}

type Checked = Result<(), Fault>;

impl JsonSchema {
    /// Whether a row's object is what the schema says.
    ///
    /// # Errors
    /// The column that is not, in words.
    pub fn check(&self, object: &Value) -> Result<(), String> {
        let steps_left = STEPS_MAX + STEPS_PER_VALUE * values_in(object);
        let mut check = Check { schema: self, steps_left };
        check.value(object, self.root(), 0).map_err(|mut fault| {
            fault.path.reverse();
            match fault.path.is_empty() {
                true => fault.problem,
                false => format!("column {}: {}", fault.path.join("."), fault.problem),
            }
        })
    }
}

/// The check of one row.
struct Check<'a> {
    schema: &'a JsonSchema,
    steps_left: usize,
}

impl<'a> Check<'a> {
    fn value(&mut self, value: &Value, schema: &'a Value, depth: usize) -> Checked {
        if depth > DEPTH_MAX {
            return Err(fault("the schema's references do not end"));
        }
        let Some(left) = self.steps_left.checked_sub(1) else {
            let problem = "the schema takes too long to check; write by one with fewer \
                           alternatives within alternatives";
            return Err(Fault { ends: true, ..fault(problem) });
        };
        self.steps_left = left;
        let depth = depth + 1;
        let Value::Object(keywords) = schema else {
            let allows = schema != &Value::Bool(false);
            return if allows { Ok(()) } else { Err(fault("the schema allows no value here")) };
        };
        if let Some(schema) = keywords.get("$ref").and_then(|it| self.schema.referred(it)) {
            self.value(value, schema, depth)?;
        }
        if let Some(types) = keywords.get("type")
            && !is_of(value, types)
        {
            let found = excerpt(value);
            return Err(fault(format!("{found} is not of the schema's type {types}")));
        }
        if let Some(Value::Array(all)) = keywords.get("enum")
            && !all.iter().any(|one| equal(one, value))
        {
            let found = excerpt(value);
            return Err(fault(format!("{found} is none of the values that the schema lists")));
        }
        if let Some(one) = keywords.get("const")
            && !equal(one, value)
        {
            return Err(fault(format!("{} is not the schema's {one}", excerpt(value))));
        }
        self.alternatives_of(value, schema, depth)?;
        match value {
            Value::Object(object) => self.object(object, schema, depth),
            Value::Array(items) => self.array(items, schema, depth),
            Value::String(text) => {
                size(text.chars().count(), schema, ["minLength", "maxLength"], "characters")
            }
            Value::Number(number) => range(number, schema),
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn alternatives_of(&mut self, value: &Value, schema: &'a Value, depth: usize) -> Checked {
        let all = |name: &str| schema.get(name).and_then(Value::as_array);
        for one in all("allOf").into_iter().flatten() {
            self.value(value, one, depth)?;
        }
        if let Some(any) = all("anyOf")
            && self.count(value, any, depth, 1)? == 0
        {
            return Err(fault(format!("{} is none of 'anyOf'", excerpt(value))));
        }
        let Some(one) = all("oneOf") else { return Ok(()) };
        match self.count(value, one, depth, usize::MAX)? {
            1 => Ok(()),
            found => {
                let value = excerpt(value);
                Err(fault(format!("{value} is {found} of 'oneOf' instead of one")))
            }
        }
    }

    /// How many of some schemas a value is, up to `most`.
    fn count(
        &mut self,
        value: &Value,
        all: &'a [Value],
        depth: usize,
        most: usize,
    ) -> Result<usize, Fault> {
        let mut found = 0;
        for one in all {
            match self.value(value, one, depth) {
                Ok(()) => found += 1,
                Err(fault) if fault.ends => return Err(fault),
                Err(_) => {}
            }
            if found == most {
                break;
            }
        }
        Ok(found)
    }

    fn object(&mut self, object: &Object, schema: &'a Value, depth: usize) -> Checked {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !object.contains_key(name) {
                return Err(fault("null, but the schema requires a value").within(name));
            }
        }
        let properties = schema.get("properties");
        for (name, value) in object {
            let property = properties.and_then(|all| all.get(name));
            if let Some(schema) = property.or_else(|| schema.get("additionalProperties")) {
                self.value(value, schema, depth).map_err(|fault| fault.within(name))?;
            }
        }
        size(object.len(), schema, ["minProperties", "maxProperties"], "properties")
    }

    fn array(&mut self, items: &[Value], schema: &'a Value, depth: usize) -> Checked {
        if let Some(of) = schema.get("items") {
            let mut items = items.iter();
            items.try_for_each(|item| self.value(item, of, depth))?;
        }
        let mut seen = HashSet::new();
        if schema.get("uniqueItems") == Some(&Value::Bool(true))
            && !items.iter().all(|item| seen.insert(canonical(item)))
        {
            return Err(fault("an element is there twice, and the schema does not allow that"));
        }
        size(items.len(), schema, ["minItems", "maxItems"], "elements")
    }
}

type Object = serde_json::Map<String, Value>;

fn is_of(value: &Value, types: &Value) -> bool {
    let is = |name: &Value| match (name.as_str().unwrap_or_default(), value) {
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        ("integer", Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        _ => false,
    };
    match types {
        Value::Array(several) => several.iter().any(is),
        one => is(one),
    }
}

fn size(found: usize, schema: &Value, [least, most]: [&str; 2], what: &str) -> Checked {
    let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
    let found = found as u64;
    if limit(least).is_some_and(|least| found < least) {
        return Err(fault(format!("{found} {what} are fewer than the schema's '{least}'")));
    }
    if limit(most).is_some_and(|most| found > most) {
        return Err(fault(format!("{found} {what} are more than the schema's '{most}'")));
    }
    Ok(())
}

fn range(number: &serde_json::Number, schema: &Value) -> Checked {
    let limit = |name: &str| match schema.get(name) {
        Some(Value::Number(limit)) => compare(number, limit),
        _ => None,
    };
    let is_within = |(name, beside_limit): (&str, Ordering)| match name {
        "minimum" => beside_limit.is_ge(),
        "maximum" => beside_limit.is_le(),
        "exclusiveMinimum" => beside_limit.is_gt(),
        _ => beside_limit.is_lt(),
    };
    let names = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    let mut limits = names.into_iter().filter_map(|name| Some((name, limit(name)?)));
    let beyond = limits.find(|limit| !is_within(*limit));
    match beyond {
        Some((name, _)) => Err(fault(format!("{number} is beyond the schema's '{name}'"))),
        None => Ok(()),
    }
}

/// How many values there are in one, with itself.
fn values_in(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values_in).sum::<usize>(),
        Value::Object(object) => 1 + object.values().map(values_in).sum::<usize>(),
        _ => 1,
    }
}

fn excerpt(value: &Value) -> String {
    crate::excerpt(value.to_string().as_bytes())
}
