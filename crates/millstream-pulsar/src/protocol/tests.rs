use bytes::{Bytes, BytesMut};
use millstream_fuzz::Target;
use proptest::prelude::*;

use super::compression::Compression;
use super::frame::{self, WireError};
use super::messages::{BaseCommand, CommandFlow, CommandSend, KeyValue, MessageMetadata, kind};
use super::payload::{self, Added, MessageBatch};

const MAX: usize = 5 << 20;

fn flow(permits: u32) -> BaseCommand {
    let flow = CommandFlow { consumer_id: 7, message_permits: permits };
    BaseCommand { flow: Some(flow), ..BaseCommand::of(kind::FLOW) }
}

#[test]
fn a_command_is_the_bytes_of_the_protocol() {
    let bytes = frame::command(&flow(300));
    // By hand: kind 11, then field 11 with 1: 7 and 2: 300.
    let command = [0x08, 11, 0x5a, 5, 0x08, 7, 0x10, 0xac, 0x02];
    assert_eq!(&bytes[..8], [0, 0, 0, 13, 0, 0, 0, 9]);
    assert_eq!(&bytes[8..], command);
    let mut received = BytesMut::from(&bytes[..10]);
    assert!(frame::take(&mut received, MAX).unwrap().is_none());
    received.extend_from_slice(&bytes[10..]);
    received.extend_from_slice(&bytes);
    for _ in 0..2 {
        let frame = frame::take(&mut received, MAX).unwrap().unwrap();
        assert_eq!(frame.command, flow(300));
        assert!(frame.entry.is_empty());
    }
    assert!(received.is_empty());
}

#[test]
fn a_frame_that_is_too_large_is_not_waited_for() {
    let mut received = BytesMut::from(&[0xff, 0, 0, 0][..]);
    assert!(matches!(frame::take(&mut received, MAX), Err(WireError::Size { .. })));
    let mut received = BytesMut::from(&[0, 0, 0, 5, 0, 0, 0, 9, 0][..]);
    assert!(matches!(frame::take(&mut received, MAX), Err(WireError::Short)));
}

fn sent(metadata: &MessageMetadata, payload: &[u8]) -> Bytes {
    let send = CommandSend { producer_id: 1, sequence_id: 2, ..CommandSend::default() };
    let command = BaseCommand { send: Some(send), ..BaseCommand::of(kind::SEND) };
    frame::command_with_entry(&command, metadata, payload)
}

#[test]
fn a_bit_that_is_turned_is_noticed() {
    let metadata = MessageMetadata { producer_name: "p".to_owned(), ..MessageMetadata::default() };
    let mut received = BytesMut::from(&sent(&metadata, b"tea")[..]);
    let last = received.len() - 1;
    received[last] ^= 1;
    let frame = frame::take(&mut received, MAX).unwrap().unwrap();
    assert!(matches!(frame::entry(frame.entry), Err(WireError::Checksum { .. })));
}

#[test]
fn a_message_without_a_batch_has_its_parts_in_the_metadata() {
    let metadata = MessageMetadata {
        partition_key: Some("aw==".to_owned()),
        partition_key_b64_encoded: Some(true),
        event_time: Some(5),
        ..MessageMetadata::default()
    };
    let found = payload::unpack(&metadata, Bytes::from_static(b"tea")).unwrap();
    assert_eq!(found[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(found[0].value.as_deref(), Some(&b"tea"[..]));
    assert_eq!(found[0].event_time, Some(5));
    let nothing = MessageMetadata { null_value: Some(true), ..metadata };
    assert_eq!(payload::unpack(&nothing, Bytes::new()).unwrap()[0].value, None);
}

#[test]
fn what_cannot_be_unpacked_says_why() {
    let unknown = MessageMetadata { compression: Some(9), ..MessageMetadata::default() };
    let error = payload::unpack(&unknown, Bytes::new()).unwrap_err().to_string();
    assert!(error.contains("number 9") && error.contains("ZSTD"), "{error}");
    for compression in Compression::ALL.into_iter().skip(1) {
        let metadata = MessageMetadata {
            compression: Some(compression.number()),
            uncompressed_size: Some(3),
            ..MessageMetadata::default()
        };
        let longer = compression.compress(b"longer than that".to_vec());
        assert!(payload::unpack(&metadata, longer.into()).is_err(), "{compression:?}");
        assert!(payload::unpack(&metadata, Bytes::from_static(b"\x01")).is_err());
    }
}

type Parts = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, String)>, Option<u64>);

proptest! {
    // Compression without optimization takes its time.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_come_back(
        messages in proptest::collection::vec(
            any::<(Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, String)>, Option<u64>)>(), 1..20),
        at in 0..Compression::ALL.len(),
    ) {
        let compression = Compression::ALL[at];
        let mut batch = MessageBatch::default();
        for (key, value, properties, time) in &messages {
            batch.add(Added {
                key: key.as_deref().map(payload::key_text),
                value: value.as_deref(),
                properties: properties.iter().map(|(key, value)| KeyValue {
                    key: key.clone(), value: value.clone(),
                }).collect(),
                event_time: *time,
            });
        }
        let (metadata, packed) = batch.take(compression);
        let mut received = BytesMut::from(&sent(&metadata, &packed)[..]);
        let frame = frame::take(&mut received, MAX).unwrap().unwrap();
        let (metadata, packed) = frame::entry(frame.entry).unwrap();
        let found = payload::unpack(&metadata, packed).unwrap();
        let found: Vec<Parts> = found.into_iter().map(|message| (
            message.key.map(Into::into),
            message.value.map(Into::into),
            message.properties.into_iter().map(|pair| (pair.key, pair.value)).collect(),
            message.event_time,
        )).collect();
        let wanted: Vec<Parts> = messages.into_iter().map(|(key, value, properties, time)| {
            (key, value, properties, time.filter(|time| *time > 0))
        }).collect();
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn fuzzed_frames() {
    let mut batch = MessageBatch::default();
    batch.add(Added { key: Some(("k".to_owned(), false)), value: Some(b"v"), ..Added::default() });
    let mut seeds = vec![frame::command(&flow(1)).to_vec()];
    for compression in Compression::ALL {
        batch.add(Added { value: Some(&[7; 100]), ..Added::default() });
        let (metadata, packed) = batch.take(compression);
        seeds.push(sent(&metadata, &packed).to_vec());
    }
    let target = Target::bytes("pulsar_frames").seeds(seeds);
    target.run(|bytes| {
        let mut received = BytesMut::from(bytes);
        let mut outcome = String::new();
        loop {
            match frame::take(&mut received, MAX) {
                Ok(None) => break outcome + "more",
                Err(error) => break outcome + &said(&error),
                Ok(Some(frame)) => {
                    outcome += &format!("{} ", frame.command.kind);
                    let unpacked = frame::entry(frame.entry)
                        .and_then(|(metadata, packed)| payload::unpack(&metadata, packed));
                    match unpacked {
                        Ok(messages) => outcome += &format!("{} ", messages.len().min(3)),
                        Err(error) => outcome += &said(&error),
                    }
                }
            }
        }
    });
}

/// An error without the numbers in it, of which there are too many to be outcomes.
fn said(error: &WireError) -> String {
    error.to_string().chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect()
}
