use arrow::datatypes::{DataType, Field, Schema};
use serde_json::json;

use super::*;

fn columns(fields: &[(&str, DataType, bool)]) -> Schema {
    let field = |(name, kind, nullable): &(&str, DataType, bool)| {
        Field::new(*name, kind.clone(), *nullable)
    };
    Schema::new(fields.iter().map(field).collect::<Vec<_>>())
}

fn parsed(schema: &Value) -> JsonSchema {
    JsonSchema::parse(&schema.to_string()).unwrap()
}

#[test]
fn columns_have_a_schema_that_they_fit() {
    let tags = DataType::List(Field::new("element", DataType::Utf8, true).into());
    let place = DataType::Struct(vec![Field::new("x", DataType::Float64, false)].into());
    let columns = columns(&[
        ("id", DataType::Int64, false),
        ("price", DataType::Decimal128(9, 2), true),
        ("tags", tags, true),
        ("place", place, true),
    ]);
    let text = JsonSchema::text_of(&columns, "order").unwrap();
    let schema = JsonSchema::parse(&text).unwrap();
    schema.fit(&columns).unwrap();
    assert_eq!(schema.root["required"], json!(["id"]));
    assert_eq!(schema.root["properties"]["tags"]["items"]["type"], json!(["string", "null"]));
    let row = json!({"id": 7, "price": 1.25, "tags": ["a", null], "place": {"x": 1.5}});
    schema.check(&row).unwrap();
    for (row, column) in [
        (json!({"price": 1}), "id"),
        (json!({"id": 1, "place": {"x": "NaN"}}), "place.x"),
        (json!({"id": 1, "place": {}}), "place.x"),
        (json!({"id": 1, "tags": [1]}), "tags"),
        (json!({"id": 1, "other": 1}), "other"),
    ] {
        let problem = schema.check(&row).unwrap_err();
        assert!(problem.contains(column), "{row}: {problem}");
    }
}

#[test]
fn columns_that_cannot_be_what_a_schema_says_are_named() {
    let nullable = json!({"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]});
    let schema = parsed(&json!({
        "type": "object", "required": ["id"],
        "properties": {"id": {"type": "integer"}, "rate": {"type": ["number", "null"]},
            "place": nullable},
        "additionalProperties": false,
        "definitions": {"place": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }));
    let id = ("id", DataType::Int64, false);
    let place = |kind| DataType::Struct(vec![Field::new("x", kind, true)].into());
    let fits = |fields: &[(&str, DataType, bool)]| schema.fit(&columns(fields));
    assert_eq!(fits(&[id.clone(), ("rate", DataType::Int32, true)]), Ok(()));
    assert_eq!(fits(&[id.clone(), ("place", place(DataType::Utf8), true)]), Ok(()));
    for (fields, wanted) in [
        (vec![("rate", DataType::Int32, true)], "requires the property id"),
        (vec![("id", DataType::Float64, true)], "column id: DOUBLE is written as number"),
        (vec![id.clone(), ("other", DataType::Int32, true)], "column other"),
        (vec![id.clone(), ("place", place(DataType::Int32), true)], "column place.x: INT"),
        (vec![id.clone(), ("rate", DataType::Null, true)], "column rate"),
    ] {
        let problem = fits(&fields).unwrap_err();
        assert!(problem.contains(wanted), "{problem}");
    }
}

#[test]
fn values_are_checked_by_what_restricts_them() {
    for (schema, good, bad) in [
        (json!({"enum": ["A", "B"]}), json!("A"), json!("C")),
        (json!({"const": 1}), json!(1), json!(2)),
        (json!({"const": {"a": [1]}}), json!({"a": [1.0]}), json!({"a": [1, 1]})),
        (json!({"enum": [2.0]}), json!(2), json!("2")),
        (json!({"enum": [1_i64 << 53]}), json!(1_i64 << 53), json!((1_i64 << 53) + 1)),
        (json!({"maximum": 1_i64 << 53}), json!(1_i64 << 53), json!((1_i64 << 53) + 1)),
        (json!({"exclusiveMinimum": u64::MAX - 1}), json!(u64::MAX), json!(u64::MAX - 1)),
        (json!({"uniqueItems": true}), json!([1, 1.5]), json!([1, 1.0])),
        (json!({"minimum": 1, "exclusiveMaximum": 3}), json!(2.5), json!(3)),
        (json!({"minLength": 2, "maxLength": 3}), json!("äöü"), json!("a")),
        (json!({"uniqueItems": true, "minItems": 1}), json!([1, 2]), json!([1, 1])),
        (json!({"anyOf": [{"type": "null"}, {"type": "string"}]}), json!("x"), json!(1)),
        (json!({"oneOf": [{"minimum": 5}, {"minimum": 9}]}), json!(6), json!(10)),
        (json!({"allOf": [{"type": "integer"}, {"minimum": 2}]}), json!(2), json!(1)),
        (json!({"type": "integer"}), json!(1.0), json!(1.5)),
        (json!({"maxProperties": 1}), json!({"a": 1}), json!({"a": 1, "b": 2})),
        (json!(true), json!(1), Value::Null),
    ] {
        let whole = parsed(&json!({"properties": {"p": schema}}));
        assert_eq!(whole.check(&json!({ "p": good })), Ok(()), "{schema}");
        if bad.is_null() {
            continue;
        }
        let problem = whole.check(&json!({ "p": bad })).unwrap_err();
        assert!(problem.starts_with("column p: "), "{schema}: {problem}");
    }
}

#[test]
fn what_nobody_would_check_is_refused() {
    for (schema, wanted) in [
        (json!({"properties": {"a": {"pattern": "^x"}}}), "#/properties/a/pattern"),
        (json!({"$ref": "other.json"}), "#/$ref"),
        (json!({"$ref": "#/definitions/none"}), "#/$ref"),
        (json!({"exclusiveMinimum": true}), "exclusiveMinimum"),
        (json!({"type": "text"}), "#/type"),
        (json!({"items": [{"type": "string"}]}), "#/items"),
        (json!({"$ref": "#/x/a", "x": {"a": {"pattern": "^x"}}}), "#/x/a/pattern"),
        (json!({"$ref": "#/x/a", "x": {"a": {"$ref": "#/x/b"}, "b": {"not": {}}}}), "#/x/b/not"),
        (json!([]), "#"),
    ] {
        let problem = JsonSchema::parse(&schema.to_string()).unwrap_err();
        assert!(problem.contains(wanted), "{schema}: {problem}");
    }
    let endless = parsed(&json!({"$ref": "#"}));
    assert!(endless.check(&json!({})).is_err());
}

#[test]
fn alternatives_that_double_at_each_level_have_an_end() {
    let endless = parsed(&json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}));
    let problem = endless.fit(&columns(&[("id", DataType::Int64, false)])).unwrap_err();
    assert!(problem.contains("do not end"), "{problem}");
    let problem = endless.check(&json!({})).unwrap_err();
    assert!(problem.contains("takes too long to check"), "{problem}");
    // One that is there twice is the same one.
    let twice = parsed(&json!({
        "properties": {"a": {"anyOf": [{"$ref": "#/x/a"}, {"$ref": "#/x/a"}, {"type": "null"}]}},
        "x": {"a": {"type": "string"}},
    }));
    assert_eq!(twice.fit(&columns(&[("a", DataType::Utf8, true)])), Ok(()));
    assert!(twice.fit(&columns(&[("a", DataType::Int32, true)])).is_err());
    assert_eq!(twice.check(&json!({"a": "x"})), Ok(()));
}

#[test]
fn elements_are_unique_in_time_that_grows_with_their_number() {
    let schema = parsed(&json!({"properties": {"a": {"uniqueItems": true}}}));
    let mut items: Vec<Value> = (0..200_000).map(|item| json!(item)).collect();
    assert_eq!(schema.check(&json!({ "a": items })), Ok(()));
    items.push(json!(0.0));
    assert!(schema.check(&json!({ "a": items })).unwrap_err().contains("twice"));
}

#[test]
fn a_property_that_differs_in_case_is_named() {
    let schema = parsed(&json!({"properties": {"userId": {"type": "integer"}}}));
    let id = |name| (name, DataType::Int64, false);
    let problem = schema.fit(&columns(&[id("userid")])).unwrap_err();
    let wanted = "column userid: the schema's property is userId; name the column so (AS `userId`)";
    assert_eq!(problem, wanted);
    assert_eq!(schema.fit(&columns(&[id("userId"), id("userid"), id("other")])), Ok(()));
}

#[test]
fn limits_of_decimals_that_numbers_do_not_hold_are_refused() {
    let decimal = |precision, scale| ("p", DataType::Decimal128(precision, scale), true);
    let fits = |schema: &Value, column| {
        parsed(&json!({"properties": {"p": schema}})).fit(&columns(&[column]))
    };
    let many = DataType::List(Field::new("element", DataType::Decimal128(20, 0), true).into());
    for (schema, column, keyword) in [
        (json!({"minimum": 1}), decimal(16, 2), "minimum"),
        (json!({"exclusiveMaximum": 1e3}), decimal(19, 0), "exclusiveMaximum"),
        (json!({"anyOf": [{"type": "null"}, {"enum": [1, 2]}]}), decimal(38, 10), "enum"),
        (json!({"allOf": [{"type": "integer"}]}), decimal(20, 2), "type"),
        (json!({"uniqueItems": true}), ("p", many, true), "uniqueItems"),
    ] {
        let problem = fits(&schema, column).unwrap_err();
        assert!(problem.starts_with(&format!("column p: '{keyword}'")), "{schema}: {problem}");
    }
    for (schema, column) in [
        (json!({"minimum": 1}), decimal(15, 2)),
        (json!({"maximum": 7, "const": 5}), decimal(18, 0)),
        (json!({"minimum": 0}), decimal(38, 2)),
        (json!({"type": "number"}), decimal(38, 2)),
        (json!({"enum": ["A", null]}), ("p", DataType::Utf8, true)),
    ] {
        assert_eq!(fits(&schema, column), Ok(()), "{schema}");
    }
}
