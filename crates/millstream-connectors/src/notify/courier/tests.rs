use std::collections::VecDeque;

use async_trait::async_trait;
use millstream_engine::api::contact::Contacts;

use super::*;
use crate::notify::Message;
use crate::notify::refused_file::RefusedFile;

struct Note(String);

impl Message for Note {
    fn key(&self) -> &str {
        &self.0
    }

    fn rows(&self) -> &[Bytes] {
        &[]
    }

    fn content(&self) -> serde_json::Value {
        self.0.clone().into()
    }
}

/// Answers what a test says, then accepts.
#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<Outcome>>,
    attempts: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Transport for Scripted {
    type Message = Note;

    fn receiver(&self) -> &str {
        "the receiver"
    }

    async fn attempt(&self, note: &Note) -> Outcome {
        self.attempts.lock().push(note.0.clone());
        self.answers.lock().pop_front().unwrap_or(Outcome::Accepted)
    }
}

fn later() -> Outcome {
    Outcome::Later { problem: "busy".to_owned(), wait: None }
}

fn courier(
    answers: Vec<Outcome>,
    max: Option<u32>,
    refused: Option<Aside>,
) -> (Courier<Scripted>, Arc<Mutex<Vec<String>>>) {
    let env = Env::real();
    let backoff = Duration::from_millis(1);
    let retries = Retries { max, backoff, backoff_max: backoff };
    let settings = Settings { retries, lanes: 1, interval: Duration::ZERO, refused };
    let contact = Contacts::untold(env.clone()).with("the receiver".to_owned());
    let transport = Scripted { answers: Mutex::new(answers.into()), ..Scripted::default() };
    let attempts = Arc::clone(&transport.attempts);
    (Courier::start(transport, settings, Accepted::default(), contact, &env), attempts)
}

fn notes(names: &[&str]) -> Vec<(Option<u64>, Note)> {
    names.iter().map(|name| (None, Note((*name).to_owned()))).collect()
}

async fn accepted(courier: &mut Courier<Scripted>, names: &[&str]) -> Result<(), Failure> {
    let acknowledgement =
        courier.hand_over(BatchId(0), notes(names), |undelivered| undelivered.error.into());
    acknowledgement.accepted().await.map(|_| ())
}

#[tokio::test]
async fn a_message_that_waits_holds_back_those_behind_it() {
    let (mut courier, attempts) = courier(vec![Outcome::Accepted, later(), later()], None, None);
    accepted(&mut courier, &["a", "b", "c"]).await.unwrap();
    assert_eq!(*attempts.lock(), ["a", "b", "b", "b", "c"]);
}

#[tokio::test]
async fn a_refused_message_ends_its_lane_and_frees_a_driver_that_waits() {
    let (mut courier, attempts) = courier(vec![Outcome::Refused("no".to_owned())], None, None);
    let many = ["a"; 40];
    let first = courier.hand_over(BatchId(0), notes(&many), |undelivered| undelivered.error.into());
    courier.ready().await;
    let failure = first.accepted().await.unwrap_err();
    assert!(failure.to_string().contains("the receiver refused it: no"), "{failure}");
    assert!(accepted(&mut courier, &["b"]).await.is_err(), "nothing overtakes it");
    assert_eq!(attempts.lock().len(), 1);
}

#[tokio::test]
async fn tries_are_counted_and_what_is_given_up_goes_to_the_file() {
    let (mut without_file, attempts) = courier(vec![later(), later(), later()], Some(2), None);
    let failure = accepted(&mut without_file, &["a"]).await.unwrap_err();
    assert!(failure.to_string().contains("in 3 attempts"), "{failure}");
    assert_eq!(attempts.lock().len(), 3);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("refused");
    let file = RefusedFile::new(path.clone(), Env::real());
    let answers = vec![later(), later(), Outcome::Accepted, Outcome::Refused("no".to_owned())];
    let (mut with_file, _) = courier(answers, Some(1), Some(Aside::File(file)));
    accepted(&mut with_file, &["a", "b", "c", "d"]).await.unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &serde_json::Value| format!("{} {}", line["key"], line["answer"]);
    assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), [r#""a" "busy""#, r#""c" "no""#]);
}

/// One that sends no faster than every `interval`.
fn slow(env: &Env, lanes: usize, interval: Duration) -> Courier<Scripted> {
    let backoff = Duration::from_millis(1);
    let retries = Retries { max: None, backoff, backoff_max: backoff };
    let settings = Settings { retries, lanes, interval, refused: None };
    let contact = Contacts::untold(env.clone()).with("the receiver".to_owned());
    Courier::start(Scripted::default(), settings, Accepted::default(), contact, env)
}

#[tokio::test]
async fn messages_are_sent_no_faster_than_allowed() {
    let (env, interval) = (Env::real(), Duration::from_millis(20));
    let mut courier = slow(&env, 4, interval);
    let begun = env.monotonic();
    accepted(&mut courier, &["a"; 6]).await.unwrap();
    assert!(env.monotonic() - begun >= 5 * interval);
}

#[tokio::test]
async fn a_stopped_run_leaves_messages_whose_turn_comes_late_to_the_next_one() {
    let env = Env::real();
    let mut courier = slow(&env, 1, 2 * ENDING_PATIENCE);
    let names = notes(&["a", "b"]);
    let failure = |undelivered: Undelivered| undelivered.error.into();
    let acknowledgement = courier.hand_over(BatchId(0), names, failure);
    let mut accepted = Box::pin(acknowledgement.accepted());
    // A run that has read all of its input sends them all.
    courier.end(Ending::Complete);
    tokio::select! {
        outcome = &mut accepted => panic!("the second one is not due: {outcome:?}"),
        () = env.sleep(Duration::from_millis(300)) => {}
    }
    courier.end(Ending::Stopped);
    let failure = accepted.await.unwrap_err();
    let text = "the run is stopped, and the next message to the receiver may be sent only in 5";
    assert!(failure.to_string().starts_with(text), "{failure}");
}

#[tokio::test]
async fn what_was_accepted_before_the_end_is_not_sent_again() {
    let env = Env::real();
    let mut first = slow(&env, 1, 2 * ENDING_PATIENCE);
    let failure = |undelivered: Undelivered| undelivered.error.into();
    let acknowledgement = first.hand_over(BatchId(3), notes(&["a", "b"]), failure);
    let mut accepted = Box::pin(acknowledgement.accepted());
    tokio::select! {
        outcome = &mut accepted => panic!("the second one is not due: {outcome:?}"),
        () = env.sleep(Duration::from_millis(300)) => {}
    }
    first.end(Ending::Stopped);
    accepted.await.unwrap_err();
    let left = first.close().await;

    let retries = Retries { max: None, backoff: ENDING_PATIENCE, backoff_max: ENDING_PATIENCE };
    let settings = Settings { retries, lanes: 1, interval: Duration::ZERO, refused: None };
    let contact = Contacts::untold(env.clone()).with("the receiver".to_owned());
    let transport = Scripted::default();
    let attempts = Arc::clone(&transport.attempts);
    let mut second = Courier::start(transport, settings, left.next_run(), contact, &env);
    second.hand_over(BatchId(3), notes(&["b", "a"]), failure).accepted().await.unwrap();
    assert_eq!(*attempts.lock(), ["b"]);
    second.hand_over(BatchId(4), notes(&["a"]), failure).accepted().await.unwrap();
    assert_eq!(*attempts.lock(), ["b", "a"], "another one");
}

#[tokio::test]
async fn an_attempt_under_way_is_waited_for_when_all_ends() {
    let env = Env::real();
    let (begun, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::default());
    let transport = Slow { begun: Arc::clone(&begun), go_on: Arc::clone(&go_on) };
    let retries = Retries { max: None, backoff: ENDING_PATIENCE, backoff_max: ENDING_PATIENCE };
    let settings = Settings { retries, lanes: 1, interval: Duration::ZERO, refused: None };
    let contact = Contacts::untold(env.clone()).with("the receiver".to_owned());
    let mut courier = Courier::start(transport, settings, Accepted::default(), contact, &env);
    let failure = |undelivered: Undelivered| undelivered.error.into();
    let _unheard = courier.hand_over(BatchId(3), notes(&["a", "b"]), failure);
    begun.notified().await;
    let closing = env.spawn("close", courier.close());
    env.sleep(Duration::from_millis(50)).await;
    go_on.notify_one();
    let mut next = closing.join().await.next_run();
    let rest = next.begin(BatchId(3), notes(&["a", "b"]));
    assert_eq!(rest.iter().map(|(_, note)| &*note.0).collect::<Vec<_>>(), ["b"]);
}

/// Says that an attempt has begun, and accepts it when the test says so.
struct Slow {
    begun: Arc<tokio::sync::Notify>,
    go_on: Arc<tokio::sync::Notify>,
}

#[async_trait]
impl Transport for Slow {
    type Message = Note;

    fn receiver(&self) -> &str {
        "the receiver"
    }

    async fn attempt(&self, _: &Note) -> Outcome {
        self.begun.notify_one();
        self.go_on.notified().await;
        Outcome::Accepted
    }
}
