//! Nexmark's events: people, auctions and bids, the same in every run, as JSON.
//!
//! ```json
//! {"event_type":2,"dateTime":"2026-01-01T07:59:30.012Z","bid":{"auction":1001,"bidder":1005,...}}
//! ```
//!
//! All kinds share a topic, as in the suite; the time stands beside the event and not in it, so
//! that it is a column that a watermark can be declared on. Names of fields are the suite's.

use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::{Auction, Bid, Event, Person};
use serde::Serialize;

/// Shortly before eight in the morning, UTC: a query that tells day from night has both soon.
pub const BASE_MS: i64 = 1_767_254_370_000;
/// How far the last events lie behind the others: what they close has been over for long.
const CLOSING_MS: u64 = 3_600_000;

/// The events of a run: `count` of them, then one of each kind for each of `partitions`, an hour
/// later, that take the watermark past all windows of the others.
pub fn events(count: u64, partitions: usize) -> impl Iterator<Item = Event> {
    let closing_ms = closing_ms(count);
    let first: Vec<_> = generator().take(5).collect();
    // A person, an auction and a bid, in the order that events come.
    let kinds = [&first[0], &first[1], &first[4]].map(|event| at(event.clone(), closing_ms));
    let closing: Vec<_> =
        kinds.into_iter().flat_map(|event| std::iter::repeat_n(event, partitions)).collect();
    generator().take(usize::try_from(count).expect("events are few")).chain(closing)
}

/// The time of the events that close windows, in a run of `count`; all others are before it.
pub fn closing_ms(count: u64) -> u64 {
    generator().with_offset(count).timestamp() + CLOSING_MS
}

fn generator() -> EventGenerator {
    let base_time = u64::try_from(BASE_MS).expect("it is after 1970");
    EventGenerator::new(NexmarkConfig { base_time, ..NexmarkConfig::default() })
}

fn at(mut event: Event, time_ms: u64) -> Event {
    match &mut event {
        Event::Person(person) => person.date_time = time_ms,
        Event::Auction(auction) => auction.date_time = time_ms,
        Event::Bid(bid) => bid.date_time = time_ms,
    }
    event
}

/// Writes an event as JSON.
pub fn write_json(event: &Event, out: &mut Vec<u8>) {
    let mut json = Json { date_time: text(event.timestamp()), ..Json::default() };
    match event {
        Event::Person(person) => json.person = Some(JsonPerson::of(person)),
        Event::Auction(auction) => {
            json.event_type = 1;
            json.auction = Some(JsonAuction::of(auction));
        }
        Event::Bid(bid) => {
            json.event_type = 2;
            json.bid = Some(JsonBid::of(bid));
        }
    }
    serde_json::to_writer(out, &json).expect("events are plain values");
}

fn text(ms: u64) -> String {
    let ms = i64::try_from(ms).expect("an event is not in a far future");
    let moment = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    moment.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[derive(Default, Serialize)]
struct Json<'a> {
    event_type: u8,
    #[serde(rename = "dateTime")]
    date_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<JsonPerson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auction: Option<JsonAuction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bid: Option<JsonBid<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonPerson<'a> {
    id: usize,
    name: &'a str,
    email_address: &'a str,
    credit_card: &'a str,
    city: &'a str,
    state: &'a str,
    extra: &'a str,
}

impl<'a> JsonPerson<'a> {
    fn of(person: &'a Person) -> Self {
        Self {
            id: person.id,
            name: &person.name,
            email_address: &person.email_address,
            credit_card: &person.credit_card,
            city: &person.city,
            state: &person.state,
            extra: &person.extra,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonAuction<'a> {
    id: usize,
    item_name: &'a str,
    description: &'a str,
    initial_bid: usize,
    reserve: usize,
    expires: String,
    seller: usize,
    category: usize,
    extra: &'a str,
}

impl<'a> JsonAuction<'a> {
    fn of(auction: &'a Auction) -> Self {
        Self {
            id: auction.id,
            item_name: &auction.item_name,
            description: &auction.description,
            initial_bid: auction.initial_bid,
            reserve: auction.reserve,
            expires: text(auction.expires),
            seller: auction.seller,
            category: auction.category,
            extra: &auction.extra,
        }
    }
}

#[derive(Serialize)]
struct JsonBid<'a> {
    auction: usize,
    bidder: usize,
    price: usize,
    channel: &'a str,
    url: &'a str,
    extra: &'a str,
}

impl<'a> JsonBid<'a> {
    fn of(bid: &'a Bid) -> Self {
        Self {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price,
            channel: &bid.channel,
            url: &bid.url,
            extra: &bid.extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_in_every_run_and_end_with_those_that_close() {
        let all: Vec<_> = events(100, 2).collect();
        assert_eq!(all, events(100, 2).collect::<Vec<_>>());
        let first = all.iter().position(|event| event.timestamp() >= closing_ms(100));
        assert_eq!(first, Some(100));
        assert_eq!(all.len(), 106);
        let bids = all[100..].iter().filter(|event| matches!(event, Event::Bid(_))).count();
        assert_eq!(bids, 2);
    }

    #[test]
    fn an_event_is_json_with_the_names_of_the_suite() {
        let mut out = Vec::new();
        let person = events(1, 1).next().expect("there is one");
        write_json(&person, &mut out);
        let json: serde_json::Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(json["dateTime"], "2026-01-01T07:59:30.000Z");
        assert_eq!(
            (json["event_type"].as_i64(), json["person"]["id"].as_i64()),
            (Some(0), Some(1_000))
        );
        assert!(json["person"]["emailAddress"].is_string() && json.get("bid").is_none());
    }
}
