//! Whether a schema numbers its fields as an earlier one does.
//!
//! A reader knows fields by their numbers. Names may change without a word of a registry, so that
//! two fields that change places are two fields with other names to it, and swapped values to a
//! reader.

use std::collections::HashSet;

use prost_reflect::{Kind, MessageDescriptor};

use super::schema::Schema;

impl Schema {
    /// Whether each field that the message has in common with that of an `earlier` schema, by its
    /// number or its name, has the same number and the same name there; also those of messages in
    /// fields.
    ///
    /// # Errors
    /// The first field that does not, in words.
    pub fn keeps_numbers(&self, earlier: &Self) -> Result<(), String> {
        keeps(self.descriptor(), earlier.descriptor(), &mut Vec::new(), &mut HashSet::new())
    }
}

fn keeps(
    message: &MessageDescriptor,
    earlier: &MessageDescriptor,
    path: &mut Vec<String>,
    seen: &mut HashSet<(String, String)>,
) -> Result<(), String> {
    if !seen.insert((message.full_name().to_owned(), earlier.full_name().to_owned())) {
        return Ok(());
    }
    for field in message.fields() {
        path.push(field.name().to_owned());
        let place = || path.join(".");
        let number = field.number();
        let by_name = earlier.get_field_by_name(field.name());
        if let Some(was) = by_name.as_ref().filter(|was| was.number() != number) {
            let was = was.number();
            return Err(format!("the field {} would be number {number}, and was {was}", place()));
        }
        let by_number = earlier.get_field(number);
        if let Some(was) = by_number.as_ref().filter(|was| was.name() != field.name()) {
            let was = was.name();
            return Err(format!("the field {} would be number {number}, as {was} was", place()));
        }
        let kinds = by_number.map(|was| (field.kind(), was.kind()));
        if let Some((Kind::Message(message), Kind::Message(earlier))) = kinds {
            keeps(&message, &earlier, path, seen)?;
        }
        path.pop();
    }
    Ok(())
}
