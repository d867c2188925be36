//! What is XML and what is not.

use proptest::prelude::*;

use super::*;

fn start(name: &str, attributes: &[(&str, &str)]) -> Event {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Event::Start { name: name.to_owned(), attributes: attributes.iter().map(owned).collect() }
}

fn end(name: &str) -> Event {
    Event::End(name.to_owned())
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

#[test]
fn elements_attributes_and_texts_are_events() {
    let xml = "<?xml version=\"1.0\"?>\n<!-- x --><p a='1' b=\"&lt;&#65;\"> x<![CDATA[<&]]>&amp;\r\n\
               <q/>y<!-- z -->z</p> and so on";
    let wanted = [
        start("p", &[("a", "1"), ("b", "<A")]),
        text(" x<&&\n"),
        start("q", &[]),
        end("q"),
        text("y"),
        text("z"),
        end("p"),
    ];
    assert_eq!(events(xml), Ok(wanted.to_vec()));
}

#[test]
fn what_is_no_xml_ends_the_events() {
    let wrong = [
        "",
        " ",
        "x",
        "<",
        "<p",
        "<p>",
        "<p></q>",
        "<p a></p>",
        "<p a=1></p>",
        "<p a='1' a='2'/>",
        "<p a='1'b='2'/>",
        "<p a='<'/>",
        "<p>&#0;</p>",
        "<p>&lt</p>",
        "<p>]]></p>",
        "<p>\u{1}</p>",
        "<1/>",
        "<p><!-- -- --></p>",
        " <?xml version='1.0'?><p/>",
        "<p><?xml x?></p>",
        "</p>",
    ];
    for xml in wrong {
        let found = events(xml).expect("it has no entities");
        assert_eq!(found.last(), Some(&Event::Malformed), "{xml}");
    }
}

#[test]
fn declared_entities_are_refused() {
    let xml = "<!DOCTYPE p [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><p>&b;</p>";
    assert!(events(xml).is_err());
    assert!(events("<p>&b;</p>").is_err());
}

#[test]
fn elements_are_nested_to_a_depth() {
    let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    let is_read = |depth| {
        let found = events(&nested(depth)).expect("it has no entities");
        found.last() != Some(&Event::Malformed)
    };
    assert!(is_read(1_000));
    assert!(!is_read(1_001));
}

fn tree(xml: &str) -> Tree {
    Tree::of(xml).expect("it has no entities").expect("it is XML")
}

/// What a path finds, as a text.
fn text_at(xml: &str, path: &str) -> String {
    let tree = tree(xml);
    let path = parse(path).unwrap_or_else(|problem| panic!("{path}: {problem}"));
    evaluate(&tree, &path).expect("there is little to do").text(&tree)
}

const BOOKS: &str = "<shop><book id='1' lang='de'><title>Faust</title><price>10</price></book>\
    <book id='2'><title>Emma</title><price>7.5</price></book><cd id='3'>Tosca</cd></shop>";

#[test]
fn paths_find_nodes() {
    for (path, wanted) in [
        ("shop/book/title", "Faust"),
        ("/shop/book[2]/title", "Emma"),
        ("//book[last()]/@id", "2"),
        ("shop/book[@id='2']/title/text()", "Emma"),
        ("shop/book[price < 8]/title", "Emma"),
        ("//price/../title", "Faust"),
        ("//title[. = 'Emma']/preceding-sibling::*", ""),
        ("//title[. = 'Emma']/following-sibling::price", "7.5"),
        ("//cd/preceding-sibling::book[1]/@id", "2"),
        ("//price/ancestor::shop/cd", "Tosca"),
        ("shop/*[3]", "Tosca"),
        ("shop/missing", ""),
        ("count(//book)", "2"),
        ("count(//@*)", "4"),
        ("sum(//price)", "17.5"),
        ("count(//book | //cd | //book)", "3"),
        ("shop/book/price * 2 + 1", "21"),
        ("-shop/book/price div 4", "-2.5"),
        ("7 mod 4 - 1", "2"),
        ("concat(substring('hello', 2, 3), '-', string-length('abc'))", "ell-3"),
        ("normalize-space('  a   b ')", "a b"),
        ("translate('abc', 'ab', 'x')", "xc"),
        ("substring-before('1999/04', '/')", "1999"),
        ("name(shop/*[3])", "cd"),
        ("not(//dvd) and //cd", "true"),
        ("shop/book/@lang = 'de'", "true"),
        ("shop/book/title != 'Faust'", "true"),
        ("number('x')", "NaN"),
        ("1 div 0", "Infinity"),
        ("string(/)", "Faust10Emma7.5Tosca"),
    ] {
        assert_eq!(text_at(BOOKS, path), wanted, "{path}");
    }
}

#[test]
fn what_is_no_path_is_refused() {
    let deep = "(".repeat(10_000);
    let long = "1+".repeat(10_000) + "1";
    let wrong = [
        "",
        "a/",
        "a[",
        "a]",
        "$x",
        "f()",
        "count()",
        "a b",
        "@",
        "'a",
        "1.2.3",
        "following::a",
        "comment()",
        "a::b",
        "//",
        deep.as_str(),
        long.as_str(),
    ];
    for path in wrong {
        assert!(parse(path).is_err(), "{path}");
    }
}

#[test]
fn a_path_does_not_work_without_end() {
    let many = format!("<p>{}</p>", "<a/>".repeat(20_000));
    let path = parse("count(//a[count(//a) > 0])").expect("it is a path");
    assert!(evaluate(&tree(&many), &path).is_err());
    assert!(Tree::of("<p/>x").expect("it has no entities").is_none());
}

proptest! {
    #[test]
    fn any_path_is_read_or_refused(path in any::<String>()) {
        if let Ok(path) = parse(&path) {
            let _ = evaluate(&tree(BOOKS), &path);
        }
    }

    #[test]
    fn any_text_has_events(xml in any::<String>()) {
        let _ = events(&xml);
        let _ = events(&format!("<p>{xml}</p>"));
    }
}
