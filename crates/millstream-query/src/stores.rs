//! Object stores by their URLs, opened when the first file of one is read.
//!
//! Credentials come from the environment of the process that reads, as for tables that are
//! written: they are in no plan.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use datafusion::execution::runtime_env::RuntimeEnv;
use millstream_store::env::Env;
use millstream_store::storage::cloud_settings;
use object_store::ObjectStore;
use parking_lot::Mutex;
use url::{Position, Url};

use crate::cache::blocks::BlockCache;
use crate::cache::store::CachedStore;
use crate::narrow_gaps::NarrowGaps;

/// The stores that were opened, and how others are.
#[derive(Debug, Default)]
pub struct Stores(DefaultObjectStoreRegistry);

impl ObjectStoreRegistry for Stores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.0.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.0.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if let Ok(store) = self.0.get_store(url) {
            return Ok(store);
        }
        let opened = object_store::parse_url_opts(url, cloud_settings());
        let (store, _) = opened.map_err(|error| DataFusionError::ObjectStore(Box::new(error)))?;
        let store: Arc<dyn ObjectStore> = Arc::new(NarrowGaps(Arc::from(store)));
        self.0.register_store(url, Arc::clone(&store));
        Ok(store)
    }
}

/// The stores of one task, which reads files that are not on a local disk through a cache.
#[derive(Debug)]
struct CachedStores {
    env: Env,
    stores: Arc<dyn ObjectStoreRegistry>,
    cache: Arc<BlockCache>,
    cached: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// `runtime` for one task, whose reads go through `cache`.
pub fn through_cache(env: &Env, runtime: &RuntimeEnv, cache: &Arc<BlockCache>) -> RuntimeEnv {
    let stores = CachedStores {
        env: env.clone(),
        stores: Arc::clone(&runtime.object_store_registry),
        cache: Arc::clone(cache),
        cached: Mutex::default(),
    };
    RuntimeEnv { object_store_registry: Arc::new(stores), ..runtime.clone() }
}

impl ObjectStoreRegistry for CachedStores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.stores.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.stores.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let store = self.stores.get_store(url)?;
        if url.scheme() == "file" {
            return Ok(store);
        }
        let place = &url[..Position::BeforePath];
        let mut cached = self.cached.lock();
        let cached = cached.entry(place.to_owned()).or_insert_with(|| {
            Arc::new(CachedStore::new(self.env.clone(), store, place, Arc::clone(&self.cache)))
        });
        Ok(Arc::clone(cached))
    }
}
