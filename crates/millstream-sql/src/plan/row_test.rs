//! A condition held against rows that are at hand, without a query around it.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::physical_expr::PhysicalExpr;

use super::condition::condition;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::functions::BatchClock;
use crate::session::{config, session};

/// A condition, planned.
#[derive(Debug)]
pub struct RowTest {
    expr: Arc<dyn PhysicalExpr>,
}

impl RowTest {
    /// `text` as a condition on rows of `schema`. `what` is what the condition is called; `now_us`
    /// is what `current_date()` and the like go by, microseconds since the epoch.
    ///
    /// # Errors
    /// A text that cannot be planned or is none, pointing into it.
    pub fn new(
        text: &str,
        schema: &SchemaRef,
        what: &str,
        now_us: i64,
    ) -> Result<Self, Diagnostics> {
        let failed = |error: DataFusionError| Diagnostic::nowhere(error.message().into_owned());
        let clock = BatchClock::default();
        clock.set(now_us);
        let state = session(config(), &clock).state();
        let columns = DFSchema::try_from(schema.as_ref().clone()).map_err(failed)?;
        let condition = condition(&state, text, &columns, what)?;
        let expr = state.create_physical_expr(condition, &columns).map_err(failed)?;
        Ok(Self { expr })
    }

    /// Whether the condition holds, for each of `rows`.
    ///
    /// # Errors
    /// What a row cannot be computed for, in words.
    pub fn holds(&self, rows: &RecordBatch) -> Result<Vec<bool>, String> {
        let words = |error: DataFusionError| error.message().into_owned();
        let flags = self.expr.evaluate(rows).map_err(words)?;
        let flags = flags.into_array(rows.num_rows()).map_err(words)?;
        Ok(flags.as_boolean().iter().map(|flag| flag == Some(true)).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn rows_are_held_against_a_condition() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("country", DataType::Utf8, true),
        ]));
        let days = Date32Array::from(vec![Some(20_000), Some(20_001), None]);
        let countries = StringArray::from(vec!["ch", "de", "ch"]);
        let columns = vec![Arc::new(days) as _, Arc::new(countries) as _];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).expect("two columns");
        let holds = |text: &str| {
            let test = RowTest::new(text, &schema, "--where", 20_001 * 86_400_000_000);
            test.expect("a condition").holds(&rows).expect("they are computed")
        };
        assert_eq!(holds("Country = 'ch' AND day < DATE '2030-01-01'"), [true, false, false]);
        assert_eq!(holds("day = current_date()"), [false, true, false]);
        let unknown = RowTest::new("price > 1", &schema, "--where", 0).expect_err("no column");
        assert!(unknown.0[0].message.contains("price"), "{unknown:?}");
        assert!(RowTest::new("country", &schema, "--where", 0).is_err(), "no condition");
        let seeded = RowTest::new("rand(1) < 0.5D", &schema, "--where", 0).expect_err("a seed");
        assert!(seeded.0[0].message.contains("takes a seed only"), "{seeded:?}");
    }
}
