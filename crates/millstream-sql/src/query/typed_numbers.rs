//! Numbers with a suffix that says their type: `1Y`, `2S`, `3L`, `1.5F`, `1D`, `1.0BD`; and `1e3`,
//! which is a DOUBLE.

use datafusion::sql::sqlparser::tokenizer::{self, Token};

use crate::syntax::cursor::Cursor;
use crate::syntax::lexer::Lexeme;

/// The most digits of a DECIMAL.
const DIGITS_MAX: i64 = 38;

/// A number whose type is in the text.
pub(super) struct TypedNumber<'a> {
    /// All before the suffix.
    pub digits: &'a str,
    /// In capital letters; empty where an exponent makes it a DOUBLE.
    suffix: String,
    /// How many tokens it is.
    pub length: usize,
    pub at: tokenizer::Span,
}

impl<'a> TypedNumber<'a> {
    /// The number at the cursor, if it has a type.
    pub(super) fn at(cursor: &Cursor<'a>) -> Option<Self> {
        let lexemes = &cursor.lexed.lexemes;
        let first = lexemes.get(cursor.at)?;
        let (digits, suffix, length) = match &first.token {
            Token::Number(digits, long) => {
                let next = lexemes.get(cursor.at + 1);
                let next = next.filter(|next| next.span.start == first.span.end);
                match next.and_then(Lexeme::word) {
                    Some(suffix) => (digits.as_str(), suffix, 2),
                    None if *long => (digits.as_str(), "L", 1),
                    None => (digits.as_str(), "", 1),
                }
            }
            Token::Word(word) if word.quote_style.is_none() => {
                let end = word.value.find(|ch: char| !ch.is_ascii_digit() && ch != '.');
                let end = end.filter(|end| *end > 0)?;
                (&word.value[..end], &word.value[end..], 1)
            }
            _ => return None,
        };
        let suffix = suffix.to_ascii_uppercase();
        let known = match suffix.as_str() {
            "" => digits.contains(['e', 'E']),
            suffix => ["D", "F", "L", "S", "Y", "BD"].contains(&suffix),
        };
        known.then_some(Self { digits, suffix, length, at: first.at })
    }

    /// The type, and whether the number is one only with a minus before it.
    ///
    /// # Errors
    /// A number beyond its type.
    pub(super) fn cast(&self) -> Result<(bool, String), String> {
        let beyond = |name: &str| {
            format!("{} is beyond what a {name} holds (INVALID_NUMERIC_LITERAL_RANGE)", self.digits)
        };
        let whole = |most: i64, name: &str| match self.digits.parse::<u64>() {
            Ok(value) if value <= most.unsigned_abs() => Ok((false, name.to_owned())),
            Ok(value) if value == most.unsigned_abs() + 1 => Ok((true, name.to_owned())),
            _ => Err(beyond(name)),
        };
        match self.suffix.as_str() {
            "Y" => whole(i8::MAX.into(), "TINYINT"),
            "S" => whole(i16::MAX.into(), "SMALLINT"),
            "L" => whole(i64::MAX, "BIGINT"),
            "F" => match self.digits.parse::<f32>() {
                // Spark compares the digits, and what rounds to the greatest FLOAT may be above it.
                Ok(value) if value.is_finite() && self.is_within(f32::MAX.into()) => {
                    Ok((false, "FLOAT".to_owned()))
                }
                _ => Err(beyond("FLOAT")),
            },
            "BD" => match self.decimal() {
                Some((precision, scale)) => Ok((false, format!("DECIMAL({precision},{scale})"))),
                None => Err(beyond("DECIMAL(38, s)")),
            },
            _ => match self.digits.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok((false, "DOUBLE".to_owned())),
                _ => Err(beyond("DOUBLE")),
            },
        }
    }

    fn is_within(&self, most: f64) -> bool {
        self.digits.parse::<f64>().is_ok_and(|value| value <= most)
    }

    /// The digits of a DECIMAL, and how many of them are behind the point.
    fn decimal(&self) -> Option<(i64, i64)> {
        let (mantissa, exponent) = match self.digits.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (self.digits, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = whole.trim_start_matches('0').len() + fraction.len();
        let significant = match whole.trim_start_matches('0') {
            "" => fraction.trim_start_matches('0').len(),
            _ => digits,
        };
        let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        let significant = i64::try_from(significant.max(1)).ok()?;
        let precision =
            if scale < 0 { significant.checked_sub(scale)? } else { significant.max(scale) };
        (precision <= DIGITS_MAX).then_some((precision, scale.max(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    fn cast(text: &str) -> Result<(bool, String), String> {
        let lexed = Lexed::new(text).expect("it can be read");
        let cursor = Cursor::new(&lexed, 0, lexed.lexemes.len());
        TypedNumber::at(&cursor).expect("it has a type").cast()
    }

    #[test]
    fn suffixes_say_the_type() {
        let cases = [
            ("127Y", false, "TINYINT"),
            ("128Y", true, "TINYINT"),
            ("32768S", true, "SMALLINT"),
            ("9223372036854775808L", true, "BIGINT"),
            ("1.5F", false, "FLOAT"),
            ("1D", false, "DOUBLE"),
            ("1e3", false, "DOUBLE"),
            ("123.08BD", false, "DECIMAL(5,2)"),
            ("0.5BD", false, "DECIMAL(1,1)"),
            ("123.0E-28BD", false, "DECIMAL(29,29)"),
            ("1E3BD", false, "DECIMAL(4,0)"),
            ("0BD", false, "DECIMAL(1,0)"),
        ];
        for (text, sign, wanted) in cases {
            assert_eq!(cast(text), Ok((sign, wanted.to_owned())), "{text}");
        }
        for text in ["129Y", "3.4028235E38f", "1E309", "1E39BD", "1.5L"] {
            assert!(cast(text).is_err(), "{text}");
        }
    }
}
