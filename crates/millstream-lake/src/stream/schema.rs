//! Whether rows written under one schema can be read under another.
//!
//! A stream has one schema as long as it runs: that of the newest version when it began. Files of
//! older versions are read with it, and so are those that come, as long as their schema lacks
//! nothing of theirs. Origin: `SchemaUtils.isReadCompatible` of Delta Lake.

use delta_kernel::schema::{DataType, PrimitiveType, StructField, StructType};
use delta_kernel::table_features::ColumnMappingMode;

/// A schema, and what else decides how files are read.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) schema: StructType,
    pub(super) partition_columns: Vec<String>,
    pub(super) mapping: ColumnMappingMode,
}

impl Layout {
    /// What of files of `written` could not be read with this schema; `None` if all can.
    pub(super) fn misses(&self, written: &Self) -> Option<String> {
        let same = self.partition_columns.len() == written.partition_columns.len()
            && self
                .partition_columns
                .iter()
                .zip(&written.partition_columns)
                .all(|(read, written)| read == written);
        if !same {
            return Some("it is partitioned by other columns".to_owned());
        }
        let mappings = (written.mapping, self.mapping);
        misses_fields("", &written.schema, &self.schema, mappings)
    }
}

impl Layout {
    /// A column of `read` that files of this layout do not have any more; `None` if all are there.
    pub(super) fn lacks(&self, read: &Self) -> Option<String> {
        lacks_fields("", &self.schema, &read.schema, (self.mapping, read.mapping))
    }
}

fn lacks_fields(
    place: &str,
    written: &StructType,
    read: &StructType,
    mappings: Mappings,
) -> Option<String> {
    read.fields().find_map(|read| {
        let name = format!("{place}{}", read.name());
        let same = written
            .field(read.name())
            .filter(|written| written.physical_name(mappings.0) == read.physical_name(mappings.1));
        match same {
            None => Some(format!("column {name} is in one of them only")),
            Some(written) => lacks_kind(&name, written.data_type(), read.data_type(), mappings),
        }
    })
}

fn lacks_kind(
    name: &str,
    written: &DataType,
    read: &DataType,
    mappings: Mappings,
) -> Option<String> {
    match (written, read) {
        (DataType::Struct(written), DataType::Struct(read)) => {
            lacks_fields(&format!("{name}."), written, read, mappings)
        }
        (DataType::Array(written), DataType::Array(read)) => {
            lacks_kind(name, written.element_type(), read.element_type(), mappings)
        }
        (DataType::Map(written), DataType::Map(read)) => {
            lacks_kind(name, written.key_type(), read.key_type(), mappings)
                .or_else(|| lacks_kind(name, written.value_type(), read.value_type(), mappings))
        }
        // Whether types fit is another question.
        _ => None,
    }
}

type Mappings = (ColumnMappingMode, ColumnMappingMode);

fn misses_fields(
    place: &str,
    written: &StructType,
    read: &StructType,
    mappings: Mappings,
) -> Option<String> {
    written.fields().find_map(|written| {
        let name = format!("{place}{}", written.name());
        let Some(read) = read.field(written.name()) else {
            return Some(format!("column {name} is in one of them only"));
        };
        if written.physical_name(mappings.0) != read.physical_name(mappings.1) {
            return Some(format!("column {name} is another column in the files"));
        }
        if written.is_nullable() && !read.is_nullable() {
            return Some(format!("column {name} may be null in one of them only"));
        }
        misses_type(&name, written, read, mappings)
    })
}

fn misses_type(
    name: &str,
    written: &StructField,
    read: &StructField,
    mappings: Mappings,
) -> Option<String> {
    misses_kind(name, written.data_type(), read.data_type(), mappings)
}

fn misses_kind(
    name: &str,
    written: &DataType,
    read: &DataType,
    mappings: Mappings,
) -> Option<String> {
    match (written, read) {
        (DataType::Struct(written), DataType::Struct(read)) => {
            misses_fields(&format!("{name}."), written, read, mappings)
        }
        (DataType::Array(written), DataType::Array(read)) => {
            if written.contains_null() && !read.contains_null() {
                return Some(format!("elements of {name} may be null in one of them only"));
            }
            misses_kind(name, written.element_type(), read.element_type(), mappings)
        }
        (DataType::Map(written), DataType::Map(read)) => {
            if written.value_contains_null() && !read.value_contains_null() {
                return Some(format!("values of {name} may be null in one of them only"));
            }
            misses_kind(name, written.key_type(), read.key_type(), mappings)
                .or_else(|| misses_kind(name, written.value_type(), read.value_type(), mappings))
        }
        (DataType::Primitive(written), DataType::Primitive(read))
            if written == read || widens(written, read) =>
        {
            None
        }
        (written, read) if written == read => None,
        (written, read) => Some(format!("column {name} is {written} in one, {read} in the other")),
    }
}

/// Whether the protocol lets a column of the type `from` become one of the type `to`
/// ("Type Widening").
fn widens(from: &PrimitiveType, to: &PrimitiveType) -> bool {
    use PrimitiveType::{Byte, Date, Decimal, Double, Float, Integer, Long, Short, TimestampNtz};
    match (from, to) {
        (Byte, Short | Integer | Long | Double)
        | (Short, Integer | Long | Double)
        | (Integer, Long | Double)
        | (Float, Double)
        | (Date, TimestampNtz) => true,
        (Byte | Short | Integer, Decimal(to)) => {
            to.precision() - to.scale().min(to.precision()) >= 10
        }
        (Long, Decimal(to)) => to.precision() - to.scale().min(to.precision()) >= 20,
        (Decimal(from), Decimal(to)) => {
            to.scale() >= from.scale()
                && to.precision().saturating_sub(from.precision())
                    >= to.scale().saturating_sub(from.scale())
                && to.precision() >= from.precision()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(fields: Vec<StructField>) -> Layout {
        Layout {
            schema: StructType::try_new(fields).expect("different names"),
            partition_columns: Vec::new(),
            mapping: ColumnMappingMode::None,
        }
    }

    #[test]
    fn columns_may_be_added_and_widened() {
        let id = || StructField::nullable("id", DataType::INTEGER);
        let text = StructField::nullable("text", DataType::STRING);
        let (narrow, wide) = (layout(vec![id()]), layout(vec![text.clone(), id()]));
        assert_eq!(wide.misses(&narrow), None, "the new column is null in old files");
        let missing = narrow.misses(&wide).expect("the old schema has no such column");
        assert!(missing.contains("text"), "{missing}");
        let long = layout(vec![StructField::nullable("id", DataType::LONG)]);
        assert_eq!(long.misses(&narrow), None);
        assert!(narrow.misses(&long).is_some(), "a long is not read as an int");
        let required = layout(vec![StructField::not_null("id", DataType::INTEGER)]);
        assert!(required.misses(&narrow).is_some() && narrow.misses(&required).is_none());
    }

    #[test]
    fn columns_that_were_dropped_are_missed() {
        let field = |name: &str| StructField::nullable(name, DataType::INTEGER);
        let (both, one) = (layout(vec![field("a"), field("b")]), layout(vec![field("a")]));
        assert_eq!(both.misses(&one), None, "its files could be read, without the column");
        let lacking = one.lacks(&both).expect("b was dropped");
        assert!(lacking.contains("column b"), "{lacking}");
        assert_eq!(both.lacks(&one), None);
        let nested = |fields: Vec<StructField>| {
            let inner = StructType::try_new(fields).expect("different names");
            layout(vec![StructField::nullable("s", DataType::from(inner))])
        };
        let lacking = nested(vec![field("a")]).lacks(&nested(vec![field("a"), field("b")]));
        assert!(lacking.is_some_and(|lacking| lacking.contains("s.b")));
        let required = layout(vec![StructField::not_null("a", DataType::INTEGER)]);
        assert_eq!(required.lacks(&one), None, "a value is never missing any more");
    }

    #[test]
    fn columns_are_compared_within_columns() {
        let inner = |kind| StructType::try_new([StructField::nullable("x", kind)]).expect("one");
        let outer = |kind| layout(vec![StructField::nullable("s", inner(kind))]);
        assert_eq!(outer(DataType::LONG).misses(&outer(DataType::LONG)), None);
        let problem = outer(DataType::STRING).misses(&outer(DataType::LONG)).expect("other types");
        assert!(problem.contains("s.x"), "{problem}");
    }

    #[test]
    fn other_partitions_are_another_layout() {
        let one = layout(vec![StructField::nullable("id", DataType::INTEGER)]);
        let other = Layout { partition_columns: vec!["id".to_owned()], ..one.clone() };
        assert!(one.misses(&other).is_some() && other.misses(&one).is_some());
    }
}
