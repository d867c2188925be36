//! The names of a result's columns. Several can be the same, unlike those within a plan, so they
//! are given back to the rows as these leave it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt as _;
use millstream_sql::query::twins::shown;

/// The columns of a plan by the names that the query gives them.
pub(crate) fn named(schema: &SchemaRef) -> SchemaRef {
    let is_shown = |name: &String| shown(name) == name;
    if schema.fields().iter().all(|field| is_shown(field.name())) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| {
        let name = shown(field.name()).to_owned();
        field.as_ref().clone().with_name(name)
    });
    let fields: Vec<_> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The rows of a plan with these names.
pub(crate) fn with_names(rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let shown = named(&schema);
    if Arc::ptr_eq(&schema, &shown) {
        return rows;
    }
    let names = Arc::clone(&shown);
    let rows = rows.map(move |rows| {
        let columns = rows?.columns().to_vec();
        RecordBatch::try_new(Arc::clone(&names), columns).map_err(DataFusionError::from)
    });
    Box::pin(RecordBatchStreamAdapter::new(shown, rows))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn marks_are_taken_off() {
        let field = |name: &str| Field::new(name, DataType::Int32, true);
        let schema = Arc::new(Schema::new(vec![field("a"), field("a\u{E000}2"), field("b2")]));
        let shown = named(&schema);
        let names: Vec<&str> = shown.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a", "a", "b2"]);
        assert!(Arc::ptr_eq(&named(&shown), &shown));
    }
}
