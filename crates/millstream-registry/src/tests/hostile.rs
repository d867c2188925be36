//! Servers that mean ill, or are something else.

use std::io::{Read as _, Write as _};

use super::*;
use crate::RegistryError;

/// A server that writes to each connection what `write` does, once it has read something.
fn raw(write: impl Fn(&mut std::net::TcpStream) -> std::io::Result<()> + Send + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let serve = move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it is a connection");
            let _ = stream.read(&mut [0; 4096]);
            // The client may go at any moment.
            let _ = write(&mut stream);
        }
    };
    Env::real().detached_thread("server", serve).expect("there is a thread");
    url
}

fn asked(url: &str, env: &Env) -> RegistryError {
    client(&[url], env).schema(1, &once()).expect_err("it is no answer")
}

#[test]
fn an_answer_that_is_too_large_is_not_read() {
    let announced = raw(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{")?;
        stream.read(&mut [0; 1]).map(drop)
    });
    let endless = raw(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        loop {
            stream.write_all(b"10000\r\n")?;
            stream.write_all(&[b' '; 0x10000])?;
            stream.write_all(b"\r\n")?;
        }
    });
    for url in [announced, endless] {
        let error = asked(&url, &Env::real());
        assert!(matches!(&error, RegistryError::NotARegistry { .. }), "{error}");
        assert!(error.to_string().contains("more than 16 MiB"), "{error}");
    }
    // Up to there it is read.
    let text = "x".repeat((16 << 20) - 100);
    let server = serve(move |_| Said::json(&json!({"schema": text})));
    server.client().schema(1, &patience()).expect("it is not too large");
}

#[test]
fn an_answer_that_trickles_is_given_up() {
    let url = raw(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")?;
        loop {
            stream.write_all(b" ")?;
            pause(&Env::real(), Duration::from_millis(20));
        }
    });
    let error = asked(&url, &hasty(20));
    assert!(matches!(&error, RegistryError::Away { .. }), "{error}");
    assert!(error.to_string().contains("no answer within 10s"), "{error}");
}

#[test]
fn what_is_not_http_or_ends_early_is_away() {
    for answer in [
        &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
        b"\xff\xfe\0\0\0",
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"schema\":",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    ] {
        let url = raw(move |stream| stream.write_all(answer));
        let error = asked(&url, &Env::real());
        assert!(matches!(&error, RegistryError::Away { .. }), "{error}");
    }
}

#[test]
fn json_that_is_deep_is_no_answer() {
    let deep = format!("{{\"schema\": {}", "[".repeat(1 << 20));
    let server = serve(move |_| Said::new(200, deep.clone()));
    let error = server.client().schema(1, &once()).expect_err("it is no answer");
    assert!(matches!(&error, RegistryError::NotARegistry { .. }), "{error}");
    let deep = format!("{{\"schema\": \"x\", \"more\": {}", "[".repeat(1 << 20));
    let server = serve(move |_| Said::new(200, deep.clone()));
    server.client().schema(1, &once()).expect_err("it is no answer");
}

#[test]
fn redirects_are_followed_within_a_server_only() {
    let other = serve(|_| string_schema());
    let to = format!("{}/schemas/ids/1?token=sesame", other.url);
    let server = serve(move |_| Said::new(307, "").header("location", &to));
    let mut settings = settings(&[&server.url]);
    settings.auth = Auth::Bearer { token: "open".into() };
    let registry = Registry::new(&settings, &Env::real()).expect("the settings are good");
    let error = registry.schema(1, &patience()).expect_err("it leads elsewhere");
    assert!(matches!(&error, RegistryError::NotARegistry { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("redirects to {} (307)", other.url)), "{text}");
    assert!(!text.contains("sesame"), "{text}");
    assert_eq!(other.count(), 0, "nobody else was asked");

    let server = serve(|seen| match seen.line.contains("/moved/") {
        true => Said::json(&json!({"schema": "\"string\"", "id": 3})),
        false => {
            let path = seen.line.split(' ').nth(1).expect("it has a path");
            let status = [302, 0, 301, 308][seen.number];
            Said::new(status, "").header("location", &format!("/moved{path}"))
        }
    });
    settings.urls = vec![server.url.clone()];
    let registry = Registry::new(&settings, &Env::real()).expect("the settings are good");
    registry.schema(1, &patience()).expect("it is there");
    registry.register("s", &avro("\"int\""), &patience()).expect_err("a POST would be a GET");
    assert_eq!(server.lines()[2..], ["POST /subjects/s/versions"]);
    registry.register("s", &avro("\"int\""), &patience()).expect("it is taken");
    let seen = server.seen.lock();
    assert_eq!(seen[4].line, "POST /moved/subjects/s/versions");
    assert_eq!(seen[4].body, seen[3].body);
    assert!(seen.iter().all(|seen| seen.authorization.as_deref() == Some("Bearer open")));
}

#[test]
fn redirects_without_end_are_followed_no_further() {
    let server = serve(|seen| Said::new(308, "").header("location", &format!("/{}", seen.number)));
    let error = server.client().schema(1, &patience()).expect_err("it never ends");
    assert!(error.to_string().contains("more than 5 times"), "{error}");
    assert_eq!(server.count(), 6);
    for location in ["", "http://", "\u{1}"] {
        let location = location.replace('\u{1}', "//[");
        let server = serve(move |_| Said::new(303, "").header("location", &location));
        let error = server.client().schema(1, &patience()).expect_err("it leads nowhere");
        assert!(matches!(&error, RegistryError::NotARegistry { .. }), "{error}");
    }
}
