use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::LogicalPlan;

use crate::diagnostic::{Diagnostic, Span};
use crate::functions::BatchClock;
use crate::plan::logical::to_logical;
use crate::query::prepare::prepare_query;
use crate::query::prepared::{ReadMode, TableCatalog};
use crate::session::{config, session};
use crate::types::{field_type, parse_column_ddl};

/// A table `logs` with one STRING, `level`.
struct Logs {
    level: Field,
    has_collations: bool,
}

impl TableCatalog for Logs {
    fn table(&self, name: &str) -> Option<String> {
        name.eq_ignore_ascii_case("logs").then(|| "logs".to_owned())
    }

    fn names(&self) -> Vec<String> {
        vec!["logs".to_owned()]
    }

    fn schema(&self, _: &str, _: ReadMode, _: Span) -> Result<SchemaRef, Diagnostic> {
        Ok(Arc::new(Schema::new(vec![self.level.clone()])))
    }

    fn has_collations(&self) -> bool {
        self.has_collations
    }
}

fn planned(sql: &str, logs: &Logs) -> Result<LogicalPlan, String> {
    let prepared = prepare_query(sql, logs).map_err(|found| found.to_string())?;
    let context = session(config(), &BatchClock::default());
    for read in &prepared.reads {
        let table = Arc::new(EmptyTable::new(Arc::clone(&read.schema)));
        context.register_table(read.registered_as.as_str(), table).expect("the name is new");
    }
    to_logical(&context.state(), &prepared).map_err(|found| found.to_string())
}

fn plain() -> Logs {
    Logs { level: Field::new("level", DataType::Utf8, true), has_collations: false }
}

fn collated(has_collations: bool) -> Logs {
    let level = parse_column_ddl("level", "STRING COLLATE UTF8_LCASE").expect("it is known");
    Logs { level, has_collations }
}

#[test]
fn a_condition_over_a_stream_compares_keys() {
    let sql = "SELECT level FROM STREAM logs WHERE level COLLATE utf8_lcase = 'error'";
    let plan = planned(sql, &plain()).expect("conditions need no state");
    let text = plan.display_indent().to_string();
    assert_eq!(text.matches("__collation_key").count(), 2, "{text}");
}

#[test]
fn state_by_a_collation_is_refused_over_a_stream() {
    let of = |key: &str| format!("SELECT count(*) FROM STREAM logs GROUP BY {key}");
    let refused = planned(&of("level COLLATE utf8_lcase"), &plain()).expect_err("it is state");
    assert!(refused.contains("grouping by a collation over a stream"), "{refused}");
    planned(&of("level COLLATE utf8_binary"), &plain()).expect("bytes are compared");
}

#[test]
fn a_declared_collation_counts_and_is_shown() {
    let sql = "SELECT level, upper(level) AS up FROM logs WHERE level = 'error'";
    let plan = planned(sql, &collated(true)).expect("it can be planned");
    let text = plan.display_indent().to_string();
    assert_eq!(text.matches("__collation_key").count(), 2, "{text}");
    let types = plan.schema().fields().iter().map(|field| field_type(field));
    assert_eq!(types.collect::<Vec<_>>(), ["STRING COLLATE UTF8_LCASE"; 2]);
    let refused = planned(sql, &collated(false)).expect_err("a pipeline has none");
    assert!(refused.contains("columns of `logs` have collations"), "{refused}");
}

#[test]
fn a_plan_without_collations_stays_as_it_is() {
    let sql = "SELECT DISTINCT upper(level) FROM logs WHERE level IN ('a', 'b') ORDER BY 1";
    let plan = planned(sql, &plain()).expect("it can be planned");
    let text = plan.display_indent().to_string();
    assert!(!text.contains("__coll"), "{text}");
    let sql = sql.replace("upper(level)", "upper(level COLLATE utf8_binary)");
    let named = planned(&sql, &plain()).expect("it can be planned").display_indent().to_string();
    assert!(!named.contains("__coll"), "{named}");
}
