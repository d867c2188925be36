//! What each query gives, computed in the plainest way from the events.

use std::collections::{BTreeMap, BTreeSet};

use nexmark::event::{Auction, Bid, Event, Person};

use super::events;
use super::rows::Rows;

const WINDOW_MS: u64 = 10_000;
const SLIDE_MS: u64 = 2_000;
const SESSION_GAP_MS: u64 = 10_000;

/// How a query's result is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These rows, in any order.
    Rows(Rows),
    /// Bids of each bidder, in windows of the clock: in all of them each has those that it made.
    Bids(BTreeMap<i64, i64>),
}

/// Events of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How many, without those that close windows.
    pub count: u64,
    /// Partitions of the topic.
    pub partitions: usize,
}

impl Run {
    fn bids(self) -> impl Iterator<Item = Bid> {
        events::events(self.count, self.partitions).filter_map(|event| match event {
            Event::Bid(bid) => Some(bid),
            _ => None,
        })
    }

    /// Bids of windows that close.
    fn bids_of_windows(self) -> impl Iterator<Item = Bid> {
        let closing_ms = events::closing_ms(self.count);
        self.bids().take_while(move |bid| bid.date_time < closing_ms)
    }
}

/// What the query `name` gives over the events of `run`.
///
/// # Panics
/// If there is no such query.
pub fn expected(name: &str, run: Run) -> Expected {
    let rows = match name {
        "q0" => each(run, |bid, rows| {
            rows.add(&[&bid.auction, &bid.bidder, &bid.price, &micros(bid.date_time), &bid.extra]);
        }),
        "q1" => each(run, |bid, rows| {
            let time = micros(bid.date_time);
            rows.add(&[&bid.auction, &bid.bidder, &in_euros(bid), &time, &bid.extra]);
        }),
        "q2" => each(run, |bid, rows| {
            if bid.auction % 123 == 0 {
                rows.add(&[&bid.auction, &bid.price]);
            }
        }),
        "q5" => hot_items(run),
        "q5-without-join" => hottest_item(run),
        "q7" => highest_bids(run),
        "q7-without-join" => highest_bid(run),
        "q8" => new_users(run),
        "q11" => sessions(run),
        "q12" => return Expected::Bids(bids_by_bidder(run)),
        "q14" => each(run, calculation),
        "q21" => each(run, channel_id),
        "q22" => each(run, directories),
        _ => panic!("nobody knows what {name} should give"),
    };
    Expected::Rows(rows)
}

fn each(run: Run, row: impl Fn(&Bid, &mut Rows)) -> Rows {
    let mut rows = Rows::default();
    run.bids().for_each(|bid| row(&bid, &mut rows));
    rows
}

fn micros(ms: u64) -> u64 {
    ms * 1_000
}

/// 0.908 of the price, with three decimals.
fn in_euros(bid: &Bid) -> String {
    let thousandths = bid.price * 908;
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn calculation(bid: &Bid, rows: &mut Rows) {
    let thousandths = bid.price * 908;
    if !(1_000_000_001..50_000_000_000).contains(&thousandths) {
        return;
    }
    let kind = match bid.date_time / 3_600_000 % 24 {
        8..=18 => "dayTime",
        0..=6 | 20.. => "nightTime",
        _ => "otherTime",
    };
    let letters = bid.extra.matches('c').count();
    let time = micros(bid.date_time);
    rows.add(&[&bid.auction, &bid.bidder, &in_euros(bid), &kind, &time, &bid.extra, &letters]);
}

fn channel_id(bid: &Bid, rows: &mut Rows) {
    let of_url = bid.url.split_once("&channel_id=").map_or("", |(_, id)| id);
    let id = match bid.channel.to_lowercase().as_str() {
        "apple" => "0",
        "google" => "1",
        "facebook" => "2",
        "baidu" => "3",
        _ if of_url.is_empty() => return,
        _ => of_url,
    };
    rows.add(&[&bid.auction, &bid.bidder, &bid.price, &bid.channel, &id]);
}

fn directories(bid: &Bid, rows: &mut Rows) {
    let parts: Vec<_> = bid.url.split('/').collect();
    let part = |index: usize| parts.get(index).copied().unwrap_or("");
    let (first, second, third) = (part(3), part(4), part(5));
    rows.add(&[&bid.auction, &bid.bidder, &bid.price, &bid.channel, &first, &second, &third]);
}

/// By the start of a sliding window and auction, the number of bids.
fn bids_by_window(run: Run) -> BTreeMap<u64, BTreeMap<usize, u64>> {
    let mut counts: BTreeMap<u64, BTreeMap<usize, u64>> = BTreeMap::new();
    for bid in run.bids_of_windows() {
        let last_start = bid.date_time / SLIDE_MS * SLIDE_MS;
        for back in 0..WINDOW_MS / SLIDE_MS {
            let window = counts.entry(last_start - back * SLIDE_MS).or_default();
            *window.entry(bid.auction).or_default() += 1;
        }
    }
    counts
}

fn hot_items(run: Run) -> Rows {
    let mut rows = Rows::default();
    for auctions in bids_by_window(run).values() {
        let most = auctions.values().max();
        let hot = auctions.iter().filter(|(_, count)| Some(*count) == most);
        hot.for_each(|(auction, count)| rows.add(&[auction, count]));
    }
    rows
}

fn hottest_item(run: Run) -> Rows {
    let mut rows = Rows::default();
    for (start, auctions) in bids_by_window(run) {
        let best = auctions.iter().map(|(auction, count)| (count, auction)).max();
        let (count, auction) = best.expect("a window has a bid");
        rows.add(&[&micros(start), count, auction]);
    }
    rows
}

fn highest_bid(run: Run) -> Rows {
    let mut best: BTreeMap<u64, (usize, usize, usize)> = BTreeMap::new();
    for bid in run.bids_of_windows() {
        let window = best.entry(bid.date_time / WINDOW_MS * WINDOW_MS).or_default();
        *window = (*window).max((bid.price, bid.auction, bid.bidder));
    }
    let mut rows = Rows::default();
    for (start, (price, auction, bidder)) in best {
        rows.add(&[&micros(start), &price, &auction, &bidder]);
    }
    rows
}

fn highest_bids(run: Run) -> Rows {
    let mut prices: BTreeMap<u64, usize> = BTreeMap::new();
    for bid in run.bids_of_windows() {
        let price = prices.entry(bid.date_time / WINDOW_MS * WINDOW_MS).or_default();
        *price = (*price).max(bid.price);
    }
    let mut rows = Rows::default();
    for bid in run.bids_of_windows() {
        let start = bid.date_time / WINDOW_MS * WINDOW_MS;
        // A bid at a window's very end counts for that one, too.
        let before = (bid.date_time == start).then(|| start - WINDOW_MS);
        for start in [Some(start), before].into_iter().flatten() {
            if prices.get(&start) == Some(&bid.price) {
                let time = micros(bid.date_time);
                rows.add(&[&bid.auction, &bid.price, &bid.bidder, &time, &bid.extra]);
            }
        }
    }
    rows
}

fn new_users(run: Run) -> Rows {
    let (mut people, mut sellers) = (BTreeMap::new(), BTreeSet::new());
    let closing_ms = events::closing_ms(run.count);
    let all = events::events(run.count, run.partitions);
    for event in all.take_while(|event| event.timestamp() < closing_ms) {
        let window = event.timestamp() / WINDOW_MS * WINDOW_MS;
        match event {
            Event::Person(Person { id, name, .. }) => drop(people.insert((id, window), name)),
            Event::Auction(Auction { seller, .. }) => drop(sellers.insert((seller, window))),
            Event::Bid(_) => {}
        }
    }
    let mut rows = Rows::default();
    for ((id, window), name) in people.iter().filter(|(key, _)| sellers.contains(key)) {
        rows.add(&[id, name, &micros(*window)]);
    }
    rows
}

fn sessions(run: Run) -> Rows {
    let mut rows = Rows::default();
    let mut close = |bidder: usize, (start, last, count): (u64, u64, u64)| {
        rows.add(&[&bidder, &count, &micros(start), &micros(last + SESSION_GAP_MS)]);
    };
    let mut open: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
    for bid in run.bids_of_windows() {
        let time = bid.date_time;
        let session = open.entry(bid.bidder).or_insert((time, time, 0));
        if time - session.1 > SESSION_GAP_MS {
            close(bid.bidder, std::mem::replace(session, (time, time, 0)));
        }
        session.1 = time;
        session.2 += 1;
    }
    open.into_iter().for_each(|(bidder, session)| close(bidder, session));
    rows
}

fn bids_by_bidder(run: Run) -> BTreeMap<i64, i64> {
    let mut counts = BTreeMap::new();
    for bid in run.bids() {
        *counts.entry(i64::try_from(bid.bidder).expect("ids are small")).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::queries::QUERIES;
    use super::*;

    #[test]
    fn every_query_is_known_and_gives_something() {
        let run = Run { count: 2_000, partitions: 2 };
        for query in QUERIES {
            match expected(query.name, run) {
                Expected::Rows(rows) => assert!(rows.count > 0, "{} gives nothing", query.name),
                Expected::Bids(counts) => assert!(!counts.is_empty()),
            }
        }
    }

    #[test]
    fn bids_are_92_of_100_events() {
        let run = Run { count: 1_000, partitions: 3 };
        let Expected::Rows(rows) = expected("q0", run) else { panic!("it has rows") };
        assert_eq!(rows.count, 920 + 3);
        // Two tenths of a second lie in five sliding windows, of which each has one winner.
        let Expected::Rows(rows) = expected("q5-without-join", run) else { panic!("it has rows") };
        assert_eq!(rows.count, 5);
    }
}
