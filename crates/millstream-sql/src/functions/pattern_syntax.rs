//! Java's notation of regular expressions in that of Rust's engine.
//!
//! `\d`, `\w`, `\s` and a letter without its case mean ASCII in Java, unless a flag says otherwise;
//! `.` is no line break, of which there are five; and `$` is also before a line break at the end.
//! The engine cannot look ahead, so for texts that end with one there is a pattern of its own, in
//! which `$` takes the line break into a group, for the match to be cut off there.

/// The flags of Java in this order, each a bit.
const FLAGS: &str = "idmsuxU";

const LINE_BREAK: &str = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])";

/// How deep classes may stand in each other. The engine takes fewer, and says so.
const CLASSES_MAX: usize = 250;
/// How many characters a name in braces may have.
const BRACED_MAX: usize = 64;

/// A pattern in Rust's notation.
pub(super) struct Translation {
    pub(super) text: String,
    /// The engine's number of each group of the pattern, and of the match as the first.
    pub(super) groups: Vec<usize>,
    /// The numbers of the groups that stand for `$`.
    pub(super) ends: Vec<usize>,
    /// Whether a line break at the end of a text matters.
    pub(super) has_end: bool,
}

/// Translates `pattern`: for texts that end with a line break if `lined`, else for all others.
pub(super) fn translated(pattern: &str, lined: bool) -> Translation {
    let mut translator = Translator {
        rest: pattern,
        out: Translation {
            text: String::with_capacity(pattern.len()),
            groups: vec![0],
            ends: Vec::new(),
            has_end: false,
        },
        flags: Flags::default(),
        outer: Vec::new(),
        lined,
        count: 0,
        classes: 0,
    };
    while let Some(char) = translator.next() {
        translator.part(char);
    }
    translator.out
}

#[derive(Clone, Copy, Default)]
struct Flags(u8);

impl Flags {
    fn bit(letter: char) -> u8 {
        FLAGS.find(letter).map_or(0, |at| 1 << at)
    }

    fn has(self, letter: char) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    /// These with others switched on, and behind a `-` off; `None` if a letter is no flag.
    fn changed(self, letters: &str) -> Option<Self> {
        let (mut flags, mut on) = (self, true);
        for letter in letters.chars() {
            match letter {
                '-' => on = false,
                _ if Self::bit(letter) == 0 => return None,
                _ if on => flags.0 |= Self::bit(letter),
                _ => flags.0 &= !Self::bit(letter),
            }
        }
        Some(flags)
    }

    /// Whether the case of letters beyond ASCII is ignored.
    fn ignores_all_case(self) -> bool {
        self.has('i') && (self.has('u') || self.has('U'))
    }

    fn ignores_ascii_case(self) -> bool {
        self.has('i') && !self.ignores_all_case()
    }

    /// The engine's flags.
    fn in_rust(self) -> String {
        let flags = [
            (self.ignores_all_case(), "i"),
            // With `R` the two characters of one line break are not taken apart.
            (self.has('m'), "mR"),
            (self.has('x'), "x"),
        ];
        let named = |wanted: bool| {
            let named = flags.iter().filter(move |(is_on, _)| *is_on == wanted);
            named.map(|(_, name)| *name).collect::<String>()
        };
        match named(false) {
            off if off.is_empty() => named(true),
            off => format!("{}-{off}", named(true)),
        }
    }
}

/// What an escape stands for.
enum Escaped {
    Char(char),
    /// A class, in a form that may stand within another one.
    Class(String),
    /// `\Q`, with what is quoted.
    Quoted(String),
    /// What the engine has as well, or refuses.
    Other(String),
}

struct Translator<'p> {
    rest: &'p str,
    out: Translation,
    flags: Flags,
    /// The flags around each group that is open.
    outer: Vec<Flags>,
    lined: bool,
    /// How many groups there are, with those for `$`.
    count: usize,
    /// How many classes are open.
    classes: usize,
}

impl<'p> Translator<'p> {
    fn next(&mut self) -> Option<char> {
        let char = self.rest.chars().next()?;
        self.rest = &self.rest[char.len_utf8()..];
        Some(char)
    }

    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    /// Takes `length` bytes of the pattern.
    fn take(&mut self, length: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn part(&mut self, char: char) {
        match char {
            '\\' => self.escape(),
            '[' => self.class(),
            '(' => self.open(),
            ')' => {
                self.flags = self.outer.pop().unwrap_or(self.flags);
                self.push(")");
            }
            '.' if self.flags.has('s') => self.push("(?s:.)"),
            '.' if self.flags.has('d') => self.push(r"[^\n]"),
            '.' => self.push(r"[^\n\r\x{85}\x{2028}\x{2029}]"),
            '$' if !self.flags.has('m') => self.end(),
            '#' if self.flags.has('x') => {
                let length = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
                self.take(length);
            }
            letter if letter.is_ascii_alphabetic() => self.letter(letter),
            other => self.out.text.push(other),
        }
    }

    /// The end of the text, or the place before a line break there.
    fn end(&mut self) {
        self.out.has_end = true;
        if !self.lined {
            return self.push(r"\z");
        }
        self.count += 1;
        self.out.ends.push(self.count);
        let line_break = if self.flags.has('d') { r"\n" } else { LINE_BREAK };
        self.push(&format!(r"({line_break}?\z)"));
    }

    fn letter(&mut self, letter: char) {
        if self.flags.ignores_ascii_case() {
            let (lower, upper) = (letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
            self.push(&format!("[{lower}{upper}]"));
        } else {
            self.out.text.push(letter);
        }
    }

    /// A character that means itself.
    fn plain(&mut self, char: char) {
        match char {
            letter if letter.is_ascii_alphabetic() => self.letter(letter),
            digit if digit.is_ascii_digit() => self.out.text.push(digit),
            other => self.push(&by_number(other)),
        }
    }

    fn open(&mut self) {
        let Some(after) = self.rest.strip_prefix('?') else {
            return self.open_group("(");
        };
        let is_name = after.starts_with("P<")
            || after.starts_with('<') && !after.starts_with("<=") && !after.starts_with("<!");
        // No further than a name or flags go: a pattern may have very many such openings.
        let name = after.trim_start_matches('P').strip_prefix('<').unwrap_or(after);
        let behind = name.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        if is_name && behind.starts_with('>') {
            let name = self.take(self.rest.len() - behind.len() + 1);
            return self.open_group(&format!("({name}"));
        }
        let length = after.find(|char| char != '-' && Flags::bit(char) == 0).unwrap_or(0);
        match self.flags.changed(&after[..length]) {
            Some(flags) if after[length..].starts_with(':') => {
                self.outer.push(self.flags);
                self.flags = flags;
            }
            Some(flags) if after[length..].starts_with(')') => self.flags = flags,
            _ => {
                // A form that the engine does not know.
                self.outer.push(self.flags);
                return self.push("(");
            }
        }
        let last = self.take(length + 2);
        let last = &last[length + 1..];
        self.push(&format!("(?{}{last}", self.flags.in_rust()));
    }

    /// Opens a group that has a number.
    fn open_group(&mut self, text: &str) {
        self.outer.push(self.flags);
        self.count += 1;
        self.out.groups.push(self.count);
        self.push(text);
    }

    fn escape(&mut self) {
        match self.escaped() {
            Escaped::Char(char) => self.plain(char),
            Escaped::Class(class) => self.push(&class),
            Escaped::Quoted(text) => text.chars().for_each(|char| self.plain(char)),
            Escaped::Other(text) if text == r"\Z" => self.end(),
            Escaped::Other(text) => self.push(&text),
        }
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Escaped {
        let Some(letter) = self.next() else { return Escaped::Other(r"\".to_owned()) };
        let unicode = self.flags.has('U');
        let class = |class: &str| Escaped::Class(class.to_owned());
        match letter {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' if unicode => Escaped::Class(format!(r"\{letter}")),
            'd' => class("[0-9]"),
            'D' => class("[^0-9]"),
            'w' => class("[A-Za-z0-9_]"),
            'W' => class("[^A-Za-z0-9_]"),
            's' => class(r"[\x20\t\n\x0B\f\r]"),
            'S' => class(r"[^\x20\t\n\x0B\f\r]"),
            'h' => class(BLANKS),
            'H' => Escaped::Class(BLANKS.replacen('[', "[^", 1)),
            'v' => class(r"[\n\x0B\f\r\x{85}\x{2028}\x{2029}]"),
            'V' => class(r"[^\n\x0B\f\r\x{85}\x{2028}\x{2029}]"),
            'p' | 'P' => self.property(letter),
            'R' => Escaped::Other(r"(?:\r\n|[\n\x0B\f\r\x{85}\x{2028}\x{2029}])".to_owned()),
            'Q' => {
                let (quoted, after) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.rest = after;
                Escaped::Quoted(quoted.to_owned())
            }
            't' => Escaped::Char('\t'),
            'n' => Escaped::Char('\n'),
            'r' => Escaped::Char('\r'),
            'f' => Escaped::Char('\x0C'),
            'a' => Escaped::Char('\x07'),
            'e' => Escaped::Char('\x1B'),
            '0' => self.octal(),
            'x' => self.hexadecimal(2),
            'u' => self.hexadecimal(4),
            // Among them `\b` and `\B`, to which letters beyond ASCII are of a word, as they are up
            // to Java 18, and `\b{g}` and its like, which the engine refuses.
            other if other.is_ascii_alphanumeric() => Escaped::Other(format!(r"\{other}")),
            other => Escaped::Char(other),
        }
    }

    /// What stands in braces from here on.
    fn braced(&self) -> Option<&'p str> {
        let inner = self.rest.strip_prefix('{')?;
        let mut chars = inner.char_indices().take(BRACED_MAX);
        chars.find(|(_, char)| *char == '}').map(|(end, _)| &inner[..end])
    }

    /// `\0101`
    fn octal(&mut self) -> Escaped {
        let is_octal = |digit: char| digit.is_digit(8);
        let most = if self.rest.starts_with(['0', '1', '2', '3']) { 3 } else { 2 };
        let length = self.rest.chars().take(most).take_while(|digit| is_octal(*digit)).count();
        let digits = self.take(length);
        match u32::from_str_radix(digits, 8).ok().and_then(char::from_u32) {
            Some(char) => Escaped::Char(char),
            None => Escaped::Other(r"\0".to_owned()),
        }
    }

    /// `\x41`, `\x{1F600}` and `\u0041`.
    fn hexadecimal(&mut self, length: usize) -> Escaped {
        let letter = if length == 2 { 'x' } else { 'u' };
        let other = || Escaped::Other(format!(r"\{letter}"));
        let (digits, taken) = match self.braced().filter(|_| length == 2) {
            Some(digits) => (digits, digits.len() + 2),
            None => match self.rest.get(..length) {
                Some(digits) => (digits, length),
                None => return other(),
            },
        };
        let is_plain = digits.chars().all(|digit| digit.is_ascii_hexdigit());
        let Some(first) = u32::from_str_radix(digits, 16).ok().filter(|_| is_plain) else {
            return other();
        };
        if let Some(char) = char::from_u32(first) {
            self.take(taken);
            return Escaped::Char(char);
        }
        // The halves of a character that is two in Java.
        let second = self.rest.get(taken..).and_then(|rest| rest.strip_prefix(r"\u")?.get(..4));
        let second = second.filter(|digits| !digits.starts_with('+'));
        let second = second.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let halves = [u16::try_from(first).ok(), second];
        match char::decode_utf16(halves.into_iter().flatten()).next() {
            Some(Ok(char)) => {
                self.take(taken + 6);
                Escaped::Char(char)
            }
            _ => other(),
        }
    }

    /// The name after `\p` or `\P`.
    fn property(&mut self, escaped: char) -> Escaped {
        let (name, taken) = match self.braced() {
            Some(name) => (name, name.len() + 2),
            None => match self.rest.chars().next() {
                Some(name) => (&self.rest[..name.len_utf8()], name.len_utf8()),
                None => return Escaped::Other(format!(r"\{escaped}")),
            },
        };
        self.take(taken);
        let not = if escaped == 'P' { "^" } else { "" };
        let class = match (name, self.flags.has('U')) {
            ("Lower", true) => format!(r"[{not}\p{{Lowercase}}]"),
            ("Upper", true) => format!(r"[{not}\p{{Uppercase}}]"),
            ("Alpha", true) => format!(r"[{not}\p{{Alphabetic}}]"),
            ("Digit", true) => format!(r"[{not}\d]"),
            ("Alnum", true) => format!(r"[{not}\p{{Alphabetic}}\d]"),
            ("Punct", true) => format!(r"[{not}\p{{P}}]"),
            ("Space", true) => format!(r"[{not}\s]"),
            (
                "Lower" | "Upper" | "ASCII" | "Alpha" | "Digit" | "Alnum" | "Punct" | "Graph"
                | "Print" | "Blank" | "Cntrl" | "Space" | "XDigit",
                _,
            ) => format!("[[:{not}{}:]]", name.to_lowercase()),
            // Java writes `\p{IsAlphabetic}` for properties that Rust knows without the `Is`.
            _ => format!(r"\{escaped}{{{}}}", name.strip_prefix("Is").unwrap_or(name)),
        };
        Escaped::Class(class)
    }

    /// What follows a `[`, up to its end.
    fn class(&mut self) {
        self.push("[");
        self.classes += 1;
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.push("^");
        }
        let mut is_first = true;
        while let Some(char) = self.next() {
            match char {
                ']' if !is_first => {
                    self.classes -= 1;
                    return self.push("]");
                }
                '[' if self.classes == CLASSES_MAX => self.rest = "",
                '[' => self.class(),
                '&' if self.rest.starts_with('&') => {
                    self.take(1);
                    self.push("&&");
                }
                '\\' => match self.escaped() {
                    Escaped::Char(char) => self.in_class(char),
                    Escaped::Quoted(text) => {
                        text.chars().for_each(|char| self.range(char, char));
                    }
                    Escaped::Class(text) | Escaped::Other(text) => self.push(&text),
                },
                char if self.flags.has('x') && char.is_whitespace() => {}
                char => self.in_class(char),
            }
            is_first = false;
        }
    }

    /// A character in a class, or a range that begins with it.
    fn in_class(&mut self, first: char) {
        let after = self.rest.strip_prefix('-');
        let is_range =
            after.is_some_and(|after| !after.starts_with([']', '[']) && !after.is_empty());
        if !is_range {
            return self.range(first, first);
        }
        self.take(1);
        let last = match self.next() {
            Some('\\') => self.escaped(),
            Some(last) => Escaped::Char(last),
            None => return,
        };
        match last {
            Escaped::Char(last) if first <= last => self.range(first, last),
            // The engine says what is wrong.
            Escaped::Char(last) => {
                self.push(&format!("{}-{}", by_number(first), by_number(last)));
            }
            Escaped::Class(text) | Escaped::Other(text) | Escaped::Quoted(text) => {
                self.range(first, first);
                self.range('-', '-');
                self.push(&text);
            }
        }
    }

    fn range(&mut self, first: char, last: char) {
        let one = |first: char, last: char| match first == last {
            true => by_number(first),
            false => format!("{}-{}", by_number(first), by_number(last)),
        };
        self.push(&one(first, last));
        if !self.flags.ignores_ascii_case() {
            return;
        }
        let (lower, upper) = ((first.max('a'), last.min('z')), (first.max('A'), last.min('Z')));
        if lower.0 <= lower.1 {
            self.push(&one(lower.0.to_ascii_uppercase(), lower.1.to_ascii_uppercase()));
        }
        if upper.0 <= upper.1 {
            self.push(&one(upper.0.to_ascii_lowercase(), upper.1.to_ascii_lowercase()));
        }
    }
}

const BLANKS: &str = r"[\x20\t\xA0\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}]";

/// A character so that it means nothing else, wherever it stands.
fn by_number(char: char) -> String {
    match char.is_ascii_alphanumeric() {
        true => char.to_string(),
        false => format!("\\x{{{:x}}}", u32::from(char)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(pattern: &str) -> String {
        translated(pattern, false).text
    }

    #[test]
    fn letters_lose_their_case_in_ascii_alone() {
        assert_eq!(rust("(?i)aé1"), "(?-imRx)[aA]é1");
        assert_eq!(rust("(?i:a)b"), "(?-imRx:[aA])b");
        assert_eq!(rust("(?iu)a"), "(?i-mRx)a");
        assert_eq!(rust("(?i)[b-d_]"), r"(?-imRx)[b-dB-D\x{5f}]");
        assert_eq!(rust("((?i)a)a"), "((?-imRx)[aA])a");
    }

    #[test]
    fn classes_have_plain_characters() {
        assert_eq!(rust("[]a]"), r"[\x{5d}a]");
        assert_eq!(rust(r"[\w-]"), r"[[A-Za-z0-9_]\x{2d}]");
        assert_eq!(rust("[a-z&&[^b]]"), "[a-z&&[^b]]");
        assert_eq!(rust("[[:a]]"), r"[[\x{3a}a]]");
        assert_eq!(rust(r"[\Q]\E\u0041]"), r"[\x{5d}A]");
    }

    #[test]
    fn hostile_patterns_are_read_once() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(rust(&deep).len(), CLASSES_MAX);
        assert_eq!(rust(&"[a]".repeat(1_000)), "[a]".repeat(1_000));
        for part in ["(?", "(?<", r"\p{", r"\x{", "(?<a"] {
            assert!(!rust(&part.repeat(200_000)).is_empty(), "{part}");
        }
        assert_eq!(rust(r"\x+1"), r"\x+1");
        assert_eq!(rust("(?<ab>x)(?P<c>y)"), "(?<ab>x)(?P<c>y)");
    }

    #[test]
    fn groups_keep_their_numbers() {
        let lined = translated(r"(a)$|(?<b>b)(?:c)$", true);
        assert_eq!((lined.groups, lined.ends), (vec![0, 1, 3], vec![2, 4]));
        assert!(!translated(r"[$]\$(?m)$", true).has_end);
        assert_eq!(rust("a$"), r"a\z");
    }
}
