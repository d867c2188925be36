//! A broker with access control: a user may do nothing there until it gets rights, one at a time.
//!
//! Whoever comes to the listener without a password may do everything, as the tests do and the
//! broker itself. Users come to another listener, each with a name and the same password.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::kafka::{Broker, PASSWORD};
use crate::requests::{Api, answer, ask, put_text};
use crate::{process, wait};

/// API numbers and versions, from Kafka's protocol guide.
const DESCRIBE_ACLS: Api = (29, 3);
const CREATE_ACLS: Api = (30, 3);
/// In filters, for everything (`ANY` of Kafka's enumerations).
const ANY: u8 = 1;
/// Whether a rule takes a right away or gives it (`AclPermissionType`).
const DENY: u8 = 2;
const ALLOW: u8 = 3;

/// Users there are; each case of a test has one of its own.
const USERS: usize = 200;
/// Topics are created when somebody writes to them.
const SETTINGS: &str = "authorizer.class.name=\
     org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
     super.users=User:ANONYMOUS\n\
     auto.create.topics.enable=true\n";

/// What may be done; the numbers are those of Kafka's `AclOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To read records, or to commit as a group.
    Read = 3,
    /// To write records, or transactions of an id.
    Write = 4,
    /// To create a topic.
    Create = 5,
    /// To ask for it.
    Describe = 8,
}

/// What a right is on; the numbers are those of Kafka's `ResourceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A topic.
    Topic = 2,
    /// A consumer group.
    Group = 3,
    /// A transactional id.
    TransactionalId = 5,
}

/// Which names a right is for; the numbers are those of Kafka's `PatternType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This one.
    Whole = 3,
    /// All that begin so.
    Prefix = 4,
}

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// What may be done.
    pub operation: Operation,
    /// With what.
    pub resource: Resource,
    /// Its name, or the beginning of its name.
    pub name: String,
    /// Which of the two.
    pub pattern: Pattern,
}

impl Right {
    /// On the one thing that has this name.
    pub fn on(operation: Operation, resource: Resource, name: &str) -> Self {
        Self { operation, resource, name: name.to_owned(), pattern: Pattern::Whole }
    }

    /// On everything whose name begins so.
    pub fn on_all(operation: Operation, resource: Resource, prefix: &str) -> Self {
        Self { operation, resource, name: prefix.to_owned(), pattern: Pattern::Prefix }
    }
}

/// A broker with access control, stopped when dropped.
pub struct Guarded {
    broker: Broker,
    /// Where users connect to.
    clients: u16,
    /// How many users are taken.
    taken: AtomicUsize,
}

/// A user of [`Guarded`].
pub struct User<'a> {
    at: &'a Guarded,
    name: String,
}

/// The one that all tests of this process share, started by the first that asks.
pub fn shared() -> &'static Guarded {
    SHARED.get_or_init(|| {
        process::at_exit(stop_shared);
        Guarded::start()
    })
}

static SHARED: OnceLock<Guarded> = OnceLock::new();

extern "C" fn stop_shared() {
    if let Some(guarded) = SHARED.get() {
        guarded.broker.discard();
    }
}

impl Guarded {
    /// Starts it; an error is a panic.
    pub fn start() -> Self {
        let users: Vec<String> = (0..USERS).map(name_of).collect();
        let (broker, clients) = Broker::start_with_users(&users, SETTINGS);
        Self { broker, clients, taken: AtomicUsize::new(0) }
    }

    /// The broker, for whoever may do everything.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// A user that nobody else has, with these rights.
    pub fn user_with(&self, rights: &[Right]) -> User<'_> {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        assert!(number < USERS, "all {USERS} users are taken");
        let user = User { at: self, name: name_of(number) };
        user.give(rights);
        user
    }
}

impl User<'_> {
    /// Options of its client.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        vec![
            ("kafka.bootstrap.servers", format!("127.0.0.1:{}", self.at.clients)),
            ("kafka.security.protocol", "SASL_PLAINTEXT".to_owned()),
            ("kafka.sasl.mechanism", "PLAIN".to_owned()),
            ("kafka.sasl.username", self.name.clone()),
            ("kafka.sasl.password", PASSWORD.to_owned()),
        ]
    }

    /// Gives it rights that it does not have.
    pub fn give(&self, rights: &[Right]) {
        self.rule(ALLOW, rights);
    }

    /// Takes a right away, whatever else it has.
    pub fn withdraw(&self, right: &Right) {
        self.rule(DENY, std::slice::from_ref(right));
    }

    /// Makes rules, and waits until they hold.
    fn rule(&self, permission: u8, rights: &[Right]) {
        if rights.is_empty() {
            return;
        }
        let wanted = self.rules() + rights.len();
        let port = self.at.broker.port();
        let made = ask(port, CREATE_ACLS, &rules(&self.principal(), permission, rights));
        made.expect("the broker answers");
        // The answer comes when the controller has them.
        wait::until_true("the rights", wait::SOON, || self.rules() >= wanted);
    }

    /// How many rules the broker has for it.
    fn rules(&self) -> usize {
        let principal = self.principal();
        let asked = answer(self.at.broker.port(), DESCRIBE_ACLS, &question(&principal));
        let answer = asked.expect("the broker answers");
        // Only those of this user are asked for, and each of them has its name.
        answer.windows(principal.len()).filter(|part| *part == principal.as_bytes()).count()
    }

    fn principal(&self) -> String {
        format!("User:{}", self.name)
    }
}

fn name_of(number: usize) -> String {
    format!("u{number}")
}

fn rules(principal: &str, permission: u8, rights: &[Right]) -> Vec<u8> {
    // A count is written as one more.
    let count = u8::try_from(rights.len() + 1).ok().filter(|count| *count < 128);
    let mut body = vec![count.expect("few rights")];
    for Right { operation, resource, name, pattern } in rights {
        body.push(*resource as u8);
        put_text(&mut body, name);
        body.push(*pattern as u8);
        put_text(&mut body, principal);
        put_text(&mut body, "*"); // from any host
        body.extend([*operation as u8, permission, 0]); // no tagged fields
    }
    body.push(0);
    body
}

fn question(principal: &str) -> Vec<u8> {
    let mut body = vec![ANY, 0, ANY]; // any resource, any name, however it is meant
    put_text(&mut body, principal);
    body.extend([0, ANY, ANY, 0]); // from any host, any operation, given or not
    body
}
