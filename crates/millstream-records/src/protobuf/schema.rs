//! Schemas: a message type with all the types it refers to.
//!
//! Spark names a file of descriptors (what `protoc --descriptor_set_out` writes) and a message in
//! it. A schema registry serves the text of one file, or its descriptor, with the files that it
//! imports, and a record names its message by indexes. All of them end here, as one message of
//! linked descriptors.

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};

use super::files::{is_well_known, link};
use super::schema_error::SchemaError;

/// Messages that an error lists.
const LISTED: usize = 20;

/// The name of the main text, which has none of its own. Imports cannot name it by accident.
const MAIN_FILE: &str = "the schema";

/// A message type.
#[derive(Debug, Clone)]
pub struct Schema {
    message: MessageDescriptor,
    /// The file that is the schema itself. Others are imported.
    file: FileDescriptor,
}

impl Schema {
    /// From a serialized FileDescriptorSet, such as protoc writes.
    ///
    /// `message` is a full name, or the end of one after a dot. It can be left out when there is
    /// only one top-level message.
    ///
    /// # Errors
    /// When the set or the name is not valid.
    pub fn from_descriptor_set(bytes: &[u8], message: Option<&str>) -> Result<Self, SchemaError> {
        let set = FileDescriptorSet::decode(bytes)
            .map_err(|error| SchemaError::NotADescriptorSet { detail: error.to_string() })?;
        let pool = link(set.file)?;
        if let Some(name) = message {
            return Ok(Self::alone(find(&pool, None, name)?));
        }
        let files = pool.files().filter(|file| !is_well_known(file.name()));
        let mut messages = files.flat_map(|file| file.messages().collect::<Vec<_>>());
        match (messages.next(), messages.next()) {
            (Some(message), None) => Ok(Self::alone(message)),
            _ => {
                let (known, more) = known_messages(&pool);
                Err(SchemaError::NoMessageNamed { known, more })
            }
        }
    }

    /// From a serialized FileDescriptorProto and those that it imports, in any order.
    ///
    /// `message` is a full name, or the end of one after a dot; without it, the first message.
    ///
    /// # Errors
    /// When the files or the name are not valid.
    pub fn from_file_descriptor(
        bytes: &[u8],
        dependencies: &[&[u8]],
        message: Option<&str>,
    ) -> Result<Self, SchemaError> {
        let decode = |bytes: &[u8], which: String| {
            FileDescriptorProto::decode(bytes).map_err(|error| SchemaError::NotAFileDescriptor {
                which,
                detail: error.to_string(),
            })
        };
        let main = decode(bytes, "the schema".to_owned())?;
        let name = main.name().to_owned();
        let mut files = vec![main];
        for (index, bytes) in dependencies.iter().enumerate() {
            files.push(decode(bytes, format!("dependency {} of the schema", index + 1))?);
        }
        Self::of_file(&link(files)?, &name, message)
    }

    /// From the text of a .proto file and of those that it imports, by the names they are
    /// imported by. Nothing is read from the file system; `google/protobuf/` is known.
    ///
    /// `message` is a full name, or the end of one after a dot; without it, the first message.
    ///
    /// # Errors
    /// When the texts or the name are not valid.
    pub fn from_text(
        text: &str,
        references: &[(&str, &str)],
        message: Option<&str>,
    ) -> Result<Self, SchemaError> {
        let parse = |name: &str, text: &str| {
            protox::file::File::from_source(name, text)
                .map(|file| file.file_descriptor_proto().clone())
                .map_err(|error| SchemaError::Text { detail: format!("{error:?}") })
        };
        let mut files = vec![parse(MAIN_FILE, text)?];
        for (name, text) in references {
            files.push(parse(name, text)?);
        }
        Self::of_file(&link(files)?, MAIN_FILE, message)
    }

    fn of_file(
        pool: &DescriptorPool,
        file: &str,
        message: Option<&str>,
    ) -> Result<Self, SchemaError> {
        let file = pool.get_file_by_name(file).expect("linked under its name");
        if let Some(name) = message {
            return Ok(Self { message: find(pool, Some(&file), name)?, file });
        }
        let first = file.messages().next();
        let message = first.ok_or_else(|| {
            let (known, more) = known_messages(pool);
            SchemaError::NoMessageNamed { known, more }
        })?;
        Ok(Self { message, file })
    }

    /// A message whose file counts as the schema itself.
    fn alone(message: MessageDescriptor) -> Self {
        let file = message.parent_file();
        Self { message, file }
    }

    /// Another message of the same schema, by its name.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn with_message(&self, name: &str) -> Result<Self, SchemaError> {
        let file = self.file.clone();
        Ok(Self { message: find(self.message.parent_pool(), Some(&file), name)?, file })
    }

    /// Another message of the schema's own file, by Confluent's index path: `[0]` is the first
    /// message, `[1, 0]` the first one nested in the second. The messages that the compiler makes
    /// for the entries of maps are not counted, as in Confluent's Java library.
    ///
    /// # Errors
    /// When the path leads nowhere.
    pub fn with_index(&self, index: &[i32]) -> Result<Self, SchemaError> {
        let file = self.file.clone();
        let at = |messages: &mut dyn Iterator<Item = MessageDescriptor>, index: i32| {
            let mut real = messages.filter(|message| !message.is_map_entry());
            real.nth(usize::try_from(index).ok()?)
        };
        let mut found = None;
        for (depth, number) in index.iter().enumerate() {
            found = match found.as_ref() {
                None if depth == 0 => at(&mut file.messages(), *number),
                None => None,
                Some(outer) => at(&mut MessageDescriptor::child_messages(outer), *number),
            };
        }
        let error = || SchemaError::Index { index: index.to_vec(), file: file.name().to_owned() };
        Ok(Self { message: found.ok_or_else(error)?, file: file.clone() })
    }

    /// The message's index path, as [`with_index`](Self::with_index) takes it.
    ///
    /// # Errors
    /// When the message is one of an imported file, where no path leads.
    pub fn message_index(&self) -> Result<Vec<i32>, SchemaError> {
        let file = self.message.parent_file();
        if file != self.file {
            let (message, file) = (self.message_name().to_owned(), file.name().to_owned());
            return Err(SchemaError::Imported { message, file });
        }
        let mut path = Vec::new();
        let mut message = self.message.clone();
        loop {
            let parent = message.parent_message();
            let is_it = |other: MessageDescriptor| other.full_name() == message.full_name();
            let real = |other: &MessageDescriptor| !other.is_map_entry();
            let index = match &parent {
                Some(parent) => parent.child_messages().filter(real).position(is_it),
                None => message.parent_file().messages().position(is_it),
            };
            path.push(index.unwrap_or_default() as i32);
            match parent {
                Some(parent) => message = parent,
                None => break,
            }
        }
        path.reverse();
        Ok(path)
    }

    /// The message's full name.
    pub fn message_name(&self) -> &str {
        self.message.full_name()
    }

    /// The message's descriptor, linked.
    pub fn descriptor(&self) -> &MessageDescriptor {
        &self.message
    }
}

/// The message with a name. Those of `file` come before those of other files.
fn find(
    pool: &DescriptorPool,
    file: Option<&FileDescriptor>,
    name: &str,
) -> Result<MessageDescriptor, SchemaError> {
    let full = name.strip_prefix('.').unwrap_or(name);
    let messages = || pool.all_messages().filter(|message| !message.is_map_entry());
    if let Some(message) = messages().find(|message| message.full_name() == full) {
        return Ok(message);
    }
    let is_meant = |message: &MessageDescriptor| {
        let before = message.full_name().strip_suffix(name);
        before.is_some_and(|before| before.ends_with('.'))
    };
    let all: Vec<_> = messages().filter(is_meant).collect();
    let own = all.iter().filter(|message| file == Some(&message.parent_file()));
    let own: Vec<_> = own.cloned().collect();
    let candidates = if own.is_empty() { all } else { own };
    match candidates.as_slice() {
        [message] => Ok(message.clone()),
        [] => {
            let (known, more) = known_messages(pool);
            Err(SchemaError::UnknownMessage { message: name.to_owned(), known, more })
        }
        several => Err(SchemaError::AmbiguousMessage {
            message: name.to_owned(),
            candidates: several.iter().map(|message| message.full_name().to_owned()).collect(),
        }),
    }
}

fn known_messages(pool: &DescriptorPool) -> (Vec<String>, usize) {
    let is_own = |message: &MessageDescriptor| {
        !message.is_map_entry() && !is_well_known(message.parent_file().name())
    };
    let names = pool.all_messages().filter(is_own).map(|message| message.full_name().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    (names, more)
}
