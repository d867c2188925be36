//! What to do with each field of a message, decided once per schema.
//!
//! A plan pairs the declared columns with the fields of one message type. The decoder then looks
//! a field up by its number and finds where its value goes; it needs no descriptor.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::datatypes::{FieldRef, Schema as Columns};

use super::link::Link;
use super::options::Options;
use super::plan_error::PlanError;
use super::planned::Message;
use super::schema::Schema;

/// How records of a schema become rows of the declared columns.
pub struct Plan {
    pub(super) root: Message,
    /// Which columns this was made for.
    pub(super) fingerprint: u64,
}

impl Plan {
    /// Pairs the fields of the schema's message with those of `columns` that `projection` lists.
    ///
    /// # Errors
    /// The first column that its field cannot fill.
    pub fn new(
        schema: &Schema,
        options: &Options,
        columns: &Columns,
        projection: &[usize],
    ) -> Result<Self, PlanError> {
        let wanted = projected(columns, projection);
        let mut link = Link { options, path: Vec::new() };
        let root = link.message(schema.descriptor(), &wanted)?;
        Ok(Self { root, fingerprint: fingerprint(&wanted) })
    }
}

/// The columns that are decoded, in their order.
pub(super) fn projected(columns: &Columns, projection: &[usize]) -> Vec<FieldRef> {
    projection.iter().map(|index| columns.fields()[*index].clone()).collect()
}

/// A number that tells whether a plan and a decoder were made for the same columns.
pub(super) fn fingerprint(columns: &[FieldRef]) -> u64 {
    let mut hasher = DefaultHasher::new();
    columns.iter().for_each(|column| column.data_type().hash(&mut hasher));
    columns.len().hash(&mut hasher);
    hasher.finish()
}
