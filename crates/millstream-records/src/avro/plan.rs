//! The plans by which a writer's records become columns.
//!
//! A plan's target says which rules compile it: those of a reader schema (module `resolve`) or
//! those of declared columns (module `declared`). Both give a program of the same kind.

use std::sync::Arc;

use super::declared;
use super::error::PlanError;
use super::layout::Layout;
use super::program::Program;
use super::resolve;
use super::schema::Schema;

/// What a writer's records are to become.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Values of a reader schema, by Avro's schema resolution. The layout's columns must be those
    /// of [`Schema::columns`], though each may be nullable where the schema is not.
    Reader {
        /// The reader schema.
        schema: &'a Schema,
        /// What its [`Schema::columns`] were made with.
        recursion: usize,
    },
    /// The layout's columns as they are declared: the writer's fields are matched to them by
    /// name, an exact match first, else one but for case, and converted where no value changes
    /// and where Spark's `AvroDeserializer` converts.
    Declared,
}

/// How the records of one writer schema become the columns of a layout. Made once for each
/// schema; cheap to clone.
#[derive(Clone)]
pub struct Plan {
    pub(super) program: Arc<Program>,
    layout: Layout,
}

impl Plan {
    /// Compiles a plan.
    ///
    /// # Errors
    /// The first field of the writer's that cannot become its column. Fields of columns that are
    /// not decoded are not looked at.
    pub fn new(writer: &Schema, target: Target<'_>, layout: &Layout) -> Result<Self, PlanError> {
        let program = match target {
            Target::Reader { schema, recursion } => {
                resolve::compile(writer, schema, recursion, layout)?
            }
            Target::Declared => declared::compile(writer, layout)?,
        };
        Ok(Self { program: Arc::new(program), layout: layout.clone() })
    }

    pub(super) fn is_for(&self, layout: &Layout) -> bool {
        self.layout.is(layout)
    }
}
