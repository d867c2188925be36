//! A way to a broker that can be cut at a chosen request.
//!
//! Clients are told the proxy's address only, so everything they say goes through it. It knows of
//! Kafka's protocol what it must: a request begins with its length and the number of its API.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// The number of the API that writes records, from Kafka's protocol guide, as those below.
pub const PRODUCE: i16 = 0;
/// The API that ends a transaction.
pub const END_TXN: i16 = 26;
/// The API that makes offsets part of a transaction.
pub const TXN_OFFSET_COMMIT: i16 = 28;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The broker never sees the request.
    Request,
    /// The broker does what it is asked, and its answer is lost.
    Answer,
}

/// A running proxy. It ends with the process.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Armed {
    api: i16,
    naming: String,
    cut: Cut,
}

#[derive(Default)]
struct Shared {
    armed: Mutex<Option<Armed>>,
    cuts: AtomicU64,
}

impl Proxy {
    /// Listens on a free port, and passes connections on to `broker_port`.
    pub fn start(broker_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("connections can be accepted");
                // While the broker is not there, its clients find nobody, as without a proxy.
                if let Ok(broker) = TcpStream::connect(("127.0.0.1", broker_port)) {
                    pass_on(client, broker, &theirs);
                }
            }
        });
        Self { port, shared }
    }

    /// What clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the connection that carries the next request to `api` with the text `naming` in it.
    pub fn cut_at(&self, api: i16, naming: &str, cut: Cut) {
        *self.shared.armed.lock() = Some(Armed { api, naming: naming.to_owned(), cut });
    }

    /// How many connections were cut so far.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Armed {
    fn is_for(&self, request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request);
        request.starts_with(&self.api.to_be_bytes()) && text.contains(&self.naming)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("proxy".into()).spawn(work).expect("a thread can start");
}

fn pass_on(client: TcpStream, broker: TcpStream, shared: &Arc<Shared>) {
    let share = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
    for stream in [&client, &broker] {
        stream.set_nodelay(true).expect("it is a TCP socket");
    }
    let (to_broker, to_client) = (share(&broker), share(&client));
    let (shared, deaf) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
    let is_deaf = Arc::clone(&deaf);
    // An error is the end of a connection, which is passed on, too.
    spawn(move || {
        let _ = requests(&client, &to_broker, &shared, &deaf);
        close(&client, &to_broker);
    });
    spawn(move || {
        let _ = answers(&broker, &to_client, &is_deaf);
        close(&broker, &to_client);
    });
}

fn close(one: &TcpStream, other: &TcpStream) {
    for stream in [one, other] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn requests(
    mut client: &TcpStream,
    mut broker: &TcpStream,
    shared: &Shared,
    deaf: &AtomicBool,
) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        client.read_exact(&mut request)?;
        let armed = shared.armed.lock().take_if(|armed| armed.is_for(&request));
        let cut = armed.map(|armed| armed.cut);
        deaf.fetch_or(cut == Some(Cut::Answer), Ordering::SeqCst);
        if cut.is_some() {
            shared.cuts.fetch_add(1, Ordering::SeqCst);
        }
        if cut == Some(Cut::Request) {
            return Ok(());
        }
        broker.write_all(&length)?;
        broker.write_all(&request)?;
    }
}

fn answers(mut broker: &TcpStream, mut client: &TcpStream, deaf: &AtomicBool) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = broker.read(&mut bytes)?;
        if count == 0 || deaf.load(Ordering::SeqCst) {
            return Ok(());
        }
        client.write_all(&bytes[..count])?;
    }
}
