use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use millstream_engine::api::options::Options;
use millstream_engine::api::sink::BatchId;

use super::mail::{Mail, mails};
use super::*;
use crate::notify::Message as _;
use crate::notify::keys::Keys;

const FIXED: [(&str, &str); 3] =
    [("host", "mail"), ("from", "Alerts <alerts@example.com>"), ("subject", "In {building}")];

fn schema() -> Schema {
    let column = |name: &str| Field::new(name, DataType::Utf8, true);
    Schema::new(vec![column("building"), column("owner")])
}

fn parse(options: &[(&str, &str)]) -> Result<EmailOptions, OptionError> {
    let all = FIXED.iter().chain(options);
    let all = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    EmailOptions::parse(&Options::new(all), &schema())
}

fn rows(values: &[(&str, Option<&str>)]) -> RecordBatch {
    let buildings: StringArray = values.iter().map(|(building, _)| Some(*building)).collect();
    let owners: StringArray = values.iter().map(|(_, owner)| *owner).collect();
    RecordBatch::try_new(Arc::new(schema()), vec![Arc::new(buildings), Arc::new(owners)]).unwrap()
}

fn made(options: &[(&str, &str)], rows: &[RecordBatch]) -> Vec<Mail> {
    let options = parse(options).unwrap();
    let keys = Keys::new("q", "t", BatchId(5));
    mails(&options, keys, 1_767_225_600_000, rows.iter()).unwrap()
}

fn wire(mail: &Mail) -> String {
    String::from_utf8(mail.letter.as_ref().unwrap().formatted()).unwrap()
}

fn envelope(mail: &Mail) -> Vec<String> {
    mail.letter.as_ref().unwrap().envelope().to().iter().map(ToString::to_string).collect()
}

const TO: (&str, &str) = ("to", "guards@example.com, Chief <chief@example.com>");

#[test]
fn what_cannot_be_is_refused_with_the_option() {
    let refused: &[(&str, &[(&str, &str)])] = &[
        ("host", &[("host", " ")]),
        ("port", &[("port", "70000")]),
        ("security", &[("security", "ssl")]),
        ("security", &[("security", "none"), ("user", "a"), ("password", "b")]),
        ("user", &[("user", "a")]),
        ("password", &[("password", "hidden-word")]),
        ("helloName", &[("helloName", "a\r\nMAIL")]),
        ("from", &[("from", "nobody")]),
        ("from", &[("from", "a@example.com\r\nBcc: b@example.com")]),
        ("to", &[("to", "one, two")]),
        ("replyTo", &[("replyTo", "@")]),
        ("subject", &[("subject", "{floor}")]),
        ("subject", &[("subject", "{building}"), ("digest", "true")]),
        ("text", &[("text", "{")]),
        ("maxRowsPerMail", &[("maxRowsPerMail", "5")]),
        ("maxMailsPerMinute", &[("maxMailsPerMinute", "0")]),
        ("sendTimeout", &[("sendTimeout", "0s")]),
    ];
    for (key, options) in refused {
        let error = parse(&[&[TO], *options].concat()).err();
        let error = error.unwrap_or_else(|| panic!("{options:?} is taken"));
        assert_eq!(error.key.as_deref(), Some(*key), "{error:?}");
        assert!(!error.to_string().contains("hidden-word"), "{error}");
    }
    assert!(parse(&[]).err().unwrap().problem.contains("'to' is missing"));
    assert!(parse(&[TO, ("toColumn", "owner")]).is_err());
    assert!(parse(&[("toColumn", "tenant")]).is_err());
}

#[test]
fn a_row_is_a_mail() {
    let options = [TO, ("text", "Door of {BUILDING}, {{urgent}}"), ("replyTo", "desk@a.example")];
    let made = made(&options, &[rows(&[("Köln", None), ("B", None)])]);
    let [first, second] = &*made else { panic!("{made:?}") };
    assert_eq!(envelope(first), ["guards@example.com", "chief@example.com"]);
    let text = wire(first);
    for wanted in [
        "From: Alerts <alerts@example.com>\r\n",
        "To: guards@example.com, Chief <chief@example.com>\r\n",
        "Reply-To: desk@a.example\r\n",
        "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\n",
        "Auto-Submitted: auto-generated\r\n",
        "Content-Type: text/plain; charset=utf-8\r\n",
        &format!("Message-ID: <{}@example.com>\r\n", first.key),
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(wire(second).contains("Subject: In B\r\n"));
    assert!(wire(second).ends_with("\r\n\r\nDoor of B, {urgent}"), "{}", wire(second));
    assert_eq!(first.content()["subject"], "In Köln");
    assert_ne!(first.key, second.key);
}

#[test]
fn hostile_values_become_neither_headers_nor_recipients() {
    let hostile = [
        "a\r\nBcc: evil@example.com",
        "a\nBcc: evil@example.com\n\nbody",
        "a\rBcc: evil@example.com",
        "a\u{2028}Bcc: evil@example.com",
        "a\r\n.\r\nMAIL FROM:<evil@example.com>",
        "=?utf-8?q?a=0d=0aBcc:_evil@example.com?=",
        "a\0b\u{202E}c",
        &"long ".repeat(1_000),
    ];
    for value in hostile {
        let mail = &made(&[TO], &[rows(&[(value, None)])])[0];
        assert_eq!(envelope(mail), ["guards@example.com", "chief@example.com"]);
        let text = wire(mail);
        let (headers, _) = text.split_once("\r\n\r\n").unwrap();
        let names = headers.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
        let mut names: Vec<&str> = names.map(|line| line.split(':').next().unwrap()).collect();
        names.sort_unstable();
        let wanted = ["Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date"];
        let wanted =
            [&wanted[..], &["From", "MIME-Version", "Message-ID", "Subject", "To"]].concat();
        assert_eq!(names.len(), wanted.len());
        for name in wanted {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(text.lines().all(|line| line.len() < 998), "{value:?}");
        let bare = text.replace("\r\n", "");
        assert!(!bare.contains(['\r', '\n', '\0']), "{text:?}");
    }
}

#[test]
fn a_column_has_one_address_and_nothing_else() {
    let options = [("toColumn", "OWNER")];
    let mail = &made(&options, &[rows(&[("A", Some(" owner@example.com "))])])[0];
    assert_eq!(envelope(mail), ["owner@example.com"]);
    for hostile in [
        "a@example.com, b@example.com",
        "a@example.com;b@example.com",
        "a@example.com>\r\nRCPT TO:<b@example.com",
        "Name <a@example.com>",
        "\"a b\"@example.com",
        "a@example.com\nBcc: b@example.com",
        "a",
        "",
    ] {
        let mail = &made(&options, &[rows(&[("A", Some(hostile))])])[0];
        let problem = mail.letter.as_ref().err().unwrap_or_else(|| panic!("{hostile:?} is taken"));
        assert!(problem.contains("'owner'"), "{problem}");
    }
    let mail = &made(&options, &[rows(&[("A", None)])])[0];
    assert!(mail.letter.as_ref().is_err_and(|problem| problem.contains("is null")));
}

#[test]
fn digests_are_the_same_whatever_the_order_of_rows() {
    let options = [
        ("toColumn", "owner"),
        ("digest", "true"),
        ("subject", "{count} doors"),
        ("text", "{building}"),
        ("maxRowsPerMail", "2"),
    ];
    let (one, two) = (Some("one@example.com"), Some("two@example.com"));
    let values = [("C", one), ("A", one), ("X", two), ("B", one)];
    let first = made(&options, &[rows(&values)]);
    let reversed: Vec<_> = values.iter().rev().copied().collect();
    let other = made(&options, &[rows(&reversed[..1]), rows(&reversed[1..])]);
    let shown = |mails: &[Mail]| {
        let show = |mail: &Mail| (mail.key.clone(), wire(mail));
        mails.iter().map(show).collect::<Vec<_>>()
    };
    assert_eq!(shown(&first), shown(&other));
    let told = |mail: &Mail| {
        let content = mail.content();
        ["to", "subject", "text"].map(|name| content[name].as_str().unwrap().to_owned())
    };
    let told: Vec<[String; 3]> = first.iter().map(told).collect();
    assert_eq!(told[0], ["one@example.com", "2 doors", "A\nB\n"]);
    assert_eq!(told[1], ["one@example.com", "1 doors", "C\n"]);
    assert_eq!(told[2], ["two@example.com", "1 doors", "X\n"]);
    assert_eq!(told.len(), 3);
}
