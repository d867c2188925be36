//! Constraints: which rows are letters may follow from the time of the micro-batch, and each is
//! once in either sink all the same.

use millstream_sql::session::session;

use super::*;
use crate::api::dead_letter::{Form, Layout};
use crate::constraints::{Action, Checks, Constraint};
use crate::driver::dead_letter_sinks::{DeadLetterSink, DeadLetterSinks};
use crate::driver::side_outputs::{DecodingRoute, Rejections};

/// A row is a letter, or not, as the milliseconds of the micro-batch say.
const BY_TIME: &str = "SELECT v, (v + unix_millis(current_timestamp())) % 3 <> 0, \
                       CAST(v AS STRING) AS shown FROM input";

fn checks(action: Action) -> Checks {
    let constraint = Constraint { name: "c".into(), condition: "by time".to_owned(), action };
    Checks::new(vec![constraint])
}

fn dead_letter_sinks(
    sinks: Vec<Box<dyn Sink>>,
    decoding: Vec<Option<DecodingRoute>>,
    action: Action,
) -> DeadLetterSinks {
    let declared = Arc::new(Schema::new(vec![Field::new("payload", DataType::Utf8, true)]));
    let layout = Layout::new(Some(&declared), Form::Table).unwrap();
    let dead_letter_sink =
        |sink| DeadLetterSink { name: "bad".to_owned(), sink, layout: layout.clone() };
    let sinks = sinks.into_iter().map(dead_letter_sink).collect();
    let rejections = Rejections { decoding, expressions: None, checks: Some(checks(action)) };
    DeadLetterSinks::new("flow", rejections, sinks)
}

async fn branch_by_time(clock: &BatchClock, sink: Box<dyn Sink>) -> Branch {
    let slots = Slots::new(2);
    let context = session(streaming_config(), clock);
    let table = StreamTable::new("input".to_owned(), schema(), Arc::clone(&slots));
    context.register_table("input", Arc::new(table)).unwrap();
    let (state, logical) = context.sql(BY_TIME).await.unwrap().into_parts();
    Branch { plan: QueryPlan::new(state, logical, vec![slots]).await.unwrap().into(), sink }
}

/// Runs with a sink for rows and one for letters, until that many moments are over; also says what
/// both together need.
async fn run(several: &Several, moments: u64) -> (Result<Finished, Failure>, Delivery) {
    several.moments.left.store(moments, Ordering::Relaxed);
    let (_stopper, stop) = stop_pair();
    let batch_clock = BatchClock::default();
    let [rows, letters] = [0, 1].map(|place: usize| several.sink(&several.places[place]));
    let branches = Branches::new(vec![branch_by_time(&batch_clock, rows).await]);
    let dead_letters = dead_letter_sinks(vec![letters], vec![None], Action::DeadLetter(0));
    let branches = branches.with_dead_letters(dead_letters);
    let delivery = branches.delivery();
    let query = several.scene.query(Trigger::AvailableNow, stop).await;
    (Query { branches, batch_clock, ..query }.run().await, delivery)
}

async fn crash(kinds: [Delivery; 2], seed: u64) {
    let mut chance = Chance(seed);
    let mut several = Several::at_random(&kinds, seed, &mut chance);
    let mut rows = 0;
    for round in 0..6 {
        rows = several.more_rows(rows, &mut chance);
        let moments = if round == 5 { u64::MAX } else { chance.below(80) };
        let (ended, delivery) = run(&several, moments).await;
        assert!(round < 5 || ended.is_ok(), "{kinds:?} {seed}: {ended:?}");
        let (commits, intents) = (chance.below(4) as usize, chance.below(3) as usize);
        match delivery {
            _ if ended.is_ok() => {}
            Delivery::Idempotent => several.forget(commits, 0),
            // Nobody waits for these intents, so a crash may be before they are written.
            Delivery::Transactional | Delivery::AtLeastOnce => several.forget(commits, intents),
        }
    }
    let mut found: Vec<i64> = several.places.iter().flat_map(|place| place.rows()).collect();
    found.sort_unstable();
    assert_eq!(found, Vec::from_iter(0..rows), "{kinds:?}, seed {seed}");
    assert!(several.places.iter().all(|place| !place.rows().is_empty()), "both have some");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_time_decides_is_decided_once() {
    use Delivery::{Idempotent, Transactional};
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    for seed in 0..seeds.unwrap_or(12) {
        for kinds in [
            [Transactional, Transactional],
            [Transactional, Idempotent],
            [Idempotent, Transactional],
        ] {
            crash(kinds, seed).await;
        }
    }
}

/// Looks whether the intent of what it gets is in the log.
struct AfterIntent(OutsideSink, std::path::PathBuf);

#[async_trait]
impl Sink for AfterIntent {
    fn description(&self) -> String {
        "AfterIntent".to_owned()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Transactional
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.0.open().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let intent = self.1.join(format!("offsets/{}", output.batch_id));
        assert!(intent.exists(), "{} is published without its intent", output.batch_id);
        self.0.publish(output).await
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_before_its_intent_is_there() {
    let mut several = Several::new(vec![Place::new(Delivery::Transactional, 0)]);
    several.scene.topic.push(0..200);
    several.scene.rows_max = 10;
    several.moments.left.store(u64::MAX, Ordering::Relaxed);
    let (_stopper, stop) = stop_pair();
    let outside = Arc::clone(&several.scene.outside);
    let path = several.scene.directory.path().to_owned();
    let rows = Box::new(AfterIntent(OutsideSink(Arc::clone(&outside)), path));
    let batch_clock = BatchClock::default();
    let branches = Branches::new(vec![branch_by_time(&batch_clock, rows).await]);
    let letters = vec![several.sink(&several.places[0])];
    let branches =
        branches.with_dead_letters(dead_letter_sinks(letters, vec![None], Action::DeadLetter(0)));
    let query = several.scene.query(Trigger::AvailableNow, stop).await;
    Query { branches, batch_clock, ..query }.run().await.unwrap();
    assert_eq!(outside.ids(), Vec::from_iter(0..20));
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_alone_leave_decoding_to_the_plan() {
    let place = Arc::new(Outside::which(Delivery::Transactional));
    let checked = async |decoding: Vec<Option<DecodingRoute>>| {
        let sink = Box::new(OutsideSink(Arc::clone(&place)));
        let branch = branch_by_time(&BatchClock::default(), sink).await;
        Branches::new(vec![branch]).with_dead_letters(dead_letter_sinks(
            Vec::new(),
            decoding,
            Action::Drop,
        ))
    };
    assert!(!checked(vec![None]).await.decodes_once());
    let route = DecodingRoute { source_table: "input".into(), columns: 1, side_output: None };
    assert!(checked(vec![Some(route)]).await.decodes_once());
}

/// A sink that needs no intent gets none for constraints that only drop rows.
#[tokio::test(flavor = "multi_thread")]
async fn only_letters_of_constraints_need_durable_intents() {
    for (action, delivery) in
        [(Action::Drop, Delivery::Transactional), (Action::DeadLetter(0), Delivery::Idempotent)]
    {
        let sink = || Box::new(OutsideSink(Arc::new(Outside::which(Delivery::Transactional))));
        let branch = branch_by_time(&BatchClock::default(), sink()).await;
        let dead_letters = dead_letter_sinks(vec![sink()], vec![None], action);
        let branches = Branches::new(vec![branch]).with_dead_letters(dead_letters);
        assert_eq!(branches.delivery(), delivery);
    }
}
