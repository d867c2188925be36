//! How a query that has no micro-batch yet may begin, and the queries of the same pipeline file.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The length of a query's id; what follows names one of several sinks.
const ID_LENGTH: usize = 36;

/// The ids of the queries of one pipeline file. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    ids: Arc<Mutex<BTreeSet<String>>>,
}

impl Siblings {
    /// Adds the query `id`.
    pub fn add(&self, id: &str) {
        self.ids.lock().insert(base(id).to_owned());
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.lock().contains(base(id))
    }
}

/// How a query that has no micro-batch yet may begin.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The queries of the same pipeline file.
    pub siblings: Siblings,
    /// It goes on as the query whose id its new checkpoint has.
    pub adopts: bool,
    /// It may write to tables that know other queries.
    pub is_beside_others: bool,
}

/// The query's id without what one of several sinks adds to it.
pub(super) fn base(id: &str) -> &str {
    id.get(..ID_LENGTH).unwrap_or(id)
}
