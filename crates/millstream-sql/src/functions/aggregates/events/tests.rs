//! The functions against simple implementations that try everything.

use millstream_fuzz::{Target, outcome};
use proptest::prelude::*;

use super::funnel::{Chains, Funnel};
use super::sequence::Pattern;
use super::{CONDITIONS_MAX, Event};

/// Events in order, few enough that all chains can be tried.
fn events(conditions: u32) -> impl Strategy<Value = Vec<Event>> {
    let event = (0_i64..12, 0..1_u32 << conditions).prop_map(|(time, met)| Event::new(time, met));
    prop::collection::vec(event, 0..9).prop_map(|mut events| {
        events.sort_unstable();
        events
    })
}

fn has(event: &Event, condition: usize) -> bool {
    event.met & (1 << condition) != 0
}

/// The longest chain, of all that begin at each event and go on with each later one.
fn longest(funnel: &Funnel, events: &[Event], chain: &[usize]) -> usize {
    let length = chain.len();
    if length == funnel.conditions {
        return length;
    }
    let begin = chain.last().map_or(0, |last| last + 1);
    let next = (begin..events.len()).filter(|at| {
        let (event, first) = (&events[*at], chain.first().map(|first| &events[*first]));
        has(event, length)
            && first.is_none_or(|first| event.time - first.time <= funnel.length as i64)
            && (!funnel.increase || chain.last().is_none_or(|last| events[*last].time < event.time))
    });
    let all = next.map(|at| longest(funnel, events, &[chain, &[at]].concat()));
    all.max().unwrap_or(0).max(length)
}

/// The longest chain with rows that interrupt: a chain takes the first row that it can take.
fn longest_strict(funnel: &Funnel, events: &[Event]) -> usize {
    let mut best = 0;
    for first in (0..events.len()).filter(|at| has(&events[*at], 0)) {
        let (mut length, mut last) = (1, events[first].time);
        for event in &events[first + 1..] {
            let in_time = event.time - events[first].time <= funnel.length as i64;
            let repeats = (0..length).any(|condition| has(event, condition));
            let is_next = length < funnel.conditions && has(event, length);
            if is_next && in_time && (!funnel.increase || event.time > last) {
                (length, last) = (length + 1, event.time);
            } else if (funnel.order && !repeats && !(is_next && event.time == last))
                || (funnel.deduplication && repeats)
            {
                break;
            }
        }
        best = best.max(length);
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_funnel_finds_the_longest_of_all_chains(
        events in events(3),
        length in 0_u64..14,
        increase in any::<bool>(),
    ) {
        let funnel =
            Funnel { length, conditions: 3, order: false, deduplication: false, increase };
        let expected = longest(&funnel, &events, &[]);
        prop_assert_eq!(funnel.longest(&events, &mut Chains::default()), expected);
    }

    #[test]
    fn rows_interrupt_chains_in_the_strict_modes(
        events in events(3),
        length in 0_u64..14,
        order in any::<bool>(),
        increase in any::<bool>(),
    ) {
        let funnel = Funnel { length, conditions: 3, order, deduplication: !order, increase };
        let expected = longest_strict(&funnel, &events);
        prop_assert_eq!(funnel.longest(&events, &mut Chains::default()), expected);
    }
}

fn event(time: i64, condition: u32) -> Event {
    Event::new(time, if condition == 0 { 0 } else { 1 << (condition - 1) })
}

fn funnel(events: &[(i64, u32)], length: u64, set: impl Fn(&mut Funnel)) -> usize {
    let mut funnel =
        Funnel { length, conditions: 4, order: false, deduplication: false, increase: false };
    set(&mut funnel);
    let events: Vec<Event> = events.iter().map(|(time, met)| event(*time, *met)).collect();
    funnel.longest(&events, &mut Chains::default())
}

#[test]
fn chains_end_with_their_window() {
    let events = [(0, 1), (5, 2), (10, 3), (11, 4)];
    assert_eq!(funnel(&events, 11, |_| {}), 4);
    assert_eq!(funnel(&events, 10, |_| {}), 3);
    assert_eq!(funnel(&events, 4, |_| {}), 1);
    // Of two that begin, the later one has more time.
    assert_eq!(funnel(&[(0, 1), (4, 1), (5, 2), (10, 3), (14, 4)], 10, |_| {}), 4);
}

#[test]
fn the_documented_examples_of_the_modes() {
    let events = |letters: &str| -> Vec<(i64, u32)> {
        let number = |letter: char| "ABCD".find(letter).map_or(0, |at| at as u32 + 1);
        letters.chars().enumerate().map(|(at, letter)| (at as i64, number(letter))).collect()
    };
    let order = |letters: &str| funnel(&events(letters), 100, |funnel| funnel.order = true);
    assert_eq!((order("ABDC"), order("ABxCD"), order("AxABCD"), order("AABBCD")), (2, 2, 4, 4));
    let once = |letters: &str| funnel(&events(letters), 100, |funnel| funnel.deduplication = true);
    assert_eq!((once("ABCBD"), once("ABCD"), once("ABCBABCD"), once("ABBCD")), (3, 4, 4, 2));
    let same = [(0, 1), (0, 2), (1, 3), (1, 4)];
    assert_eq!(funnel(&same, 100, |_| {}), 4);
    assert_eq!(funnel(&same, 100, |funnel| funnel.increase = true), 1);
}

#[test]
fn extreme_times_do_not_overflow() {
    let events = [(i64::MIN, 1), (i64::MAX, 2)];
    assert_eq!(funnel(&events, i64::MAX.cast_unsigned(), |_| {}), 1);
}

/// The number of chains, each of which begins behind the one before and ends as early as can be.
fn counted(pattern: &Reference, events: &[Event]) -> i64 {
    let end = (1..=events.len()).find(|end| pattern.ends_at(&events[..*end], pattern.0.len()));
    end.map_or(0, |end| 1 + counted(pattern, &events[end..]))
}

/// Conditions, each with whether others may be before it and how far apart it may be.
struct Reference(Vec<(usize, bool, i64, i64)>);

impl Reference {
    /// Whether the first `steps` parts fit rows of which the last is the last of `events`.
    fn ends_at(&self, events: &[Event], steps: usize) -> bool {
        let (condition, skips, least, most) = self.0[steps - 1];
        let Some((last, before)) = events.split_last() else { return false };
        if !has(last, condition) {
            return false;
        }
        if steps == 1 {
            return true;
        }
        let nearest = if skips { 1 } else { before.len().max(1) };
        (nearest..=before.len()).any(|end| {
            let apart = last.time - before[end - 1].time;
            (least..=most).contains(&apart) && self.ends_at(&before[..end], steps - 1)
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn patterns_are_found_as_by_trying_all(
        events in events(3).prop_map(|mut events| {
            events.retain(|event| event.met != 0);
            events
        }),
        steps in prop::collection::vec((0_usize..3, 0..4, 0_i64..6), 1..4),
    ) {
        let (mut text, mut reference) = (String::new(), Vec::new());
        for (at, (condition, gap, bound)) in steps.into_iter().enumerate() {
            let (skips, least, most, written) = match gap {
                1 => (true, 0, i64::MAX, ".*".to_owned()),
                2 if at > 0 => (true, bound, i64::MAX, format!("(?t>={bound})")),
                3 if at > 0 => (true, 0, bound, format!(".*(?t<={bound})")),
                _ => (false, 0, i64::MAX, String::new()),
            };
            text += &format!("{written}(?{})", condition + 1);
            reference.push((condition, skips, least, most));
        }
        let pattern = Pattern::parse(&text, 3, 1).expect("it is a pattern");
        let expected = counted(&Reference(reference), &events);
        prop_assert_eq!(pattern.count(&events, &mut Vec::new()), expected, "{}", text);
    }
}

#[test]
fn what_is_no_pattern_is_refused_at_its_place() {
    let refused = |text: &str| Pattern::parse(text, 2, 1).expect_err(text);
    assert_eq!(refused("(?1)x").0, 4);
    assert_eq!(refused("(?1)(?3)"), (4, "conditions are 1 to 2".to_owned()));
    assert_eq!(refused("(?1)(?t<=5)").1, "no row is after a condition on the time");
    assert_eq!(refused("(?t<=5)(?1)").1, "no row is before a condition on the time");
    assert_eq!(refused("(?1").1, "there is no ')'");
    assert_eq!(refused(".*").1, "the pattern has no rows");
    for text in ["(?1)(?t=5)(?2)", "(?1)(?t<x)(?2)", "(?1)(?t<=99999999999999999999)(?2)"] {
        assert!(refused(text).1.starts_with("a condition on the time is"), "{text}");
    }
}

#[test]
fn the_order_of_events_of_one_time_is_that_of_their_conditions() {
    let mut events = [Event::new(1, 0), Event::new(1, 0b110), Event::new(1, 1), Event::new(0, 4)];
    events.sort_unstable();
    let met: Vec<u32> = events.iter().map(|event| event.met).collect();
    assert_eq!(met, [4, 1, 0b110, 0]);
    assert_eq!(events[3].first as usize, CONDITIONS_MAX);
}

/// A pattern, a line break, and the conditions of events as digits.
#[test]
fn fuzz_sequences() {
    let seeds = ["(?1).*(?2)\n12312", "(?1)(?t<=5)(?2)(?t>1).(?3)\n1231", "(?2)(?t==0)(?2)\n22"];
    let words = &["(?1)", "(?2)", "(?t", "<=", ">=", "==", "<", ">", ")", ".", ".*", "(?", "\n"];
    Target::text("sequences").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (pattern, events) = text.split_once('\n').unwrap_or((&text, "123"));
        let pattern = Pattern::parse(pattern, 3, 1_000_000);
        let mut found = 0;
        if let Ok(pattern) = &pattern {
            let digits = events.bytes().zip(0_i64..);
            let mut events: Vec<Event> =
                digits.map(|(digit, time)| Event::new(time / 2, u32::from(digit % 8))).collect();
            events.sort_unstable();
            found = pattern.count(&events, &mut Vec::new());
            assert!(found <= events.len() as i64);
        }
        format!("{} {found}", outcome(&pattern.map_err(|(at, problem)| format!("{at} {problem}"))))
    });
}
