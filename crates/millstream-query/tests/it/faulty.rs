//! What stands between the parts of a cluster, and does harm.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_store::env::{Env, Task};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered.
    None,
    /// The connection ends before anything is read, as that to a runner that was killed.
    Refused,
    /// The connection ends within the answer, after so many bytes.
    Cut(usize),
    /// A byte of the answer's body is another.
    Flipped,
    /// A byte of the request's body is another. Not in front of a runner: a task has no checksum.
    FlippedRequest,
    /// The connection ends within the request, after so many bytes.
    CutRequest(usize),
    /// Before the answer goes on its way, what the runner has spilled is lost.
    Lost,
    /// There is no room.
    Throttled,
    /// The runner fails.
    Failed,
    /// There is no answer for so long.
    Stalled(Duration),
}

/// A listener in front of a runner.
pub struct Front {
    /// `HOST:PORT` to connect to.
    pub address: String,
    /// Requests that met a fault.
    pub faults: Arc<AtomicU64>,
    task: Task<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    /// Does to the request `n` what `choose(n)` says; runners spill to the directory `spilled`.
    pub async fn start(
        env: &Env,
        runner: String,
        spilled: PathBuf,
        choose: impl Fn(u64) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let faults = Arc::new(AtomicU64::new(0));
        let (counted, connections) = (Arc::clone(&faults), env.clone());
        let task = env.spawn("faulty", async move {
            for request in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let fault = choose(request);
                if fault != Fault::None {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                let (runner, env) = (runner.clone(), connections.clone());
                let spilled = spilled.clone();
                let serving = async move {
                    // A connection that ends early is what this is for.
                    let _ = serve(&env, stream, &runner, &spilled, fault).await;
                };
                drop(connections.spawn("faulty-connection", serving));
            }
        });
        Self { address, faults, task }
    }
}

async fn serve(
    env: &Env,
    mut stream: TcpStream,
    runner: &str,
    spilled: &Path,
    fault: Fault,
) -> std::io::Result<()> {
    let canned = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    match fault {
        Fault::Refused => return Ok(()),
        Fault::Throttled | Fault::Failed => {
            let status = if fault == Fault::Failed { "500 Failed" } else { "429 Too Many" };
            let mut some = [0; 1024];
            let _ = stream.read(&mut some).await?;
            return stream.write_all(canned(status).as_bytes()).await;
        }
        Fault::Stalled(length) => env.sleep(length).await,
        _ => {}
    }
    let mut behind = TcpStream::connect(runner).await?;
    let (mut from_node, mut to_node) = stream.split();
    let (mut from_runner, mut to_runner) = behind.split();
    let forward = async {
        if let Fault::CutRequest(after) = fault {
            let mut cut = from_node.take(after as u64);
            return tokio::io::copy(&mut cut, &mut to_runner).await.map(|_| ());
        }
        if fault == Fault::FlippedRequest {
            forward_flipped(&mut from_node, &mut to_runner).await?;
        }
        tokio::io::copy(&mut from_node, &mut to_runner).await.map(|_| ())
    };
    let back = async {
        let (mut sent, mut some) = (0, vec![0; 4096]);
        loop {
            let length = from_runner.read(&mut some).await?;
            if length == 0 {
                return Ok(());
            }
            if let Fault::Cut(after) = fault
                && sent + length > after
            {
                return to_node.write_all(&some[..after.saturating_sub(sent)]).await;
            }
            if fault == Fault::Lost && sent == 0 {
                for object in std::fs::read_dir(spilled)? {
                    // Another attempt may have removed it.
                    let _ = std::fs::remove_file(object?.path());
                }
            }
            if fault == Fault::Flipped && sent == 0 {
                some[length - 1] ^= 0x20;
            }
            to_node.write_all(&some[..length]).await?;
            sent += length;
        }
    };
    tokio::select! {
        done = forward => done,
        done = back => done,
    }
}

/// Forwards the head of a request and the first bytes of its body, the last of which becomes
/// another.
async fn forward_flipped(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let (mut read, mut some) = (Vec::new(), vec![0; 4096]);
    loop {
        let length = from.read(&mut some).await?;
        read.extend_from_slice(&some[..length]);
        let head = read.windows(4).position(|end| end == b"\r\n\r\n").map(|end| end + 4);
        if length == 0 || head.is_some_and(|head| read.len() > head) {
            if let Some(last) = read.last_mut() {
                *last ^= 0x20;
            }
            return to.write_all(&read).await;
        }
    }
}

/// A listener in front of a coordinator, which loses an answer when it is asked to.
pub struct Line {
    /// `HOST:PORT` to connect to.
    pub address: String,
    loses: Arc<AtomicBool>,
    task: Task<()>,
}

/// Answers without tasks are shorter, and those with one are longer.
const TASK_BYTES_MIN: usize = 1_000;

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    /// A line that loses nothing yet.
    pub async fn start(env: &Env, coordinator: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let loses = Arc::new(AtomicBool::new(false));
        let (asked, connections) = (Arc::clone(&loses), env.clone());
        let task = env.spawn("line", async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (coordinator, loses) = (coordinator.clone(), Arc::clone(&asked));
                let passing = async move {
                    // A connection that ends early is what this is for.
                    let _ = pass(stream, &coordinator, &loses).await;
                };
                drop(connections.spawn("line-connection", passing));
            }
        });
        Self { address, loses, task }
    }

    /// Loses the next answer that has tasks, and the connection with it.
    pub fn lose_tasks(&self) {
        self.loses.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is about to be lost.
    pub fn has_lost(&self) -> bool {
        !self.loses.load(Ordering::Relaxed)
    }
}

async fn pass(mut stream: TcpStream, coordinator: &str, loses: &AtomicBool) -> std::io::Result<()> {
    let mut behind = TcpStream::connect(coordinator).await?;
    let (mut from_node, mut to_node) = stream.split();
    let (mut answers, mut requests) = behind.split();
    let back = async {
        let mut some = vec![0; 64 << 10];
        loop {
            let length = answers.read(&mut some).await?;
            let has_tasks = length > TASK_BYTES_MIN;
            if length == 0 || (has_tasks && loses.swap(false, Ordering::Relaxed)) {
                return Ok(());
            }
            to_node.write_all(&some[..length]).await?;
        }
    };
    tokio::select! {
        done = tokio::io::copy(&mut from_node, &mut requests) => done.map(|_| ()),
        done = back => done,
    }
}
