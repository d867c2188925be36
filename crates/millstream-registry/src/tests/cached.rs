//! Schemas by their ids are asked for once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};

use super::*;
use crate::cache::{Cache, Turn};
use crate::{Body, Registered, RegistryError};

#[test]
fn a_known_schema_is_not_asked_for_again() {
    let server = serve(|_| string_schema());
    let registry = server.client();
    let first = registry.schema(1, &patience()).expect("it is there");
    let second = registry.schema(1, &patience()).expect("it is there");
    assert!(Arc::ptr_eq(&first, &second));
    registry.schema(2, &patience()).expect("it is there");
    assert_eq!(server.lines(), ["GET /schemas/ids/1", "GET /schemas/ids/2"]);
}

#[test]
fn callers_at_the_same_time_share_one_request() {
    const CALLERS: usize = 8;
    let server = serve(|_| string_schema().after(Duration::from_millis(300)));
    let registry = server.client();
    let begin = Barrier::new(CALLERS);
    let ask = || {
        begin.wait();
        registry.schema(1, &patience()).expect("it is there")
    };
    let schemas = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(schemas.iter().all(|schema| Arc::ptr_eq(schema, &schemas[0])));
    assert_eq!(server.count(), 1);
}

#[test]
fn who_waits_takes_over_from_one_who_gave_up() {
    let (arrived, arrivals) = mpsc::channel();
    let server = serve(move |seen| {
        arrived.send(()).expect("the test waits");
        // The first request never gets an answer.
        string_schema().after(if seen.number == 0 { LONG } else { Duration::ZERO })
    });
    let registry = server.client();
    let gives_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let hook = || gives_up.load(Ordering::Relaxed);
            registry.schema(1, &patience().unless(&hook))
        });
        arrivals.recv().expect("it was asked");
        let second = scope.spawn(|| registry.schema(1, &patience()));
        // The second one waits for the first, or is about to.
        pause(&Env::real(), Duration::from_millis(100));
        assert_eq!(server.count(), 1);
        gives_up.store(true, Ordering::Relaxed);
        let error = first.join().expect("no panic").expect_err("it has given up");
        assert!(matches!(error, RegistryError::Cancelled { .. }), "{error}");
        second.join().expect("no panic").expect("it asked itself");
    });
    assert_eq!(server.count(), 2);
}

#[test]
fn an_unknown_id_is_not_asked_for_at_once_again() {
    let is_there = Arc::new(AtomicBool::new(false));
    let registered = Arc::clone(&is_there);
    let server = serve(move |_| match registered.load(Ordering::Relaxed) {
        true => string_schema(),
        false => Said::error(404, 40_403, "no"),
    });
    let env = hasty(10);
    let registry = client(&[&server.url], &env);
    for _ in 0..3 {
        let error = registry.schema(1, &once()).expect_err("it is not there");
        assert_eq!(error, RegistryError::NoSuchSchema { id: 1 });
    }
    assert_eq!(server.count(), 1);
    is_there.store(true, Ordering::Relaxed);
    pause(&env, Duration::from_secs(6));
    registry.schema(1, &once()).expect("it was registered");
}

#[test]
fn other_errors_are_not_kept() {
    let server = serve(|seen| match seen.number {
        0 => Said::error(401, 401, "no"),
        _ => string_schema(),
    });
    let registry = server.client();
    registry.schema(1, &once()).expect_err("it is refused");
    registry.schema(1, &once()).expect("it is not any more");
}

#[test]
fn what_is_kept_is_bounded_by_number_and_size() {
    let keeps = |cache: &Cache, id| matches!(cache.turn(id, Duration::ZERO), Turn::Done(Ok(_)));
    let fill = |count: u32, bytes: usize| {
        let cache = Cache::default();
        for id in 0..count {
            let Turn::Ask(asking) = cache.turn(id, Duration::ZERO) else {
                panic!("{id} is not known yet");
            };
            let body = Body::Descriptor(vec![0; bytes]);
            let schema = Registered { id, kind: SchemaKind::Protobuf, body, references: vec![] };
            asking.finish(&Ok(Arc::new(schema)), Duration::ZERO);
        }
        cache
    };
    let many = fill(10_001, 1);
    assert!(!keeps(&many, 0) && keeps(&many, 1) && keeps(&many, 10_000));
    let large = fill(20, 16 << 20);
    assert!(!keeps(&large, 4) && keeps(&large, 5) && keeps(&large, 19));
}
