//! The name of a directory for something that a person has named, a flow or a pipeline file.
//!
//! A name may be anything; a directory's may not: `../x` leads elsewhere, and what is too long is
//! refused by the file system. Ordinary names stay as they are. In others, `%` and two hexadecimal
//! digits stand for a byte, as in a URL:
//!
//! ```text
//! a/b            a%2Fb         what separates directories, what cannot be printed, and `%`
//! .  ..          %2E  %2E.     the directory itself, and the one above
//! e + U+0301     e%CC%81       what a file system may write otherwise and still call the same
//! (no name)      %
//! (long names)   the first bytes, `%-`, and a checksum of the whole
//! ```
//!
//! Two names never give one directory. Whether `A` and `a` are one is up to the file system, so
//! names that [`folded`] makes the same must be kept apart by the caller.

use std::fmt::Write as _;

/// What file systems take as a name, in bytes.
const LENGTH_MAX: usize = 255;
/// How much of a longer name is kept, in bytes, for people to know it by.
const KEPT: usize = 200;

/// The name of the directory for what is called `name`: one part of a path.
pub fn directory_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    if name.is_empty() {
        encoded.push('%');
    }
    for (at, char) in name.char_indices() {
        // Of `.` and `..` only the first character is encoded: that is enough to make them names.
        if is_plain(char) && !(at == 0 && matches!(name, "." | "..")) {
            encoded.push(char)
        } else {
            push_encoded(&mut encoded, char)
        }
    }
    if encoded.len() > LENGTH_MAX { shortened(name, &encoded) } else { encoded }
}

/// The same for names that some file system cannot tell apart because of their case.
pub fn folded(name: &str) -> String {
    // To capitals and back: only in capitals are `ß` and `ss` the same (`SS`).
    name.to_uppercase().to_lowercase()
}

fn push_encoded(encoded: &mut String, char: char) {
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
}

/// True for what every file system keeps as it is.
fn is_plain(char: char) -> bool {
    !matches!(char, '/' | '\\' | '%') && !char.is_control() && !has_other_spellings(char)
}

/// True for characters that Unicode's normal forms replace: marks that combine with the letter
/// before them, and characters that Unicode has only for older character sets. A letter with its
/// mark in one character stays, as most keyboards write it.
fn has_other_spellings(char: char) -> bool {
    matches!(char,
        '\u{0300}'..='\u{036F}'
        | '\u{0374}' | '\u{037E}' | '\u{0387}'
        | '\u{0483}'..='\u{0489}'
        | '\u{0591}'..='\u{05BD}' | '\u{05BF}'..='\u{05C7}'
        | '\u{0610}'..='\u{061A}' | '\u{064B}'..='\u{065F}' | '\u{0670}'
        | '\u{093C}' | '\u{09BC}' | '\u{09BE}' | '\u{09D7}' | '\u{0A3C}' | '\u{0B3C}' | '\u{0B3E}'
        | '\u{0B56}' | '\u{0B57}' | '\u{0BBE}' | '\u{0BD7}' | '\u{0C56}' | '\u{0CC2}'
        | '\u{0CD5}' | '\u{0CD6}' | '\u{0D3E}' | '\u{0D57}' | '\u{0DCA}' | '\u{0DCF}' | '\u{0DDF}'
        | '\u{102E}' | '\u{1100}'..='\u{11FF}'
        | '\u{1AB0}'..='\u{1AFF}' | '\u{1B35}' | '\u{1DC0}'..='\u{1DFF}'
        | '\u{1F00}'..='\u{1FFF}' | '\u{2000}'..='\u{200F}' | '\u{2028}'..='\u{202F}'
        | '\u{205F}'..='\u{206F}' | '\u{20D0}'..='\u{20FF}' | '\u{2126}' | '\u{212A}' | '\u{212B}'
        | '\u{2329}' | '\u{232A}' | '\u{302A}'..='\u{302F}' | '\u{3099}' | '\u{309A}'
        | '\u{F900}'..='\u{FAFF}' | '\u{FB00}'..='\u{FB4F}' | '\u{FE00}'..='\u{FE0F}'
        | '\u{FE20}'..='\u{FE2F}' | '\u{FEFF}' | '\u{10A00}'..='\u{10A3F}'
        | '\u{11080}'..='\u{1193F}' | '\u{1D15E}'..='\u{1D1C0}' | '\u{2F800}'..='\u{2FA1F}'
        | '\u{E0000}'..='\u{E0FFF}')
}

fn shortened(name: &str, encoded: &str) -> String {
    // Not in the middle of an encoded byte, which the next characters would be taken for.
    let kept = encoded.floor_char_boundary(KEPT);
    let kept = match encoded[..kept].rfind('%') {
        Some(escape) if escape + 3 > kept => escape,
        _ => kept,
    };
    format!("{}%-{:032x}", &encoded[..kept], fnv(name.as_bytes()))
}

/// FNV-1a with 128 bits (Fowler, Noll and Vo): names are chosen by people, not against us.
fn fnv(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["orders", "Orders_2", "my flow", "größe", "a.b", ".hidden", "...", "流"] {
            assert_eq!(directory_name(name), name);
        }
        assert_eq!(directory_name(&"x".repeat(255)), "x".repeat(255));
    }

    #[test]
    fn what_would_lead_elsewhere_is_encoded() {
        let cases = [
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E."),
            ("../../x", "..%2F..%2Fx"),
            ("a/b", "a%2Fb"),
            ("a%2Fb", "a%252Fb"),
            ("a\\b\0\n", "a%5Cb%00%0A"),
            ("e\u{301}", "e%CC%81"),
        ];
        for (name, wanted) in cases {
            assert_eq!(directory_name(name), wanted, "{name:?}");
        }
    }

    #[test]
    fn long_names_are_told_apart() {
        let long = |last: &str| format!("{}{last}", "/".repeat(300));
        let names = [long("a"), long("b"), "x".repeat(256), "x".repeat(257), "é".repeat(200)];
        let directories: HashSet<String> = names.iter().map(|name| directory_name(name)).collect();
        assert_eq!(directories.len(), names.len());
        assert!(directories.iter().all(|directory| directory.len() <= LENGTH_MAX));
    }

    #[test]
    fn folding_knows_what_case_hides() {
        assert_eq!(folded("Straße"), folded("STRASSE"));
        assert_ne!(folded("a"), folded("b"));
    }

    proptest! {
        #[test]
        fn any_name_is_one_part_of_a_path(name in "(?s)[./%\\\\a-b\u{301}]{0,6}|.{0,400}") {
            let directory = directory_name(&name);
            let parts: Vec<_> = Path::new(&directory).components().collect();
            let is_one_part = matches!(parts[..], [Component::Normal(part)] if part == &*directory);
            prop_assert!(is_one_part, "{directory:?}");
            prop_assert!(directory.len() <= LENGTH_MAX);
        }

        #[test]
        fn two_names_are_two_directories(
            one in "[./%2EF\\-a\u{301}é]{0,5}",
            other in "[./%2EF\\-a\u{301}é]{0,5}",
        ) {
            prop_assert_eq!(one == other, directory_name(&one) == directory_name(&other));
        }
    }
}
