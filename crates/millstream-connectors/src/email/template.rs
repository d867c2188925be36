//! Texts with values in them: `Alert in {building}`.
//!
//! A brace is written twice: `{{` and `}}`. Values are put in as they are; what may stand where the
//! text goes is decided there.

use serde_json::{Map, Value};

/// A text with places for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(String),
}

impl Template {
    /// Reads a template whose places are for some of `names`, in any case.
    ///
    /// # Errors
    /// What is wrong, a sentence without a full stop.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let found = &rest[at..];
            if let Some(after) = found.strip_prefix("{{").or(found.strip_prefix("}}")) {
                plain.push_str(&found[..1]);
                rest = after;
                continue;
            }
            let place = found.strip_prefix('{').and_then(|place| place.split_once('}'));
            let Some((name, after)) = place else {
                let brace = &found[..1];
                return Err(format!("a '{brace}' is alone; write it twice to have it in the text"));
            };
            let known = names.iter().find(|known| known.eq_ignore_ascii_case(name.trim()));
            let Some(known) = known else {
                return Err(format!("there is no '{name}' for '{{{name}}}', only {}", list(names)));
            };
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Value((*known).to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }

    /// A line for each of `names`: `name: value`.
    pub fn lines(names: &[&str]) -> Self {
        let line = |name: &&str| {
            let (name, text) = ((*name).to_owned(), format!("{name}: "));
            [Part::Text(text), Part::Value(name), Part::Text("\n".to_owned())]
        };
        Self(names.iter().flat_map(line).collect())
    }

    /// The text with `values` in it; without a value nothing.
    pub fn render(&self, values: &Map<String, Value>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Value(name) => match values.get(name) {
                    None | Some(Value::Null) => {}
                    Some(Value::String(value)) => text.push_str(value),
                    Some(value) => text.push_str(&value.to_string()),
                },
            }
        }
        text
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(text: &str) -> Result<String, String> {
        let values = json!({"a": "x{b}", "b": 1.5, "c": null, "d": [1, "y"]});
        let names = ["a", "b", "c", "d", "e"];
        Ok(Template::parse(text, &names)?.render(values.as_object().unwrap()))
    }

    #[test]
    fn values_stand_where_their_names_stood() {
        let cases = [
            ("", ""),
            ("no place", "no place"),
            ("{a}", "x{b}"),
            ("{ B } in {A}!", "1.5 in x{b}!"),
            ("{c}{e}.{d}", r#".[1,"y"]"#),
            ("{{a}} {{{b}}}", "{a} {1.5}"),
            ("ä{b}ö", "ä1.5ö"),
        ];
        for (text, wanted) in cases {
            assert_eq!(rendered(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for wrong in ["{", "}", "a } b", "{a", "{f}", "{}", "{a}}"] {
            assert!(rendered(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_have_every_name() {
        let values = json!({"a": "x", "b": 2});
        let text = Template::lines(&["a", "b"]).render(values.as_object().unwrap());
        assert_eq!(text, "a: x\nb: 2\n");
    }
}
