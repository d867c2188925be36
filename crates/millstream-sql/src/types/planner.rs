//! Type names in casts are Spark's ([`crate::types`]), which is decided while DataFusion plans.
//!
//! Operators are with the functions, in [`crate::functions`].

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, IntervalFields};

use super::{INTERVAL_FIELDS, TIME_HELP, list_of, map_of, parse_type_ddl};

/// Reads type names as Spark does.
#[derive(Debug)]
pub(crate) struct SparkTypes;

impl TypePlanner for SparkTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let ast::DataType::Interval { fields, .. } = sql_type {
            return Ok(fields.as_ref().map(interval));
        }
        Ok(Some(FieldRef::new(Field::new("", spark_type_of(sql_type)?, true))))
    }
}

/// An INTERVAL with its fields, which stand in the metadata.
fn interval(fields: &IntervalFields) -> FieldRef {
    let of = match fields {
        IntervalFields::Year | IntervalFields::Month | IntervalFields::YearToMonth => {
            DataType::Interval(IntervalUnit::YearMonth)
        }
        IntervalFields::Day => DataType::Duration(TimeUnit::Second),
        _ => DataType::Duration(TimeUnit::Microsecond),
    };
    let fields = (INTERVAL_FIELDS.to_owned(), fields.to_string().to_lowercase());
    FieldRef::new(Field::new("", of, true).with_metadata([fields].into()))
}

/// The Arrow type of a type that sqlparser has read.
pub(crate) fn spark_type_of(sql_type: &ast::DataType) -> Result<DataType> {
    match sql_type {
        ast::DataType::Time(..) => plan_err!("there are no casts to TIME: {TIME_HELP}"),
        ast::DataType::Array(ast::ArrayElemTypeDef::AngleBracket(element)) => {
            Ok(list_of(spark_type_of(element)?))
        }
        ast::DataType::Map(key, value) => Ok(map_of(spark_type_of(key)?, spark_type_of(value)?)),
        ast::DataType::Struct(fields, _) => {
            let fields = fields.iter().enumerate().map(|(index, field)| {
                let name = field.field_name.as_ref().map(|name| name.value.clone());
                let name = name.unwrap_or_else(|| format!("col{}", index + 1));
                Ok(Field::new(name, spark_type_of(&field.field_type)?, true))
            });
            Ok(DataType::Struct(fields.collect::<Result<Vec<_>>>()?.into()))
        }
        simple => {
            // sqlparser's spelling of a simple type it has read is again the type's name.
            let text = simple.to_string();
            parse_type_ddl(&text).or_else(|found| {
                let help = found.0.first().and_then(|found| found.help.clone());
                plan_err!("there is no type `{text}`; {}", help.unwrap_or_default())
            })
        }
    }
}
