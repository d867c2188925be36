//! Credentials from options, files and servers that tests play.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use millstream_engine::api::options::Options;
use millstream_store::env::{Clock, Rng};
use millstream_store::error::{Classified as _, Kind};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A key that was made for these tests and opens nothing, in base64.
const KEY: &[&str] = &[
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7NIQ7BBLazk0O",
    "UthEcOzbqRie2a1bdy4cmlvg85T7+JGA7PDvuz7d3wy7qPYlCzQ8j1qc4h4LSXov",
    "FR7l4sbFSLKmuOImlAI24hXgaZCJt4Rbv2hr7yhmRvJ9mcDMNsZPMTvaJsSciQe7",
    "lO7G8oJgOLMrAAe2+Djo4oMotGhQDzZVigDnEmjomlAWDAsVdwdfwmYaQt9d4lMZ",
    "Xk3lbJUZakmFMqvYe2bhXFfsAt6N5kmYlwkOr5BsT6N7t8bZwarEmHAfPAdJlWH3",
    "MtKqZ2WVO3hLdBvgbrBME750zUyB9WifL7emfUpBxmx2Unmw87J+Cr/qbA9jpPWC",
    "cnkaLWETAgMBAAECggEAGH0VMxckVEUaZV5G9iUDhvSGyPjWqZlciddTX4jdm1x3",
    "xDK6jdGjtqhf5QiEMnJVwfpKsy0NGxLgjdoocZAJynLpE9ApnTxNUdqfW/zTMIC2",
    "Kr5OLZhaY46yV+XOB6i+pktddfsOSx/NyCcCWToN/gJMxbo6SCAOacB/wcpfvuEU",
    "lQCW2Mepf9Bfl8JE8L+01MAUvgA2KAo5SUFU90nvZwUaoY9p/OLHPg7OUd6CQt1Q",
    "7ug5LUaZCdJ/aQkTPpRkoRgrJhap3rIFlo6RuwmrtOQo5UtobOWWDGOECgzoFGsq",
    "vsd05PQpNn5fRTReW44uoQl3E/P/G7NqQ9lTyNJLCQKBgQD/z2uK4bLoaakwQZJS",
    "unPW53Pmct9ugTVK+KCLD1a1CRi3V+bqdaTfEIQMU9plHFpdJGo1Z+iGOSItK/eM",
    "JH5Emy3BBUDCCEhof9eY8GypbOTk5CDsgxiu3yRe7T0hvBRXDaRmxrHdSkXPRnpr",
    "lmbFkY6UyC1jXqVxhqD61ej/rQKBgQC7WBFi5hfbSh8J6G1G6Yzr9GmRazgyeXc2",
    "TxE/EfXIn8G1z7WoHVQA4MJs9YJh7n+Y1fdA1sVq/1KSmqDWPEbMCJr2V7XQi/yc",
    "CwuMGGscO+5d2VNuqUXK5lV0rykkX3pPthaZJ+hi0wY/+Q84xxKE2dlNV5rDFNa5",
    "57Q9fkj7vwKBgQC9Y0szXzWda9yepW03YmMwz9q22oUgwvg5sSjqy0heb4Wk96c2",
    "HjMaEpgwqEQgZ4VfP/6B25QDC3mKB+sWDk6NbHXLWaBABvHUrBFqYVWRedVcwKi/",
    "ca9siDfdL7b6qsxERw1YKfK06rAUbRFlZcxgqQrui+VOlFvYWNwF2SjPYQKBgHCM",
    "fAV6TiLD6Nm+9MeBT9QBRdrDG0PXjTLnVWkalRouP+XGH1AcLndIkAV9iRLkgWuE",
    "P8KIRJn/QdApbS7Hj5DMKqyMDQJ41w235PwJP2/64T0obuMwdmlq7zPmd0UOxyBU",
    "OEdSnl2ggUS1j9uAXTPK3K2GT8ebIVUWSkYXNClpAoGAWnPI8I8SFZ0WGdLC93nd",
    "fAyWulsaGGED0BLFqQa55MS2/Go5QbFPyaXpebJx0VICxhPIKohn0M1Du/iNTKZ9",
    "NcPpTaufSMPPSu9pxDkexNaRUU6tzviFzu6DA5VKIr7tcu0usVpy7rVgR0V/oVIH",
    "NhnLuX19eFejvbYcyxgoLC0=",
];

fn pem() -> String {
    let label = "PRIVATE KEY";
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", KEY.join("\n"))
}

/// Answers requests, one after the other, with what `answer` makes of each; gives its address.
async fn server(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    Env::real().spawn("server", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            loop {
                let mut piece = vec![0; 16 << 10];
                let length = stream.read(&mut piece).await.expect("it can be read");
                request.extend_from_slice(&piece[..length]);
                let text = String::from_utf8_lossy(&request);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= wanted.map_or(0, |text| text.parse().expect("a number")) {
                    break;
                }
            }
            let (status, body) = answer(&String::from_utf8_lossy(&request));
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n");
            let text = format!("{head}connection: close\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await.expect("it can be written");
        }
    });
    address
}

fn key_file(directory: &std::path::Path, content: &Value) -> Place {
    let path = directory.join("key.json");
    std::fs::write(&path, content.to_string()).expect("it can be written");
    Place::File(path)
}

#[tokio::test]
async fn a_key_file_becomes_a_token_that_is_kept() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = server(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let (_, form) = request.split_once("\r\n\r\n").expect("it has a body");
        let form: Vec<_> = url::form_urlencoded::parse(form.as_bytes()).collect();
        assert_eq!(form[0].1, "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let parts: Vec<&str> = form[1].1.split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("it is base64");
        let claims: Value = serde_json::from_slice(&decode(parts[1])).expect("it is JSON");
        assert_eq!(claims["iss"], "me@example");
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
        let header: Value = serde_json::from_slice(&decode(parts[0])).expect("it is JSON");
        assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "7"}));
        assert_eq!(decode(parts[2]).len(), 256, "a signature of 2048 bits");
        (200, json!({"access_token": "sesame", "expires_in": 3599}).to_string())
    })
    .await;
    let directory = tempfile::tempdir().expect("a directory can be made");
    let place = key_file(
        directory.path(),
        &json!({
            "type": "service_account", "project_id": "p", "client_email": "me@example",
            "private_key": pem(), "private_key_id": "7",
            "token_uri": format!("http://{address}/token"),
        }),
    );
    let credentials = Credentials::read(&place, &Env::real()).expect("it is a key file");
    assert_eq!(credentials.project(), Some("p"));
    for _ in 0..2 {
        assert_eq!(credentials.token().await.expect("a token"), "sesame");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    credentials.forget();
    credentials.token().await.expect("a token");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_metadata_server_is_asked_where_there_is_nothing_else() {
    let address = server(|request| {
        let head = request.to_ascii_lowercase();
        assert!(head.starts_with("get /computemetadata/v1/instance/service-accounts/default/"));
        assert!(head.contains("metadata-flavor: google"), "{head}");
        (200, json!({"access_token": "open", "expires_in": 100}).to_string())
    })
    .await;
    let place = Place::Metadata { host: address };
    let credentials = Credentials::read(&place, &Env::real()).expect("nothing is read");
    assert_eq!(credentials.token().await.expect("a token"), "open");
}

#[tokio::test]
async fn what_google_refuses_is_said_and_a_silent_server_is_tried_again() {
    for (status, kind, said) in
        [(400, Kind::Credentials, "invalid_grant it was deleted"), (503, Kind::Retry, "503")]
    {
        let address = server(move |_| {
            let text = json!({"error": "invalid_grant", "error_description": "it was deleted"});
            (status, text.to_string())
        })
        .await;
        let directory = tempfile::tempdir().expect("a directory can be made");
        let user = json!({
            "type": "authorized_user", "client_id": "c", "client_secret": "s",
            "refresh_token": "r", "token_uri": format!("http://{address}/token"),
        });
        let place = key_file(directory.path(), &user);
        let credentials = Credentials::read(&place, &Env::real()).expect("it is a file of gcloud");
        let error = credentials.token().await.expect_err("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// A clock that a test moves.
struct MovedClock {
    real: Env,
    ahead_s: AtomicU64,
}

impl Clock for MovedClock {
    fn now_us(&self) -> i64 {
        self.real.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + Duration::from_secs(self.ahead_s.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(duration)
    }
}

impl Rng for MovedClock {
    fn next_u64(&self) -> u64 {
        self.real.random_u64()
    }
}

#[tokio::test]
async fn a_token_is_used_to_its_end_where_nobody_gives_a_new_one() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = server(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => (200, json!({"access_token": "old", "expires_in": 1_000}).to_string()),
        1..=3 => (503, "not now".to_owned()),
        _ => (200, json!({"access_token": "new", "expires_in": 1_000}).to_string()),
    })
    .await;
    let clock = Arc::new(MovedClock { real: Env::real(), ahead_s: AtomicU64::default() });
    let env = Env::new(clock.clone(), clock.clone());
    let place = Place::Metadata { host: address };
    let credentials = Credentials::read(&place, &env).expect("nothing is read");
    assert_eq!(credentials.token().await.expect("a token"), "old");
    clock.ahead_s.store(900, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(credentials.token().await.expect("it has not ended"), "old");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "not at every call");
    clock.ahead_s.store(950, Ordering::Relaxed);
    assert_eq!(credentials.token().await.expect("it has not ended"), "old");
    clock.ahead_s.store(1_001, Ordering::Relaxed);
    let error = credentials.token().await.expect_err("it has ended");
    assert_eq!(error.kind(), Kind::Retry, "{error}");
    assert_eq!(credentials.token().await.expect("it is there again"), "new");
}

#[tokio::test]
async fn a_metadata_server_that_cannot_be_reached_is_none_unless_there_was_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let place = Place::Metadata { host: listener.local_addr().expect("it is bound").to_string() };
    drop(listener);
    let mut credentials = Credentials::read(&place, &Env::real()).expect("nothing is read");
    let error = credentials.token().await.expect_err("nobody is there");
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(error.to_string().contains("GOOGLE_APPLICATION_CREDENTIALS"), "{error}");
    credentials.had_token = true.into();
    let error = credentials.token().await.expect_err("nobody is there");
    assert_eq!(error.kind(), Kind::Retry, "{error}");
    let busy = server(|_| (500, "not yet".to_owned())).await;
    let place = Place::Metadata { host: busy };
    let credentials = Credentials::read(&place, &Env::real()).expect("nothing is read");
    let error = credentials.token().await.expect_err("it is not ready");
    assert_eq!(error.kind(), Kind::Retry, "{error}");
}

#[test]
fn what_is_no_key_is_named_and_not_shown() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let read = |place: &Place| Credentials::read(place, &Env::real()).expect_err("it is refused");
    let options = |private_key: &str| Place::Options {
        email: "me@example".to_owned(),
        private_key: private_key.to_owned(),
        key_id: None,
    };
    let pem = pem();
    let cut = pem.replace(KEY[3], "");
    for (place, said) in [
        (options("tea"), "lacks the line"),
        (options(&cut), "cannot be used"),
        (key_file(directory.path(), &json!({"type": "external_account"})), "'external_account'"),
    ] {
        let error = read(&place);
        assert_eq!(error.kind(), Kind::Config);
        let text = error.to_string();
        assert!(text.contains(said) && !text.contains(KEY[0]), "{text}");
    }
    let error = read(&Place::File(directory.path().join("none.json")));
    assert!(error.to_string().contains("none.json"), "{error}");
    // A key in an environment variable often has its line breaks written out.
    Credentials::read(&options(&pem.replace('\n', "\\n")), &Env::real())
        .expect("it is the same key");
}

#[test]
fn options_name_one_place() {
    let parse = |options: &[(&str, &str)]| {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Place::parse(&Options::new(options), std::path::Path::new("/base"))
    };
    let file = parse(&[("credentialsFile", "key.json")]).expect("it is one");
    assert!(matches!(file, Place::File(path) if path.ends_with("base/key.json")));
    let own = parse(&[("clientEmail", "e"), ("privateKey", "k"), ("privateKeyId", "i")]);
    assert!(matches!(own, Ok(Place::Options { .. })));
    for (wrong, said) in [
        (&[("clientEmail", "e")][..], "'privateKey' is missing"),
        (&[("privateKey", "e")][..], "'clientEmail' is missing"),
        (&[("privateKey", "k"), ("clientEmail", "e"), ("credentialsFile", "f")][..], "both given"),
    ] {
        let error = parse(wrong).expect_err("it is refused");
        assert!(error.to_string().contains(said), "{error}");
    }
}
