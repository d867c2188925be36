//! Which module of a crate imports which, as its text says.
//!
//! A path in code (`use crate::a::B`, `super::b::c()`) names a module of the same crate; a name
//! that a module only re-exports is followed to the module that defines it. Comments, literals and
//! what is compiled for tests only do not count.

use std::collections::{BTreeMap, BTreeSet};

/// A module by its names from the crate's root, which itself is empty.
pub type Module = Vec<String>;

/// By module, those that it imports from.
pub type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The imports between the modules of one crate, given with their texts.
pub fn imports(sources: &BTreeMap<Module, String>) -> Imports {
    let paths: BTreeMap<&Module, Vec<Path>> =
        sources.iter().map(|(module, text)| (module, paths(module, text, sources))).collect();
    let mut exports: BTreeMap<(&Module, &str), &Module> = BTreeMap::new();
    for (module, paths) in &paths {
        for path in paths.iter().filter(|path| path.is_exported) {
            if let Some(name) = path.names.last() {
                exports.insert((module, path.alias.as_ref().unwrap_or(name)), &path.names);
            }
        }
    }
    let of = |(module, paths): (&&Module, &Vec<Path>)| {
        let imported = paths.iter().map(|path| defining(&path.names, sources, &exports, 0));
        ((*module).clone(), imported.filter(|imported| imported != *module).collect())
    };
    paths.iter().map(of).collect()
}

/// The module that defines what `names` lead to.
fn defining(
    names: &[String],
    sources: &BTreeMap<Module, String>,
    exports: &BTreeMap<(&Module, &str), &Module>,
    steps: usize,
) -> Module {
    let length = (0..=names.len()).rev().find(|length| sources.contains_key(&names[..*length]));
    let module = names[..length.unwrap_or(0)].to_vec();
    let Some(name) = names.get(module.len()) else { return module };
    match exports.get(&(&module, name)) {
        // A circle of re-exports does not compile; the bound is for texts that look like one.
        Some(from) if steps < 8 => {
            let rest = &names[module.len() + 1..];
            defining(&[from, rest].concat(), sources, exports, steps + 1)
        }
        _ => module,
    }
}

/// A path in a module's text, from the crate's root.
struct Path {
    names: Vec<String>,
    /// `as name`.
    alias: Option<String>,
    /// `pub use`.
    is_exported: bool,
}

fn paths(module: &Module, text: &str, sources: &BTreeMap<Module, String>) -> Vec<Path> {
    let tokens = tokens(&without_tests(&code(text)));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let end = tokens[at..].iter().position(|token| token == ";").map_or(0, |end| at + end);
            let is_exported = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            leaves(&tokens[at + 1..end.max(at + 1)], &[], &mut |names, alias| {
                found.extend(absolute(module, names, sources).map(|names| Path {
                    names,
                    alias: alias.map(str::to_owned),
                    is_exported,
                }));
            });
            at = end.max(at) + 1;
            continue;
        }
        let mut end = at + 1;
        while end + 1 < tokens.len() && tokens[end] == "::" && is_name(&tokens[end + 1]) {
            end += 2;
        }
        let starts = at == 0 || tokens[at - 1] != "::";
        if is_name(&tokens[at]) && starts && end > at + 1 {
            let names: Vec<&str> = tokens[at..end].iter().step_by(2).map(String::as_str).collect();
            let names = absolute(module, &names, sources);
            found.extend(names.map(|names| Path { names, alias: None, is_exported: false }));
        }
        at = end;
    }
    found
}

/// Calls `found` with each path of a use tree.
fn leaves<'a>(
    tree: &'a [String],
    before: &[&'a str],
    found: &mut dyn FnMut(&[&str], Option<&str>),
) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].as_str() {
            "{" => {
                let inner = &tree[at + 1..tree.len() - 1];
                inner_trees(inner).for_each(|tree| leaves(tree, &path, found));
                return;
            }
            "as" => return found(&path, tree.get(at + 1).map(String::as_str)),
            "::" | "*" => {}
            "self" if !path.is_empty() => {}
            name => path.push(name),
        }
        at += 1;
    }
    if !path.is_empty() {
        found(&path, None);
    }
}

/// What commas separate, outside of inner braces.
fn inner_trees(tree: &[String]) -> impl Iterator<Item = &[String]> {
    let mut depth = 0;
    tree.split(move |token| {
        depth += i32::from(token == "{") - i32::from(token == "}");
        token == "," && depth == 0
    })
}

/// A path of `module` from the crate's root; `None` for one that leads out of the crate.
fn absolute(
    module: &[String],
    names: &[&str],
    sources: &BTreeMap<Module, String>,
) -> Option<Vec<String>> {
    let (first, rest) = names.split_first()?;
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    match *first {
        "crate" => Some(owned(rest)),
        "self" if !rest.is_empty() => Some([module, &owned(rest)].concat()),
        "super" => {
            let (_, parent) = module.split_last()?;
            match rest.first() {
                Some(&"super") => absolute(parent, rest, sources),
                _ => Some([parent, &owned(rest)].concat()),
            }
        }
        _ => {
            let path = [module, &owned(names)].concat();
            sources.contains_key(&path[..=module.len()]).then_some(path)
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, and each other character for itself.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |part: char| part.is_alphanumeric() || part == '_';
        let length = match first {
            _ if is_part(first) => rest.find(|part| !is_part(part)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    tokens
}

/// `text` without comments and the content of literals.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !code.ends_with(|last: char| last.is_alphanumeric() || last == '_') => raw(rest),
            '"' => string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if length == 0 {
            code.push(first);
        } else {
            code.push(' ');
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    code
}

/// The length of the raw string at the beginning of `text`, if there is one.
fn raw(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|hash| *hash == '#').count();
    let opening = 1 + hashes;
    if !text[opening..].starts_with('"') {
        return 0;
    }
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = text[opening + 1..].find(&closing);
    end.map_or(text.len(), |end| opening + 1 + end + closing.len())
}

/// The length of the string at the beginning of `text`.
fn string(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the character literal at the beginning of `text`; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.chars().skip(1);
    let Some(first) = characters.next() else { return 0 };
    if first == '\\' {
        return text.get(3..).and_then(|rest| rest.find('\'')).map_or(0, |end| end + 4);
    }
    if characters.next() == Some('\'') { 2 + first.len_utf8() } else { 0 }
}

/// `code` without the items that `#[cfg(test)]` stands before.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0;
        let end = rest["#[cfg(test)]".len()..].find(|character| {
            depth += i32::from("({[".contains(character)) - i32::from(")}]".contains(character));
            depth == 0 && (character == ';' || character == '}')
        });
        rest = end.map_or("", |end| &rest["#[cfg(test)]".len() + end + 1..]);
    }
    kept + rest
}

/// Where modules import against the order of the top-level ones: `order` has the lower ones first.
pub fn upward(order: &[&str], imports: &Imports) -> Vec<String> {
    let place = |top: &String| order.iter().position(|known| known == top);
    let mut complaints = BTreeSet::new();
    for (module, imported) in imports {
        let Some(top) = module.first() else { continue };
        let Some(own) = place(top) else {
            complaints.insert(format!("{top} is not in the table of modules"));
            continue;
        };
        for other in imported {
            if other.first().and_then(place).is_some_and(|place| place > own) {
                let (module, other) = (module.join("::"), other.join("::"));
                complaints.insert(format!("{module} imports from {other}, which comes after it"));
            }
        }
    }
    complaints.into_iter().collect()
}

/// Modules that import each other in a loop, where none of two is within the other.
pub fn loops(imports: &Imports) -> Vec<String> {
    let is_family =
        |a: &Module, b: &Module| a.starts_with(b.as_slice()) || b.starts_with(a.as_slice());
    let reached = |from: &Module| {
        let mut reached: BTreeSet<&Module> = BTreeSet::new();
        let mut next: Vec<&Module> =
            imports.get_key_value(from).map(|(key, _)| key).into_iter().collect();
        while let Some(module) = next.pop() {
            for other in imports.get(module).into_iter().flatten() {
                if !is_family(module, other) && reached.insert(other) {
                    next.push(other);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reached(module))).collect();
    let in_loop = |module: &&&Module| all[**module].contains(**module);
    let mut found = BTreeSet::new();
    for module in all.keys().filter(in_loop) {
        let of_loop = all[*module]
            .iter()
            .filter(|other| all.get(**other).is_some_and(|back| back.contains(*module)));
        let names: Vec<String> = of_loop.map(|other| other.join("::")).collect();
        found.insert(format!("{} import each other", names.join(", ")));
    }
    found.into_iter().collect()
}
