//! A registry, for threads that may block.

use std::sync::Arc;

use millstream_store::env::Env;
use tokio::sync::watch;

use crate::answer::{CompatibleAnswer, IdAnswer};
use crate::ask::{Ask, Place};
use crate::cache::{Cache, Outcome, Turn};
use crate::error::RegistryError;
use crate::exchange::{ATTEMPT_TIMEOUT, Exchange};
use crate::fetch::fetch;
use crate::patience::{Patience, Wait};
use crate::references;
use crate::schema::{Draft, Registered};
use crate::settings::Settings;

/// A schema registry. To be shared, so that each schema is asked for once.
///
/// All calls block, and panic in asynchronous code. Each fails with
/// [`Refused`](RegistryError::Refused), [`Tls`](RegistryError::Tls),
/// [`NotARegistry`](RegistryError::NotARegistry), [`Away`](RegistryError::Away) or
/// [`Cancelled`](RegistryError::Cancelled) besides what it says itself.
pub struct Registry {
    exchange: Exchange,
    cache: Cache,
    env: Env,
}

/// Whether a schema can follow those that a subject has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compatibility {
    /// Whether it can.
    pub is_compatible: bool,
    /// Why not, as the registry says it; may be empty.
    pub messages: Vec<String>,
}

impl Registry {
    /// A registry as `settings` say; nobody is asked yet. May block for small files.
    ///
    /// # Errors
    /// `Url`, `Setting`: a URL, a certificate, a key or a token cannot be used.
    pub fn new(settings: &Settings, env: &Env) -> Result<Self, RegistryError> {
        let exchange = Exchange::new(settings, env)?;
        Ok(Self { exchange, cache: Cache::default(), env: env.clone() })
    }

    /// Its URLs without users, for messages.
    pub fn urls(&self) -> String {
        self.exchange.urls()
    }

    /// The schema `id`, with its references. It is asked for once, however many callers there are,
    /// and kept; an id that is not registered is asked for again after some seconds at the
    /// earliest.
    ///
    /// # Errors
    /// `NoSuchSchema`; `Unusable`: its references cannot be followed; `NoSuchSubject`,
    /// `NoSuchVersion`: of a reference.
    pub fn schema(&self, id: u32, patience: &Patience<'_>) -> Outcome {
        let wait = Wait::begin(&self.env, patience);
        loop {
            match self.cache.turn(id, self.env.monotonic()) {
                Turn::Done(outcome) => return outcome,
                Turn::Ask(asking) => {
                    let outcome = self.env.block_on_io(self.by_id(id, &wait)).map(Arc::new);
                    asking.finish(&outcome, self.env.monotonic());
                    return outcome;
                }
                Turn::Wait(answer) => {
                    if let Some(outcome) = self.env.block_on_io(self.follow(answer, &wait)) {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn by_id(&self, id: u32, wait: &Wait<'_>) -> Result<Registered, RegistryError> {
        let place = Place::Id(id);
        let fetched = fetch(&self.exchange, place, wait).await?;
        references::complete(&self.exchange, place, id, fetched, wait).await
    }

    /// What came of another caller's question; `None` where this one has to see for itself, as the
    /// other has given up and this one has not.
    async fn follow(
        &self,
        mut answer: watch::Receiver<Option<Outcome>>,
        wait: &Wait<'_>,
    ) -> Option<Outcome> {
        let url = || self.exchange.urls();
        let answered = tokio::select! {
            biased;
            () = wait.given_up() => return Some(Err(RegistryError::Cancelled { url: url() })),
            answered = answer.wait_for(Option::is_some) => answered.ok()?.clone()?,
            () = self.env.sleep(wait.left().max(ATTEMPT_TIMEOUT)) => {
                let problem = "another question for the same schema has no answer yet".to_owned();
                return Some(Err(RegistryError::Away { url: url(), problem }));
            }
        };
        match answered {
            Err(RegistryError::Cancelled { .. }) => None,
            Err(RegistryError::Away { .. }) if !wait.left().is_zero() => None,
            answered => Some(answered),
        }
    }

    /// The latest version of `subject`: its number and schema. It is asked for at each call.
    ///
    /// # Errors
    /// `NoSuchSubject`, `NoSuchVersion`, `Unusable`, also of a reference.
    pub fn latest(
        &self,
        subject: &str,
        patience: &Patience<'_>,
    ) -> Result<(u32, Registered), RegistryError> {
        self.at(subject, None, patience)
    }

    /// Version `version` of `subject`. It is asked for at each call.
    ///
    /// # Errors
    /// As of [`latest`](Self::latest).
    pub fn version(
        &self,
        subject: &str,
        version: u32,
        patience: &Patience<'_>,
    ) -> Result<Registered, RegistryError> {
        self.at(subject, Some(version), patience).map(|(_, registered)| registered)
    }

    fn at(
        &self,
        subject: &str,
        version: Option<u32>,
        patience: &Patience<'_>,
    ) -> Result<(u32, Registered), RegistryError> {
        let wait = Wait::begin(&self.env, patience);
        let place = Place::Version { subject, version };
        self.env.block_on_io(async {
            let fetched = fetch(&self.exchange, place, &wait).await?;
            let (Some(id), Some(version)) = (fetched.id, fetched.version.or(version)) else {
                let found = format!("{place} has no id or no version");
                return Err(RegistryError::NotARegistry { url: self.urls(), found });
            };
            let all = references::complete(&self.exchange, place, id, fetched, &wait).await?;
            Ok((version, all))
        })
    }

    /// The id under which `draft` is registered for `subject`, if it is.
    ///
    /// # Errors
    /// `Invalid`: it is no schema.
    pub fn lookup(
        &self,
        subject: &str,
        draft: &Draft<'_>,
        patience: &Patience<'_>,
    ) -> Result<Option<u32>, RegistryError> {
        match self.ask::<IdAnswer>(&Ask::Lookup { subject, draft }, patience) {
            Ok(answer) => Ok(Some(answer.id)),
            Err(RegistryError::NoSuchSubject { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Registers `draft` for `subject`, unless it is; gives its id. That is the same for the same
    /// schema, so a registration whose answer was lost is repeated.
    ///
    /// # Errors
    /// `Incompatible`; `Invalid`: it is no schema, or refers to one that is not registered.
    pub fn register(
        &self,
        subject: &str,
        draft: &Draft<'_>,
        patience: &Patience<'_>,
    ) -> Result<u32, RegistryError> {
        let answer: IdAnswer = self.ask(&Ask::Register { subject, draft }, patience)?;
        Ok(answer.id)
    }

    /// Whether `draft` could be registered for `subject`, by the rules of the subject. For a
    /// subject without versions it could.
    ///
    /// # Errors
    /// `Invalid`: it is no schema, or refers to one that is not registered.
    pub fn compatible(
        &self,
        subject: &str,
        draft: &Draft<'_>,
        patience: &Patience<'_>,
    ) -> Result<Compatibility, RegistryError> {
        match self.ask::<CompatibleAnswer>(&Ask::Compatible { subject, draft }, patience) {
            Ok(CompatibleAnswer { is_compatible, messages }) => {
                Ok(Compatibility { is_compatible, messages: messages.list() })
            }
            Err(RegistryError::NoSuchSubject { .. }) => {
                Ok(Compatibility { is_compatible: true, messages: Vec::new() })
            }
            Err(RegistryError::Incompatible { messages, .. }) => {
                Ok(Compatibility { is_compatible: false, messages })
            }
            Err(error) => Err(error),
        }
    }

    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        ask: &Ask<'_>,
        patience: &Patience<'_>,
    ) -> Result<T, RegistryError> {
        let wait = Wait::begin(&self.env, patience);
        self.env.block_on_io(self.exchange.ask(ask, &wait))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({})", self.urls())
    }
}
