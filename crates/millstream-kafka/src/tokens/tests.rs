//! Tokens of an endpoint made for testing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use millstream_store::env::{Clock, SeededRng};

use super::*;

/// What the endpoint was asked, and its next answers: a status and a body each. Without one it
/// closes the connection.
#[derive(Default)]
struct Asked {
    requests: Mutex<Vec<String>>,
    answers: Mutex<Vec<(u16, String)>>,
}

/// A token endpoint; gives its address as well.
fn endpoint(answers: &[(u16, &str)]) -> (Arc<Asked>, String) {
    let asked = Arc::new(Asked::default());
    let answers = answers.iter().rev().map(|(status, body)| (*status, (*body).to_owned()));
    asked.answers.lock().extend(answers);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let keeps = Arc::clone(&asked);
    // It ends with the test's process.
    std::mem::forget(Env::real().thread("endpoint", move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut text, mut length) = (String::new(), 0);
            while reader.read_line(&mut text).is_ok_and(|read| read > 2) {
                let line = text.lines().next_back().unwrap_or_default().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            keeps.requests.lock().push(text + &String::from_utf8(body).unwrap());
            let Some((status, body)) = keeps.answers.lock().pop() else { continue };
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = reader.get_mut().write_all((head + &body).as_bytes());
        }
    }));
    (asked, url)
}

fn tokens(url: &str) -> Tokens {
    let endpoint = Endpoint {
        url: url.to_owned(),
        id: "ann".to_owned(),
        secret: "pl4nted".to_owned(),
        scope: Some("kafka all".to_owned()),
        authorities: None,
    };
    Tokens::new(Issuer::Endpoint(endpoint), Vec::new())
}

/// A clock that tests move.
#[derive(Clone, Default)]
struct Moved(Arc<AtomicUsize>);

impl Moved {
    fn env(&self) -> Env {
        Env::new(Arc::new(self.clone()), Arc::new(SeededRng::new(1)))
    }

    fn to_s(&self, seconds: usize) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for Moved {
    fn now_us(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64 * 1_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed) as u64)
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_token_is_kept_for_most_of_its_life_and_an_old_one_until_its_end() {
    let one = r#"{"access_token":"one","token_type":"Bearer","expires_in":100}"#;
    let (asked, url) =
        endpoint(&[(200, one), (503, "busy"), (200, r#"{"access_token":"two","expires_in":9.5}"#)]);
    let (tokens, clock) = (tokens(&url), Moved::default());
    let env = clock.env();
    let text = |at_s| {
        clock.to_s(at_s);
        tokens.token(&env).map(|token| (token.text, token.ends_ms))
    };
    assert_eq!(text(0).unwrap(), ("one".to_owned(), 100_000));
    assert_eq!(text(79).unwrap().0, "one");
    assert_eq!(asked.requests.lock().len(), 1);
    assert_eq!(text(80).unwrap().0, "one", "the endpoint is busy");
    assert_eq!(text(84).unwrap().0, "one", "asked a moment ago");
    assert_eq!(asked.requests.lock().len(), 2);
    assert_eq!(text(96).unwrap(), ("two".to_owned(), 105_500));
    let error = text(200).unwrap_err();
    assert_eq!(error.kind(), Kind::Retry, "{error}");
    let request = asked.requests.lock()[0].clone();
    let user = STANDARD.encode("ann:pl4nted");
    assert!(request.contains(&format!("authorization: Basic {user}")), "{request}");
    assert!(request.ends_with("grant_type=client_credentials&scope=kafka+all"), "{request}");
}

#[test]
fn a_token_that_brokers_refuse_is_not_used_again() {
    let (_, url) = endpoint(&[
        (200, r#"{"access_token":"a","expires_in":1e19}"#),
        (200, r#"{"access_token":"b","expires_in":"60"}"#),
    ]);
    let (tokens, env) = (tokens(&url), Moved::default().env());
    assert_eq!(tokens.token(&env).unwrap().text, "a");
    tokens.forget("another");
    assert_eq!(tokens.token(&env).unwrap().text, "a");
    tokens.forget("a");
    assert_eq!(tokens.token(&env).unwrap().text, "b");
}

#[test]
fn refusals_are_final_and_show_no_secret() {
    let refusal = r#"{"error":"invalid_client","error_description":"no pl4nted here"}"#;
    let (_, url) = endpoint(&[(401, refusal), (200, "<html>"), (200, r#"{"access_token":"a b"}"#)]);
    let (tokens, env) = (tokens(&url), Moved::default().env());
    let error = tokens.token(&env).unwrap_err();
    assert_eq!(error.kind(), Kind::Credentials);
    let text = error.to_string();
    assert!(text.contains("401 invalid_client") && text.contains("client.secret"), "{text}");
    assert!(!text.contains("pl4nted") && !format!("{tokens:?}").contains("pl4nted"), "{text}");
    for _ in 0..2 {
        let text = tokens.token(&env).unwrap_err().to_string();
        assert!(text.contains("not a token"), "{text}");
    }
}

#[test]
fn a_file_is_read_again_and_its_claims_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let tokens = Tokens::new(Issuer::File(path.clone()), Vec::new());
    let clock = Moved::default();
    let env = clock.env();
    let missing = tokens.token(&env).unwrap_err();
    assert_eq!(missing.kind(), Kind::Config, "{missing}");
    let write = |subject: &str, ends_s: u32| {
        let claims = format!(r#"{{"sub":"{subject}","exp":{ends_s}}}"#);
        let text = format!("e30.{}.s\n", URL_SAFE_NO_PAD.encode(claims));
        std::fs::write(&path, text).unwrap();
    };
    write("ann", 1_000);
    let token = tokens.token(&env).unwrap();
    assert_eq!((token.principal.as_str(), token.ends_ms), ("ann", 1_000_000));
    write("bob", 2_000);
    assert_eq!(tokens.token(&env).unwrap().principal, "ann");
    clock.to_s(900);
    assert_eq!(tokens.token(&env).unwrap().principal, "bob");
    // Whoever renews it has just begun to write.
    std::fs::write(&path, "").unwrap();
    clock.to_s(1_900);
    assert_eq!(tokens.token(&env).unwrap().principal, "bob");
    std::fs::write(&path, "two words").unwrap();
    tokens.forget(&tokens.token(&env).unwrap().text);
    assert!(tokens.token(&env).unwrap_err().to_string().contains("more than a token"));
}
