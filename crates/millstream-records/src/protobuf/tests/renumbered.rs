//! Schemas beside earlier ones.

use super::proto3;

/// Whether the fields of the first message keep the numbers of those of the second.
fn keeps(fields: &str, earlier: &str) -> Result<(), String> {
    let message = |fields: &str| proto3(&format!("message M {{ {fields} }}"));
    message(fields).keeps_numbers(&message(earlier))
}

#[test]
fn fields_that_change_places_are_named() {
    let earlier = "int32 a = 1; int32 b = 2;";
    assert_eq!(keeps(earlier, earlier), Ok(()));
    assert_eq!(keeps("int32 a = 1; int32 b = 2; int32 c = 3;", earlier), Ok(()));
    assert_eq!(keeps("int32 a = 1;", earlier), Ok(()));
    for (fields, wanted) in [
        ("int32 b = 1; int32 a = 2;", "the field b would be number 1, and was 2"),
        ("int32 b = 1;", "the field b would be number 1, and was 2"),
        ("int32 c = 1; int32 d = 3;", "the field c would be number 1, as a was"),
    ] {
        assert_eq!(keeps(fields, earlier), Err(wanted.to_owned()), "{fields}");
    }
}

#[test]
fn messages_in_fields_count_as_well() {
    let outer = |fields: &str| {
        format!(
            "message N {{ {fields} }} int32 id = 1; N n = 2; repeated N many = 3; \
             map<string, N> by_name = 4;"
        )
    };
    let (earlier, swapped) = ("int32 x = 1; int32 y = 2;", "int32 y = 1; int32 x = 2;");
    assert_eq!(keeps(&outer(earlier), &outer(earlier)), Ok(()));
    let problem = keeps(&outer(swapped), &outer(earlier)).unwrap_err();
    assert_eq!(problem, "the field n.y would be number 1, and was 2");
    let map = |fields: &str| format!("message N {{ {fields} }} map<string, N> by_name = 1;");
    let problem = keeps(&map(swapped), &map(earlier)).unwrap_err();
    assert_eq!(problem, "the field by_name.value.y would be number 1, and was 2");
    // Messages within themselves have an end.
    let endless = "M m = 1; int32 a = 2;";
    assert_eq!(keeps(endless, endless), Ok(()));
}
