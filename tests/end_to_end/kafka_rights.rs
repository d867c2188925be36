//! Access control, against a real broker: a flow works with the rights that
//! `docs/connectors/kafka.md` names and `validate` lists, and with no others; where one of them is
//! missing, it ends and names the right and what it is on.
//!
//! A case is a flow that copies ten records between topics of its own. One of the two tables
//! belongs to a user that no other case has; the other table may do everything.

use std::sync::OnceLock;
use std::time::Duration;

use millstream_testkit::rights::{self, Guarded, Operation, Resource, Right, User};

use crate::millstream::{Finished, Pipeline, Running, table};
use crate::topics::sorted_values;
use crate::wait;
use Operation::{Create, Describe, Read, Write};

const RECORDS: usize = 10;
/// What the flows that write read.
const INPUT: &str = "rights_all_in";
/// How long a flow may take to end: one that starts again and again is noticed.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Whose code speaks to the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Own,
    Librdkafka,
}

impl Client {
    const BOTH: [Self; 2] = [Self::Own, Self::Librdkafka];

    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Librdkafka => "librdkafka",
        }
    }

    fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Own => &[],
            Self::Librdkafka => &[
                ("kafka.millstream.client", "librdkafka"),
                ("kafka.millstream.transactions", "librdkafka"),
            ],
        }
    }
}

/// What the user's table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Reads,
    /// With this option `delivery`.
    Writes(Option<&'static str>),
}

const AT_LEAST_ONCE: Side = Side::Writes(Some("at-least-once"));
const EXACTLY_ONCE: Side = Side::Writes(Some("exactly-once"));

/// Which topics a case finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topics {
    /// What it reads, and what it writes.
    Both,
    /// What it reads; the other one is made by the flow.
    Input,
    /// Both, and nobody else reads the first.
    ItsOwn,
}

/// What becomes of a flow.
enum Expected<'a> {
    /// It copies everything, and has nothing to say about rights.
    Works,
    /// It copies everything, and says these words.
    Warns(&'a [&'a str]),
    /// It ends with status 1, and says these words.
    Ends(&'a [&'a str]),
}
use Expected::{Ends, Warns, Works};

/// The names of a case. In words that are expected, FLOW is the flow's name, IN the topic that it
/// reads, and OUT the one that it writes.
struct Place {
    flow: String,
    input: String,
    output: String,
}

impl Place {
    fn input(&self, operation: Operation) -> Right {
        Right::on(operation, Resource::Topic, &self.input)
    }

    fn output(&self, operation: Operation) -> Right {
        Right::on(operation, Resource::Topic, &self.output)
    }

    /// What the flow calls its groups, its transactional ids and the topic of its record.
    fn own(&self, operation: Operation, resource: Resource) -> Right {
        Right::on_all(operation, resource, &format!("millstream-{}-", self.flow))
    }

    fn group(&self, operation: Operation) -> Right {
        self.own(operation, Resource::Group)
    }

    fn ids(&self, operation: Operation) -> Right {
        self.own(operation, Resource::TransactionalId)
    }

    fn record(&self, operation: Operation) -> Right {
        self.own(operation, Resource::Topic)
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        let named = |word: &&str| {
            word.replace("FLOW", &self.flow).replace("OUT", &self.output).replace("IN", &self.input)
        };
        words.iter().map(named).collect()
    }
}

/// The broker, with records to copy.
fn guarded() -> &'static Guarded {
    static FILLED: OnceLock<()> = OnceLock::new();
    let guarded = rights::shared();
    FILLED.get_or_init(|| fill(guarded, INPUT));
    guarded
}

fn fill(guarded: &Guarded, topic: &str) {
    let topics = guarded.broker().topics();
    topics.create(topic, 2);
    topics.produce_values(topic, values());
}

fn values() -> Vec<String> {
    (0..RECORDS).map(|number| number.to_string()).collect()
}

/// A case: its flow, which was not started yet.
struct Flow {
    place: Place,
    user: User<'static>,
    pipeline: Pipeline,
}

impl Flow {
    /// A flow called after `name` and the client; `rights` are those of its user.
    fn new(
        (side, client): (Side, Client),
        name: &str,
        topics: Topics,
        rights: impl Fn(&Place) -> Vec<Right>,
    ) -> Self {
        let flow = format!("rights_{name}_{}", client.name());
        let has_input = side == Side::Reads || topics == Topics::ItsOwn;
        let input = if has_input { format!("{flow}_in") } else { INPUT.to_owned() };
        let place = Place { output: format!("{flow}_out"), input, flow };
        if has_input {
            fill(guarded(), &place.input);
        }
        if topics != Topics::Input {
            guarded().broker().topics().create(&place.output, 2);
        }
        let user = guarded().user_with(&rights(&place));
        let as_user = options(&user, client);
        let anybody = anybody();
        let (reads, writes) = match side {
            Side::Reads => (as_user, with_delivery(anybody, Some("at-least-once"))),
            Side::Writes(delivery) => (anybody, with_delivery(as_user, delivery)),
        };
        let pipeline = pipeline(&place, &reads, &writes);
        Self { place, user, pipeline }
    }

    fn written(&self) -> Vec<String> {
        sorted_values(&guarded().broker().topics().read(&self.place.output))
    }

    fn copies_all(&self, finished: Finished) -> Finished {
        let finished = finished.expect_success();
        assert_eq!(self.written(), values(), "{}", self.place.flow);
        finished
    }

    fn ends(&self, running: Running, words: &[&str]) -> Finished {
        let words = self.place.words(words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let finished = running.wait(END_LIMIT).without_internals().expect_exit(1).says(&words);
        assert_eq!(finished.stderr.matches("error: flow").count(), 1, "{}", finished.stderr);
        finished
    }

    fn run(&self, expected: &Expected<'_>) {
        let running = self.pipeline.start(&["--trigger", "availableNow"]);
        match expected {
            Works => {
                let finished = self.copies_all(running.wait(END_LIMIT));
                // With all rights there is no warning, and Millstream's own client writes.
                finished.says_not(&["authoriz", "librdkafka writes", "at least once"]);
            }
            Warns(words) => {
                let words = self.place.words(words);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.copies_all(running.wait(END_LIMIT)).says(&words);
            }
            Ends(words) => {
                self.ends(running, words).says_not(&["starts again in"]);
                assert_eq!(self.written(), Vec::<String>::new(), "{}", self.place.flow);
            }
        }
    }
}

type Options = Vec<(&'static str, String)>;

fn options(user: &User<'_>, client: Client) -> Options {
    let of_client = client.options().iter().map(|(key, value)| (*key, (*value).to_owned()));
    user.options().into_iter().chain(of_client).collect()
}

/// Options of a client that may do everything.
fn anybody() -> Options {
    vec![("kafka.bootstrap.servers", guarded().broker().address())]
}

fn with_delivery(mut options: Options, delivery: Option<&str>) -> Options {
    options.extend(delivery.map(|delivery| ("delivery", delivery.to_owned())));
    options
}

fn pipeline(place: &Place, reads: &Options, writes: &Options) -> Pipeline {
    let with_more = |options: &Options, more: &[(&'static str, &str)]| -> Options {
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        options.iter().cloned().chain(more).collect()
    };
    let declare = |name: &str, options: Options| {
        let options: Vec<(&str, &str)> =
            options.iter().map(|(key, value)| (*key, value.as_str())).collect();
        table(name, "", "kafka", &options)
    };
    let from = [("subscribe", place.input.as_str()), ("startingOffsets", "earliest")];
    let to = [("topic", place.output.as_str())];
    Pipeline::new(&format!(
        "{}{}CREATE FLOW {} AS INSERT INTO target BY NAME SELECT value FROM STREAM source;\n",
        declare("source", with_more(reads, &from)),
        declare("target", with_more(writes, &to)),
        place.flow,
    ))
}

/// A case whose topics are there.
fn case(
    of: (Side, Client),
    name: &str,
    rights: impl Fn(&Place) -> Vec<Right>,
    expected: Expected<'_>,
) {
    Flow::new(of, name, Topics::Both, rights).run(&expected);
}

/// A case whose topic is to be made.
fn making(
    of: (Side, Client),
    name: &str,
    rights: impl Fn(&Place) -> Vec<Right>,
    expected: Expected<'_>,
) {
    Flow::new(of, name, Topics::Input, rights).run(&expected);
}

#[test]
fn reading_needs_read_on_the_topic_and_progress_read_on_the_group() {
    for client in Client::BOTH {
        let of = (Side::Reads, client);
        case(of, "read", |at| vec![at.input(Read), at.group(Read)], Works);
        let named =
            ["Group authorization failed", "consumer group 'millstream-FLOW-", "right Read"];
        case(of, "read_no_group", |at| vec![at.input(Read)], Warns(&named));
        let read = ["IN-", "cannot be read", "right Read on the topic"];
        case(of, "read_describe", |at| vec![at.input(Describe), at.group(Read)], Ends(&read));
        let nothing = ["topic 'IN'", "right Read on the topic"];
        case(of, "read_nothing", |at| vec![at.group(Read)], Ends(&nothing));
    }
}

#[test]
fn progress_is_committed_with_read_on_the_group_alone() {
    for client in Client::BOTH {
        let group = format!("rights_group_{}", client.name());
        let flow = Flow::new((Side::Reads, client), "progress", Topics::Both, |at| {
            vec![at.input(Read), Right::on(Read, Resource::Group, &group)]
        });
        let group_option = format!("source.kafka.group.id={group}");
        let run = flow.pipeline.run(&["--trigger", "availableNow", "--set", &group_option]);
        flow.copies_all(run).says_not(&["authoriz"]);
        let topics = guarded().broker().topics();
        wait::until_true("the group's offsets", wait::SOON, || {
            topics.committed(&group, &flow.place.input) == topics.ends(&flow.place.input)
        });
    }
}

#[test]
fn writing_at_least_once_needs_write_and_to_make_the_topic_create() {
    for client in Client::BOTH {
        let of = (AT_LEAST_ONCE, client);
        case(of, "write", |at| vec![at.output(Write)], Works);
        making(of, "make", |at| vec![at.output(Write), at.output(Create)], Works);
        let create = ["'OUT'", "right Write on the topic, and Create"];
        making(of, "make_not", |at| vec![at.output(Write)], Ends(&create));
        let write = ["OUT", "Give the user the right", "Write"];
        making(of, "make_only", |at| vec![at.output(Create)], Ends(&write));
        let describe = ["a record for OUT", "right Write on the topic"];
        case(of, "write_describe", |at| vec![at.output(Describe)], Ends(&describe));
        case(of, "write_nothing", |_| Vec::new(), Ends(&write));
    }
}

/// What `docs/connectors/kafka.md` asks for where transactions are written without librdkafka.
fn for_transactions(at: &Place) -> Vec<Right> {
    let record = [Create, Read, Write].map(|operation| at.record(operation));
    [vec![at.output(Write), at.ids(Write), at.group(Describe)], record.to_vec()].concat()
}

/// The same with librdkafka.
fn for_librdkafka(at: &Place) -> Vec<Right> {
    vec![at.output(Write), at.output(Read), at.ids(Write), at.group(Read)]
}

fn without(rights: Vec<Right>, missing: &Right) -> Vec<Right> {
    assert!(rights.contains(missing), "{missing:?} is not among them");
    rights.into_iter().filter(|right| right != missing).collect()
}

fn with(mut rights: Vec<Right>, more: Right) -> Vec<Right> {
    rights.push(more);
    rights
}

/// What is said where transactions are not allowed.
const NO_TRANSACTIONS: [&str; 4] = [
    "do not allow transactions",
    "right Write on the transactional ids 'millstream-FLOW-",
    "Describe on the consumer group 'millstream-FLOW-",
    "'delivery' = 'at-least-once'",
];

#[test]
fn transactions_need_the_topic_and_their_ids() {
    let (of, all) = ((EXACTLY_ONCE, Client::Own), for_transactions);
    case(of, "once", all, Works);
    making(of, "once_make", |at| with(all(at), at.output(Create)), Works);
    let create = ["'OUT'", "right Write on the topic, and Create"];
    making(of, "once_make_not", all, Ends(&create));
    let write = ["'OUT'", "Give the user the right", "Write"];
    case(of, "once_no_topic", |at| without(all(at), &at.output(Write)), Ends(&write));
    let describe = ["a record for OUT", "right Write on the topic"];
    let only_described =
        |at: &Place| with(without(all(at), &at.output(Write)), at.output(Describe));
    case(of, "once_describe", only_described, Ends(&describe));
    case(of, "once_no_id", |at| without(all(at), &at.ids(Write)), Ends(&NO_TRANSACTIONS));
    let described = |at: &Place| with(without(all(at), &at.ids(Write)), at.ids(Describe));
    case(of, "once_describe_id", described, Ends(&NO_TRANSACTIONS));
}

#[test]
fn the_record_of_progress_needs_its_topic_and_the_group() {
    let (of, all) = ((EXACTLY_ONCE, Client::Own), for_transactions);
    case(of, "once_no_group", |at| without(all(at), &at.group(Describe)), Ends(&NO_TRANSACTIONS));
    let read = ["'millstream-FLOW-", "-published'", "rights Create, Read and Write on this topic"];
    case(of, "once_no_read", |at| without(all(at), &at.record(Read)), Ends(&read));
    let write = ["a record for millstream-FLOW-", "-published", "right Write on the topic"];
    case(of, "once_no_write", |at| without(all(at), &at.record(Write)), Ends(&write));
    // Then librdkafka writes, which needs more of the group.
    let create = [
        "create the topic millstream-FLOW-",
        "allow CREATE on it",
        "in the group 'millstream-FLOW-",
        "right Read on the topic and on the group",
    ];
    case(of, "once_no_create", |at| without(all(at), &at.record(Create)), Ends(&create));
    let instead = ["create the topic millstream-FLOW-", "allow CREATE on it"];
    case(of, "once_instead", for_librdkafka, Warns(&instead));
}

#[test]
fn transactions_of_librdkafka_need_read_on_the_topic_and_the_group() {
    let (of, all) = ((EXACTLY_ONCE, Client::Librdkafka), for_librdkafka);
    case(of, "once", all, Works);
    let write = ["a record for OUT", "right Write on the topic"];
    case(of, "once_no_topic", |at| without(all(at), &at.output(Write)), Ends(&write));
    case(of, "once_no_id", |at| without(all(at), &at.ids(Write)), Ends(&NO_TRANSACTIONS));
    let described = |at: &Place| with(without(all(at), &at.ids(Write)), at.ids(Describe));
    case(of, "once_describe_id", described, Ends(&NO_TRANSACTIONS));
    case(of, "once_no_group", |at| without(all(at), &at.group(Read)), Ends(&NO_TRANSACTIONS));
    let group = ["in the group 'millstream-FLOW-", "right Read on the topic and on the group"];
    let described = |at: &Place| with(without(all(at), &at.group(Read)), at.group(Describe));
    case(of, "once_describe_group", described, Ends(&group));
    let read = ["for the topic 'OUT'", "right Read on the topic and on the group"];
    case(of, "once_no_read", |at| without(all(at), &at.output(Read)), Ends(&read));
}

#[test]
fn who_may_not_use_transactions_and_has_not_asked_for_them_writes_at_least_once() {
    for client in Client::BOTH {
        let of = (Side::Writes(None), client);
        let (all, group) = match client {
            Client::Own => (for_transactions as fn(&Place) -> Vec<Right>, Describe),
            Client::Librdkafka => (for_librdkafka as fn(&Place) -> Vec<Right>, Read),
        };
        case(of, "best", all, Works);
        let warning = ["writing at least once instead", "millstream-FLOW-"];
        case(of, "best_no_id", |at| without(all(at), &at.ids(Write)), Warns(&warning));
        case(of, "best_no_group", |at| without(all(at), &at.group(group)), Warns(&warning));
    }
}

/// A flow whose user loses a right while it runs.
fn withdrawn(
    of: (Side, Client),
    name: &str,
    rights: impl Fn(&Place) -> Vec<Right>,
    lost: impl Fn(&Place) -> Right,
    words: &[&str],
) {
    let flow = Flow::new(of, name, Topics::ItsOwn, rights);
    let mut running = flow.pipeline.start(&[]);
    running.wait_while_running("its records", || flow.written() == values());
    flow.user.withdraw(&lost(&flow.place));
    guarded().broker().topics().produce_values(&flow.place.input, ["more"]);
    flow.ends(running, words);
    assert_eq!(flow.written(), values(), "{}", flow.place.flow);
}

#[test]
fn a_right_to_read_that_is_withdrawn_ends_the_flow() {
    for client in Client::BOTH {
        let rights = |at: &Place| vec![at.input(Read), at.group(Read)];
        let words = ["IN-", "cannot be read", "right Read on the topic"];
        withdrawn((Side::Reads, client), "lost_read", rights, |at| at.input(Read), &words);
    }
}

#[test]
fn a_right_to_write_that_is_withdrawn_ends_the_flow() {
    let words = ["a record for OUT", "right Write on the topic"];
    for client in Client::BOTH {
        let rights = |at: &Place| vec![at.output(Write)];
        withdrawn((AT_LEAST_ONCE, client), "lost_write", rights, |at| at.output(Write), &words);
        let all: fn(&Place) -> Vec<Right> = match client {
            Client::Own => for_transactions,
            Client::Librdkafka => for_librdkafka,
        };
        withdrawn((EXACTLY_ONCE, client), "lost_once", all, |at| at.output(Write), &words);
        let words = ["millstream-FLOW-", "right Write on th", "transactional id"];
        withdrawn((EXACTLY_ONCE, client), "lost_id", all, |at| at.ids(Write), &words);
    }
}

/// The rights in a line such as `Read, Write on topics that begin with 'a': what for`.
fn rights_in(line: &str) -> Vec<Right> {
    let parse = || -> Option<Vec<Right>> {
        let (operations, on) = line.trim().split_once(" on ")?;
        let (what, name) = on.split_once('\'')?;
        let (name, _) = name.split_once('\'')?;
        let right = match what {
            "topic " => Right::on(Read, Resource::Topic, name),
            "topics that begin with " => Right::on_all(Read, Resource::Topic, name),
            "consumer groups that begin with " => Right::on_all(Read, Resource::Group, name),
            "transactional ids that begin with " => {
                Right::on_all(Read, Resource::TransactionalId, name)
            }
            _ => return None,
        };
        let operation = |name: &str| match name {
            "Read" => Some(Read),
            "Write" => Some(Write),
            "Create" => Some(Create),
            _ => None,
        };
        let operations = operations.split(", ").map(operation).collect::<Option<Vec<_>>>()?;
        let right = |operation| Right { operation, ..right.clone() };
        Some(operations.into_iter().map(right).collect())
    };
    parse().unwrap_or_default()
}

#[test]
fn what_validate_lists_is_enough() {
    let (flow, user) = ("rights_listed".to_owned(), guarded().user_with(&[]));
    let place = Place { input: format!("{flow}_in"), output: format!("{flow}_out"), flow };
    fill(guarded(), &place.input);
    guarded().broker().topics().create(&place.output, 2);
    let as_user = options(&user, Client::Own);
    let pipeline =
        pipeline(&place, &as_user, &with_delivery(as_user.clone(), Some("exactly-once")));
    let validated = pipeline.spawn(pipeline.bare_command(&["validate", "pipeline.sql"]));
    let validated = validated.wait(END_LIMIT).expect_success();
    let mut rights: Vec<Right> = Vec::new();
    for right in validated.stdout.lines().flat_map(rights_in) {
        if !rights.contains(&right) {
            rights.push(right);
        }
    }
    // Two topics to read, two to write and two to make, the ids, and the groups.
    assert_eq!(rights.len(), 9, "{rights:?} in\n{}", validated.stdout);
    user.give(&rights);
    Flow { place, user, pipeline }.run(&Works);
}
