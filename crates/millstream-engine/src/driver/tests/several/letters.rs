//! Dead letters beside the rows of a query: each record is once in either, whatever happens.

use super::*;
use crate::api::dead_letter::{Form, Layout};
use crate::driver::dead_letter_sinks::{DeadLetterSink, DeadLetterSinks};
use crate::driver::side_outputs::{DecodingRoute, Rejections};
use crate::state::codec;

impl Several {
    /// The sink of the last place, which gets the offsets of letters.
    pub(super) fn dead_letter_sinks(&self) -> DeadLetterSinks {
        self.dead_letter_sinks_of(1)
    }

    /// As [`Self::dead_letter_sinks`], for a source of so many columns.
    pub(in crate::driver::tests) fn dead_letter_sinks_of(&self, columns: usize) -> DeadLetterSinks {
        let place = self.places.last().expect("there is a place for letters");
        let declared = Schema::new(vec![Field::new("offset", DataType::Int64, true)]);
        let layout = Layout::new(Some(&Arc::new(declared)), Form::Table).unwrap();
        let sink = DeadLetterSink { name: "bad".to_owned(), sink: self.sink(place), layout };
        let route = DecodingRoute { source_table: "input".into(), columns, side_output: Some(0) };
        let rejections = Rejections { decoding: vec![Some(route)], ..Rejections::default() };
        DeadLetterSinks::new("flow", rejections, vec![sink])
    }
}

#[test]
fn letters_of_the_state_log_are_those_of_each_table() {
    let side_outputs = lettered(&[Delivery::Transactional]).dead_letter_sinks().side_outputs;
    let rows = |name: &str| {
        let offsets = Arc::new(Int64Array::from(vec![5]));
        let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![offsets]).unwrap()
    };
    let section = |name| codec::encode(&rows(name).schema(), &[rows(name)]).unwrap();
    assert_eq!(side_outputs.rows_again(&[section("offset")]).unwrap(), [[rows("offset")]]);
    // A table that was added has no section, and may have letters of constraints all the same.
    assert_eq!(side_outputs.rows_again(&[]).unwrap(), [[]]);
    let refused = Failure::from(side_outputs.rows_again(&[section("other")]).unwrap_err());
    assert!(refused.kind() == Kind::Data && refused.to_string().contains("'bad'"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_work_does_not_go_on_without_its_table() {
    let mut several = lettered(&[Delivery::Transactional, Delivery::Idempotent]);
    several.scene.topic.push(0..50);
    several.scene.rows_max = 5;
    several.run(20).await.unwrap_err();
    several.has_letters = false;
    let both = several.places.clone();
    several.places.truncate(1);
    let refused = several.run(u64::MAX).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    assert!(refused.to_string().contains("'bad'"), "{refused}");

    (several.has_letters, several.places) = (true, both);
    several.run(u64::MAX).await.unwrap();
    several.assert_all(50, "a run with the table again");
    several.has_letters = false;
    several.places.truncate(1);
    several.run(u64::MAX).await.unwrap();
}

fn lettered(kinds: &[Delivery]) -> Several {
    let places = kinds.iter().map(|delivery| Place::new(*delivery, 0));
    Several { has_letters: true, ..Several::new(places.collect()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_at_any_moment_lose_and_double_no_letter() {
    use Delivery::{AtLeastOnce, Idempotent, Transactional};
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    for seed in 0..seeds.unwrap_or(12) {
        for kinds in [
            &[Transactional, Transactional][..],
            &[Transactional, Idempotent],
            &[Idempotent, Transactional],
            &[AtLeastOnce, Transactional],
            &[Transactional, AtLeastOnce, Transactional],
            &[Transactional, Transactional, Idempotent],
        ] {
            crash_at_random(kinds, true, seed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn good_rows_and_letters_part_under_one_number() {
    let mut several = lettered(&[Delivery::Transactional; 2]);
    several.scene.topic.push(0..100);
    several.scene.rows_max = 50;
    let finished = several.run(u64::MAX).await.unwrap();
    several.assert_all(100, "a plain run");
    let rows_out = several.expected(0, 100).len() as u64;
    assert_eq!(finished, Finished { micro_batches: 2, rows_in: 100, rows_out });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_without_letters_is_not_handed_over() {
    let mut several = lettered(&[Delivery::Transactional, Delivery::Idempotent]);
    // The numbers 5 and 12 are malformed, each in a micro-batch of five.
    several.scene.topic.push(0..15);
    several.scene.rows_max = 5;
    several.run(u64::MAX).await.unwrap();
    several.assert_all(15, "a plain run");
    let ids: Vec<u64> = several.places[1].kept.lock().iter().map(|(id, ..)| *id).collect();
    assert_eq!(ids, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_letters_that_is_not_ready_holds_nothing_back() {
    let several = lettered(&[Delivery::Transactional, Delivery::Transactional]);
    let (stopper, stop) = stop_pair();
    let bad = Arc::new(Outside::which(Delivery::Transactional));
    let never_ready = NeverReady(OutsideSink(Arc::clone(&bad)));
    let mut dead_letters = several.dead_letter_sinks();
    *dead_letters.outputs.sinks_mut().next().unwrap() = Box::new(never_ready);
    let rows = OutsideSink(Arc::clone(&several.scene.outside));
    let branches = Branches::new(vec![branch(QUERIES[1], Box::new(rows)).await]);
    let query = several.scene.query(Trigger::BackToBack, stop).await;
    let query = Query { branches: branches.with_dead_letters(dead_letters), ..query };
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    for round in 1..=200 {
        // A good row, and one that is malformed.
        several.scene.topic.push([round as i64 * 7, round as i64 * 7 + 5]);
        until_kept(&several.scene.outside, round, &env).await;
    }
    stopper.stop();
    running.join().await.unwrap();
    assert_eq!(bad.rows(), Vec::from_iter((1..=200).map(|round| round * 7 + 5)));
}
