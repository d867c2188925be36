//! Types as users write them in .proto files.

use prost_reflect::{FieldDescriptor, Kind};

/// A field's type as it would be declared.
pub(super) fn proto_type(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let part = |number| entry.get_field(number).map_or_else(String::new, |f| kind_name(&f));
            format!("map<{}, {}>", part(1), part(2))
        }
        _ if field.is_list() => format!("repeated {}", kind_name(field)),
        _ => kind_name(field),
    }
}

/// The type of one value of a field.
pub(super) fn kind_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) if field.is_group() => format!("group {}", message.full_name()),
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(item) => format!("enum {}", item.full_name()),
        other => format!("{other:?}"),
    }
}
