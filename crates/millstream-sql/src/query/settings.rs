//! Settings of Spark's that change what a query means, and of which both values are known here.
//!
//! They are of one query: whoever runs several can give each its own. A value makes Spark refuse a
//! text, and so it does here, or keeps what an earlier version of Spark did ([`super::legacy`]).
//! Flows have the defaults, so none of this is in a plan over a stream.

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, GroupByWithModifier, Ident, Select, SelectItem, Spanned,
};

use super::ast::any;
use super::forms;
use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The values for one query. Those of `default` are Spark's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `spark.sql.groupByAliases`: a name in GROUP BY can be an alias of the SELECT list.
    pub group_by_aliases: bool,
    /// `spark.sql.parser.singleCharacterPipeOperator.enabled`: `|` can begin a step, as `|>` does.
    pub bar_begins_step: bool,
    /// `spark.sql.decimalOperations.allowPrecisionLoss`: a DECIMAL of too many digits gives up some
    /// behind its point.
    pub digits_give_way: bool,
    /// `spark.sql.function.concatBinaryAsString`: BINARY joined to BINARY is a STRING.
    pub joins_bytes_as_text: bool,
    /// `spark.sql.function.eltOutputAsString`: `elt` of BINARY gives a STRING.
    pub picks_bytes_as_text: bool,
    /// `spark.sql.legacy.allowParameterlessCount`: `count()` is 0.
    pub counts_nothing: bool,
    /// `spark.sql.legacy.allowStarWithSingleTableIdentifierInCount`: `count(t.*)` counts the rows
    /// in which no column is NULL.
    pub counts_columns_of_one_table: bool,
    /// `spark.sql.legacy.bangEqualsNot`: `!` is NOT in predicates, too, as in `a ! IN (1, 2)`.
    pub bang_is_not: bool,
    /// `spark.sql.legacy.codingErrorAction`: `encode` and `decode` put a mark in the place of what
    /// has no character.
    pub marks_characters: bool,
    /// `spark.sql.legacy.consecutiveStringLiterals.enabled`: two quotation marks within a text end
    /// it and begin another one.
    pub doubled_quotes_join: bool,
    /// `spark.sql.legacy.javaCharsets`: `encode` and `decode` have more character sets.
    pub has_more_charsets: bool,
    /// `spark.sql.legacy.negativeIndexInArrayInsert`: `array_insert` at -1 is before the last
    /// element.
    pub inserts_before_last: bool,
    /// `spark.sql.parser.quotedRegexColumnNames`: a name in backticks in a SELECT list is a pattern
    /// for names.
    pub names_are_patterns: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group_by_aliases: true,
            bar_begins_step: true,
            names_are_patterns: false,
            digits_give_way: true,
            joins_bytes_as_text: false,
            picks_bytes_as_text: false,
            counts_nothing: false,
            counts_columns_of_one_table: false,
            bang_is_not: false,
            marks_characters: false,
            doubled_quotes_join: false,
            has_more_charsets: false,
            inserts_before_last: false,
        }
    }
}

impl Settings {
    /// Gives the setting called `key` a value, and says whether it can have it; `None` where `key`
    /// is none of these.
    pub fn set(&mut self, key: &str, value: &str) -> Option<bool> {
        let setting = self.named(key)?;
        match value.trim().trim_matches(['\'', '"']).to_ascii_lowercase().as_str() {
            "true" => *setting = true,
            "false" => *setting = false,
            _ => return Some(false),
        }
        Some(true)
    }

    /// Gives the setting called `key` its default, and says whether there is one.
    pub fn reset(&mut self, key: &str) -> bool {
        let mut defaults = Self::default();
        match (self.named(key), defaults.named(key)) {
            (Some(own), Some(default)) => {
                *own = *default;
                true
            }
            _ => false,
        }
    }

    /// The value of the setting called `key`; `None` where it is none of these.
    pub fn value(mut self, key: &str) -> Option<bool> {
        self.named(key).copied()
    }

    /// The setting called `key`.
    fn named(&mut self, key: &str) -> Option<&mut bool> {
        const COUNT_OF_TABLE: &str = "spark.sql.legacy.allowStarWithSingleTableIdentifierInCount";
        Some(match key {
            "spark.sql.groupByAliases" => &mut self.group_by_aliases,
            "spark.sql.parser.singleCharacterPipeOperator.enabled" => &mut self.bar_begins_step,
            "spark.sql.parser.quotedRegexColumnNames" => &mut self.names_are_patterns,
            "spark.sql.decimalOperations.allowPrecisionLoss" => &mut self.digits_give_way,
            "spark.sql.function.concatBinaryAsString" => &mut self.joins_bytes_as_text,
            "spark.sql.function.eltOutputAsString" => &mut self.picks_bytes_as_text,
            "spark.sql.legacy.allowParameterlessCount" => &mut self.counts_nothing,
            COUNT_OF_TABLE => &mut self.counts_columns_of_one_table,
            "spark.sql.legacy.bangEqualsNot" => &mut self.bang_is_not,
            "spark.sql.legacy.codingErrorAction" => &mut self.marks_characters,
            "spark.sql.legacy.consecutiveStringLiterals.enabled" => &mut self.doubled_quotes_join,
            "spark.sql.legacy.javaCharsets" => &mut self.has_more_charsets,
            "spark.sql.legacy.negativeIndexInArrayInsert" => &mut self.inserts_before_last,
            _ => return None,
        })
    }

    /// Refuses a `|` that would begin a step. The views of a text are read as its queries are.
    pub(super) fn check_text(self, lexed: &Lexed) -> Result<(), Diagnostic> {
        if self.bar_begins_step {
            return Ok(());
        }
        match forms::bar_that_begins_step(&lexed.lexemes) {
            None => Ok(()),
            Some(bar) => {
                let message = "`|` begins no step, since \
                               spark.sql.parser.singleCharacterPipeOperator.enabled is false";
                Err(Diagnostic::at(bar.span, message).help("write |>"))
            }
        }
    }

    /// Refuses a name in GROUP BY that only an alias of the SELECT list can be.
    pub(super) fn check_grouping(
        self,
        lexed: &Lexed,
        select: &Select,
        frame: &Frame,
    ) -> Option<Diagnostic> {
        let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return None };
        if self.group_by_aliases {
            return None;
        }
        let sets = modifiers.iter().filter_map(|modifier| match modifier {
            GroupByWithModifier::GroupingSets(sets) => Some(sets),
            _ => None,
        });
        let mut found = None;
        for group in groups.iter().chain(sets) {
            let is_alias = |part: &Expr| match alias_meant(select, frame, part) {
                None => false,
                Some(name) => {
                    found = Some((name.value.clone(), part.span()));
                    true
                }
            };
            if any(group, is_alias) {
                break;
            }
        }
        let (name, span) = found?;
        let message = format!(
            "`{name}` is an alias, which GROUP BY does not see, since spark.sql.groupByAliases is \
             false"
        );
        let help = "write what the alias stands for, or its place in the SELECT list";
        Some(Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(message).help(help) })
    }
}

/// The alias of the SELECT list that `part` begins with, where it is no column of FROM.
fn alias_meant<'a>(select: &Select, frame: &Frame, part: &'a Expr) -> Option<&'a Ident> {
    let parts = match part {
        Expr::Identifier(name) => std::slice::from_ref(name),
        Expr::CompoundIdentifier(parts) => parts.as_slice(),
        _ => return None,
    };
    let name = parts.first()?;
    frame.alias(&name.value)?;
    // Where the columns of FROM are not known, a column that is selected is one of them.
    let is_column = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => {
            column.value.eq_ignore_ascii_case(&name.value)
        }
        _ => false,
    };
    let is_known = frame.resolve(parts).is_some() || select.projection.iter().any(is_column);
    (!is_known).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_one_of_two_values() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("spark.sql.groupByAliases", "FALSE"), Some(true));
        assert_eq!(settings, Settings { group_by_aliases: false, ..Settings::default() });
        assert_eq!(settings.set("spark.sql.groupByAliases", "maybe"), Some(false));
        assert_eq!(settings.set("spark.sql.groupByOrdinal", "false"), None);
        assert_eq!(settings.value("spark.sql.groupByAliases"), Some(false));
        assert_eq!(settings.set("spark.sql.groupByAliases", "'true'"), Some(true));
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.set("spark.sql.legacy.bangEqualsNot", "true"), Some(true));
        assert!(settings.reset("spark.sql.legacy.bangEqualsNot"));
        assert_eq!(settings, Settings::default());
        assert!(!settings.reset("spark.sql.groupByOrdinal"));
    }
}
