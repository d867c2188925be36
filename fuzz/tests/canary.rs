//! Planted defects, each behind a condition that mutation reaches. If one of these tests fails,
//! distrust all other targets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_fuzz::{Failure, Limits, Problem, Target};

/// Reads `set NAME = NUMBER`, and hands over the number.
fn number(input: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(input).ok()?;
    let (name, number) = text.strip_prefix("set ")?.split_once(" = ")?;
    name.chars().all(char::is_alphanumeric).then(|| number.parse().ok()).flatten()
}

fn find(
    name: &'static str,
    limits: Limits,
    read: impl Fn(&[u8]) -> String + Send + Sync + 'static,
) -> Failure {
    let target = Target::text(name).seeds(["set count = 7", "set x"]).words(&["set", "="]);
    let target = target.limits(limits).duration(Duration::from_secs(10));
    target.search(read).expect_err("a planted defect is found")
}

#[test]
fn a_planted_panic_is_found_and_made_small() {
    let found = find("canary_panic", Limits::default(), |input| {
        let number = number(input);
        assert!(number.is_none_or(|number| number < 1 << 31), "planted");
        format!("{number:?}")
    });
    let Problem::Panic(message) = &found.problem else { panic!("{found}") };
    assert!(message.contains("planted") && message.contains("canary.rs"), "{message}");
    assert!(number(&found.input).is_some() && found.input.len() < 40, "{found}");
}

#[test]
fn a_planted_overflow_is_found() {
    let found = find("canary_overflow", Limits::default(), |input| {
        let number = number(input).unwrap_or_default();
        number.checked_add(1).expect("planted").to_string()
    });
    assert!(matches!(found.problem, Problem::Panic(_)), "{found}");
}

#[test]
fn a_planted_delay_is_found() {
    let limits = Limits { time: Duration::from_millis(100), ..Limits::default() };
    let found = find("canary_delay", limits, |input| {
        if number(input).is_some_and(|number| number > 1 << 31) {
            std::thread::sleep(Duration::from_millis(150));
        }
        String::new()
    });
    assert!(matches!(found.problem, Problem::Slow(_)), "{found}");
}

#[test]
fn a_planted_loop_without_end_is_found() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let limits = Limits { time: Duration::from_millis(200), ..Limits::default() };
    let found = find("canary_hang", limits, |input| {
        while number(input) == Some(0) && !IS_OVER.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        String::new()
    });
    IS_OVER.store(true, Ordering::Relaxed);
    assert!(matches!(found.problem, Problem::Hang(_)), "{found}");
    assert_eq!(number(&found.input), Some(0), "{found}");
}

#[test]
fn a_planted_allocation_is_found() {
    let found = find("canary_memory", Limits::default(), |input| {
        let length = number(input).map_or(0, |number| number.min(1 << 29));
        let bytes = vec![0_u8; usize::try_from(length).expect("it is small")];
        bytes.len().to_string()
    });
    assert!(matches!(found.problem, Problem::Memory(256..)), "{found}");
}

/// A condition that needs several steps, each of which has an outcome of its own.
#[test]
fn what_lies_behind_several_steps_is_found() {
    let target = Target::bytes("canary_steps").seeds(["abcdefgh"]);
    let found = target.duration(Duration::from_secs(20)).search(|input| {
        let steps = [b'M', b'i', b'l', b'l'].iter().zip(input).take_while(|(a, b)| a == b).count();
        assert!(steps < 4, "planted");
        ["none", "one", "two", "three"][steps].to_owned()
    });
    let found = found.expect_err("a planted defect is found");
    assert_eq!(found.input, b"Mill");
}

#[test]
fn what_is_sound_passes() {
    let target = Target::text("canary_sound").seeds(["set count = 7"]);
    let summary = target
        .duration(Duration::from_millis(200))
        .search(|input| format!("{:?}", number(input).is_some()));
    let summary = summary.expect("there is no defect");
    assert!(summary.inputs > 100 && summary.outcomes == 2, "{summary}");
}
