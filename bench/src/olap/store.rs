//! An object store on this machine whose every client has a network card of its own.
//!
//! It serves a directory for reading by the part of S3's protocol that readers use: lists, heads
//! and ranges of objects. Each client process is given a port of its own, and all that goes through
//! a port shares one bandwidth and waits one latency a request, as with machines that stand side by
//! side. So one process cannot read faster than its card, and many can read faster than one.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use futures::stream;
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::error::Error;

/// The name of the only bucket.
pub const BUCKET: &str = "lake";
/// What goes over a card at one time.
const PIECE_BYTES: u64 = 64 << 10;
/// Names in an answer to a list; S3 has no more, either.
const NAMES_MAX: usize = 1_000;

/// What a network card can do.
#[derive(Clone, Copy, Debug)]
pub struct CardSpeed {
    /// Bytes that it carries a second.
    pub bytes_per_second: u64,
    /// From a request to the first byte of its answer.
    pub latency: Duration,
}

/// A client's network card.
pub struct Card {
    /// Where the client finds the store: `http://127.0.0.1:PORT`.
    pub endpoint: String,
    speed: CardSpeed,
    /// Until when it carries what is on its way, on the monotonic clock.
    busy_until: Mutex<Duration>,
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl Card {
    /// Bytes of objects that have gone over it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests that have come over it.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Waits until so many bytes have gone over the card, behind all that came before them.
    async fn carry(&self, env: &Env, bytes: u64) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.speed.bytes_per_second as f64);
        let now = env.monotonic();
        let done = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(now) + takes;
            *busy_until
        };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        env.sleep(done.saturating_sub(now)).await;
    }
}

/// What a request needs.
struct Door {
    env: Env,
    root: PathBuf,
    card: Arc<Card>,
}

/// Serves the directory `root` to so many clients, until the process ends. Gives a card for each.
pub async fn serve(
    env: &Env,
    root: &Path,
    speed: CardSpeed,
    clients: usize,
) -> Result<Vec<Arc<Card>>, Error> {
    let mut cards = Vec::new();
    for _ in 0..clients {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(listening)?;
        let endpoint = format!("http://{}", listener.local_addr().map_err(listening)?);
        let card = Arc::new(Card {
            endpoint,
            speed,
            busy_until: Mutex::default(),
            bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let door = Door { env: env.clone(), root: root.to_owned(), card: Arc::clone(&card) };
        let routes = Router::new().fallback(answer).with_state(Arc::new(door));
        // It ends with the process, and nobody waits for it.
        drop(env.spawn_on_cores("store", async move {
            let _ = axum::serve(listener, routes).await;
        }));
        cards.push(card);
    }
    Ok(cards)
}

fn listening(source: io::Error) -> Error {
    Error::Table { what: "the object store", problem: format!("cannot listen: {source}") }
}

async fn answer(State(door): State<Arc<Door>>, request: Request) -> Response {
    door.card.requests.fetch_add(1, Ordering::Relaxed);
    door.env.sleep(door.card.speed.latency).await;
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let path = path.strip_prefix(BUCKET).unwrap_or(&path).trim_start_matches('/').to_owned();
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    if !is_read {
        return (StatusCode::METHOD_NOT_ALLOWED, "this store is only read").into_response();
    }
    if path.is_empty() {
        let listed = list(&door.root, request.uri().query().unwrap_or_default());
        return listed.unwrap_or_else(failed);
    }
    object(&door, &path, request.method() == Method::HEAD, request.headers()).unwrap_or_else(failed)
}

fn failed(error: io::Error) -> Response {
    let status = match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string()).into_response()
}

/// An object, or a range of it.
fn object(
    door: &Arc<Door>,
    path: &str,
    is_head: bool,
    headers: &HeaderMap,
) -> io::Result<Response> {
    let path = door.root.join(decoded(path));
    let found = fs::metadata(&path)?;
    if !found.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let size = found.len();
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let (start, end) = range.and_then(|range| bounds(range, size)).unwrap_or((0, size));
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let modified: DateTime<Utc> = found.modified().unwrap_or(SystemTime::UNIX_EPOCH).into();
    let headers = [
        (header::CONTENT_LENGTH, (end - start).to_string()),
        (header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end.saturating_sub(1))),
        (header::LAST_MODIFIED, modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string()),
        (header::ETAG, tag(size, modified)),
    ];
    if is_head {
        return Ok((status, headers, Body::empty()).into_response());
    }
    let mut file = fs::File::open(&path)?;
    file.seek(SeekFrom::Start(start))?;
    let door = Arc::clone(door);
    let pieces = stream::try_unfold((file, end - start), move |(mut file, left)| {
        let door = Arc::clone(&door);
        async move {
            if left == 0 {
                return Ok::<_, io::Error>(None);
            }
            let mut piece = vec![0; left.min(PIECE_BYTES) as usize];
            file.read_exact(&mut piece)?;
            door.card.carry(&door.env, piece.len() as u64).await;
            let left = left - piece.len() as u64;
            Ok(Some((Bytes::from(piece), (file, left))))
        }
    });
    Ok((status, headers, Body::from_stream(pieces)).into_response())
}

/// `bytes=from-to`, `bytes=from-` and `bytes=-last`, as start and end.
fn bounds(range: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) => Some((from.min(size), (to + 1).min(size))),
        (Ok(from), Err(_)) => Some((from.min(size), size)),
        (Err(_), Ok(last)) => Some((size.saturating_sub(last), size)),
        _ => None,
    }
}

fn tag(size: u64, modified: DateTime<Utc>) -> String {
    format!("\"{size:x}-{:x}\"", modified.timestamp_micros())
}

/// The objects below a prefix.
///
/// Origin: S3's `ListObjectsV2`.
fn list(root: &Path, query: &str) -> io::Result<Response> {
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    };
    let prefix = parameter("prefix").unwrap_or_default();
    let is_flat = parameter("delimiter").is_none();
    let after = parameter("continuation-token").or_else(|| parameter("start-after"));
    let mut names = Vec::new();
    let directory = prefix.rfind('/').map_or("", |end| &prefix[..=end]);
    gather(root, directory, is_flat, &mut names)?;
    names
        .retain(|(name, _)| name.starts_with(&prefix) && after.as_ref().is_none_or(|it| name > it));
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = names.len() > NAMES_MAX;
    names.truncate(NAMES_MAX);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>{BUCKET}</Name>\
         <IsTruncated>{more}</IsTruncated>"
    );
    if let Some((last, _)) = names.last().filter(|_| more) {
        let _ = write!(text, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    for (name, found) in &names {
        match found {
            None => {
                let _ = write!(text, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
            }
            Some(found) => {
                let modified: DateTime<Utc> =
                    found.modified().unwrap_or(SystemTime::UNIX_EPOCH).into();
                let (size, tag) = (found.len(), tag(found.len(), modified));
                let modified = modified.to_rfc3339_opts(SecondsFormat::Millis, true);
                let _ = write!(
                    text,
                    "<Contents><Key>{name}</Key><LastModified>{modified}</LastModified>\
                     <ETag>{tag}</ETag><Size>{size}</Size></Contents>"
                );
            }
        }
    }
    text.push_str("</ListBucketResult>");
    Ok(([(header::CONTENT_TYPE, "application/xml")], text).into_response())
}

/// The names below a directory, which ends with `/`; directories in it have no metadata.
fn gather(
    root: &Path,
    directory: &str,
    is_flat: bool,
    names: &mut Vec<(String, Option<fs::Metadata>)>,
) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(directory)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let found = entry.metadata()?;
        let name = format!("{directory}{}", entry.file_name().to_string_lossy());
        if found.is_file() {
            names.push((name, Some(found)));
        } else if is_flat {
            gather(root, &format!("{name}/"), is_flat, names)?;
        } else {
            names.push((format!("{name}/"), None));
        }
    }
    Ok(())
}

/// Text without percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        assert_eq!(bounds("bytes=0-3", 10), Some((0, 4)));
        assert_eq!(bounds("bytes=8-30", 10), Some((8, 10)));
        assert_eq!(bounds("bytes=4-", 10), Some((4, 10)));
        assert_eq!(bounds("bytes=-4", 10), Some((6, 10)));
        assert_eq!(bounds("lines=1-2", 10), None);
        assert_eq!(decoded("a%2Fb%20c%"), "a/b c%");
    }

    #[tokio::test]
    async fn what_goes_over_a_card_takes_its_time() {
        let env = Env::real();
        let speed = CardSpeed { bytes_per_second: 1_000_000, latency: Duration::ZERO };
        let card = Card {
            endpoint: String::new(),
            speed,
            busy_until: Mutex::default(),
            bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        };
        let began = env.monotonic();
        futures::join!(card.carry(&env, 20_000), card.carry(&env, 30_000));
        assert!(env.monotonic() - began >= Duration::from_millis(50));
        assert_eq!(card.bytes(), 50_000);
    }
}
