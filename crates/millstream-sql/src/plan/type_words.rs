//! Arrow's names of types, as they stand in DataFusion's messages, in Spark's words.

use regex::Captures;

use crate::types::{parse_type_ddl, spark_type};

/// What stands in parentheses that has none within, but those of `DECIMAL(10,2)`.
macro_rules! plain {
    () => {
        r"[^()]*?(?:\(\d+, ?\d+\)[^()]*?)*?"
    };
}

pattern!(
    TYPE_NAME,
    concat!(
        r"\b(?:Utf8View|LargeUtf8|Utf8|Int8|Int16|Int32|Int64|UInt8|UInt16|UInt32|UInt64|Float32|",
        r"Float64|Boolean|Date32|BinaryView|Binary|Decimal128\([^)]*\)|Time64\([^()]*\)|",
        r"Timestamp\([^()]*(?:\([^()]*\))?[^()]*\))"
    )
);
pattern!(
    LIST,
    concat!(r"\bList\((?:non-null |nullable )?(", plain!(), r")(?:, field: '[^']*')?\)")
);
pattern!(STRUCT, concat!(r#"\bStruct\((""#, plain!(), r")\)"));
pattern!(FIELD, r#""([^"]*)": (?:non-null )?"#);
pattern!(
    MAP,
    concat!(
        r#"\bMap\("[^"]*": (?:non-null )?STRUCT<key: (.*?), value: ("#,
        plain!(),
        r")>, (?:un)?sorted\)"
    )
);

/// How deep types within others are put into words.
const DEPTH_MAX: usize = 8;

/// A text with the types in it in Spark's words.
pub(super) fn in_spark_words(text: &str) -> String {
    let mut text =
        TYPE_NAME.replace_all(text, |captures: &Captures<'_>| type_name(&captures[0])).into_owned();
    for _ in 0..DEPTH_MAX {
        let next = LIST.replace_all(&text, "ARRAY<$1>");
        let next = STRUCT.replace_all(&next, |captures: &Captures<'_>| {
            format!("STRUCT<{}>", FIELD.replace_all(&captures[1], "$1: "))
        });
        let next = MAP.replace_all(&next, "MAP<$1, $2>").into_owned();
        if next == text {
            break;
        }
        text = next;
    }
    text
}

/// A type in Spark's words, where it can be read.
pub(super) fn type_name(name: &str) -> String {
    let name = name.trim();
    if let Ok(data_type) = name.parse::<arrow::datatypes::DataType>() {
        return spark_type(&data_type);
    }
    if name.ends_with(')') && ["List(", "Struct(", "Map("].iter().any(|of| name.starts_with(of)) {
        return in_spark_words(name);
    }
    match name {
        _ if name.starts_with("Timestamp") && name.contains("None") => "TIMESTAMP_NTZ".into(),
        _ if name.starts_with("Timestamp(") && !name.contains(',') => "TIMESTAMP_NTZ".into(),
        _ if name.starts_with("Timestamp") => "TIMESTAMP".into(),
        _ if parse_type_ddl(name).is_ok() => name.to_uppercase(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_within_others_are_in_sparks_words() {
        for (arrow, spark) in [
            ("List(Int32, field: 'element'), Decimal128(2, 1)", "ARRAY<INT>, DECIMAL(2,1)"),
            ("List(non-null Utf8)", "ARRAY<STRING>"),
            ("List(List(Int64), field: 'x')", "ARRAY<ARRAY<BIGINT>>"),
            ("List(Decimal128(3, 1))", "ARRAY<DECIMAL(3,1)>"),
            (
                "Struct(\"a\": non-null Int32, \"b\": List(Utf8))",
                "STRUCT<a: INT, b: ARRAY<STRING>>",
            ),
            (
                "Int64, Map(\"entries\": non-null Struct(\"key\": non-null Int32, \"value\": \
                 Decimal128(4, 2)), unsorted)",
                "BIGINT, MAP<INT, DECIMAL(4,2)>",
            ),
        ] {
            assert_eq!(in_spark_words(arrow), spark);
        }
    }
}
