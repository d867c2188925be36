//! Makes an input of others: flipped bits, ranges removed, repeated and exchanged, numbers at the
//! edges of their types, words of the input's language.

use super::Material;
use super::random::Random;

/// How mutants are made.
pub struct Mutator {
    /// What inputs are made of.
    pub material: Material,
    /// Words of the language.
    pub words: &'static [&'static str],
    /// The length of a mutant.
    pub bytes_max: usize,
}

/// Numbers at which types end, as text.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "1",
    "00",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "32768",
    "65536",
    "999999",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "170141183460469231731687303715884105728",
    "1e400",
    "-1e-400",
    "1e-7",
    "1E+1000000000",
    "0.1",
    "0x7f",
    "1.7976931348623157e308",
];

/// What stands between or around things in most languages, and what few expect.
const PIECES: &[&str] = &[
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "\"",
    "'",
    "`",
    "\\",
    "/",
    "*",
    "%",
    "$",
    "#",
    "@",
    "!",
    "?",
    ":",
    ";",
    ",",
    ".",
    "-",
    "+",
    "=",
    "|",
    "&",
    "^",
    "~",
    "_",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{1}",
    "\u{7f}",
    "é",
    "ß",
    "İ",
    "\u{301}",
    "\u{fffd}",
    "\u{feff}",
    "\u{10ffff}",
    "𝄞",
    "\\u0000",
    "\\ud83d",
    "\\u00e9",
    "null",
    "true",
    "NaN",
    "-Infinity",
    "--",
    "/*",
    "*/",
    "..",
    "::",
    "%%",
];

const INTERESTING: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

impl Mutator {
    /// An input made of some of `kept`, which is not empty.
    pub fn mutant(&self, kept: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        let (input, other) = (random.of(kept), random.of(kept));
        let is_text = self.material == Material::Text && random.below(8) != 0;
        let mut mutant = if is_text {
            let (input, other) = (String::from_utf8_lossy(input), String::from_utf8_lossy(other));
            self.of_tokens(&input, &other, random).into_bytes()
        } else {
            self.of_bytes(input.clone(), other, random)
        };
        mutant.truncate(self.bytes_max);
        mutant
    }

    fn of_bytes(&self, mut bytes: Vec<u8>, other: &[u8], random: &mut Random) -> Vec<u8> {
        for _ in 0..random.length(12) {
            let at = random.below(bytes.len() + 1);
            let to = (at + random.length(bytes.len().max(1))).min(bytes.len());
            match random.below(11) {
                0 => {
                    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8))
                }
                1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
                2 => drop(bytes.drain(at..to)),
                3 => {
                    let range = bytes[at..to].to_vec();
                    let count = random.length(200);
                    insert(
                        &mut bytes,
                        at,
                        &range.repeat(count.min(self.bytes_max / range.len().max(1))),
                    );
                }
                4 | 5 => {
                    let value = random.of(INTERESTING).wrapping_sub(random.below(3) as u64);
                    let width = *random.of(&[1, 2, 4, 8]);
                    let big = &value.to_be_bytes()[8 - width..];
                    let little = &value.to_le_bytes()[..width];
                    let number = if random.below(2) == 0 { big } else { little };
                    let end = (at + width * random.below(2)).min(bytes.len());
                    bytes.splice(at..end, number.iter().copied());
                }
                6 => {
                    let from = random.below(other.len() + 1);
                    let until = (from + random.length(other.len().max(1))).min(other.len());
                    insert(&mut bytes, at, &other[from..until]);
                }
                7 => {
                    let from = random.below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
                8 => bytes.truncate(at),
                9 => insert(&mut bytes, at, self.word(random).as_bytes()),
                _ => {
                    let value = random.next() as u8;
                    let count = random.length(64);
                    insert(&mut bytes, at, &vec![value; count]);
                }
            }
        }
        bytes
    }

    fn of_tokens(&self, text: &str, other: &str, random: &mut Random) -> String {
        let mut own: Vec<String> = tokens(text).into_iter().map(str::to_owned).collect();
        let others = tokens(other);
        for _ in 0..random.length(6) {
            let at = random.below(own.len() + 1);
            let to = (at + 1 + random.below(12)).min(own.len());
            match random.below(10) {
                0 => drop(own.drain(at..to.max(at))),
                1 | 2 => own.insert(at, self.word(random).to_owned()),
                3 => own.insert(at, self.word(random).repeat(random.length(200))),
                4 => {
                    let group = own[at..to.max(at)].concat();
                    let count = random.length(100).min(1 + self.bytes_max / group.len().max(1));
                    own.insert(to.max(at), group.repeat(count));
                }
                5 if !own.is_empty() => {
                    let (one, two) = (random.below(own.len()), random.below(own.len()));
                    own.swap(one, two);
                }
                6 => {
                    let from = random.below(others.len() + 1);
                    let until = (from + 1 + random.below(40)).min(others.len());
                    own.insert(at, others[from..until.max(from)].concat());
                }
                7 => own.truncate(at.max(1)),
                8 => {
                    if let Some(token) = own.get_mut(at) {
                        *token = self.word(random).to_owned();
                    }
                }
                _ => {
                    let number = |token: &String| token.starts_with(|c: char| c.is_ascii_digit());
                    let places: Vec<_> = (0..own.len()).filter(|at| number(&own[*at])).collect();
                    if !places.is_empty() {
                        let at = *random.of(&places);
                        own[at] = (*random.of(NUMBERS)).to_owned();
                    }
                }
            }
        }
        own.concat()
    }

    fn word(&self, random: &mut Random) -> &'static str {
        match random.below(4) {
            0 => random.word(NUMBERS),
            1 => random.word(PIECES),
            _ if self.words.is_empty() => random.word(PIECES),
            _ => random.word(self.words),
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}

/// The text in pieces: words and numbers, and each other character for itself.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let end = if is_word(first) {
            rest.find(|character| !is_word(character)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    tokens
}
