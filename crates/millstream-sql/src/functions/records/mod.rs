//! Functions between columns and records: the bytes of Avro and Protobuf, the text of CSV and XML.
//!
//! Their types and their work follow from literal arguments: a schema, the name of a message,
//! options. [`prepared`] reads those once for a query and keeps what was made of them; [`rows`]
//! puts decoded columns together.
//!
//! The semantics are Spark's, also where it surprises: in the mode PERMISSIVE a malformed record
//! that would be a STRUCT becomes one of nulls, not NULL, and what comes after an Avro value is not
//! looked at. What is refused here and not there is in `docs/reference/functions.md`.

mod avro;
mod csv;
mod csv_options;
mod csv_schema;
mod csv_values;
mod derived;
mod json_schema;
mod options;
mod prepared;
mod protobuf;
mod rows;
#[cfg(test)]
mod tests;
mod xml_options;
mod xml_read;
mod xml_schema;
mod xml_values;
mod xml_write;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

pub(super) use derived::AvroSchemas;

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        prepared::udf::<avro::FromAvro>(),
        prepared::udf::<avro::ToAvro>(),
        prepared::udf::<avro::SchemaOfAvro>(),
        prepared::udf::<protobuf::FromProtobuf>(),
        prepared::udf::<protobuf::ToProtobuf>(),
        prepared::udf::<csv::FromCsv>(),
        prepared::udf::<csv::ToCsv>(),
        prepared::udf::<csv_schema::SchemaOfCsv>(),
        prepared::udf::<json_schema::SchemaOfJson>(),
        prepared::udf::<xml_read::FromXml>(),
        prepared::udf::<xml_write::ToXml>(),
        prepared::udf::<xml_schema::SchemaOfXml>(),
    ]
}

/// The type that a call of `function` gives, by its literal arguments; `None` also where it is
/// wrong, which is said when it is planned.
pub(crate) fn decoded_type(function: &str, literals: &[Option<ScalarValue>]) -> Option<DataType> {
    match function {
        "from_avro" => prepared::returned_type::<avro::FromAvro>(literals),
        "from_protobuf" => prepared::returned_type::<protobuf::FromProtobuf>(literals),
        "from_csv" => prepared::returned_type::<csv::FromCsv>(literals),
        "from_xml" => prepared::returned_type::<xml_read::FromXml>(literals),
        _ => None,
    }
}

/// The schema that a call of `schema_of_csv` or its like gives, by its literal arguments; `None`
/// also where it is wrong, which is said when it is planned.
pub(crate) fn schema_text(function: &str, literals: &[Option<ScalarValue>]) -> Option<String> {
    match function {
        "schema_of_csv" => Some(prepared::of_literals::<csv_schema::SchemaOfCsv>(literals)?.ddl),
        "schema_of_json" => Some(prepared::of_literals::<json_schema::SchemaOfJson>(literals)?.ddl),
        "schema_of_xml" => Some(prepared::of_literals::<xml_schema::SchemaOfXml>(literals)?.ddl),
        _ => None,
    }
}
