//! An HTTP/1.1 server that records the requests it gets, and answers as a test decides.
//!
//! Of HTTP it knows what a client of webhooks needs: requests with a `Content-Length`, connections
//! that are kept, TLS.

use std::borrow::Cow;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::certificates;

/// A request that came whole.
#[derive(Clone, Debug)]
pub struct Received {
    /// `POST`, say.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// The answer was one of success.
    pub is_accepted: bool,
}

impl Received {
    /// The value of a header, whose `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What a request is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A status, with headers and a body, after a while.
    Status(u16, Vec<(&'static str, String)>, Cow<'static, str>, Duration),
    /// Nothing: the connection ends.
    Cut,
}

impl Answer {
    /// `204 No Content`.
    pub fn accept() -> Self {
        Self::status(204)
    }

    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self::Status(status, Vec::new(), Cow::Borrowed(""), Duration::ZERO)
    }

    /// The same answer with a header.
    pub fn with_header(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Status(status, mut headers, body, after) => {
                headers.push((name, value.to_owned()));
                Self::Status(status, headers, body, after)
            }
            Self::Cut => Self::Cut,
        }
    }

    /// The same answer after a while.
    pub fn after(self, wait: Duration) -> Self {
        match self {
            Self::Status(status, headers, body, _) => Self::Status(status, headers, body, wait),
            Self::Cut => Self::Cut,
        }
    }

    fn is_success(&self) -> bool {
        matches!(self, Self::Status(200..=299, ..))
    }
}

type Decide = dyn Fn(&Received, usize) -> Answer + Send + Sync;

struct Shared {
    decide: Box<Decide>,
    tls: Option<Arc<ServerConfig>>,
    received: Mutex<Vec<Received>>,
    connections: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
}

/// A running server. It ends with this.
pub struct Receiver {
    port: u16,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Listens on a free port. `decide` gives the answer to a request, from it and how many came
    /// before it.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(decide: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(0, None, Box::new(decide))
    }

    /// The same with TLS.
    ///
    /// # Panics
    /// When the files are no certificate and no key.
    pub fn start_tls(
        files: &certificates::Files,
        decide: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let chain = CertificateDer::pem_file_iter(&files.cert).expect("it can be read");
        let chain = chain.map(|certificate| certificate.expect("it is PEM")).collect();
        let key = PrivateKeyDer::from_pem_file(&files.key).expect("it is a key");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let config = config.expect("certificate and key belong together");
        Self::listen(0, Some(Arc::new(config)), Box::new(decide))
    }

    fn listen(port: u16, tls: Option<Arc<ServerConfig>>, decide: Box<Decide>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (received, connections) = (Mutex::default(), Mutex::default());
        let is_stopped = AtomicBool::new(false);
        let shared = Arc::new(Shared { decide, tls, received, connections, is_stopped });
        serve(listener, &shared);
        Self { port, shared }
    }

    /// `http://127.0.0.1:PORT`, or `https`.
    pub fn address(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Everything that came so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().clone()
    }

    /// How many requests were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.received.lock().iter().filter(|request| request.is_accepted).count()
    }

    /// Forgets what came.
    pub fn forget(&self) {
        self.shared.received.lock().clear();
    }

    /// Closes the port and all connections, as a server that ends does.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for connection in self.shared.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Listens again, on the same port, after [`stop`](Self::stop).
    ///
    /// # Panics
    /// When another process has taken the port.
    pub fn start_again(&self) {
        let bind = || TcpListener::bind(("127.0.0.1", self.port)).ok();
        let listener = crate::wait::until("the port", crate::wait::SOON, bind);
        self.shared.is_stopped.store(false, Ordering::Relaxed);
        serve(listener, &self.shared);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(listener: TcpListener, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    spawn(move || {
        for connection in listener.incoming() {
            if shared.is_stopped.load(Ordering::Relaxed) {
                return;
            }
            let Ok(connection) = connection else { continue };
            let Ok(clone) = connection.try_clone() else { continue };
            shared.connections.lock().push(clone);
            let shared = Arc::clone(&shared);
            spawn(move || {
                let ending = connection.try_clone();
                // A client that is killed leaves its connection broken.
                let _ = talk(connection, &shared);
                // The list has another handle of it, which would keep it open.
                let _ = ending.map(|connection| connection.shutdown(Shutdown::Both));
            });
        }
    });
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().spawn(work).expect("a thread can start");
}

fn talk(connection: TcpStream, shared: &Shared) -> io::Result<()> {
    match &shared.tls {
        None => exchange(BufReader::new(connection), shared),
        Some(config) => {
            let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
            exchange(BufReader::new(StreamOwned::new(session, connection)), shared)
        }
    }
}

fn exchange(mut connection: BufReader<impl Read + Write>, shared: &Shared) -> io::Result<()> {
    while let Some(mut request) = read_request(&mut connection)? {
        let answer = {
            let mut received = shared.received.lock();
            let answer = (shared.decide)(&request, received.len());
            request.is_accepted = answer.is_success();
            received.push(request);
            answer
        };
        let Answer::Status(status, headers, body, after) = answer else { return Ok(()) };
        std::thread::sleep(after);
        let mut text = format!("HTTP/1.1 {status} Told\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if status != 204 {
            text += &format!("content-length: {}\r\n", body.len());
        }
        let stream = connection.get_mut();
        stream.write_all(format!("{text}\r\n{body}").as_bytes())?;
        stream.flush()?;
    }
    Ok(())
}

fn read_request(connection: &mut BufReader<impl Read>) -> io::Result<Option<Received>> {
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::Error::other("no request line"));
    };
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    let body = String::from_utf8(body).map_err(io::Error::other)?;
    Ok(Some(Received { method, path, headers, body, is_accepted: false }))
}
