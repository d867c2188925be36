//! A query's operators a second time, to make a snapshot of their state without touching it.
//!
//! The state of a running operator cannot be read without taking it away, and copying it would hold
//! up the query. So a snapshot is made from what the state log has: the snapshot before and the
//! entries since, applied to operators of their own, on one thread that nobody waits for.

use arrow::error::ArrowError;
use datafusion::common::Result;
use millstream_store::env::Env;

use super::codec;
use super::operator::{MicroBatchFacts, Operator};

/// See the module's head.
pub struct Replica {
    operators: Vec<Box<dyn Operator>>,
}

impl Replica {
    /// Of operators without state, in the order of the state log's sections.
    pub fn new(operators: Vec<Box<dyn Operator>>) -> Self {
        Self { operators }
    }

    /// Applies an entry of the state log.
    pub async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        sections: &[Vec<u8>],
    ) -> Result<()> {
        let mut sections = sections.iter();
        for operator in &mut self.operators {
            let inputs = operator.input_schemas().len();
            let rows = sections.by_ref().take(inputs).map(|bytes| codec::decode(bytes));
            let rows = rows.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
            operator.apply(env, facts, rows).await?;
        }
        Ok(())
    }

    /// All state, as sections that operators without state take like an entry's.
    pub fn into_sections(self) -> Result<Vec<Vec<u8>>> {
        let mut sections = Vec::new();
        for operator in self.operators {
            let schemas = operator.input_schemas();
            let rows = operator.snapshot()?;
            for (schema, rows) in schemas.iter().zip(rows) {
                sections.push(codec::encode(schema, &rows)?);
            }
        }
        Ok(sections)
    }
}
