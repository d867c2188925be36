//! How a task gets to a runner, and what comes back: over HTTP, or as a function's event.

use std::fmt;
use std::io;

use bytes::Bytes;
use hyper::StatusCode;
use millstream_store::env::Env;

use super::answer::{Received, Receiver};
use super::error::ClusterError;
use super::http::{self, Asked};
use super::lambda;
use super::lambda::invoke::{Function, Invoker};
use super::security::Security;

/// What the address of a function begins with.
const LAMBDA: &str = "lambda:";

/// A runner's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerAddress {
    /// `HOST:PORT`.
    Http(String),
    /// A function of AWS Lambda.
    Lambda(Function),
}

impl RunnerAddress {
    /// Reads `HOST:PORT`, `lambda:NAME` or `lambda:NAME:QUALIFIER`.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(function) = text.strip_prefix(LAMBDA) {
            let function = Function::parse(function).ok_or_else(|| {
                format!(
                    "{function:?} is not NAME or NAME:QUALIFIER of a function; ARNs are not taken"
                )
            })?;
            return Ok(Self::Lambda(function));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err("write HOST:PORT or lambda:FUNCTION".to_owned());
        }
        Ok(Self::Http(text.to_owned()))
    }

    /// The longest answer that comes back the way of the task, in bytes; `None` for any.
    pub fn inline_bytes_max(&self) -> Option<u64> {
        match self {
            Self::Http(_) => None,
            Self::Lambda(_) => Some(lambda::MESSAGE_BYTES_MAX as u64),
        }
    }
}

impl fmt::Display for RunnerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(address) => f.write_str(address),
            Self::Lambda(function) => function.fmt(f),
        }
    }
}

/// Sends tasks to runners.
pub struct Transport {
    env: Env,
    security: Security,
    /// If a runner is a function.
    invoker: Option<Invoker>,
}

impl Transport {
    /// A transport to `addresses`, which shows them `security`.
    ///
    /// # Errors
    /// [`ClusterError::Lambda`]: functions cannot be invoked.
    pub fn new(
        env: Env,
        addresses: &[RunnerAddress],
        security: Security,
    ) -> Result<Self, ClusterError> {
        let is_function = |address: &RunnerAddress| matches!(address, RunnerAddress::Lambda(_));
        let has_functions = addresses.iter().any(is_function);
        let invoker = has_functions.then(Invoker::from_environment).transpose()?;
        Ok(Self { env, security, invoker })
    }

    /// Sends `message` to the runner at `address`, and what comes back to `receiver`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: the runner has no room. [`io::ErrorKind::FileTooLarge`]: the
    /// task or its answer is too long for any way. [`io::ErrorKind::StorageFull`]: this node has
    /// no room. After any other the same message may be sent again.
    pub async fn exchange(
        &self,
        address: &RunnerAddress,
        message: Bytes,
        mut receiver: Receiver,
    ) -> io::Result<Received> {
        match address {
            RunnerAddress::Http(address) => self.ask(address, message, receiver).await,
            RunnerAddress::Lambda(function) => {
                let missing = || io::Error::other("functions cannot be invoked");
                let invoker = self.invoker.as_ref().ok_or_else(missing)?;
                let answer =
                    invoker.invoke(function, self.security.authorization(), &message).await?;
                receiver.take(answer).await?;
                receiver.finish()
            }
        }
    }

    async fn ask(
        &self,
        address: &str,
        message: Bytes,
        mut receiver: Receiver,
    ) -> io::Result<Received> {
        let asked = Asked::post(address, "/task", message);
        let (security, authorization) = (Some(&self.security), self.security.authorization());
        let asked = Asked { security, authorization, ..asked };
        let mut answer = http::ask(&self.env, asked).await?;
        let kind = match answer.status {
            StatusCode::OK => {
                while let Some(bytes) = answer.chunk().await? {
                    receiver.take(bytes).await?;
                }
                return receiver.finish();
            }
            StatusCode::TOO_MANY_REQUESTS => io::ErrorKind::WouldBlock,
            StatusCode::PAYLOAD_TOO_LARGE => io::ErrorKind::FileTooLarge,
            _ => io::ErrorKind::Other,
        };
        let (status, problem) = (answer.status, answer.problem().await);
        Err(io::Error::new(kind, format!("{address} answers {status}: {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_s_or_a_function_s() {
        for text in ["127.0.0.1:50060", "runner.example.org:80", "lambda:scan", "lambda:scan:3"] {
            let address = RunnerAddress::parse(text).expect("it is one");
            assert_eq!(address.to_string(), text);
        }
        for text in ["", "host", ":1", "host:port", "lambda:", "lambda:a b"] {
            assert!(RunnerAddress::parse(text).is_err(), "{text}");
        }
    }
}
