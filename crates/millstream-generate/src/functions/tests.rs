//! Each function by itself, and what templates say about mistakes. That values are those of the
//! original is for tests/original.rs.

use millstream_fuzz::Target;
use proptest::prelude::*;

use crate::{Generator, Template};

const NOW_MS: i64 = 1_795_343_763_564;

fn written(text: &str) -> String {
    let template = Template::parse(text).expect("the template can be written");
    let mut generator = Generator::new(&template, 5, NOW_MS);
    let mut out = Vec::new();
    generator.write_message(&mut out).expect("the message can be written");
    String::from_utf8(out).expect("messages are UTF-8")
}

/// Five hundred values of a call.
fn values(call: &str) -> Vec<String> {
    let template = Template::parse(&format!("{{{{{call}}}}}")).expect("it is a template");
    assert_eq!(template.warnings(), [], "{call}");
    let mut generator = Generator::new(&template, 9, NOW_MS);
    let value = |_| {
        let mut out = Vec::new();
        generator.write_message(&mut out).expect("the message can be written");
        String::from_utf8(out).expect("messages are UTF-8")
    };
    (0..500).map(value).collect()
}

#[test]
fn every_function_gives_a_value_of_its_form() {
    let word = "[A-Z][A-Za-z -]*";
    let cases = [
        ("integer(1,4)", "[123]"),
        ("long(1,3)", "[123]"),
        ("float(1,2)", r"[12]\.\d+"),
        ("floating(1,2,'%.1f')", r"[12]\.\d"),
        ("double(1,2,'%6.2f')", r"  [12]\.\d\d"),
        ("bool()", "true|false"),
        ("gender()", "male|female"),
        ("uuid()", "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        ("guid('no')", "[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}"),
        ("hex(3)", "[0-9a-f]{6}"),
        ("objectId()", "[0-9a-f]{24}"),
        ("alpha(3,5)", "[A-Za-z]{3,4}"),
        ("alphaNumeric(12)", "[A-Za-z0-9]{12}"),
        ("random('a','b')", "a|b"),
        ("phone()", r"[1-7][0-7][0-7]-[0-7]\d\d-\d{4}"),
        ("ssn()", r"[0-7]\d\d-\d\d-\d{4}"),
        ("ipv4()", r"(\d{1,3}\.){3}\d{1,3}"),
        ("ipv6()", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"),
        ("ipv6('upper')", "([0-9A-F]{1,4}:){7}[0-9A-F]{1,4}"),
        ("firstName()", word),
        ("firstName('male')", word),
        ("lastName()", word),
        ("surname()", word),
        ("company()", word),
        ("city()", word),
        ("state()", word),
        ("street()", word),
        ("country()", word),
        ("username()", "[a-z]{2,}"),
        ("email()", r"[a-z]+\.[a-z]+@[a-z]+\.com"),
        ("email('A.org')", r"[a-z]+\.[a-z]+@a\.org"),
        ("lorem(1,'words')", "[a-z]+"),
        ("lorem(3,'words')", "lorem ipsum [a-z]+"),
        ("lorem(1,'paragraphs')", r"\t(Lorem ipsum( [a-z]+)+\.){2,6}"),
        ("date('01-01-2018 00:00:00','03-01-2018 00:00:00','dd')", "01|02"),
        ("timestamp('01-01-2018 00:00:00','01-01-2018 00:00:01')", r"1514764800\d{3}"),
        ("timestampSeconds('01-01-2018 00:00:00','01-01-2018 00:00:09')", r"151476480\d"),
        ("time('6PM','6:02PM','H:mm:ss')", r"18:0[01]:\d\d"),
        ("regexify('[ab]{2\\}c?')", "[ab]{2}c?"),
        ("repeat(1,3)", "[123]"),
        ("index()", r"\d+"),
    ];
    for (call, expression) in cases {
        let expression = regex::Regex::new(&format!("^({expression})$")).expect("it is one");
        let values = values(call);
        for value in &values {
            assert!(expression.is_match(value), "{call}: {value}");
        }
        assert!(values.iter().any(|value| *value != values[0]), "{call}: always {}", values[0]);
    }
}

#[test]
fn functions_without_choice_give_one_value() {
    let cases = [
        ("{{concat('a',1,concat('b'))}}", "a1b"),
        ("{{substring('word',1,3)}}{{substring('word',3)}}", "ord"),
        ("{{toUpperCase('aé')}}{{toLowerCase('AÉ')}}", "AÉaé"),
        ("{{put('k','v')}}{{get('k')}}", "vv"),
        ("{{index('a',7)}}{{index('a')}}{{resetIndex('a')}}{{index('a')}}", "787"),
        ("{{date()}}", "Sun, 22 Nov 2026 10:36:03 UTC"),
        ("{{time()}} {{time('HH:mm:ss.SSS')}}", "10:36 AM 10:36:03.564"),
        ("{{timestamp()}} {{timestampSeconds()}}", "1795343763564 1795343763"),
        ("{{dateFormat('2018-02','yyyy-MM','MMM yy')}}", "Feb 18"),
        ("{{toTimestamp('2018','yyyy')}}", "1514764800000"),
        ("{{toTimestampSeconds('2018','yyyy')}}", "1514764800"),
        ("{{addYears('yyyy','2018',1)}}{{addMonths('MM','01',1)}}", "201902"),
        ("{{addWeeks('dd','01',1)}}{{addDays('dd','01',1)}}{{addHours('HH','01',1)}}", "080202"),
        ("{{addMinutes('mm','01',1)}}{{addSeconds('ss','01',1)}}", "0202"),
        (
            "{{countriesList('IN')}} {{countryList('IN','FR')}}",
            "India {\"IN\":\"India\",\"FR\":\"France\"}",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(written(text), expected, "{text}");
    }
}

#[test]
fn a_call_with_more_arguments_than_fit_inline_gets_all_of_them() {
    let calls = "concat('x'),".repeat(19);
    assert_eq!(written(&format!("{{{{random({calls}concat('x'))}}}}")), "x");
}

#[test]
fn the_time_and_properties_come_from_the_caller() {
    let template = Template::parse("{{timestamp()}} {{systemProperty('p')}}").expect("it is one");
    let mut generator = Generator::new(&template, 1, 0);
    let mut out = Vec::new();
    generator.write_message(&mut out).expect("it can be written");
    assert_eq!(generator.tokens_left_literal(), 1);
    generator.set_now_ms(77);
    generator.set_property("p", "v");
    out.push(b'|');
    generator.write_message(&mut out).expect("it can be written");
    assert_eq!(String::from_utf8_lossy(&out), "0 {{systemProperty('p')}}|77 v");
}

#[test]
fn a_token_that_stays_literal_is_reported_with_its_place() {
    let template = Template::parse("{\n \"a\": {{Integer(1,2)}},\n \"b\": {{concat('x',)}} }");
    let template = template.expect("it can be written");
    let warnings: Vec<String> = template.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "line 2, column 9: `{{Integer(1,2)}}` is left as it is: there is no function \
              `Integer`; write `integer`",
            "line 3, column 20: `{{concat('x',)}}` is left as it is: `)` is not allowed here; \
              write an argument: a string, a number or a call",
        ]
    );
}

#[test]
fn a_wrong_repetition_is_an_error_with_place_and_remedy() {
    let cases = [
        ("[\n '{{repeat(3,1)}}', {} ]", 2, 5, "3 is not less than 1"),
        ("['{{repeat(x)}}', {} ]", 1, 13, "`)` is not allowed here"),
        ("['{{repeat(2", 1, 2, "`'{{repeat(` has no end"),
        ("['{{repeat(2)}}', 5", 1, 2, "nothing ends the element that is repeated"),
        (
            "['{{repeat(2)}}', '{{repeat(3)}}', 1]",
            1,
            19,
            "a repetition stands where another one's element ends",
        ),
    ];
    for (text, line, column, what) in cases {
        let error = Template::parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert_eq!(error.what, what, "{text}");
        assert!(!error.remedy.is_empty());
    }
}

#[test]
fn a_repetition_by_a_missing_value_fails_and_leaves_nothing() {
    let template =
        Template::parse("a['{{repeat(get('n'))}}', {} ]{{put('n',1)}}").expect("it is one");
    let mut generator = Generator::new(&template, 1, 0);
    let mut out = b"before".to_vec();
    let error = generator.write_message(&mut out).expect_err("nothing was put");
    assert_eq!((error.line, error.column, out.as_slice()), (1, 3, b"before".as_slice()));
}

#[test]
fn nesting_without_end_is_refused() {
    let deep =
        |count| format!("{{{{{}concat('x'){}}}}}", "concat(".repeat(count), ")".repeat(count));
    assert_eq!(written(&deep(199)), "x");
    assert_eq!(written(&deep(100_000)), deep(100_000));
    let repeats = |count| format!("{}1{}", "['{{repeat(1)}}',{".repeat(count), "}]".repeat(count));
    assert!(Template::parse(&repeats(50)).is_ok());
    assert!(Template::parse(&repeats(5_000)).is_err());
}

#[test]
fn dates_beyond_all_time_are_some_date() {
    let most = i32::MAX;
    for unit in ["Years", "Months", "Weeks", "Days", "Hours", "Minutes", "Seconds"] {
        for amount in [i32::MIN, most] {
            let date = format!("{most} {most} {most} {most}");
            written(&format!("{{{{add{unit}('y M d H','{date}',{amount})}}}}"));
            written(&format!("{{{{add{unit}('y M d H','-{date}',{amount})}}}}"));
        }
    }
    written(&format!("{{{{timestamp('01-01--{most} 00:00:00','01-01-{most} 00:00:00')}}}}"));
}

fn template_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z{}'\"\\\\(),0-9é😀 ]{0,6}",
        Just("{{".to_owned()),
        Just("}}".to_owned()),
        Just("'{{repeat(2)}}',".to_owned()),
        Just("'{{repeat(0,2)}}',".to_owned()),
        Just("{{concat('a',index())}}".to_owned()),
        Just("{{toUpperCase(alpha(2))}}".to_owned()),
        Just("{ \"a\": 1 }".to_owned()),
        Just("]".to_owned()),
        Just("<a>".to_owned()),
        Just("</a>".to_owned()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_written_or_an_error(text in template_text()) {
        if let Ok(template) = Template::parse(&text) {
            let mut generator = Generator::new(&template, 1, 0);
            let mut out = Vec::new();
            if generator.write_message(&mut out).is_ok() {
                prop_assert!(std::str::from_utf8(&out).is_ok());
            }
        }
    }

    #[test]
    fn text_without_braces_is_copied(text in "[^{]*") {
        prop_assert_eq!(written(&text), text);
    }

    #[test]
    fn any_arguments_give_a_value_or_a_warning(
        function in 0..super::FUNCTIONS.len(),
        arguments in prop::collection::vec("[a-zA-Z0-9:%.,$+()\\[\\]|*? -]{0,8}", 0..5),
    ) {
        let name = super::FUNCTIONS[function].name;
        let quoted: Vec<String> = arguments.iter().map(|text| format!("\"{text}\"")).collect();
        written(&format!("{{{{{name}({})}}}}", quoted.join(",")));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes(seed: u64) {
        let text = "{{uuid()}}{{alphaNumeric(3,40)}}['{{repeat(0,3)}}', \"{{city()}}\"]";
        let template = Template::parse(text).expect("it is one");
        let write = |seed| {
            let mut generator = Generator::new(&template, seed, 0);
            let mut out = Vec::new();
            for _ in 0..3 {
                generator.write_message(&mut out).expect("it can be written");
            }
            out
        };
        prop_assert_eq!(write(seed), write(seed));
        prop_assert_ne!(write(seed), write(seed ^ 1));
    }

    #[test]
    fn integers_lie_in_their_range(min in -1_000_000..1_000_000_i32, span in 1..1_000_000_i32) {
        let max = min + span;
        let value = written(&format!("{{{{integer({min},{max})}}}}"));
        let value: i32 = value.parse().expect("it is a number");
        prop_assert!((min..max).contains(&value));
    }
}

/// Words of the language: what its texts, patterns and formats are made of.
const WORDS: &[&str] = &[
    "{{",
    "}}",
    "'{{repeat(",
    ")}}',",
    "(",
    ")",
    ",",
    "'",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "<a>",
    "</a>",
    "<",
    "integer(",
    "double(",
    "float(",
    "long(",
    "bool(",
    "date(",
    "timestamp(",
    "dateFormat(",
    "addDays(",
    "addMonths(",
    "time(",
    "regexify(",
    "alpha(",
    "alphaNumeric(",
    "random(",
    "randomize(",
    "concat(",
    "substring(",
    "toUpperCase(",
    "put(",
    "get(",
    "index(",
    "resetIndex(",
    "lorem(",
    "uuid(",
    "hex(",
    "ipv6(",
    "%.2f",
    "%,12.3e",
    "%-+08.3f",
    "%1$s",
    "%%",
    "yyyy-MM-dd HH:mm:ss",
    "EEE, d MMM",
    "dd-MM-yyyy",
    "SSS",
    "XXX",
    "'T'",
    "[a-z]",
    "[^a]",
    "(a|b)",
    "{2,5}",
    "{3,}",
    "?",
    "*",
    "+",
    "|",
    ".",
    "2026-03-02",
    "01-01-2026 00:00:00",
];

/// The text with each number of more than two digits cut to two: what a template asks for is
/// written, however long it is, and such messages are no defect.
fn modest(text: &str) -> String {
    let mut modest = String::new();
    let mut digits = 0;
    for letter in text.chars() {
        digits = if letter.is_ascii_digit() { digits + 1 } else { 0 };
        if digits <= 2 {
            modest.push(letter);
        }
    }
    modest
}

fn write(text: &str) -> String {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => return error.to_string(),
    };
    let mut generator = Generator::new(&template, 1, NOW_MS);
    let mut outcome = String::new();
    for warning in template.warnings() {
        outcome.push_str(warning.what.split('`').next().unwrap_or_default());
    }
    for _ in 0..2 {
        let mut out = Vec::new();
        match generator.write_message(&mut out) {
            Ok(()) => assert!(std::str::from_utf8(&out).is_ok()),
            Err(error) => outcome.push_str(&error.to_string()),
        }
    }
    outcome
}

#[test]
fn fuzz_templates() {
    let seeds = [
        r#"{ "id": "{{uuid()}}", "n": {{integer(1,10)}}, "at": "{{date('dd-MM-yyyy HH:mm:ss')}}" }"#,
        r#"['{{repeat(2,3)}}', { "x": {{concat('a',index())}}, "y": ['{{repeat(2)}}', {{float(1,2,'%.2f')}}] }]"#,
        "<a>'{{repeat(2)}}',<b>{{random('a','b')}}</b></a>{{put('k',alpha(3))}}{{get('k')}}",
        "{{regexify('[a-c]{2,5}(x|y)+\"q\"')}} {{toUpperCase(substring(lorem(3,'words'),2,5))}}",
    ];
    Target::text("templates").seeds(seeds).words(WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let parsed = Template::parse(&text);
        // Two repetitions within each other at most, for the same reason.
        let text = modest(&text).replacen("{{repeat(", "{{REPEAT(", 2).replace("{{repeat(", "{{");
        let text = text.replace("{{REPEAT(", "{{repeat(");
        format!("{} {}", parsed.is_ok(), write(&text))
    });
}

/// A call for each line of the input: expressions, patterns and formats as they come, numbers and
/// all, for what has limits of its own.
#[test]
fn fuzz_expressions_patterns_and_formats() {
    let seeds = [
        "[a-c]{2,5}(x|y)+\"q\"\nyyyy-MM-dd'T'HH:mm:ss.SSSXXX\n%-+,12.3f\n2026-03-02 01:02",
        "((a*)*)*[^ -~]\nEEEE d MMMM yy G w W D F k K z\n%(08.2e|%S\n-1",
    ];
    Target::text("expressions").seeds(seeds).words(WORDS).run(|input| {
        // A token ends at a brace that is not escaped.
        let text = String::from_utf8_lossy(input).replace('"', "").replace('}', "\\}");
        let mut lines = text.split('\n');
        let mut next = || lines.next().unwrap_or("1");
        let (expression, pattern, format, date) = (next(), next(), next(), next());
        let calls = [
            format!("regexify(\"{expression}\")"),
            format!("date(\"{pattern}\")"),
            format!("timestamp(\"{date}\")"),
            format!("time(\"{pattern}\")"),
            format!("dateFormat(\"{date}\",\"{pattern}\",\"{date}\")"),
            format!("addMonths(\"{pattern}\",\"{date}\",5)"),
            format!("double(1,2,\"{format}\")"),
            format!("double(-1e300,1e300,\"{format}\")"),
        ];
        calls.map(|call| write(&format!("{{{{{call}}}}}"))).concat()
    });
}
