//! Dead letters beside the rows of a query: each record is once in either, whatever happens.

use super::*;
use crate::dead_letters::{Form, Layout};
use crate::driver::outlets::{Outlet, Outlets, Route};

impl Several {
    /// The outlet of the last place, which gets the offsets of letters.
    pub(super) fn outlets(&self) -> Outlets {
        let place = self.places.last().expect("there is a place for letters");
        let declared = Schema::new(vec![Field::new("offset", DataType::Int64, true)]);
        let layout = Layout::new(Some(&Arc::new(declared)), Form::Table).unwrap();
        let outlet = Outlet { sink: self.sink(place), layout };
        let route = Route { source_table: "input".into(), columns: 1, outlet: Some(0) };
        Outlets::new("flow", vec![Some(route)], vec![outlet])
    }
}

fn lettered(kinds: &[Delivery]) -> Several {
    let places = kinds.iter().map(|delivery| Place::new(*delivery, 0));
    Several { has_letters: true, ..Several::new(places.collect()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_at_any_moment_lose_and_double_no_letter() {
    use Delivery::{Answers, IdempotentById, Repeats};
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    for seed in 0..seeds.unwrap_or(12) {
        for kinds in [
            &[Answers, Answers][..],
            &[Answers, IdempotentById],
            &[IdempotentById, Answers],
            &[Repeats, Answers],
            &[Answers, Repeats, Answers],
            &[Answers, Answers, IdempotentById],
        ] {
            crash_at_random(kinds, true, seed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn good_rows_and_letters_part_under_one_number() {
    let mut several = lettered(&[Delivery::Answers; 2]);
    several.scene.topic.push(0..100);
    several.scene.rows_max = 50;
    let finished = several.run(u64::MAX).await.unwrap();
    several.assert_all(100, "a plain run");
    let rows_out = several.expected(0, 100).len() as u64;
    assert_eq!(finished, Finished { micro_batches: 2, rows_in: 100, rows_out });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_without_letters_is_not_handed_over() {
    let mut several = lettered(&[Delivery::Answers, Delivery::IdempotentById]);
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
    let several = lettered(&[Delivery::Answers, Delivery::Answers]);
    let (stopper, stop) = stop_pair();
    let never_ready = NeverReady(OutsideSink(Arc::new(Outside::which(Delivery::Answers))));
    let mut outlets = several.outlets();
    *outlets.sinks_mut().next().unwrap() = Box::new(never_ready);
    let rows = OutsideSink(Arc::clone(&several.scene.outside));
    let branches = Branches::new(vec![branch(QUERIES[1], Box::new(rows)).await]);
    let query = several.scene.query(Trigger::BackToBack, stop).await;
    let query = Query { branches: branches.with_outlets(outlets), ..query };
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    for round in 1..=200 {
        several.scene.topic.push([round as i64 * 7]);
        until_kept(&several.scene.outside, round, &env).await;
    }
    stopper.stop();
    running.join().await.unwrap();
}
