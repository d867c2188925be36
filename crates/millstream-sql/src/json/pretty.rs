//! JSON over several lines, as the pretty printer of Jackson lays it out: each field of an object
//! in a line of its own, and the values of an array in one.

/// Appends `json`, which is compact, in that layout.
pub(crate) fn pretty(json: &str, out: &mut String) {
    let mut layout = Layout { open: Vec::new(), out };
    let mut chars = json.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' => {
                layout.out.push('"');
                while let Some(char) = chars.next() {
                    layout.out.push(char);
                    match char {
                        '"' => break,
                        '\\' => layout.out.extend(chars.next()),
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                layout.out.push(char);
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    layout.out.extend([' ', end]);
                } else {
                    layout.open.push(char);
                    layout.space();
                }
            }
            '}' | ']' => {
                match layout.open.pop() {
                    Some('{') => layout.line(),
                    _ => layout.out.push(' '),
                }
                layout.out.push(char);
            }
            ',' => {
                layout.out.push(',');
                layout.space();
            }
            ':' => layout.out.push_str(" : "),
            other => layout.out.push(other),
        }
    }
}

struct Layout<'a> {
    /// The brackets that are open.
    open: Vec<char>,
    out: &'a mut String,
}

impl Layout<'_> {
    /// What stands before a field, or a value of an array.
    fn space(&mut self) {
        match self.open.last() {
            Some('{') => self.line(),
            _ => self.out.push(' '),
        }
    }

    /// A new line, with two blanks for each object around it.
    fn line(&mut self) {
        self.out.push('\n');
        let objects = self.open.iter().filter(|bracket| **bracket == '{').count();
        self.out.extend(std::iter::repeat_n("  ", objects));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(json: &str) -> String {
        let mut out = String::new();
        pretty(json, &mut out);
        out
    }

    #[test]
    fn fields_have_lines_and_values_of_arrays_blanks() {
        let cases = [
            ("{}", "{ }"),
            ("[]", "[ ]"),
            ("[1,2]", "[ 1, 2 ]"),
            (r#"{"a":1,"b":"x"}"#, "{\n  \"a\" : 1,\n  \"b\" : \"x\"\n}"),
            (
                r#"{"a":{"b":[{"c":null}]}}"#,
                "{\n  \"a\" : {\n    \"b\" : [ {\n      \"c\" : null\n    } ]\n  }\n}",
            ),
            ("[[],{}]", "[ [ ], { } ]"),
        ];
        for (json, expected) in cases {
            assert_eq!(laid_out(json), expected);
        }
    }

    #[test]
    fn texts_stay_as_they_are() {
        let json = r#"{"a\",:{":"[1, 2]\\"}"#;
        assert_eq!(laid_out(json), "{\n  \"a\\\",:{\" : \"[1, 2]\\\\\"\n}");
    }
}
