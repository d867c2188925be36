//! Whatever a broker answers is read or refused.

mod conformance;

use std::io;

use millstream_fuzz::Target;

use crate::protocol::error_code::ErrorCode;
use crate::protocol::fetch;
use crate::protocol::frame::{self, API_VERSIONS, Api, METADATA};
use crate::protocol::read::ResponseReader;
use crate::protocol::responses;

/// A compact text.
fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len() + 1).expect("it is short")], text.as_bytes()].concat()
}

/// Answers of a broker as their header and body, each after the number of its kind.
fn answers() -> Vec<Vec<u8>> {
    let address = [&1_i32.to_be_bytes()[..], &text("host"), &9092_i32.to_be_bytes()].concat();
    let identity = [&[0; 6][..], &7_i64.to_be_bytes(), &3_i16.to_be_bytes(), &[0]].concat();
    let brokers = [&[0; 4][..], &[2], &address, &[0, 0], &text("c"), &[0; 4]].concat();
    let replicas = [2, 0, 0, 0, 1, 1, 1, 0];
    let partition = [&[0; 6][..], &1_i32.to_be_bytes(), &[0; 4], &replicas].concat();
    let topic = [&[0, 0][..], &text("out"), &[0; 17], &[2], &partition, &[0; 5], &[0]].concat();
    let metadata = [&brokers[..], &[2], &topic].concat();
    let coordinator = [&[0; 4][..], &[2], &text("id"), &address, &[0, 0], &[0, 0], &[0]].concat();
    let partition = [&[0; 30][..], &[1, 0, 0]].concat();
    let produce = [&[2][..], &text("out"), &[2], &partition, &[0], &[0; 4], &[0]].concat();
    let api = |key: u8, max: u8| [0, key, 0, 0, 0, max, 0];
    let apis = [api(3, 12), api(10, 4), api(22, 5), api(24, 3), api(0, 12), api(26, 5)].concat();
    let feature = [&text("transaction.version")[..], &[0, 2, 0, 0, 0]].concat();
    let feature = [&[1, 2][..], &[u8::try_from(feature.len() + 1).expect("few"), 2], &feature];
    let versions = [&[0, 0, 7][..], &apis, &[0; 4], &feature.concat()].concat();
    let aborted = [&[2][..], &[0; 16], &[0]].concat();
    // Where the log diverges is a tagged field.
    let diverging = [&[1, 0, 13][..], &[0; 3], &[5], &[0; 7], &[77], &[0]].concat();
    let partition = [&[0; 30][..], &aborted, &[0xff; 4], &[3, 1, 2], &diverging].concat();
    let fetch = [&[0; 10][..], &[2], &text("in"), &[2], &partition, &[0], &[0]].concat();
    let partition = [&[0; 26][..], &[0]].concat();
    let listed = [&[0; 4][..], &[2], &text("in"), &[2], &partition, &[0], &[0]].concat();
    let added = [&[0; 3][..], &[1, 0, 51, 0]].concat();
    let added = [&[0; 4][..], &[2], &text("out"), &[2], &added, &[0], &[0]].concat();
    let ended = identity.clone();
    let bodies = [versions, metadata, coordinator, identity, ended, produce, fetch, listed, added];
    let answer = |(kind, body): (usize, Vec<u8>)| {
        let header = if kind == 0 { &[0, 0, 0, 1][..] } else { &[0, 0, 0, 1, 0] };
        [&[u8::try_from(kind).expect("few")], header, &body].concat()
    };
    bodies.into_iter().enumerate().map(answer).collect()
}

fn read(kind: u8, answer: &mut ResponseReader<'_>) -> io::Result<String> {
    let api = if kind == 0 { API_VERSIONS } else { Api { key: i16::from(kind), ..METADATA } };
    let correlation = frame::header(api, answer)?;
    assert_eq!(i32::signum(correlation).abs(), correlation.signum().abs());
    Ok(match kind {
        0 => format!("{:?}", responses::api_versions(answer)?.has(&frame::FOR_TRANSACTIONS)),
        1 => {
            let (nodes, topics) = responses::metadata(answer)?;
            format!("{} nodes {} topics", nodes.is_empty(), topics.is_empty())
        }
        2 => format!("{:?}", responses::find_coordinator(answer)?),
        3 => format!("{:?}", responses::init_producer_id(answer)?),
        4 => format!("{:?}", responses::end_txn(answer)?),
        5 => format!("{:?}", responses::produce(answer)?.is_empty()),
        8 => format!("{:?}", responses::add_partitions_to_txn(answer)?.is_empty()),
        6 => {
            let answer = fetch::fetched(answer)?;
            let records: usize = answer.partitions.iter().map(|it| it.records.len()).sum();
            let diverges = answer.partitions.iter().any(|it| it.diverging.is_some());
            format!("{} {:?} {diverges}", records.min(3), answer.code == ErrorCode::NONE)
        }
        _ => format!("{:?}", fetch::listed(answer)?.iter().map(|it| it.offset.is_ok()).min()),
    })
}

#[test]
fn fuzz_answers_of_a_broker() {
    for answer in answers() {
        let read = read(answer[0], &mut ResponseReader::new(&answer[1..]));
        assert!(read.is_ok(), "kind {}: {read:?}", answer[0]);
    }
    Target::bytes("kafka_answers").seeds(answers()).run(|input| {
        let Some((kind, answer)) = input.split_first() else { return String::new() };
        let kind = kind % 9;
        match read(kind, &mut ResponseReader::new(answer)) {
            Ok(read) => format!("{kind} as numbers: {}: {read}", "x".repeat(usize::from(kind))),
            Err(error) => format!("{error} {}", "x".repeat(usize::from(kind))),
        }
    });
}
