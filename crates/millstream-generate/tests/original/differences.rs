//! Where the two differ on purpose: what the original writes, and what this crate does.
//! docs/reference/generator.md lists them for people.

const ERROR: &str = "<error>";

/// Template, the original's first message, ours.
const CASES: &[(&str, &str, &str)] = &[
    // Characters beyond U+FFFF are two of Java's, each written on its own.
    ("😀 {{concat('é😀')}}", "?? é??", "😀 é😀"),
    // A last brace is followed by the character U+FFFF, which is no character.
    ("x{", "x{\u{ffff}", "x{"),
    ("{{concat('a')\\", "a", "a"),
    ("{{a\\", "{{a\\\u{ffff}}}", "{{a\\}}"),
    // The name that the original's documentation uses.
    ("{{countryList('IN')}}", "{{countryList('IN')}}", "India"),
    // Elements without an end are lost.
    ("['{{repeat(2)}}', 5 ", "[", ERROR),
    ("<r>'{{repeat(2)}}',<a x='1'>{{index()}}</a></r>", "<r>", ERROR),
    // Copied text that is read together with what surrounds it.
    ("{'{{repeat(2)}}',{\"a\":1}}", "{{\"a\":1},\n{\"a\":1}}", ERROR),
    // Rules of summer time.
    ("{{addDays('HH:mm z','09:27 PST',1)}}", "09:27 PST", "{{addDays('HH:mm z','09:27 PST',1)}}"),
    // Weeks and weekdays are written, not read.
    (
        "{{toTimestamp('Sun 2018','EEE yyyy')}}",
        "1515283200000",
        "{{toTimestamp('Sun 2018','EEE yyyy')}}",
    ),
    // Hexadecimal numbers; other conversions of numbers; the part of the day.
    ("{{double('0x1p3','8')}}", "8.0", "{{double('0x1p3','8')}}"),
    ("{{double(8,8,'%a')}}", "0x1.0p3", "{{double(8,8,'%a')}}"),
    ("{{time('6PM','6:01PM','B')}}", "in the evening", "{{time('6PM','6:01PM','B')}}"),
    ("{{time('6PM','6:01PM','ppphh')}}", " 06", "{{time('6PM','6:01PM','ppphh')}}"),
    // Operators of the automaton library's expressions.
    ("{{regexify('ab&ab')}}", "ab", "{{regexify('ab&ab')}}"),
];

#[test]
fn differences_are_those_written_down() {
    let templates: Vec<&str> = CASES.iter().map(|(template, ..)| *template).collect();
    let originals = super::original(&templates, 1);
    let first = |messages: super::Messages| match messages {
        Ok(mut messages) => messages.remove(0),
        Err(_) => ERROR.to_owned(),
    };
    for ((template, theirs, ours), original) in CASES.iter().zip(originals) {
        assert_eq!(first(original), *theirs, "original: {template}");
        assert_eq!(first(super::ours(template, 1)), *ours, "ours: {template}");
    }
}
