//! JSON Schemas, as far as rows are written by them: which one columns have, whether columns fit
//! one, and whether an object is what one says.
//!
//! Of the standard's keywords those are known that say what values are; a schema with another
//! one that restricts values is refused, since nobody would check it. Keywords that restrict
//! nothing, such as `title` and `format`, are passed over.
//!
//! - [`derive`]: columns to a schema. [`fit`], [`decimals`]: columns beside a schema. [`check`]: an
//!   object. [`numbers`]: which values are the same.

mod check;
mod decimals;
mod derive;
mod fit;
mod numbers;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::Value;

/// Keywords that restrict values in ways that are not checked here.
const UNCHECKED: [&str; 20] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "divisibleBy",
    "else",
    "extends",
    "if",
    "multipleOf",
    "not",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Schemas within schemas, references followed.
const DEPTH_MAX: usize = 64;

/// A schema that was understood.
#[derive(Debug)]
pub(super) struct JsonSchema {
    root: Value,
}

impl JsonSchema {
    /// From its text.
    ///
    /// # Errors
    /// It is no schema, or has keywords that are not checked, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let root = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let schema = Self { root };
        // What is referred to may be under any keyword, so that the rest does not lead there.
        let mut vetting = Vetting { seen: HashSet::new(), left: vec![("#", &schema.root)] };
        while let Some((at, part)) = vetting.left.pop() {
            schema.vet(part, at, 0, &mut vetting)?;
        }
        Ok(schema)
    }

    fn vet<'a>(
        &'a self,
        schema: &'a Value,
        at: &str,
        depth: usize,
        vetting: &mut Vetting<'a>,
    ) -> Result<(), String> {
        if !vetting.seen.insert(std::ptr::from_ref(schema)) {
            return Ok(());
        }
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) if depth < DEPTH_MAX => keywords,
            Value::Object(_) => return Err(format!("{at}: schemas are nested too deep")),
            _ => return Err(format!("{at}: a schema is an object, true or false")),
        };
        for (keyword, value) in keywords {
            let at = format!("{at}/{keyword}");
            match (keyword.as_str(), value) {
                (unchecked, _) if UNCHECKED.contains(&unchecked) => {
                    return Err(format!("{at}: values are not checked by this keyword here"));
                }
                ("properties" | "definitions" | "$defs", Value::Object(parts)) => {
                    let mut parts = parts.iter();
                    parts.try_for_each(|(name, part)| {
                        self.vet(part, &format!("{at}/{name}"), depth + 1, vetting)
                    })?;
                }
                ("items" | "additionalProperties", part) => {
                    self.vet(part, &at, depth + 1, vetting)?;
                }
                ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
                    let mut parts = parts.iter();
                    parts.try_for_each(|part| self.vet(part, &at, depth + 1, vetting))?;
                }
                _ if is_well_formed(keyword, value) => {}
                _ => return Err(format!("{at}: the keyword cannot have this value")),
            }
        }
        if let Some(reference) = keywords.get("$ref") {
            let target = reference.as_str().zip(self.referred(reference));
            let target = target
                .ok_or_else(|| format!("{at}/$ref: {reference} is not in the schema itself"))?;
            vetting.left.push(target);
        }
        Ok(())
    }

    fn root(&self) -> &Value {
        &self.root
    }

    /// The names of the properties of a row, whichever of several schemas it is.
    pub fn property_names(&self) -> Vec<String> {
        let applied = self.applied(vec![&self.root]);
        let all = applied.iter().filter_map(|schema| schema.get("properties")?.as_object());
        all.flat_map(|properties| properties.keys().cloned()).collect()
    }

    /// All schemas that say something of the same value: `schemas`, what they refer to, and
    /// those of which a value has to be one or all. Each once.
    fn applied<'a>(&'a self, schemas: Vec<&'a Value>) -> Vec<&'a Value> {
        let (mut left, mut all, mut seen) = (schemas, Vec::new(), HashSet::new());
        while let Some(schema) = left.pop() {
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            all.push(schema);
            left.extend(schema.get("$ref").and_then(|it| self.referred(it)));
            let several = ["anyOf", "oneOf", "allOf"].into_iter();
            let several = several.filter_map(|name| schema.get(name)?.as_array());
            left.extend(several.flatten());
        }
        all
    }

    /// What `$ref` stands for.
    fn referred(&self, reference: &Value) -> Option<&Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer).filter(|it| it.is_object() || it.is_boolean())
    }
}

/// Which parts of a schema were looked at, and which it refers to.
struct Vetting<'a> {
    seen: HashSet<*const Value>,
    left: Vec<(&'a str, &'a Value)>,
}

/// Whether a keyword that is looked at has a value of the kind that it is looked at as.
fn is_well_formed(keyword: &str, value: &Value) -> bool {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match keyword {
        "type" => is_type(value) || value.as_array().is_some_and(|all| all.iter().all(is_type)),
        "required" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        "enum" => value.is_array(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "uniqueItems" => value.is_boolean(),
        "$ref" => value.is_string(),
        "properties" | "definitions" | "$defs" | "anyOf" | "oneOf" | "allOf" => false,
        _ => true,
    }
}
