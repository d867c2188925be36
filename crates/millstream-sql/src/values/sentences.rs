//! Texts cut into sentences, and those into words, as Java's `BreakIterator` does it.
//!
//! A sentence is a walk through a few states, one for each character: `!` and `?` end it, whatever
//! follows, and a period does where what follows looks like a beginning. A word is the longest of
//! several forms that fits: letters with an apostrophe within, numbers with a decimal point, a run
//! of kana or of kanji. These rules are older than Unicode's, which many libraries have, and cut
//! at other places. Of all languages only Thai has rules of its own, which are not here.

use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory as Category;

/// The sentences of a text, with all that is between them.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let (mut rest, mut hopeless) = (text, Hopeless::default());
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (sentence, after) = rest.split_at(end_of_sentence(rest, first, &mut hopeless));
        rest = after;
        Some(sentence)
    })
}

/// The words of a sentence: what begins with a letter or a digit.
pub(crate) fn words(sentence: &str) -> impl Iterator<Item = &str> {
    let mut rest = sentence;
    let pieces = std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (piece, after) = rest.split_at(end_of_piece(rest));
        rest = after;
        Some((first, piece))
    });
    pieces.filter(|(first, _)| is_word(*first)).map(|(_, word)| word)
}

/// What is two characters in Java is neither a letter nor a digit by the first of them.
fn is_word(first: char) -> bool {
    first.len_utf16() == 1
        && (is_letter(category(first)) || category(first) == Category::DecimalNumber)
}

fn category(char: char) -> Category {
    CodePointMapData::<Category>::new().get(char)
}

fn is_letter(category: Category) -> bool {
    use Category::*;
    matches!(
        category,
        UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter
    )
}

fn is_number(category: Category) -> bool {
    matches!(category, Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber)
}

/// What a character is to sentences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    SmallLetter,
    /// Any other letter, which may begin a sentence.
    Letter,
    Space,
    Period,
    /// `!` and its like.
    Terminator,
    Opening,
    Closing,
    /// `"` and `'`, which open and close.
    Quote,
    Danda,
    /// The end of a paragraph.
    Paragraph,
    /// A digit or a comma.
    Inner,
    /// Anything else: it may stand before the first letter of a sentence.
    Other,
}

impl Role {
    /// None for a character that is passed over.
    fn of(char: char) -> Option<Self> {
        Some(match char {
            '\t' | '\n' | '\r' | '\u{c}' | '\u{2028}' => Self::Space,
            '.' | '．' => Self::Period,
            '!' | '?' | '。' | '！' | '？' => Self::Terminator,
            '"' | '\'' => Self::Quote,
            ',' => Self::Inner,
            '\u{964}' | '\u{965}' => Self::Danda,
            '\u{2029}' => Self::Paragraph,
            _ => match category(char) {
                Category::NonspacingMark | Category::EnclosingMark | Category::Format => {
                    return None;
                }
                Category::LowercaseLetter => Self::SmallLetter,
                letter if is_letter(letter) => Self::Letter,
                Category::SpaceSeparator => Self::Space,
                Category::OpenPunctuation | Category::InitialPunctuation => Self::Opening,
                Category::ClosePunctuation | Category::FinalPunctuation => Self::Closing,
                number if is_number(number) => Self::Inner,
                _ => Self::Other,
            },
        })
    }

    /// Whether it may stand between the end of a sentence and the first letter of the next one.
    fn begins(self) -> bool {
        matches!(self, Self::Opening | Self::Quote | Self::Other | Self::Danda)
    }
}

/// Where a sentence is, behind a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Within,
    /// Behind a period, and what closes after it.
    Period,
    /// The same behind a quote, which may belong to the next sentence.
    Quoted,
    /// Behind a period and a space.
    Spaced,
    /// Behind a period and several spaces, where a small letter begins a sentence, too.
    FarSpaced,
    /// Within what stands before the first letter of the next sentence, if one follows.
    Begun,
    /// At the first character of that behind a quote or several spaces.
    BegunOnce,
    /// At the first letter of the next sentence.
    Next,
    Terminated,
    /// Behind a terminator and spaces.
    TerminatedSpaced,
    Danda,
    Paragraph,
}

impl State {
    /// The state behind the next character, or none if the sentence ends before it.
    fn then(self, role: Role) -> Option<Self> {
        Some(match (self, role) {
            (Self::Paragraph, _) => return None,
            (Self::Danda, role) => return (role == Role::Space).then_some(Self::Danda),
            (Self::Terminated, Role::Terminator | Role::Period | Role::Closing | Role::Quote) => {
                Self::Terminated
            }
            (Self::Terminated | Self::TerminatedSpaced, Role::Space) => Self::TerminatedSpaced,
            (Self::Terminated | Self::TerminatedSpaced, Role::Paragraph) => Self::Paragraph,
            (Self::Terminated | Self::TerminatedSpaced, _) => return None,
            (Self::Period | Self::Quoted, Role::Closing) => Self::Period,
            (Self::Period | Self::Quoted, Role::Quote) => Self::Quoted,
            (Self::Period | Self::Quoted, Role::Space) => Self::Spaced,
            (Self::Spaced | Self::FarSpaced, Role::Space) => Self::FarSpaced,
            (Self::Period, Role::Letter) | (Self::Period | Self::Spaced, Role::SmallLetter) => {
                Self::Within
            }
            (state, Role::Letter | Role::SmallLetter) if state != Self::Within => Self::Next,
            (Self::Quoted | Self::FarSpaced, role) if role.begins() => Self::BegunOnce,
            (state, role) if state != Self::Within && role.begins() => Self::Begun,
            (Self::BegunOnce, _) => return None,
            (_, Role::Period) => Self::Period,
            (_, Role::Terminator) => Self::Terminated,
            (_, Role::Danda) => Self::Danda,
            (_, Role::Paragraph) => Self::Paragraph,
            _ => Self::Within,
        })
    }
}

/// Where the sentence that a text begins with ends.
///
/// Behind a period may be what begins no sentence although it looked so. Then the sentence ends
/// before the period, as in Java, and each character up to there may be a sentence. `hopeless` is
/// such a part of the text, so that it is not gone through again from each of them.
fn end_of_sentence(text: &str, first: char, hopeless: &mut Hopeless) -> usize {
    let (mut end, mut at_period, mut state) = (first.len_utf8(), 0, State::Within);
    for (at, char) in text.char_indices() {
        let after = at + char.len_utf8();
        if let Some(role) = Role::of(char) {
            match state.then(role) {
                Some(next) => state = next,
                None => {
                    *hopeless = Hopeless { from: text.len() - end, to: text.len() - at };
                    return end;
                }
            }
        }
        match state {
            State::Period if hopeless.has(text.len() - at) => return end,
            State::Period | State::Quoted | State::Spaced | State::FarSpaced => at_period = after,
            State::Begun | State::BegunOnce => {}
            State::Next => return at_period,
            _ => end = after,
        }
    }
    if at_period == text.len() {
        return at_period;
    }
    *hopeless = Hopeless { from: text.len() - end, to: 0 };
    end
}

/// A part of a text, counted from its end, in which no sentence ends behind a period.
#[derive(Default)]
struct Hopeless {
    from: usize,
    to: usize,
}

impl Hopeless {
    fn has(&self, place: usize) -> bool {
        self.to < place && place <= self.from
    }
}

/// What a character is to words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letter,
    Digit,
    /// What is written onto the character before.
    Accent,
    /// An accent of kana.
    KanaAccent,
    Katakana,
    Hiragana,
    /// What lengthens or separates kana.
    KanaMark,
    Kanji,
    Danda,
    /// A dash or the like, which may stand within a word.
    InWord,
    /// The same without accents.
    SoftHyphen,
    /// A comma, which may stand within a number.
    InNumber,
    /// A quote, which may stand within both.
    InBoth,
    /// The same, and before a number.
    Point,
    /// The sign of a currency or of numbers.
    BeforeNumber,
    /// A percent sign or the like.
    AfterNumber,
    Space,
    Return,
    LineEnd,
    Control,
    Other,
}

impl Kind {
    /// None for a character that is passed over.
    fn of(char: char) -> Option<Self> {
        Some(match char {
            '.' => Self::Point,
            '"' | '\'' => Self::InBoth,
            ',' | '\u{66B}' => Self::InNumber,
            '\u{AD}' => Self::SoftHyphen,
            '\u{2027}' => Self::InWord,
            '#' => Self::BeforeNumber,
            '%' | '&' | '¢' | '\u{66A}' | '‰' | '‱' => Self::AfterNumber,
            '\t' => Self::Space,
            '\r' => Self::Return,
            '\n' | '\u{c}' | '\u{2028}' | '\u{2029}' => Self::LineEnd,
            '\u{964}' | '\u{965}' => Self::Danda,
            '\u{3005}' | '\u{4E00}'..='\u{9FA5}' | '\u{F900}'..='\u{FA2D}' => Self::Kanji,
            '\u{30A1}'..='\u{30FA}' | '\u{30FD}' | '\u{30FE}' => Self::Katakana,
            '\u{3041}'..='\u{3094}' | '\u{309D}' | '\u{309E}' => Self::Hiragana,
            '\u{3099}' | '\u{309A}' => Self::KanaAccent,
            '\u{309B}' | '\u{309C}' | '\u{30FB}' | '\u{30FC}' => Self::KanaMark,
            _ => match category(char) {
                Category::Format => return None,
                Category::NonspacingMark | Category::EnclosingMark => Self::Accent,
                Category::SpacingMark => Self::Letter,
                letter if is_letter(letter) => Self::Letter,
                number if is_number(number) => Self::Digit,
                Category::DashPunctuation | Category::ConnectorPunctuation => Self::InWord,
                Category::CurrencySymbol => Self::BeforeNumber,
                Category::SpaceSeparator => Self::Space,
                Category::Control => Self::Control,
                _ => Self::Other,
            },
        })
    }

    fn is_accent(self) -> bool {
        matches!(self, Self::Accent | Self::KanaAccent)
    }

    fn may_have_accents(self) -> bool {
        let is_control = matches!(self, Self::Return | Self::LineEnd | Self::Control);
        !self.is_accent() && !is_control && self != Self::SoftHyphen
    }
}

/// A place in a text, behind a character and all that is passed over after it.
#[derive(Clone, Copy)]
struct Place<'t> {
    text: &'t str,
    at: usize,
}

impl Place<'_> {
    fn next(self) -> Option<Kind> {
        self.text[self.at..].chars().find_map(Kind::of)
    }

    /// Behind the next character, if that is of some kind.
    fn behind(self, is_meant: impl FnOnce(Kind) -> bool) -> Option<Self> {
        let rest = &self.text[self.at..];
        let (kind, end) = rest
            .char_indices()
            .find_map(|(at, char)| Some((Kind::of(char)?, at + char.len_utf8())))?;
        if !is_meant(kind) {
            return None;
        }
        let passed = rest[end..].chars().take_while(|char| Kind::of(*char).is_none());
        let passed: usize = passed.map(char::len_utf8).sum();
        Some(Self { at: self.at + end + passed, ..self })
    }

    /// Behind all next characters of some kind.
    fn behind_all(mut self, is_meant: impl Fn(Kind) -> bool) -> Self {
        while let Some(next) = self.behind(&is_meant) {
            self = next;
        }
        self
    }

    fn accents(self) -> Self {
        self.behind_all(Kind::is_accent)
    }

    /// Behind one or more characters of a kind, each with its accents, and more of them after
    /// single characters of another kind.
    fn joined(self, of: Kind, by: impl Fn(Kind) -> bool) -> Option<Self> {
        let one = |place: Self| Some(place.behind(|kind| kind == of)?.accents());
        let mut place = one(self)?;
        loop {
            let next = one(place).or_else(|| one(place.behind(&by)?));
            match next {
                Some(next) => place = next,
                None => return Some(place),
            }
        }
    }

    fn word(self) -> Option<Self> {
        use Kind::{Danda, InBoth, InWord, Letter, Point, SoftHyphen};
        let letters =
            self.joined(Letter, |kind| matches!(kind, InWord | SoftHyphen | InBoth | Point))?;
        Some(letters.behind(|kind| kind == Danda).unwrap_or(letters))
    }

    fn number(self) -> Option<Self> {
        use Kind::{Digit, InBoth, InNumber, Point};
        self.joined(Digit, |kind| matches!(kind, InNumber | InBoth | Point))
    }

    /// Behind numbers and words, which take turns.
    fn numbers_and_words(mut self) -> Self {
        while let Some(number) = self.number() {
            match number.word() {
                Some(word) => self = word,
                None => return number.behind(|kind| kind == Kind::AfterNumber).unwrap_or(number),
            }
        }
        self
    }

    fn spaces_and_line_end(mut self) -> Self {
        while let Some(space) = self.behind(|kind| kind == Kind::Space) {
            self = space.accents();
        }
        let place = self.behind(|kind| kind == Kind::Return).unwrap_or(self);
        place.behind(|kind| kind == Kind::LineEnd).unwrap_or(place)
    }

    fn kana(self, of: Kind) -> Self {
        self.behind_all(|kind| kind == of || matches!(kind, Kind::KanaMark | Kind::KanaAccent))
    }
}

/// Where the piece that a text begins with ends: a word, a run of spaces, or a single character.
fn end_of_piece(text: &str) -> usize {
    let start = Place { text, at: 0 };
    // What is passed over has no word in it, however much of it there is.
    let Some(kind) = start.next() else { return text.len() };
    let one = start.behind(|_| true).unwrap_or(start);
    let with_accents = if kind.may_have_accents() { one.accents() } else { one };
    let longest = match kind {
        Kind::Letter => start.word().map(Place::numbers_and_words),
        Kind::Digit => Some(start.numbers_and_words()),
        Kind::BeforeNumber | Kind::Point => Some(one.numbers_and_words()),
        Kind::Space | Kind::Return | Kind::LineEnd => Some(start.spaces_and_line_end()),
        Kind::Katakana => Some(start.kana(Kind::Katakana)),
        Kind::Hiragana => Some(start.kana(Kind::Hiragana)),
        Kind::KanaMark | Kind::KanaAccent => {
            let both = [Kind::Katakana, Kind::Hiragana].map(|kana| start.kana(kana));
            both.into_iter().max_by_key(|place| place.at)
        }
        Kind::Kanji => Some(start.behind_all(|kind| kind == Kind::Kanji)),
        _ => None,
    };
    longest.map_or(with_accents.at, |longest| longest.at.max(with_accents.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        sentences(text).collect()
    }

    fn found(sentence: &str) -> Vec<&str> {
        words(sentence).collect()
    }

    #[test]
    fn sentences_end_where_java_ends_them() {
        assert_eq!(cut("Hi there! Good morning."), ["Hi there! ", "Good morning."]);
        assert_eq!(cut("a!b?c"), ["a!", "b?", "c"]);
        assert_eq!(cut("It is e.g. 3.14, i.e. pi."), ["It is e.g. 3.14, i.e. pi."]);
        assert_eq!(cut("Mr. Smith. went"), ["Mr. ", "Smith. went"]);
        assert_eq!(cut("One.\nTwo\nthree. 4"), ["One.\n", "Two\nthree. 4"]);
        assert_eq!(cut("A. (b) \"C.\" D.'e"), ["A. ", "(b) \"C.\" ", "D.'", "e"]);
        assert_eq!(cut("क। ख॥ग"), ["क। ", "ख॥", "ग"]);
        assert_eq!(cut("次。2\u{2029}\u{2029}"), ["次。", "2\u{2029}", "\u{2029}"]);
        assert_eq!(cut(""), [""; 0]);
    }

    #[test]
    fn what_looks_like_a_beginning_and_is_none_is_as_in_java() {
        assert_eq!(cut("A. a A.  a"), ["A. a A.  ", "a"]);
        assert_eq!(cut("x.(1) y"), ["x.(1) y"]);
        assert_eq!(cut("x.'(1) y"), ["x", ".", "'(1) y"]);
        assert_eq!(cut("x.'((1) y"), ["x.'((1) y"]);
        assert_eq!(cut("x. ("), ["x", ".", " ("]);
        let many = ".(".repeat(50_000);
        assert_eq!(cut(&many).len(), many.len());
    }

    #[test]
    fn words_are_the_longest_of_their_forms() {
        assert_eq!(found("I can't, e-mail foo_bar!"), ["I", "can't", "e-mail", "foo_bar"]);
        assert_eq!(found("a--b c. 3,141.5% 1e5.x"), ["a", "b", "c", "3,141.5%", "1e5", "x"]);
        // Signs before numbers belong to them, and no word begins with a sign.
        assert_eq!(found("$5 #1 .5 #tag 10€"), ["tag", "10"]);
        assert_eq!(
            found("日本語のテキストー ひらがな"),
            ["日本語", "の", "テキストー", "ひらがな"]
        );
        assert_eq!(found("a\u{301}b\u{200d}c x\u{ad}y"), ["a\u{301}b\u{200d}c", "x\u{ad}y"]);
        assert_eq!(found("😀 𝔸 é"), ["é"]);
        assert_eq!(found(" \r\n"), [""; 0]);
    }
}
