//! The collations that the STRINGs within a column have.
//!
//! Arrow has no types for them, and fields within a type that differed in their metadata would be
//! other types to it. So they stand in the metadata of the column's field, all in one text
//! ([`COLLATIONS`]), in the order in which the STRINGs stand in the type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::COLLATIONS;
use super::collation::Collation;

/// How many STRINGs a type has in it.
pub fn strings_in(data_type: &DataType) -> usize {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 1,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => strings_in(item.data_type()),
        DataType::Struct(fields) => fields.iter().map(|field| strings_in(field.data_type())).sum(),
        DataType::Dictionary(_, value) => strings_in(value),
        DataType::RunEndEncoded(_, value) => strings_in(value.data_type()),
        _ => 0,
    }
}

/// The collations that a column's field names, one for each STRING in it; `None` if it names none.
pub fn of_field(field: &Field) -> Option<Vec<Collation>> {
    let names = field.metadata().get(COLLATIONS)?;
    let named = |name: &str| Collation::parse(name).unwrap_or_default();
    Some(names.split(',').map(named).collect())
}

/// The text that says which collations the STRINGs of a column have; `None` where all are compared
/// byte by byte.
pub fn text_of(collations: &[Collation]) -> Option<String> {
    if collations.iter().all(|collation| collation.is_binary()) {
        return None;
    }
    let name = |collation: &Collation| match collation.is_binary() {
        true => String::new(),
        false => collation.to_string(),
    };
    Some(collations.iter().map(name).collect::<Vec<_>>().join(","))
}

/// `field` with the collations of its STRINGs.
pub fn with(field: Field, collations: &[Collation]) -> Field {
    match text_of(collations) {
        None => field,
        Some(names) => {
            let mut metadata = field.metadata().clone();
            metadata.insert(COLLATIONS.to_owned(), names);
            field.with_metadata(metadata)
        }
    }
}

/// `field` without them.
pub fn without(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(COLLATIONS);
    field.clone().with_metadata(metadata)
}

/// Whether a column of `schema` names one.
pub fn are_in(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| field.metadata().contains_key(COLLATIONS))
}

/// The columns as they are stored and read: what compares them is a matter of the plan.
pub fn stripped(schema: &SchemaRef) -> SchemaRef {
    if !are_in(schema) {
        return Arc::clone(schema);
    }
    let fields: Vec<Field> = schema.fields().iter().map(|field| without(field)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{field_type, parse_column_ddl};

    #[test]
    fn a_column_keeps_the_collations_of_all_its_strings() {
        let ddl = "STRUCT<a: STRING, m: MAP<STRING COLLATE UTF8_LCASE, INT>, \
                   l: ARRAY<STRING COLLATE UTF8_BINARY_RTRIM>>";
        let field = parse_column_ddl("c", ddl).expect("the type is known");
        let names = field.metadata().get(COLLATIONS).map(String::as_str);
        assert_eq!(names, Some(",UTF8_LCASE,UTF8_BINARY_RTRIM"));
        assert_eq!(strings_in(field.data_type()), 3);
        assert_eq!(field_type(&field), ddl);
        let schema = Arc::new(Schema::new(vec![field]));
        assert!(are_in(&schema) && !are_in(&stripped(&schema)));
    }

    #[test]
    fn one_that_compares_bytes_is_none() {
        let field = parse_column_ddl("c", "STRING COLLATE utf8_binary").expect("it is known");
        assert_eq!(of_field(&field), None);
        assert_eq!(field_type(&field), "STRING");
    }
}
