//! A mail server that takes every mail: what a client of SMTP needs, and the moment at which each
//! mail was accepted. Nothing is kept or delivered.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_store::env::{Env, Thread};

use crate::error::Error;

/// What hears of a mail's subject, before the client hears that it is accepted.
type Hear = dyn Fn(&str) + Send + Sync;

/// A running server; it ends with this. Clients should have gone by then.
pub struct MailServer {
    port: u16,
    is_over: Arc<AtomicBool>,
    _thread: Thread,
}

impl MailServer {
    /// Listens on a free port.
    pub fn start(env: &Env, hear: impl Fn(&str) + Send + Sync + 'static) -> Result<Self, Error> {
        let place = "127.0.0.1:0";
        let listener = TcpListener::bind(place).map_err(Error::file("listen on", place))?;
        let address = listener.local_addr().map_err(Error::file("listen on", place))?;
        let hear: Arc<Hear> = Arc::new(hear);
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, inner) = (Arc::clone(&is_over), env.clone());
        let thread = env.thread("bench-mail", move || {
            for connection in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let hear = Arc::clone(&hear);
                // Each ends with its client.
                let _ = inner.detached_thread("bench-mail", move || {
                    // A client that ends in the middle leaves its mail unsent.
                    let _ = talk(connection, hear.as_ref());
                });
            }
        });
        Ok(Self { port: address.port(), is_over, _thread: thread })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections, which is waited for.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn talk(connection: TcpStream, hear: &Hear) -> io::Result<()> {
    // An answer is one small packet, which must not wait for the one before to be acknowledged.
    connection.set_nodelay(true)?;
    let mut answers = connection.try_clone()?;
    let mut lines = BufReader::new(connection);
    answers.write_all(b"220 bench\r\n")?;
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let command = line.get(..4).unwrap_or_default().to_ascii_uppercase();
        let answer: &[u8] = match command.as_str() {
            "EHLO" => b"250-bench\r\n250 8BITMIME\r\n",
            "HELO" | "MAIL" | "RCPT" | "RSET" | "NOOP" => b"250 OK\r\n",
            "DATA" => {
                answers.write_all(b"354 go on\r\n")?;
                hear(&subject(&mut lines)?);
                b"250 OK\r\n"
            }
            "QUIT" => return answers.write_all(b"221 bye\r\n"),
            _ => b"502 not known\r\n",
        };
        answers.write_all(answer)?;
    }
}

/// Reads a mail to its end; gives its subject, or nothing if it has none.
fn subject(lines: &mut impl io::BufRead) -> io::Result<String> {
    let (mut line, mut subject, mut in_headers) = (Vec::new(), String::new(), true);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.strip_suffix(b"\r\n").unwrap_or(&line) {
            b"." => return Ok(subject),
            b"" => in_headers = false,
            header if in_headers => {
                if let Some(text) = header.strip_prefix(b"Subject: ") {
                    subject = String::from_utf8_lossy(text).into_owned();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn the_subject_is_that_of_the_headers_and_the_mail_ends_with_a_point() {
        let mut mail: &[u8] = b"From: a@b\r\nSubject: Leak 7 in a\r\n log\r\n\r\n\
                                Subject: no\r\n..\r\n.\r\nNOOP\r\n";
        assert_eq!(subject(&mut mail).expect("it is whole"), "Leak 7 in a");
        assert_eq!(mail, b"NOOP\r\n");
        assert!(subject(&mut &b"Subject: half\r\n\r\ntext"[..]).is_err());
    }

    #[test]
    fn two_mails_go_over_one_connection() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let theirs = Arc::clone(&heard);
        let server = MailServer::start(&Env::real(), move |subject| {
            theirs.lock().push(subject.to_owned());
        });
        let server = server.expect("a port is free");
        let client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
        let (mut asks, mut answers) =
            (client.try_clone().expect("a handle"), BufReader::new(client));
        let mut answer = |expected: &str| {
            let mut line = String::new();
            answers.read_line(&mut line).expect("it answers");
            assert_eq!(line.trim_end(), expected);
        };
        let mut ask = |text: &str| asks.write_all(text.as_bytes()).expect("it listens");
        answer("220 bench");
        ask("EHLO here\r\n");
        answer("250-bench");
        answer("250 8BITMIME");
        for number in [1, 2] {
            for command in ["MAIL FROM:<a@b>\r\n", "RCPT TO:<c@d>\r\n"] {
                ask(command);
                answer("250 OK");
            }
            ask("DATA\r\n");
            answer("354 go on");
            ask(&format!("To: c@d\r\nSubject: Leak {number}\r\n\r\ntext\r\n.\r\n"));
            answer("250 OK");
        }
        ask("QUIT\r\n");
        answer("221 bye");
        assert_eq!(*heard.lock(), ["Leak 1", "Leak 2"]);
    }
}
