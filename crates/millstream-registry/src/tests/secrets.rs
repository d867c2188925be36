//! Who asks is said to the registry and in no message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_store::error::{Classified as _, Kind};

use super::*;
use crate::Pem;

const PASSWORD: &str = "Wq7/x@ 9:é#Zk";
const TOKEN: &str = "eyJhbGciOiJub25lIn0.e30.Zm9v";

/// The same password in a URL.
const ENCODED: &str = "Wq7%2Fx%40%209%3A%C3%A9%23Zk";

fn basic() -> Auth {
    Auth::Basic { user: "ann".into(), password: PASSWORD.into() }
}

/// All forms in which a secret could be in a text.
fn assert_hidden(text: &str) {
    let base64 = STANDARD.encode(format!("ann:{PASSWORD}"));
    for secret in [PASSWORD, ENCODED, TOKEN, base64.as_str(), "Zk"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[test]
fn the_registry_is_told_who_asks() {
    let expected = format!("Basic {}", STANDARD.encode(format!("ann:{PASSWORD}")));
    let server = serve(|_| string_schema());
    let in_url = server.url.replace("http://", &format!("http://ann:{ENCODED}@"));
    for (url, auth, sent) in [
        (server.url.as_str(), basic(), Some(expected.clone())),
        (&in_url, Auth::None, Some(expected)),
        (&server.url, Auth::Bearer { token: TOKEN.into() }, Some(format!("Bearer {TOKEN}"))),
        (&server.url, Auth::None, None),
    ] {
        let settings = Settings { auth, ..settings(&[url]) };
        let registry = Registry::new(&settings, &Env::real()).expect("the settings are good");
        registry.schema(1, &patience()).expect("it is there");
        assert_eq!(server.seen.lock().last().expect("it was asked").authorization, sent);
    }
}

#[test]
fn no_message_has_a_secret_also_if_the_registry_repeats_it() {
    for status in [200, 302, 400, 401, 403, 404, 409, 422, 500, 503] {
        let server = serve(move |seen| {
            let sent = seen.authorization.clone().expect("it was told");
            let secret = if sent.starts_with("Basic") { PASSWORD } else { TOKEN };
            let text = format!("{sent} {secret}");
            let place = format!("http://ann:{ENCODED}@elsewhere/{TOKEN}");
            match seen.number % 2 {
                0 => Said::new(status, text).header("location", &place),
                _ => Said::error(status, i64::from(status), &text).header("location", &place),
            }
        });
        let in_url = server.url.replace("http://", &format!("http://ann:{ENCODED}@"));
        for (url, auth) in [
            (server.url.as_str(), basic()),
            (&in_url, Auth::None),
            (&server.url, Auth::Bearer { token: TOKEN.into() }),
        ] {
            let settings = Settings { auth, ..settings(&[url]) };
            assert_hidden(&format!("{settings:?}"));
            let registry = Registry::new(&settings, &Env::real()).expect("the settings are good");
            assert_hidden(&format!("{registry:?} {}", registry.urls()));
            for _ in 0..2 {
                let error = registry.latest("s", &once()).expect_err("it is no answer");
                assert_hidden(&error.to_string());
                assert_hidden(&format!("{error:?}"));
                if matches!(status, 401 | 403) {
                    assert_eq!(error.kind(), Kind::Credentials);
                }
            }
        }
    }
}

#[test]
fn who_is_refused_is_named() {
    let server = serve(|_| Said::new(401, ""));
    let settings = Settings { auth: basic(), ..settings(&[&server.url]) };
    let registry = Registry::new(&settings, &Env::real()).expect("the settings are good");
    let text = registry.schema(1, &patience()).expect_err("it is refused").to_string();
    assert!(text.contains("refuses the user 'ann' (401): correct the user and"), "{text}");
}

#[test]
fn settings_that_are_wrong_are_said_without_secrets() {
    let url = format!("http://ann:{ENCODED}@registry:8081");
    let broken = format!("http://ann:{PASSWORD}@registry:8081");
    let colon = Auth::Basic { user: "a:b".into(), password: PASSWORD.into() };
    let lines = Auth::Bearer { token: format!("{TOKEN}\nx: y") };
    for (url, auth, said) in [
        (url.as_str(), basic(), "given in it and beside it"),
        (broken.as_str(), Auth::None, "'http://registry:8081' cannot be the URL"),
        ("http://registry", colon, "no colon"),
        ("http://registry", lines, "line breaks"),
    ] {
        let settings = Settings { auth, ..settings(&[url]) };
        assert_hidden(&format!("{settings:?}"));
        let error = Registry::new(&settings, &Env::real()).expect_err("it is wrong");
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains(said), "{error}");
        assert_hidden(&error.to_string());
    }
}

#[test]
fn a_key_is_not_shown() {
    let pem = || Pem::Text(PASSWORD.into());
    let tls = Tls { own: Some((pem(), pem())), ..Tls::default() };
    let settings = Settings { tls, ..settings(&["https://registry"]) };
    assert_hidden(&format!("{settings:?}"));
    let error = Registry::new(&settings, &Env::real()).expect_err("it is no key");
    assert_hidden(&error.to_string());
    assert_eq!(error.kind(), Kind::Config);
}
