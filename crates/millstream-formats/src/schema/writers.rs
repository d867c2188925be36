//! Who wrote records: one schema for all, or a registry that knows each by its id.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_registry::{Patience, Registered, Registry, RegistryError, Settings};
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::parsed::Parsed;

/// How long a registry that is away is waited for, before the caller starts again.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Who wrote the records of a table.
pub(super) enum Writers {
    /// All have this schema, and nothing in front of them.
    Fixed(Parsed),
    /// Each has the id of its schema in front.
    Registry(Arc<Registry>),
}

/// The registries of a process, each asked once for the same thing: the columns of a table do not
/// change between the check of a query and its run. Cheap to clone.
#[derive(Clone)]
pub struct Registries(Arc<Inner>);

/// A subject of a registry, by its URLs, and a version if it is not the latest.
type Subject = (String, String, Option<u32>);

struct Inner {
    base_dir: PathBuf,
    env: Env,
    known: Mutex<Vec<(Settings, Arc<Registry>)>>,
    subjects: Mutex<HashMap<Subject, Arc<Registered>>>,
}

impl Registries {
    /// None so far. Relative paths in options are relative to `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        let (known, subjects) = (Mutex::default(), Mutex::default());
        let (base_dir, env) = (base_dir.to_owned(), Env::real());
        Self(Arc::new(Inner { base_dir, env, known, subjects }))
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.base_dir.join(path)
    }

    /// The registry with these settings.
    pub(super) fn registry(&self, settings: &Settings) -> Result<Arc<Registry>, RegistryError> {
        let mut known = self.0.known.lock();
        if let Some((_, registry)) = known.iter().find(|(of, _)| of == settings) {
            return Ok(Arc::clone(registry));
        }
        let registry = Arc::new(Registry::new(settings, &self.0.env)?);
        known.push((settings.clone(), Arc::clone(&registry)));
        Ok(registry)
    }

    /// The latest schema of a subject, or a certain version; the same for each caller. Blocks.
    pub(super) fn of_subject(
        &self,
        registry: &Registry,
        subject: &str,
        version: Option<u32>,
    ) -> Result<Arc<Registered>, RegistryError> {
        let key = (registry.urls(), subject.to_owned(), version);
        let mut subjects = self.0.subjects.lock();
        if let Some(found) = subjects.get(&key) {
            return Ok(Arc::clone(found));
        }
        let ask = || match version {
            None => registry.latest(subject, &Patience::new(PATIENCE)).map(|(_, found)| found),
            Some(version) => registry.version(subject, version, &Patience::new(PATIENCE)),
        };
        // The caller may be a thread of a runtime.
        let found = Arc::new(self.0.env.blocking(ask)?);
        subjects.insert(key, Arc::clone(&found));
        Ok(found)
    }
}

impl std::fmt::Debug for Registries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registries({})", self.0.known.lock().len())
    }
}

/// The schema of an id. Blocks, on a thread that may be one of a runtime.
pub(super) fn by_id(registry: &Registry, id: u32) -> Result<Arc<Registered>, RegistryError> {
    Env::real().blocking(|| registry.schema(id, &Patience::new(PATIENCE)))
}
