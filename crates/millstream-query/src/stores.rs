//! Object stores by their URLs, opened when the first file of one is read.
//!
//! Credentials come from the environment, as for tables that are written.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use millstream_store::storage::cloud_settings;
use object_store::ObjectStore;
use url::Url;

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
        let store: Arc<dyn ObjectStore> = Arc::from(store);
        self.0.register_store(url, Arc::clone(&store));
        Ok(store)
    }
}
