//! Registries that are away: what is repeated, where, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_store::error::{Classified as _, Kind};

use super::*;
use crate::RegistryError;

#[test]
fn a_registry_that_comes_back_is_waited_for() {
    let server = serve(|seen| match seen.number {
        0 => Said::error(503, 503, "starting"),
        1 => Said::error(500, 50_003, "no leader"),
        2 => Said::new(502, "<html>bad gateway</html>"),
        3 => Said::error(429, 429, "slow down").header("retry-after", "1"),
        _ => string_schema(),
    });
    let env = hasty(20);
    let begin = env.monotonic();
    client(&[&server.url], &env).schema(1, &patience()).expect("it comes back");
    assert_eq!(server.count(), 5);
    // 100, 200 and 400 ms, and then the second that it asked for.
    let waited = env.monotonic() - begin;
    assert!(waited >= Duration::from_millis(1_700), "{waited:?}");
}

#[test]
fn patience_ends() {
    let server = serve(|_| Said::error(503, 503, "closed"));
    let env = hasty(20);
    let registry = client(&[&server.url], &env);
    let begin = env.monotonic();
    let limit = Duration::from_secs(20);
    let error = registry.schema(1, &Patience::new(limit)).expect_err("it is away");
    assert_eq!(error.kind(), Kind::Retry);
    let text = error.to_string();
    assert!(text.contains(&server.url) && text.contains("503"), "{text}");
    assert!(text.contains("closed"), "{text}");
    assert!(env.monotonic() - begin >= limit);
    // After 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3 and 20 seconds at the most.
    assert!((2..=10).contains(&server.count()), "{}", server.count());
    let asked = server.count();
    registry.schema(1, &once()).expect_err("it is away");
    assert_eq!(server.count(), asked + 1, "without patience it is asked once");
}

#[test]
fn a_long_wait_that_the_registry_asks_for_is_cut_to_the_patience() {
    let server = serve(|_| Said::new(429, "").header("retry-after", "3600"));
    let registry = client(&[&server.url], &hasty(20));
    registry.schema(1, &Patience::new(Duration::from_secs(10))).expect_err("it is away");
    assert_eq!(server.count(), 2, "at the beginning and at the end");
}

#[test]
fn a_registry_that_does_not_answer_is_given_up() {
    let server = serve(|_| string_schema().after(LONG));
    let error = client(&[&server.url], &hasty(50)).schema(1, &once()).expect_err("it hangs");
    assert!(error.to_string().contains("no answer within 10s"), "{error}");
    assert_eq!(error.kind(), Kind::Retry);
    let nowhere = nowhere();
    let error = client(&[&nowhere], &Env::real()).schema(1, &once()).expect_err("nobody listens");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(matches!(&error, RegistryError::Away { url, .. } if *url == nowhere));
}

#[test]
fn the_next_url_is_asked_before_the_first_again() {
    let nowhere = nowhere();
    let busy = serve(|_| Said::error(503, 503, "busy"));
    let good = serve(|_| string_schema());
    // Without patience: there is no second round.
    let registry = client(&[&nowhere, &busy.url, &good.url], &Env::real());
    registry.schema(1, &once()).expect("the third one answers");
    registry.schema(2, &once()).expect("the third one answers");
    assert_eq!((busy.count(), good.count()), (1, 2), "the one that answered comes first");
    let registry = client(&[&nowhere, &busy.url], &Env::real());
    let text = registry.schema(1, &once()).expect_err("none answers").to_string();
    assert!(text.contains(&format!("{nowhere}, {}", busy.url)), "{text}");
    assert!(text.contains("refused") && text.contains("503"), "{text}");
}

#[test]
fn an_answer_of_one_url_counts_for_all() {
    let good = serve(|_| string_schema());
    for status in [401, 422] {
        let first = serve(move |_| Said::error(status, i64::from(status), "no"));
        let registry = client(&[&first.url, &good.url], &Env::real());
        registry.schema(1, &patience()).expect_err("the first one has spoken");
    }
    assert_eq!(good.count(), 0);
}

#[test]
fn a_caller_may_give_up() {
    let server = serve(|_| Said::error(503, 503, "closed"));
    let registry = server.client();
    let looks = AtomicUsize::new(0);
    let stops = || looks.fetch_add(1, Ordering::Relaxed) > 3;
    let error = registry.schema(1, &patience().unless(&stops)).expect_err("it is given up");
    assert!(matches!(&error, RegistryError::Cancelled { url } if *url == server.url), "{error}");
    let hangs = serve(|_| string_schema().after(LONG));
    looks.store(0, Ordering::Relaxed);
    let error = hangs.client().latest("s", &patience().unless(&stops)).expect_err("given up");
    assert!(matches!(error, RegistryError::Cancelled { .. }));
}

#[test]
fn a_lost_connection_is_tried_again() {
    let env = Env::real();
    let address = env.block_on_io(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let router = Router::new().fallback(|| async { "{\"schema\": \"\\\"string\\\"\"}" });
        Env::real().spawn("server", async move {
            // Some are closed before anything is read.
            for _ in 0..3 {
                drop(listener.accept().await);
            }
            axum::serve(listener, router).await
        });
        address
    });
    let registry = client(&[&format!("http://{address}")], &env);
    registry.schema(1, &patience()).expect("it comes back");
}
