//! Why descriptors or texts are no schema.

/// What is wrong with a schema, or with the choice of a message in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Bytes that are no FileDescriptorSet.
    #[error(
        "this is no serialized FileDescriptorSet: {detail} \
         (protoc --include_imports --descriptor_set_out=FILE writes one)"
    )]
    NotADescriptorSet {
        /// What the decoder says.
        detail: String,
    },
    /// Bytes that are no FileDescriptorProto.
    #[error("{which} is no serialized FileDescriptorProto: {detail}")]
    NotAFileDescriptor {
        /// The schema or which of its dependencies.
        which: String,
        /// What the decoder says.
        detail: String,
    },
    /// A text that cannot be parsed.
    #[error("the text of the schema cannot be parsed: {detail}")]
    Text {
        /// File, line, column and error.
        detail: String,
    },
    /// A file that is neither given nor well-known.
    #[error("\"{file}\" imports \"{import}\", which is not among the files of the schema")]
    MissingImport {
        /// The importing file.
        file: String,
        /// The missing file.
        import: String,
    },
    /// Files that import each other.
    #[error("the files {files:?} import each other in a cycle, or import files that do")]
    ImportCycle {
        /// Their names.
        files: Vec<String>,
    },
    /// Editions, or something newer.
    #[error(
        "\"{file}\" has the syntax \"{syntax}\"; known are proto2 and proto3, \
         in which files with editions would have to be rewritten"
    )]
    Syntax {
        /// The file.
        file: String,
        /// What it says.
        syntax: String,
    },
    /// A name that is no identifier.
    #[error("\"{file}\" uses {name:?} as a name, which must consist of letters, digits and _")]
    Name {
        /// The file.
        file: String,
        /// The name.
        name: String,
    },
    /// Two files with one name.
    #[error("two different files of the schema are called \"{file}\"")]
    DuplicateFile {
        /// Their name.
        file: String,
    },
    /// More files than are linked.
    #[error("the schema has {count} files; the limit is {limit}")]
    TooManyFiles {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Types that do not fit together.
    #[error("the schema is not valid: {detail}")]
    Invalid {
        /// What the linker says.
        detail: String,
    },
    /// No message of that name.
    #[error("there is no message \"{message}\"; {}", list(known, *more))]
    UnknownMessage {
        /// The name asked for.
        message: String,
        /// The messages there are, at most twenty.
        known: Vec<String>,
        /// How many there are besides.
        more: usize,
    },
    /// Several messages of that name.
    #[error("\"{message}\" can be any of {candidates:?}: give the full name")]
    AmbiguousMessage {
        /// The name asked for.
        message: String,
        /// The full names.
        candidates: Vec<String>,
    },
    /// No name was given where it cannot be guessed.
    #[error("which message is meant has to be said; {}", list(known, *more))]
    NoMessageNamed {
        /// The messages there are, at most twenty.
        known: Vec<String>,
        /// How many there are besides.
        more: usize,
    },
    /// An index path that leads nowhere.
    #[error("the message index {index:?} leads to no message of \"{file}\"")]
    Index {
        /// The path.
        index: Vec<i32>,
        /// The file it was looked up in.
        file: String,
    },
    /// A message that records cannot name.
    #[error(
        "the message \"{message}\" is in \"{file}\", which the schema imports, and records name \
         messages of the schema itself only: write by a message that is in it"
    )]
    Imported {
        /// The message's full name.
        message: String,
        /// The imported file.
        file: String,
    },
}

fn list(known: &[String], more: usize) -> String {
    match (known, more) {
        ([], _) => "the schema has no messages".to_owned(),
        (_, 0) => format!("there are {known:?}"),
        _ => format!("there are {known:?} and {more} more"),
    }
}
