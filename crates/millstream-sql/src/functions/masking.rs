//! `mask`: text whose letters, digits and other characters are replaced by their kind.

use std::sync::LazyLock;

use arrow::array::ArrayRef;
use datafusion::common::{Result, exec_err};
use regex::Regex;

use super::define::{Arguments, Function, Param, returns_text};
use super::like::one_character;

use Param::Text;

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("mask", &[Text, Text, Text, Text, Text], returns_text, mask).required(1)];

/// What stands for an upper-case letter, a lower-case one and a digit if the call does not say.
const DEFAULTS: [Option<char>; 4] = [Some('X'), Some('x'), Some('n'), None];

/// Of which of Unicode's general categories a character that is no ASCII is.
static CATEGORIES: LazyLock<Option<[Regex; 3]>> = LazyLock::new(|| {
    let one = |category: &str| Regex::new(category).ok();
    Some([one(r"\p{Lu}")?, one(r"\p{Ll}")?, one(r"\p{Nd}")?])
});

fn kind(char: char) -> usize {
    match char {
        'A'..='Z' => 0,
        'a'..='z' => 1,
        '0'..='9' => 2,
        _ if char.is_ascii() => 3,
        _ => {
            let mut bytes = [0; 4];
            let text: &str = char.encode_utf8(&mut bytes);
            let categories = CATEGORIES.as_ref();
            categories.and_then(|all| all.iter().position(|one| one.is_match(text))).unwrap_or(3)
        }
    }
}

fn mask(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    if (1..args.len()).any(|at| !args.array(at).1) {
        return exec_err!("mask: what replaces characters must be a literal");
    }
    let mut masks = DEFAULTS;
    let read = |mask| one_character("mask: what replaces a character", mask);
    for (mask, at) in masks.iter_mut().zip(1..args.len()) {
        *mask = args.text(at).get(0).map(read).transpose()?;
    }
    args.write(|row, out| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        for char in text.chars() {
            // Beyond 16 bits Java has two characters, which are letters of no kind.
            let (kind, times) = if char.len_utf16() > 1 { (3, 2) } else { (kind(char), 1) };
            match masks[kind] {
                Some(mask) => out.extend(std::iter::repeat_n(mask, times)),
                None => out.push(char),
            }
        }
        Ok(true)
    })
}
