//! File descriptors, from whatever they were given as, to one pool of linked types.
//!
//! A descriptor is input like any other. What the linker (prost-reflect) does not guard itself
//! against is checked or taken away here first: import cycles, unknown syntax, names that are no
//! identifiers; options, services and extensions, which no record's columns depend on. Public
//! imports become plain ones of every file that can see them.

use std::collections::{HashMap, HashSet};

use prost_reflect::prost_types::uninterpreted_option::NamePart;
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, FieldOptions, FileDescriptorProto,
    FileOptions, MessageOptions, UninterpretedOption,
};
use prost_reflect::{Cardinality, DescriptorPool, Kind, MessageDescriptor};

use super::schema_error::SchemaError;

/// Files in a schema, with those it imports.
const MAX_FILES: usize = 1000;

/// Links files, and the well-known ones that they import.
///
/// # Errors
/// When they are no valid set of files.
pub(super) fn link(files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, SchemaError> {
    let mut files = by_name(files)?;
    add_well_known(&mut files)?;
    let order = dependencies_first(&files)?;
    let visible = visible_files(&order, &files);
    let mut ready = Vec::with_capacity(order.len());
    for name in &order {
        let file = files.remove(name).expect("ordered once");
        let mut dependencies: Vec<String> = visible[name].iter().cloned().collect();
        dependencies.sort();
        ready.push(reduced(file, dependencies)?);
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(ready)
        .map_err(|error| SchemaError::Invalid { detail: format!("{error:?}") })?;
    pool.all_messages().filter(MessageDescriptor::is_map_entry).try_for_each(|entry| {
        if is_entry(&entry) {
            return Ok(());
        }
        let detail = format!("{} is marked as the entry of a map, but is none", entry.full_name());
        Err(SchemaError::Invalid { detail })
    })?;
    Ok(pool)
}

type Files = HashMap<String, FileDescriptorProto>;

fn by_name(list: Vec<FileDescriptorProto>) -> Result<Files, SchemaError> {
    let mut files = Files::new();
    for file in list {
        let name = file.name().to_owned();
        if files.get(&name).is_some_and(|other| *other != file) {
            return Err(SchemaError::DuplicateFile { file: name });
        }
        files.insert(name, file);
    }
    Ok(files)
}

/// True for files that come with every compiler of Protocol Buffers.
pub(super) fn is_well_known(name: &str) -> bool {
    name.starts_with("google/protobuf/")
}

fn add_well_known(files: &mut Files) -> Result<(), SchemaError> {
    let mut open: Vec<String> = files.keys().cloned().collect();
    // So that the same error is found each time.
    open.sort_unstable();
    while let Some(name) = open.pop() {
        for import in files[&name].dependency.clone() {
            if files.contains_key(&import) {
                continue;
            }
            let known = is_well_known(&import)
                .then(|| DescriptorPool::global().get_file_by_name(&import))
                .flatten()
                .ok_or_else(|| SchemaError::MissingImport {
                    file: name.clone(),
                    import: import.clone(),
                })?;
            files.insert(import.clone(), known.file_descriptor_proto().clone());
            open.push(import);
        }
    }
    match files.len() {
        0..=MAX_FILES => Ok(()),
        count => Err(SchemaError::TooManyFiles { count, limit: MAX_FILES }),
    }
}

/// The files' names, each after those that it imports.
fn dependencies_first(files: &Files) -> Result<Vec<String>, SchemaError> {
    let mut importers: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (name, file) in files {
        let imports: HashSet<&String> = file.dependency.iter().collect();
        open.insert(name, imports.len());
        imports.into_iter().for_each(|import| importers.entry(import).or_default().push(name));
    }
    let mut free: Vec<&str> = open.iter().filter(|(_, n)| **n == 0).map(|(f, _)| *f).collect();
    let mut order = Vec::with_capacity(files.len());
    while !free.is_empty() {
        // Linked in the order of their names, so that errors do not depend on the hash map.
        free.sort_unstable();
        let name = free.remove(0);
        order.push(name.to_owned());
        for importer in importers.get(name).into_iter().flatten() {
            let left = open.get_mut(importer).expect("every file is counted");
            *left -= 1;
            if *left == 0 {
                free.push(importer);
            }
        }
    }
    if order.len() < files.len() {
        let mut cycle: Vec<String> = open
            .iter()
            .filter(|(_, left)| **left > 0)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        cycle.sort();
        return Err(SchemaError::ImportCycle { files: cycle });
    }
    Ok(order)
}

/// For each file, the files whose types it can name: those it imports, and those they import
/// publicly, at any distance.
fn visible_files(order: &[String], files: &Files) -> HashMap<String, HashSet<String>> {
    let mut public: HashMap<&str, HashSet<String>> = HashMap::new();
    let mut visible = HashMap::new();
    for name in order {
        let file = &files[name];
        let mut all = HashSet::new();
        let mut passed_on = HashSet::new();
        for (index, import) in file.dependency.iter().enumerate() {
            let mut seen = public[import.as_str()].clone();
            seen.insert(import.clone());
            if file.public_dependency.contains(&(index as i32)) {
                passed_on.extend(seen.iter().cloned());
            }
            all.extend(seen);
        }
        public.insert(name, passed_on);
        visible.insert(name.clone(), all);
    }
    visible
}

fn reduced(
    file: FileDescriptorProto,
    dependency: Vec<String>,
) -> Result<FileDescriptorProto, SchemaError> {
    let name = file.name().to_owned();
    if !matches!(file.syntax(), "" | "proto2" | "proto3") {
        return Err(SchemaError::Syntax { file: name, syntax: file.syntax().to_owned() });
    }
    if !file.package().is_empty() {
        file.package().split('.').try_for_each(|part| check_name(&name, part))?;
    }
    let checked = file.options.as_ref().is_some_and(|options| {
        let text = "java_string_check_utf8";
        options.java_string_check_utf8() || is_set(&options.uninterpreted_option, text)
    });
    Ok(FileDescriptorProto {
        syntax: Some(file.syntax().to_owned()).filter(|syntax| !syntax.is_empty()),
        name: Some(name.clone()),
        package: file.package,
        dependency,
        message_type: messages(&name, file.message_type)?,
        enum_type: enums(&name, file.enum_type)?,
        options: checked
            .then(|| FileOptions { java_string_check_utf8: Some(true), ..FileOptions::default() }),
        ..FileDescriptorProto::default()
    })
}

fn messages(
    file: &str,
    messages: Vec<DescriptorProto>,
) -> Result<Vec<DescriptorProto>, SchemaError> {
    messages.into_iter().map(|message| reduced_message(file, message)).collect()
}

fn reduced_message(file: &str, message: DescriptorProto) -> Result<DescriptorProto, SchemaError> {
    check_name(file, message.name())?;
    let is_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
    let mut fields = message.field;
    for field in &mut fields {
        check_name(file, field.name())?;
        let packed = field.options.as_ref().and_then(|options| {
            options.packed.or_else(|| value_of(&options.uninterpreted_option, "packed"))
        });
        field.options =
            packed.map(|packed| FieldOptions { packed: Some(packed), ..FieldOptions::default() });
        // Two fields may have the same JSON name, which is of no concern here.
        field.json_name = field.name.clone();
    }
    let mut oneofs = message.oneof_decl;
    for oneof in &mut oneofs {
        check_name(file, oneof.name())?;
        oneof.options = None;
    }
    Ok(DescriptorProto {
        name: message.name,
        field: fields,
        nested_type: messages(file, message.nested_type)?,
        enum_type: enums(file, message.enum_type)?,
        oneof_decl: oneofs,
        options: is_entry
            .then(|| MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
        ..DescriptorProto::default()
    })
}

fn enums(
    file: &str,
    enums: Vec<EnumDescriptorProto>,
) -> Result<Vec<EnumDescriptorProto>, SchemaError> {
    enums.into_iter().map(|item| reduced_enum(file, item)).collect()
}

fn reduced_enum(
    file: &str,
    mut item: EnumDescriptorProto,
) -> Result<EnumDescriptorProto, SchemaError> {
    check_name(file, item.name())?;
    let has_aliases = item.options.as_ref().is_some_and(|options| {
        options.allow_alias() || is_set(&options.uninterpreted_option, "allow_alias")
    });
    for value in &mut item.value {
        check_name(file, value.name())?;
        value.options = None;
    }
    Ok(EnumDescriptorProto {
        name: item.name,
        value: item.value,
        options: has_aliases
            .then(|| EnumOptions { allow_alias: Some(true), ..EnumOptions::default() }),
        ..EnumDescriptorProto::default()
    })
}

fn check_name(file: &str, name: &str) -> Result<(), SchemaError> {
    match is_identifier(name) {
        true => Ok(()),
        false => Err(SchemaError::Name { file: file.to_owned(), name: name.to_owned() }),
    }
}

/// True for what the grammar calls an identifier.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

fn is_set(options: &[UninterpretedOption], name: &str) -> bool {
    value_of(options, name) == Some(true)
}

/// The value of a boolean option as the parser of texts leaves it.
fn value_of(options: &[UninterpretedOption], name: &str) -> Option<bool> {
    let is_named = |part: &NamePart| !part.is_extension && part.name_part == name;
    let option =
        options.iter().find(|option| matches!(option.name.as_slice(), [part] if is_named(part)))?;
    Some(option.identifier_value.as_deref() == Some("true"))
}

/// True for a message with the two fields of a map's entry, as the compiler writes them.
fn is_entry(entry: &MessageDescriptor) -> bool {
    let field = |number| entry.get_field(number);
    let (Some(key), Some(value)) = (field(1), field(2)) else { return false };
    let is_key = !matches!(
        key.kind(),
        Kind::Float | Kind::Double | Kind::Bytes | Kind::Message(_) | Kind::Enum(_)
    );
    is_key
        && !value.is_group()
        && [key, value].iter().all(|field| {
            field.cardinality() == Cardinality::Optional && field.containing_oneof().is_none()
        })
        && entry.fields().len() == 2
}
