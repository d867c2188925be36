//! A way to a server whose connections can go silent, as when a machine between is gone, and whose
//! answers can be late.
//!
//! Clients are told its address only. It knows no protocol.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A running passage. It ends with the process.
pub struct Passage {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// Milliseconds that each piece of an answer is held.
    late_by: Arc<AtomicU64>,
}

struct Connection {
    server: TcpStream,
    is_silent: Arc<AtomicBool>,
}

impl Passage {
    /// Listens on a free port, and passes connections on to `server`, `HOST:PORT`. For tests: an
    /// error is a panic.
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let connections: Arc<Mutex<Vec<Connection>>> = Arc::default();
        let late_by = Arc::new(AtomicU64::new(0));
        let (server, known) = (server.to_owned(), Arc::clone(&connections));
        let late = Arc::clone(&late_by);
        spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("connections can be accepted");
                // While the server is not there, its clients see their connections end.
                if let Ok(server) = TcpStream::connect(&server) {
                    known.lock().push(pass_on(client, server, &late));
                }
            }
        });
        Self { address, connections, late_by }
    }

    /// What clients connect to, `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What the server says from now on arrives that much later, piece by piece.
    pub fn answer_late(&self, by: Duration) {
        let milliseconds = u64::try_from(by.as_millis()).expect("not so long");
        self.late_by.store(milliseconds, Ordering::SeqCst);
    }

    /// The connections that there are go silent: clients keep theirs, on which nothing comes any
    /// more, and the server sees them end. Those made from now on work. Gives how many there were.
    pub fn fall_silent(&self) -> usize {
        let connections = std::mem::take(&mut *self.connections.lock());
        for connection in &connections {
            connection.is_silent.store(true, Ordering::SeqCst);
            end(connection);
        }
        connections.len()
    }

    /// The connections that there are end, for clients and for the server. Those made from now on
    /// work. Gives how many there were, those that had ended before among them.
    pub fn cut(&self) -> usize {
        let connections = std::mem::take(&mut *self.connections.lock());
        connections.iter().for_each(end);
        connections.len()
    }
}

/// Ends both sides of a connection, by that of the server.
fn end(connection: &Connection) {
    // Errors mean that it has ended already.
    let _ = connection.server.shutdown(Shutdown::Both);
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("passage".into()).spawn(work).expect("a thread can start");
}

fn pass_on(client: TcpStream, server: TcpStream, late_by: &Arc<AtomicU64>) -> Connection {
    let share = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("it is a TCP socket");
    }
    let is_silent = Arc::new(AtomicBool::new(false));
    let connection = Connection { server: share(&server), is_silent: Arc::clone(&is_silent) };
    let (there, back) = ((share(&client), share(&server)), (server, client));
    let forth = Arc::clone(&is_silent);
    let late_by = Arc::clone(late_by);
    spawn(move || {
        let (mut client, mut server) = there;
        let _ = copy(&mut client, &mut server, &forth, &AtomicU64::new(0));
        let _ = server.shutdown(Shutdown::Both);
    });
    spawn(move || {
        let (mut server, mut client) = back;
        let _ = copy(&mut server, &mut client, &is_silent, &late_by);
        if !is_silent.load(Ordering::SeqCst) {
            let _ = client.shutdown(Shutdown::Both);
        }
    });
    connection
}

/// Copies until one of them ends; what comes in silence is read and dropped.
fn copy(
    from: &mut TcpStream,
    to: &mut TcpStream,
    is_silent: &AtomicBool,
    late_by: &AtomicU64,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        let late_by = Duration::from_millis(late_by.load(Ordering::SeqCst));
        if !late_by.is_zero() {
            std::thread::sleep(late_by);
        }
        if !is_silent.load(Ordering::SeqCst) {
            to.write_all(&bytes[..length])?;
        }
    }
}
