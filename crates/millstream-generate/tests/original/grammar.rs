//! What is random: every output of both matches one expression, and numbers lie in one range.

use regex::Regex;

const DRAWS: usize = 200;

/// Template, expression, and the range that the first number in it lies in, both ends included.
type Case = (&'static str, &'static str, Option<(f64, f64)>);

/// The original has `Tri@Tribalog` and `Hartsville/Hartley`.
const WORDS: &str = r"[A-Za-z][A-Za-z.'@/ -]*";

const CASES: &[Case] = &[
    (
        r#"{ "logStreamId": "{{integer(1000001,2000000)}}", "message": "{{alphaNumeric(962)}}" }"#,
        r#"\{ "logStreamId": "(1\d{6})", "message": "[A-Za-z0-9]{962}" \}"#,
        Some((1_000_001.0, 1_999_999.0)),
    ),
    ("{{integer(1,4)}}", r"([123])", None),
    ("{{integer(-5,5)}}", r"(-?\d)", Some((-5.0, 4.0))),
    ("{{integer(-2147483648,-1)}}", r"(-\d+)", Some((-2_147_483_648.0, -2.0))),
    ("{{integer(integer(1,3),5)}}", r"([1-4])", None),
    ("{{long(1,3)}}", r"([123])", None),
    ("{{long(-9223372036854775808,9223372036854775807)}}", r"(-?\d{1,19})", None),
    ("{{long(5L,5000000000L)}}", r"(\d+)", Some((5.0, 5e9))),
    ("{{float(1,2)}}", r"(1\.\d{1,8}|2\.0)", Some((1.0, 2.0))),
    ("{{floating(-1000,1000,'%.2f')}}", r"(-?\d{1,4}\.\d\d)", Some((-1000.0, 1000.0))),
    ("{{double(1e-9,1e-5)}}", r"(\d\.\d+E-\d)", Some((1e-9, 1e-5))),
    ("{{double(1e7,1e9)}}", r"(\d\.\d+E[78])", Some((1e7, 1e9))),
    ("{{double(5,1)}}", r"(\d\.\d+)", Some((1.0, 5.0))),
    ("{{double(1000,100000,'%,12.3f')}}", r" {2,3}\d{1,2},\d{3}\.\d{3}", None),
    ("{{double(0,1,'%e')}}", r"(\d\.\d{6}e[-+]\d\d)", Some((0.0, 1.0))),
    ("{{bool()}} {{bool(0.5)}} {{gender(0.5)}}", r"(true|false) (true|false) (true|false)", None),
    ("{{gender()}}", "(male|female)", None),
    (
        "{{uuid()}} {{guid('TRUE')}}",
        r"([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12} ?){2}",
        None,
    ),
    ("{{uuid('false')}} {{guid('')}}", "([0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15} ?){2}", None),
    ("{{hex()}} {{hex(3)}} {{objectId()}}", "[0-9a-f]{32} [0-9a-f]{6} [0-9a-f]{24}", None),
    ("{{alpha()}} {{alphaNumeric()}}", "[A-Za-z]{10,19} [A-Za-z0-9]{10,19}", None),
    ("{{alpha(3)}} {{alpha('3')}} {{alpha(1,3)}}", "[A-Za-z]{3} [A-Za-z]{3} [A-Za-z]{1,2}", None),
    ("{{alphaNumeric(0,2)}}|{{alphaNumeric(25)}}", r"[A-Za-z0-9]?\|[A-Za-z0-9]{25}", None),
    ("{{random('a','b',index('r'))}}", r"(a|b|\d+)", None),
    ("{{phone()}}", r"([1-7][0-7][0-7])-(\d{3})-\d{4}", Some((100.0, 777.0))),
    ("{{ssn()}}", r"(\d{3})-(\d\d)-\d{4}", Some((1.0, 798.0))),
    ("{{ipv4()}}", r"(((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.|$)){4})", None),
    (
        "{{ipv6()}} {{ipv6('lower')}} {{ipv6('x')}}",
        "((([1-9a-f]?[0-9a-f]?[048c]01|1)(:(0|[1-9a-f][0-9a-f]{0,3})){2}:\
         (0|[1-7][0-9a-f]{3}|[1-9a-f][0-9a-f]{0,2})[: ]?){2}){3}",
        None,
    ),
    ("{{ipv6('upper')}}", "(0|[1-9A-F][0-9A-F]{0,3})(:(0|[1-9A-F][0-9A-F]{0,3})){7}", None),
    ("{{username()}}", "[a-z][a-z' -]+", None),
    ("{{email()}}", r"[a-z]+\.[a-z' -]+@[a-z@]+\.com", None),
    ("{{email('EX.com')}}", r"[a-z]+\.[a-z' -]+@ex\.com", None),
    (
        "{{firstName()}}|{{firstName('male')}}|{{firstName('x')}}",
        r"(WORDS)\|(WORDS)\|(WORDS)",
        None,
    ),
    ("{{lastName()}}|{{surname()}}|{{company()}}", r"(WORDS)\|(WORDS)\|(WORDS)", None),
    ("{{city()}}|{{state()}}|{{street()}}", r"(WORDS)\|(WORDS)\|(WORDS)", None),
    ("{{country()}}", r"[A-Z][A-Za-z.'&;,() -]+", None),
    (
        "{{countriesList()}}",
        r#"\{ "AD|AF": ".*"[A-Z]{2}": "[^"]+" \}|\{ "AF": .*|\{ "AD": .*"#,
        None,
    ),
    ("{{lorem(1,'words')}} {{lorem(4,'words')}}", "[a-z]+ lorem ipsum [a-z]+ [a-z]+", None),
    (
        "{{lorem(2,'paragraphs')}}",
        r"\t(Lorem ipsum( [a-z]+){3,32}\.){2,6}\n\n\t(Lorem ipsum( [a-z]+){3,32}\.){2,6}",
        None,
    ),
    (
        "{{date()}}",
        "(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [1-3]?[0-9] [A-Z][a-z]{2} [0-9]{4} \
          [0-2][0-9]:[0-5][0-9]:[0-5][0-9] UTC",
        None,
    ),
    (
        "{{date('yyyy-MM-dd HH:mm:ss.SSS')}}",
        r"\d{4}-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d\.\d{3}",
        None,
    ),
    (
        "{{date('01-01-2018 00:00:00','03-01-2018 00:00:00')}}",
        r"(Mon, 1|Tue, 2) Jan 2018 \d\d:\d\d:\d\d UTC",
        None,
    ),
    ("{{date('01-01-2018 00:00:00','03-01-2018 00:00:00','dd')}}", "(01|02)", None),
    ("{{date('2018','2016','yyyy','yyyy')}}", "(2016|2017|2018)", None),
    ("{{timestamp()}} {{timestampSeconds()}}", r"\d{13} \d{10}", None),
    (
        "{{timestamp('01-01-2018 00:00:00','01-01-2018 00:00:01')}}",
        r"(15147648000?\d{0,3}|\d{13})",
        Some((1_514_764_800_000.0, 1_514_764_800_999.0)),
    ),
    (
        "{{timestampSeconds('01-01-2018 00:00:00','01-01-2018 00:01:00')}}",
        r"(\d{10})",
        Some((1_514_764_800.0, 1_514_764_859.0)),
    ),
    ("{{toTimestamp(date())}}", r"\d{10}000", None),
    ("{{time()}}", r"(1[0-2]|[1-9]):[0-5]\d [AP]M", None),
    (
        "{{time('HH:mm:ss.SSS A n N k K h a')}}",
        r"[0-2]\d:[0-5]\d:[0-5]\d\.\d{3} \d+ \d+ \d+ \d+ \d+ \d+ [AP]M",
        None,
    ),
    ("{{time('6:05PM','6:07PM','HH:mm:ss')}}", "18:0[56]:[0-5][0-9]", None),
    ("{{regexify('[a-c]{3\\}x?(foo|bar)+')}}", "[a-c]{3}x?(foo|bar)+", None),
    ("{{regexify('[0-9A-F]{4,\\}z*')}}", "[0-9A-F]{4,}z*", None),
    ("{{regexify('(ab){2,3\\}|c')}}", "(ab){2,3}|c", None),
    ("['{{repeat(1,3)}}', {} ]", r"\[ \{\}(,\n \{\}){0,2} \]", None),
    ("['{{repeat(0,1)}}', {} ]", r"\[( \{\})? \]", None),
    (
        "['{{repeat(integer(1,3))}}', {\"a\":['{{repeat(1,2)}}', \"x\"]} ]",
        r#"\[ (\{"a":\[( "x",?\n?){1,2}\]\}(,\n )?){1,2} \]"#,
        None,
    ),
];

#[test]
fn what_is_random_matches_one_description() {
    let templates: Vec<&str> = CASES.iter().map(|(template, ..)| *template).collect();
    let originals = super::original(&templates, DRAWS);
    let mut complaints = Vec::new();
    for ((template, expression, range), original) in CASES.iter().zip(originals) {
        let expression = format!("^(?s:{})$", expression.replace("WORDS", WORDS));
        let expression = Regex::new(&expression).expect("the expression is one");
        for (whose, outputs) in [("original", original), ("ours", super::ours(template, DRAWS))] {
            let outputs = outputs.unwrap_or_else(|error| panic!("{whose} {template}: {error}"));
            let wrong = outputs.iter().find(|output| !matches(output, &expression, *range));
            complaints.extend(wrong.map(|output| format!("{whose}: {template}: {output}")));
            if is_fixed(&outputs) {
                complaints.push(format!("{whose}: {template}: always {}", outputs[0]));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn matches(output: &str, expression: &Regex, range: Option<(f64, f64)>) -> bool {
    let Some(found) = expression.captures(output) else { return false };
    let Some((low, high)) = range else { return true };
    found[1].parse().is_ok_and(|number: f64| (low..=high).contains(&number))
}

/// Whether draws were no draws. The present time may be the same each time, in two lists of names
/// there is one.
fn is_fixed(outputs: &[String]) -> bool {
    let may_be_fixed = |output: &String| {
        output.contains("UTC")
            || output.contains(':')
            || output.chars().all(|c| c.is_ascii_digit() || c == ' ')
    };
    outputs.iter().all(|output| *output == outputs[0]) && !may_be_fixed(&outputs[0])
}
