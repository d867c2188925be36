//! Type names in casts are Spark's ([`crate::types`]), which is decided while DataFusion plans.
//!
//! Operators are with the functions, in [`crate::functions`].

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, IntervalFields};

use super::collation::Collation;
use super::{
    INTERVAL_FIELDS, TIME_HELP, collations, list_of, map_of, parse_column_ddl, parse_type_ddl,
};

/// What stands in parentheses behind the type of `12L` and `12S`, which are casts of their digits
/// to DataFusion. A cast in the text has no such type.
pub(crate) const WRITTEN: u64 = u64::MAX;
/// What the field of such a cast is called. Beside a DECIMAL a number in the text has as many
/// digits as are written, and a cast as many as its type.
pub(crate) const WRITTEN_NUMBER: &str = "written";

/// Reads type names as Spark does.
#[derive(Debug)]
pub(crate) struct SparkTypes;

impl TypePlanner for SparkTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let ast::DataType::Interval { fields, .. } = sql_type {
            return Ok(fields.as_ref().map(interval));
        }
        if let Some(of) = written(sql_type) {
            return Ok(Some(FieldRef::new(Field::new(WRITTEN_NUMBER, of, true))));
        }
        let mut collations = Vec::new();
        let field = Field::new("", type_of(sql_type, &mut collations)?, true);
        Ok(Some(FieldRef::new(collations::with(field, &collations))))
    }
}

/// The type of a number with a letter behind it.
fn written(sql_type: &ast::DataType) -> Option<DataType> {
    match sql_type {
        ast::DataType::BigInt(Some(WRITTEN)) => Some(DataType::Int64),
        ast::DataType::SmallInt(Some(WRITTEN)) => Some(DataType::Int16),
        _ => None,
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
    type_of(sql_type, &mut Vec::new())
}

/// The same; the collations of its STRINGs are added to `collations`.
fn type_of(sql_type: &ast::DataType, collations: &mut Vec<Collation>) -> Result<DataType> {
    if let Some(of) = written(sql_type) {
        return Ok(of);
    }
    match sql_type {
        ast::DataType::Time(..) => plan_err!("there are no casts to TIME: {TIME_HELP}"),
        ast::DataType::Array(ast::ArrayElemTypeDef::AngleBracket(element)) => {
            Ok(list_of(type_of(element, collations)?))
        }
        ast::DataType::Map(key, value) => {
            Ok(map_of(type_of(key, collations)?, type_of(value, collations)?))
        }
        ast::DataType::Struct(fields, _) => {
            let fields = fields.iter().enumerate().map(|(index, field)| {
                let name = field.field_name.as_ref().map(|name| name.value.clone());
                let name = name.unwrap_or_else(|| format!("col{}", index + 1));
                Ok(Field::new(name, type_of(&field.field_type, collations)?, true))
            });
            Ok(DataType::Struct(fields.collect::<Result<Vec<_>>>()?.into()))
        }
        simple => {
            // sqlparser's spelling of a simple type it has read is again the type's name.
            let text = simple.to_string();
            let plain = match text.trim_matches('`') {
                named if named.starts_with("STRING COLLATE ") => {
                    parse_column_ddl("", named).map(|field| {
                        let own = collations::of_field(&field);
                        collations.extend(own.unwrap_or_else(|| vec![Collation::default()]));
                        field.data_type().clone()
                    })
                }
                _ => parse_type_ddl(&text).inspect(|of| {
                    let plain = vec![Collation::default(); collations::strings_in(of)];
                    collations.extend(plain);
                }),
            };
            plain.or_else(|found| {
                let help = found.0.first().and_then(|found| found.help.clone());
                let text = text.trim_matches('`');
                plan_err!("there is no type `{text}`; {}", help.unwrap_or_default())
            })
        }
    }
}
