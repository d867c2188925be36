//! Unicode's order of texts, by language: the only place that knows ICU4X.
//!
//! Spark has ICU's for Java. Both take their orders from the same tables of Unicode (CLDR), and
//! what decides is the same: all letters, accents and case by default; without case the accents;
//! without accents the letters, and case by itself where that counts.

use icu_collator::options::{CaseLevel, CollatorOptions, Strength};
use icu_collator::{Collator, CollatorBorrowed};
use icu_locale_core::Locale;

use crate::types::collation::Unicode;

/// The order of a language.
pub struct Order(CollatorBorrowed<'static>);

impl Order {
    /// `None` if there are no tables of it, which there are of all that have a name here.
    pub fn new(unicode: Unicode) -> Option<Self> {
        let locale = Locale::try_from_str(unicode.tag()).ok()?;
        let (strength, case_level) = match (unicode.case, unicode.accents) {
            (true, true) => (Strength::Tertiary, CaseLevel::Off),
            (true, false) => (Strength::Primary, CaseLevel::On),
            (false, true) => (Strength::Secondary, CaseLevel::Off),
            (false, false) => (Strength::Primary, CaseLevel::Off),
        };
        let mut options = CollatorOptions::default();
        options.strength = Some(strength);
        options.case_level = Some(case_level);
        Collator::try_new((&locale).into(), options).ok().map(Self)
    }

    /// Bytes that are in the order of the texts that they stand for.
    pub fn key(&self, text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        let Ok(()) = self.0.write_sort_key_to(text, &mut key);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::collation::{Collation, Letters};

    fn order(name: &str) -> Order {
        let letters = Collation::parse(name).map(|found| found.letters);
        let Some(Letters::Unicode(unicode)) = letters else { panic!("{name} is no order") };
        Order::new(unicode).unwrap_or_else(|| panic!("{name} has no tables"))
    }

    fn is_less(name: &str, one: &str, other: &str) -> bool {
        order(name).key(one) < order(name).key(other)
    }

    #[test]
    fn languages_have_orders_of_their_own() {
        assert!(is_less("UNICODE", "a", "A"));
        assert!(is_less("UNICODE", "A", "b"));
        assert!(is_less("sv", "Kypper", "Köpfe"));
        assert!(is_less("de", "Köpfe", "Kypper"));
        assert!(is_less("en", "a", "A"));
    }

    #[test]
    fn case_and_accents_count_or_do_not() {
        let is_same =
            |name: &str, one: &str, other: &str| order(name).key(one) == order(name).key(other);
        assert!(is_same("UNICODE_CI", "a", "A") && !is_same("UNICODE_CI", "a", "å"));
        assert!(is_same("UNICODE_AI", "a", "å") && !is_same("UNICODE_AI", "a", "A"));
        assert!(is_same("UNICODE_CI_AI", "a", "Å"));
        assert!(is_same("tr_CI", "I", "ı") && !is_same("en_CI", "I", "ı"));
        assert!(is_same("sr_AI", "ć", "č"));
    }
}
