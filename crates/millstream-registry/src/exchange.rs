//! Asking until there is an answer: at each URL in turn, and again after a while.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_store::env::Env;
use reqwest::Client;
use serde::de::DeserializeOwned;

use crate::answer::judge;
use crate::ask::Ask;
use crate::error::RegistryError;
use crate::patience::Wait;
use crate::server::{Missed, Server};
use crate::settings::Settings;
use crate::tls;

/// How long one attempt may take, with all its redirects and the whole answer.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first wait before the same URL is asked again; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// All URLs of a registry.
pub(crate) struct Exchange {
    servers: Vec<Server>,
    /// Which of them answered last, and is asked first.
    preferred: AtomicUsize,
    client: Client,
    env: Env,
}

impl Exchange {
    /// # Errors
    /// `Url`, `Setting`.
    pub(crate) fn new(settings: &Settings, env: &Env) -> Result<Self, RegistryError> {
        let servers = settings.urls.iter().map(|url| Server::new(url, &settings.auth));
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            let problem = "there is none".to_owned();
            return Err(RegistryError::Setting {
                what: "the schema registry's URL".into(),
                problem,
            });
        }
        let client = tls::client(&settings.tls)?;
        Ok(Self { servers, preferred: AtomicUsize::default(), client, env: env.clone() })
    }

    /// The URLs, for messages.
    pub(crate) fn urls(&self) -> String {
        let urls: Vec<&str> = self.servers.iter().map(Server::url).collect();
        urls.join(", ")
    }

    /// What is asked for, from whichever URL answers.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        ask: &Ask<'_>,
        wait: &Wait<'_>,
    ) -> Result<T, RegistryError> {
        tokio::select! {
            biased;
            () = wait.given_up() => Err(RegistryError::Cancelled { url: self.urls() }),
            answered = self.insist(ask, wait) => answered,
        }
    }

    async fn insist<T: DeserializeOwned>(
        &self,
        ask: &Ask<'_>,
        wait: &Wait<'_>,
    ) -> Result<T, RegistryError> {
        let mut between = FIRST_WAIT;
        let mut is_first = true;
        loop {
            let (problem, asked_wait) = match self.round(ask, wait, is_first).await? {
                Round::Answered(answer) => return Ok(answer),
                Round::Away { problem, retry_after } => (problem, retry_after),
            };
            let left = wait.left();
            if left.is_zero() {
                return Err(RegistryError::Away { url: self.urls(), problem });
            }
            tracing::debug!(problem, "the schema registry does not answer; asking again");
            self.env.sleep(between.max(asked_wait).min(left)).await;
            between = (between * 2).min(LONGEST_WAIT);
            is_first = false;
        }
    }

    /// Asks each URL once, in the first round whatever patience is left.
    async fn round<T: DeserializeOwned>(
        &self,
        ask: &Ask<'_>,
        wait: &Wait<'_>,
        is_first: bool,
    ) -> Result<Round<T>, RegistryError> {
        let (mut problems, mut retry_after) = (Vec::new(), None);
        let first = self.preferred.load(Ordering::Relaxed);
        for offset in 0..self.servers.len() {
            // One attempt after the wait that used up the patience: it is what was waited for.
            if offset > 0 && !is_first && wait.left().is_zero() {
                break;
            }
            let index = (first + offset) % self.servers.len();
            let server = &self.servers[index];
            match self.attempt(server, ask).await {
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(Round::Answered(answer));
                }
                Err(Missed::Final(error)) => return Err(error),
                Err(Missed::Away { problem, retry_after: asked }) => {
                    // Of several, the one that may be asked first.
                    let asked = asked.unwrap_or_default();
                    retry_after = Some(retry_after.map_or(asked, |it: Duration| it.min(asked)));
                    problems.push(match self.servers.len() {
                        1 => problem,
                        _ => format!("{}: {problem}", server.url()),
                    });
                }
            }
        }
        let (problem, retry_after) = (problems.join("; "), retry_after.unwrap_or_default());
        Ok(Round::Away { problem, retry_after })
    }

    async fn attempt<T: DeserializeOwned>(
        &self,
        server: &Server,
        ask: &Ask<'_>,
    ) -> Result<T, Missed> {
        let reply = tokio::select! {
            biased;
            reply = server.attempt(&self.client, ask) => reply?,
            () = self.env.sleep(ATTEMPT_TIMEOUT) => {
                let problem = format!("no answer within {ATTEMPT_TIMEOUT:?}");
                return Err(Missed::Away { problem, retry_after: None });
            }
        };
        judge(server, ask, &reply)
    }
}

/// What came of asking each URL.
enum Round<T> {
    Answered(T),
    Away { problem: String, retry_after: Duration },
}
