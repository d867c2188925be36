//! One attempt to send a mail, and what the server's answer means.
//!
//! | answer | meaning |
//! |---|---|
//! | 2xx to the whole mail | accepted |
//! | 4xx, no answer, no connection | later |
//! | 5xx to the credentials, 530 | the credentials are refused |
//! | any other 5xx to a mail | this mail is refused |
//! | no STARTTLS, no way to log in | the options do not fit the server |

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use millstream_store::env::Env;
use tokio::sync::Mutex;

use super::mail::Mail;
use super::options::{EmailOptions, Security};
use crate::notify::error::{DeliveryError, cause};
use crate::notify::{Outcome, Transport};
use crate::paths;

/// A connection that was not used for so long is not used again: servers close them.
const IDLE_MAX: Duration = Duration::from_secs(20);
const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];
/// The answer that asks for a login.
const AUTHENTICATION_REQUIRED: u16 = 530;

/// Sends mails over one connection that is kept for a while.
pub struct SmtpTransport {
    options: EmailOptions,
    tls: Option<TlsParameters>,
    receiver: String,
    env: Env,
    connection: Mutex<Option<Connection>>,
}

struct Connection {
    smtp: AsyncSmtpConnection,
    /// By the monotonic clock.
    used: Duration,
}

/// What a connection was doing when it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connect,
    LogIn,
    Send,
}

impl SmtpTransport {
    /// A transport as `options` say, with paths relative to `base_dir`. It touches nothing but the
    /// file of `tls.caFile`.
    ///
    /// # Errors
    /// `Config`: that file cannot be read, or is no certificate.
    pub fn new(options: EmailOptions, base_dir: &Path, env: &Env) -> Result<Self, DeliveryError> {
        let receiver = receiver(&options);
        let tls = match options.security {
            Security::None => None,
            Security::Tls | Security::StartTls => Some(tls(&options, base_dir, &receiver)?),
        };
        Ok(Self { options, tls, receiver, env: env.clone(), connection: Mutex::default() })
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Outcome> {
        let failed = |phase| move |error| self.outcome(phase, &error);
        let hello = ClientId::Domain(self.options.hello_name.clone());
        let server = (self.options.host.as_str(), self.options.port);
        let is_tls = self.options.security == Security::Tls;
        let at_once = self.tls.clone().filter(|_| is_tls);
        // A host may have several addresses, and the first one may not answer.
        let patience = Some(self.options.send_timeout / 4);
        let connecting =
            AsyncSmtpConnection::connect_tokio1(server, patience, &hello, at_once, None);
        let mut smtp = connecting.await.map_err(failed(Phase::Connect))?;
        if let Some(tls) = self.tls.clone().filter(|_| !is_tls) {
            smtp.starttls(tls, &hello).await.map_err(failed(Phase::Connect))?;
        }
        if let Some((user, password)) = self.options.credentials.clone() {
            let credentials = Credentials::new(user, password);
            smtp.auth(MECHANISMS, &credentials).await.map_err(failed(Phase::LogIn))?;
        }
        Ok(smtp)
    }

    /// Sends over the connection that there is, or a new one. A connection that the server has
    /// closed meanwhile says nothing about the mail.
    async fn send(&self, mail: &Mail) -> Outcome {
        let letter = match &mail.letter {
            Ok(letter) => letter,
            Err(problem) => return Outcome::Refused(problem.clone()),
        };
        let (envelope, bytes) = (letter.envelope(), letter.formatted());
        let mut kept = self.connection.lock().await;
        let fresh_until = self.env.monotonic().saturating_sub(IDLE_MAX);
        if let Some(mut connection) = kept.take_if(|connection| connection.used >= fresh_until) {
            match connection.smtp.send(envelope, &bytes).await {
                Ok(_) => {
                    connection.used = self.env.monotonic();
                    *kept = Some(connection);
                    return Outcome::Accepted;
                }
                // The server has said something about the mail.
                Err(error) if error.status().is_some() || error.is_client() => {
                    return self.outcome(Phase::Send, &error);
                }
                Err(_) => {}
            }
        }
        *kept = None;
        let mut smtp = match self.connect().await {
            Ok(smtp) => smtp,
            Err(outcome) => return outcome,
        };
        match smtp.send(envelope, &bytes).await {
            Ok(_) => {
                *kept = Some(Connection { smtp, used: self.env.monotonic() });
                Outcome::Accepted
            }
            Err(error) => self.outcome(Phase::Send, &error),
        }
    }

    fn outcome(&self, phase: Phase, error: &SmtpError) -> Outcome {
        let (receiver, answer) = (self.receiver.clone(), cause(error));
        let asks_for_login =
            error.status().is_some_and(|code| u16::from(code) == AUTHENTICATION_REQUIRED);
        match phase {
            Phase::LogIn if error.is_permanent() => {
                Outcome::Failed(DeliveryError::Denied { receiver, answer })
            }
            _ if asks_for_login => Outcome::Failed(DeliveryError::Denied { receiver, answer }),
            Phase::Send if error.is_permanent() || error.is_client() => Outcome::Refused(answer),
            Phase::Connect | Phase::LogIn if error.is_client() => {
                Outcome::Failed(DeliveryError::Unusable { receiver, problem: answer })
            }
            _ => Outcome::Later { problem: answer, wait: None },
        }
    }
}

#[async_trait]
impl Transport for SmtpTransport {
    type Message = Mail;

    fn receiver(&self) -> &str {
        &self.receiver
    }

    async fn attempt(&self, mail: &Mail) -> Outcome {
        tokio::select! {
            outcome = self.send(mail) => outcome,
            () = self.env.sleep(self.options.send_timeout) => {
                let limit = self.options.send_timeout;
                Outcome::Later { problem: format!("no answer within {limit:?}"), wait: None }
            }
        }
    }
}

/// The server, for messages.
fn receiver(options: &EmailOptions) -> String {
    format!("the mail server {}:{}", options.host, options.port)
}

fn tls(
    options: &EmailOptions,
    base_dir: &Path,
    receiver: &str,
) -> Result<TlsParameters, DeliveryError> {
    let unusable = |error: SmtpError| {
        let (receiver, problem) = (receiver.to_owned(), cause(&error));
        DeliveryError::Unusable { receiver, problem }
    };
    let mut builder = TlsParameters::builder(options.host.clone());
    if let Some(path) = &options.ca_file {
        let (what, path) = ("the file of 'tls.caFile'", paths::resolve(base_dir, path));
        let pem = std::fs::read(&path).map_err(|error| DeliveryError::File {
            what,
            path: path.clone(),
            error,
        })?;
        builder = builder.add_root_certificate(Certificate::from_pem(&pem).map_err(unusable)?);
    }
    builder.build_rustls().map_err(unusable)
}
