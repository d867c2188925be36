//! `SET` and `RESET`: settings by their names, and `SET TIME ZONE` in its own words.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::functions::SessionZone;
use millstream_sql::syntax::cursor::Cursor;
use millstream_sql::syntax::lexer::Lexed;

/// The setting that is the session's time zone.
pub const TIME_ZONE: &str = "spark.sql.session.timeZone";

/// The setting that is the session's ANSI mode.
pub const ANSI: &str = "spark.sql.ansi.enabled";

/// What is to be done with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `SET key = value`: the key as written, and the value without quotes.
    Set(String, String),
    /// `SET key`, which shows a setting.
    Show(String),
    /// `RESET key`, or `RESET`, which resets all.
    Reset(Option<String>),
}

impl Change {
    /// The zone that a session has after it, if it changes that.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Set(key, value) if key == TIME_ZONE => Some(zone_name(value)),
            Self::Reset(None) => Some("UTC"),
            Self::Reset(Some(key)) if key == TIME_ZONE => Some("UTC"),
            _ => None,
        }
    }

    /// Whether a session has ANSI mode after it, if it changes that.
    pub fn ansi(&self) -> Option<bool> {
        match self {
            Self::Set(key, value) if key == ANSI => truth(value),
            Self::Reset(None) => Some(true),
            Self::Reset(Some(key)) if key == ANSI => Some(true),
            _ => None,
        }
    }
}

/// What a value of a setting says that is true or false.
pub(crate) fn truth(value: &str) -> Option<bool> {
    value.trim().trim_matches(['\'', '"']).to_ascii_lowercase().parse().ok()
}

/// The name of a zone, without the quotes that it may have as a value of a setting.
pub(crate) fn zone_name(value: &str) -> &str {
    value.trim().trim_matches(['\'', '"'])
}

/// Reads a statement that begins with `SET` or `RESET`; a key has dots in it.
///
/// # Errors
/// There is no key, or a time zone that there is not.
pub(crate) fn read(lexed: &Lexed, range: &Range<usize>) -> Result<Change, Diagnostic> {
    let span = lexed.lexemes[range.start].span.to(lexed.lexemes[range.end - 1].span);
    let text = lexed.text[span.range()].trim_start_matches(|ch: char| !ch.is_whitespace());
    let mut cursor = Cursor::new(lexed, range.start + 1, range.end);
    if lexed.lexemes[range.start].is_word("RESET") {
        let key = text.trim();
        return Ok(Change::Reset((!key.is_empty()).then(|| key.to_owned())));
    }
    if cursor.eat_words(&["TIME", "ZONE"]).is_some() {
        let zone = zone(&mut cursor, span)?;
        return Ok(Change::Set(TIME_ZONE.to_owned(), zone));
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.trim().trim_matches('\'').to_owned();
        return Ok(Change::Set(key.trim().to_owned(), value));
    }
    let key = text.trim();
    if key.contains('.') && !key.contains(char::is_whitespace) {
        return Ok(Change::Show(key.to_owned()));
    }
    Err(Diagnostic::at(span, "SET has no value")
        .help("write SET key = value, for example SET millstream.remote.stages = 'scan'"))
}

/// The zone behind `SET TIME ZONE`.
fn zone(cursor: &mut Cursor<'_>, statement: Span) -> Result<String, Diagnostic> {
    const FORMS: &str = "write the name of a region, SET TIME ZONE 'Europe/Berlin', or how far it \
                         is ahead of UTC, SET TIME ZONE '+02:00'";
    let span = cursor.here();
    if cursor.eat_words(&["LOCAL"]).is_some() {
        let message = "LOCAL would be the zone of the machine that a query is planned on";
        return Err(Diagnostic::at(span, message).help(FORMS));
    }
    if cursor.eat_words(&["INTERVAL"]).is_some() {
        let text = &cursor.lexed.text[cursor.here().start.min(statement.end)..statement.end];
        let message = "no zone is so far from UTC (INVALID_INTERVAL_FORMAT)";
        let zone = SessionZone::of_interval(text);
        let zone = zone.ok_or_else(|| {
            Diagnostic::at(span.to(statement), message)
                .help("write whole seconds, at most 18 hours: SET TIME ZONE INTERVAL 2 HOURS")
        })?;
        return Ok(zone.name().to_owned());
    }
    let name = match cursor.peek().map(|lexeme| &lexeme.token) {
        Some(Token::SingleQuotedString(name) | Token::DoubleQuotedString(name)) => name.clone(),
        // Spark takes no other name without quotation marks, either.
        Some(Token::Word(word)) if word.value.eq_ignore_ascii_case("UTC") => "UTC".to_owned(),
        _ => return Err(cursor.unexpected("a time zone in quotation marks").help(FORMS)),
    };
    cursor.advance();
    if !cursor.at_end() {
        return Err(cursor.unexpected("nothing behind the time zone").help(FORMS));
    }
    if SessionZone::parse(&name).is_none() {
        let message = format!("there is no time zone '{name}' (INVALID_CONF_VALUE.TIME_ZONE)");
        return Err(Diagnostic::at(span, message).help(FORMS));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Result<Change, String> {
        let lexed = Lexed::new(text).expect("these are tokens");
        let all = 0..lexed.lexemes.len();
        read(&lexed, &all).map_err(|found| found.message)
    }

    fn zone_of(text: &str) -> Option<String> {
        let change = change(text).unwrap_or_else(|found| panic!("{text}: {found}"));
        change.zone().map(str::to_owned)
    }

    #[test]
    fn a_time_zone_is_set_in_several_forms() {
        for (text, zone) in [
            ("SET TIME ZONE 'Europe/Berlin'", "Europe/Berlin"),
            ("set time zone \"Asia/Tokyo\"", "Asia/Tokyo"),
            ("SET TIME ZONE '+05:45'", "+05:45"),
            ("SET TIME ZONE INTERVAL 3 HOURS", "+03:00"),
            ("SET TIME ZONE INTERVAL '02:30' HOUR TO MINUTE", "+02:30"),
            ("SET TIME ZONE INTERVAL '-10' HOUR", "-10:00"),
            ("SET spark.sql.session.timeZone = America/Los_Angeles", "America/Los_Angeles"),
            ("SET spark.sql.session.timeZone = \"Asia/Tokyo\"", "Asia/Tokyo"),
            ("RESET spark.sql.session.timeZone", "UTC"),
            ("RESET", "UTC"),
        ] {
            assert_eq!(zone_of(text).as_deref(), Some(zone), "{text}");
        }
        assert_eq!(zone_of("SET spark.sql.ansi.enabled = true"), None);
        let shown = Change::Show("spark.sql.session.timeZone".to_owned());
        assert_eq!(change("SET spark.sql.session.timeZone"), Ok(shown));
    }

    #[test]
    fn ansi_mode_is_set_to_one_of_two_values() {
        for (text, ansi) in [
            ("SET spark.sql.ansi.enabled = false", Some(false)),
            ("SET spark.sql.ansi.enabled = 'TRUE'", Some(true)),
            ("SET spark.sql.ansi.enabled = maybe", None),
            ("SET spark.sql.ansi.enabled", None),
            ("RESET spark.sql.ansi.enabled", Some(true)),
            ("RESET", Some(true)),
            ("SET TIME ZONE 'UTC'", None),
        ] {
            let change = change(text).unwrap_or_else(|found| panic!("{text}: {found}"));
            assert_eq!(change.ansi(), ansi, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_zone_is_refused() {
        for text in [
            "SET TIME ZONE 'europe/berlin'",
            "SET TIME ZONE Europe/Berlin",
            "SET TIME ZONE LOCAL",
            "SET TIME ZONE",
            "SET TIME ZONE INTERVAL 19 HOURS",
            "SET TIME ZONE '05:45'",
            "SET TIME ZONE 'UTC' 'UTC'",
        ] {
            assert!(change(text).is_err(), "{text}");
        }
    }
}
