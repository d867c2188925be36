//! The cluster as one client sees it: the leader of each partition, the coordinator of each id,
//! and a connection to each for each of two purposes.

pub mod request_error;
pub mod settings;
pub mod throttling;
pub mod tries;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;

use crate::protocol::ProducerIdentity;
use crate::protocol::connection::Connection;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::{API_VERSIONS, Api, FIND_COORDINATOR, INIT_PRODUCER_ALONE, METADATA};
use crate::protocol::login::Login;
use crate::protocol::requests;
use crate::protocol::responses::{self, Address, Node, Spoken, Topic};
use crate::protocol::security::Security;
use crate::tokens::Tokens;
use request_error::RequestError;
use settings::ConnectionSettings;
use throttling::Throttling;

/// How long what is known about topics counts; they may have got more partitions.
const METADATA_AGE_MAX: Duration = Duration::from_secs(300);

/// A connection that was not used for that long is made anew: what is between here and the broker
/// may have forgotten it, and a request would wait in vain for its answer.
const IDLE_MAX: Duration = Duration::from_secs(180);

/// How long a quota is waited for at most, before a new connection is tried.
const MUTED_MAX: Duration = Duration::from_secs(600);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Record batches.
    Rows,
    /// Ends of transactions, and whatever is asked before.
    Control,
}

/// A broker, for one purpose.
pub type Channel = (Address, Purpose);

/// Which requests a cluster supports.
pub struct ApiSupport {
    /// True if all brokers that answer support the requests that are needed.
    pub by_all: bool,
    /// Why others did not answer.
    pub silent: Vec<RequestError>,
}

struct KnownTopic {
    leaders: Vec<i32>,
    asked: Duration,
}

/// What one client knows of the brokers, and its connections.
pub struct Brokers {
    servers: Vec<Address>,
    client: String,
    security: Security,
    tokens: Option<Tokens>,
    throttling: Arc<Throttling>,
    env: Env,
    nodes: HashMap<i32, Address>,
    topics: HashMap<String, KnownTopic>,
    coordinators: HashMap<String, Address>,
    connections: HashMap<Channel, Open>,
    /// How long an answer may take, if not as long as usual.
    patience: Option<Duration>,
    /// Who has answered last what any broker can answer.
    answered: Option<Address>,
    /// Who may not know who leads now.
    distrusted: Option<Address>,
}

/// A connection, and when it has to be made anew, on the monotonic clock.
struct Open {
    connection: Connection,
    until: Duration,
    /// When it was used last.
    used: Duration,
    /// Until when the broker reads nothing from it.
    muted_until: Duration,
}

impl Open {
    /// Waits for the broker for as long as it reads nothing, and then as long as usual. On a new
    /// connection it would read at once, and count the same request a second time.
    fn await_quota(&mut self, now: Duration) -> io::Result<()> {
        self.connection.set_patience(self.muted_until.saturating_sub(now))
    }
}

/// Connects, with a token of its own where users are known by them. One that is refused is not
/// used again.
fn open(
    to: &Address,
    client: &str,
    security: &Security,
    tokens: Option<&Tokens>,
    env: &Env,
) -> io::Result<Connection> {
    let secret = env.secret();
    let Some(tokens) = tokens else { return Connection::open(to, client, security, &secret) };
    let token = tokens.token(env)?.text;
    let extensions = tokens.extensions().to_vec();
    let login = Some(Login::Token { token: token.clone(), extensions });
    let security = Security { login, ..security.clone() };
    Connection::open(to, client, &security, &secret).inspect_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied {
            tokens.forget(&token);
        }
    })
}

impl Brokers {
    /// Not connected yet.
    pub fn new(settings: ConnectionSettings, throttling: Arc<Throttling>, env: Env) -> Self {
        let ConnectionSettings { servers, client, security, tokens } = settings;
        let (nodes, topics, coordinators, connections) = Default::default();
        Self {
            servers,
            client,
            security,
            tokens,
            throttling,
            env,
            nodes,
            topics,
            coordinators,
            connections,
            patience: None,
            answered: None,
            distrusted: None,
        }
    }

    /// With so much patience for an answer: less where another broker can be asked as well, more
    /// where a request lets the broker wait.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The connection of `channel`, made if there is none, or none that is fresh, or if its login
    /// ends soon. The brokers would close it then, and a request would be lost.
    fn connection(&mut self, channel: &Channel) -> io::Result<&mut Open> {
        let now = self.env.monotonic();
        let is_old = |open: &Open| {
            let is_idle = now.saturating_sub(open.used) > IDLE_MAX;
            (open.until <= now || is_idle) && !open.connection.is_awaited()
        };
        if self.connections.get(channel).is_some_and(is_old) {
            self.connections.remove(channel);
        }
        let open = match self.connections.entry(channel.clone()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let mut connection = open(
                    &channel.0,
                    &self.client,
                    &self.security,
                    self.tokens.as_ref(),
                    &self.env,
                )?;
                if let Some(patience) = self.patience {
                    connection.set_usual_patience(patience)?;
                }
                let until = connection.lifetime().map(|lifetime| now + lifetime * 4 / 5);
                let until = until.unwrap_or(Duration::MAX);
                place.insert(Open { connection, until, used: now, muted_until: now })
            }
        };
        open.used = now;
        open.await_quota(now)?;
        Ok(open)
    }

    /// Uses the connection of `channel`; drops it if that fails.
    pub fn using<T>(
        &mut self,
        channel: &Channel,
        work: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> Result<T, RequestError> {
        let done = self.connection(channel).and_then(|open| {
            let done = work(&mut open.connection)?;
            Ok((done, open.connection.take_throttled()))
        });
        let (done, throttled) = done.map_err(|error| {
            self.connections.remove(channel);
            let (Address { host, port }, _) = channel;
            RequestError::Lost(io::Error::new(error.kind(), format!("{host}:{port}: {error}")))
        })?;
        if !throttled.is_zero() {
            self.mute(channel, throttled);
        }
        Ok(done)
    }

    fn mute(&mut self, channel: &Channel, throttled: Duration) {
        let now = self.env.monotonic();
        if let Some(open) = self.connections.get_mut(channel) {
            open.muted_until = open.muted_until.max(now + throttled.min(MUTED_MAX));
        }
        self.throttling.note(&channel.0, throttled, now);
    }

    /// Gives up the connections for rows, with answers that nobody waits for any more.
    pub fn leave_rows(&mut self) {
        self.connections.retain(|(_, purpose), _| *purpose != Purpose::Rows);
    }

    /// Forgets leaders and coordinators, which have moved.
    pub fn forget(&mut self) {
        self.topics.clear();
        self.coordinators.clear();
    }

    /// Forgets leaders and coordinators, and asks all others before `broker` who they are. A broker
    /// that stood still believes for a while that it leads what it led before, and says so.
    pub fn distrust(&mut self, broker: &Address) {
        self.distrusted = Some(broker.clone());
        self.forget();
    }

    /// [Distrusts](Self::distrust) the broker that is known as the coordinator of `id`.
    pub fn distrust_coordinator(&mut self, id: &str) {
        if let Some(coordinator) = self.coordinators.get(id).cloned() {
            self.distrust(&coordinator);
        }
    }

    /// Asks one broker after the other until one answers, first the one that did so last.
    fn ask_any<T>(
        &mut self,
        mut ask: impl FnMut(&mut Connection) -> io::Result<T>,
    ) -> Result<T, RequestError> {
        let mut lost = None;
        let all = self.answered.iter().chain(self.nodes.values()).chain(&self.servers);
        let (mut all, mut asked) = (all.cloned().collect::<Vec<_>>(), HashSet::new());
        all.sort_by_key(|address| self.distrusted.as_ref() == Some(address));
        for address in all {
            if !asked.insert(address.clone()) {
                continue;
            }
            match self.using(&(address.clone(), Purpose::Control), &mut ask) {
                Ok(answer) => {
                    self.answered = Some(address);
                    return Ok(answer);
                }
                Err(problem) => lost = Some(problem),
            }
        }
        Err(lost.expect("there is a server at least"))
    }

    /// Why `apis` cannot be used, or `None` if they can: every broker that answers has them. If
    /// none answers at the moment, that passes.
    pub fn lacks(&mut self, apis: &[Api]) -> Option<String> {
        match self.api_support(|spoken| spoken.has(apis)) {
            Ok(ApiSupport { by_all: true, .. }) => None,
            Ok(ApiSupport { by_all: false, .. }) => {
                Some("a broker does not have the requests of Kafka 3.0".to_owned())
            }
            Err(problem) if problem.may_pass() => None,
            Err(problem) => Some(problem.to_string()),
        }
    }

    /// Whether every broker that answers has what is needed, as `has_all` says.
    /// Errors: no broker answers.
    pub fn api_support(
        &mut self,
        has_all: impl Fn(&Spoken) -> bool,
    ) -> Result<ApiSupport, RequestError> {
        self.refresh(&[])?;
        let (mut answered, mut silent) = (false, Vec::new());
        for address in self.nodes.values().cloned().collect::<Vec<_>>() {
            let ask = |connection: &mut Connection| {
                connection.ask(API_VERSIONS, requests::api_versions, responses::api_versions)
            };
            match self.using(&(address, Purpose::Control), ask) {
                Ok(spoken) if has_all(&spoken) => answered = true,
                Ok(_) => return Ok(ApiSupport { by_all: false, silent }),
                Err(problem) if problem.may_pass() => silent.push(problem),
                Err(problem) => return Err(problem),
            }
        }
        // Without any answer the last reason is the error; with one, silent brokers are only
        // reported.
        match (answered, silent.pop()) {
            (false, Some(problem)) => Err(problem),
            (_, last) => {
                silent.extend(last);
                Ok(ApiSupport { by_all: true, silent })
            }
        }
    }

    /// Describes topics as they are now, without creating one that is missing.
    pub fn describe(&mut self, topics: &[&str]) -> Result<Vec<Topic>, RequestError> {
        self.ask_for(topics, false)
    }

    /// The brokers, as the last description had them.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().map(|(id, address)| (*id, address.clone()))
    }

    fn ask_for(&mut self, topics: &[&str], may_create: bool) -> Result<Vec<Topic>, RequestError> {
        let (nodes, topics) = self.ask_any(|connection| {
            let body = |body: &mut _| requests::metadata(body, topics, may_create);
            connection.ask(METADATA, body, responses::metadata)
        })?;
        self.nodes = nodes.into_iter().collect();
        Ok(topics)
    }

    fn refresh(&mut self, topics: &[&str]) -> Result<(), RequestError> {
        let asked = self.env.monotonic();
        for topic in self.ask_for(topics, true)? {
            if topic.code != ErrorCode::NONE {
                return Err(RequestError::Refused(topic.code));
            }
            self.topics.insert(topic.name, KnownTopic { leaders: topic.leaders, asked });
        }
        Ok(())
    }

    /// How many partitions a topic has.
    pub fn partitions(&mut self, topic: &str) -> Result<usize, RequestError> {
        let now = self.env.monotonic();
        let is_new = |known: &KnownTopic| now.saturating_sub(known.asked) < METADATA_AGE_MAX;
        if !self.topics.get(topic).is_some_and(is_new) {
            self.refresh(&[topic])?;
        }
        let count = self.topics.get(topic).map_or(0, |known| known.leaders.len());
        if count == 0 {
            Err(RequestError::Refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
        } else {
            Ok(count)
        }
    }

    /// The broker that leads a partition.
    pub fn leader(&mut self, topic: &str, partition: i32) -> Result<Address, RequestError> {
        if !self.topics.contains_key(topic) {
            self.refresh(&[topic])?;
        }
        let leaders = self.topics.get(topic).map(|known| known.leaders.as_slice());
        let leader = leaders.unwrap_or_default().get(usize::try_from(partition).unwrap_or(0));
        let address = leader.and_then(|leader| self.nodes.get(leader)).cloned();
        address.ok_or(RequestError::Refused(ErrorCode::LEADER_NOT_AVAILABLE))
    }

    /// A new writer, without a transactional id; any broker gives one.
    pub fn new_producer(&mut self) -> Result<ProducerIdentity, RequestError> {
        let answer = self.ask_any(|connection| {
            // A time-out is for transactions.
            let body = |body: &mut _| requests::init_producer_id(body, None, i32::MAX);
            connection.ask(INIT_PRODUCER_ALONE, body, responses::init_producer_id)
        })?;
        answer.map_err(RequestError::Refused)
    }

    /// The broker that keeps a transactional id.
    pub fn coordinator(&mut self, id: &str) -> Result<Address, RequestError> {
        if let Some(found) = self.coordinators.get(id) {
            return Ok(found.clone());
        }
        let found = self.ask_any(|connection| {
            let body = |body: &mut _| requests::find_coordinator(body, id);
            connection.ask(FIND_COORDINATOR, body, responses::find_coordinator)
        })?;
        let address = found.map_err(RequestError::Refused)?;
        self.coordinators.insert(id.to_owned(), address.clone());
        Ok(address)
    }
}
