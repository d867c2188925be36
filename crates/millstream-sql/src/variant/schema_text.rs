//! Reads what [`Schema::write`] writes: the partial state of an aggregate is a text.

use super::schema::Schema;

/// How deep types stand in each other at most.
const DEPTH_MAX: usize = 1_100;

const SIMPLE: [&str; 11] = [
    "BIGINT",
    "BINARY",
    "BOOLEAN",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "STRING",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "UUID",
    "VARIANT",
];

/// The type that a text is; `None` if it is none.
pub(crate) fn read(text: &str) -> Option<Schema> {
    let mut rest = text;
    let schema = part(&mut rest, 0)?;
    rest.is_empty().then_some(schema)
}

fn eat(rest: &mut &str, what: &str) -> bool {
    match rest.strip_prefix(what) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn part(rest: &mut &str, depth: usize) -> Option<Schema> {
    if depth > DEPTH_MAX {
        return None;
    }
    if eat(rest, "ARRAY<") {
        let element = part(rest, depth + 1)?;
        return eat(rest, ">").then(|| Schema::Array(Box::new(element)));
    }
    if eat(rest, "OBJECT<") {
        return object(rest, depth + 1);
    }
    if eat(rest, "DECIMAL(") {
        let (digits, after) = rest.split_once(')')?;
        *rest = after;
        let (precision, scale) = digits.split_once(',')?;
        return Some(Schema::Decimal(precision.parse().ok()?, scale.parse().ok()?));
    }
    let end = rest.find([',', '>']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    *rest = after;
    if name == "VOID" {
        return Some(Schema::Void);
    }
    SIMPLE.into_iter().find(|simple| *simple == name).map(Schema::Simple)
}

fn object(rest: &mut &str, depth: usize) -> Option<Schema> {
    let mut fields = Vec::new();
    if eat(rest, ">") {
        return Some(Schema::Object(fields));
    }
    loop {
        let name = name(rest)?;
        if !eat(rest, ": ") {
            return None;
        }
        fields.push((name, part(rest, depth)?));
        if eat(rest, ">") {
            return Some(Schema::Object(fields));
        }
        if !eat(rest, ", ") {
            return None;
        }
    }
}

/// A name, which stands in backticks unless it is a plain word.
fn name(rest: &mut &str) -> Option<String> {
    if !eat(rest, "`") {
        let (name, _) = rest.split_once(':')?;
        *rest = &rest[name.len()..];
        return Some(name.to_owned());
    }
    let mut name = String::new();
    loop {
        let end = rest.find('`')?;
        name.push_str(&rest[..end]);
        *rest = &rest[end + 1..];
        // Two of them are one in the name.
        if !eat(rest, "`") {
            return Some(name);
        }
        name.push('`');
    }
}
