//! What a table says of schemas.
//!
//! The registry's options have the names that Confluent's clients give them. Those of a record's
//! part begin with the part: `value.schema`, `key.schema`.

use arrow::datatypes::Schema;
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_records::protobuf;
use millstream_registry::{Auth, Pem, RegistryError, Settings, Tls, without_user};
use millstream_store::secrets;

use super::SchemaKind;
use super::parsed::Parsed;
use super::writers::{Registries, Writers};

pub(super) const URL: &str = "schema.registry.url";
const USER_INFO: &str = "schema.registry.basic.auth.user.info";
const TOKEN: &str = "schema.registry.bearer.auth.token";
const CA: &str = "schema.registry.ssl.ca.location";
const CERTIFICATE: &str = "schema.registry.ssl.certificate.location";
const KEY: &str = "schema.registry.ssl.key.location";

const fn option(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about: help }
}

const fn shared(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about: help }
}

/// The options of tables whose values have schemas.
pub const OPTIONS: &[OptionSpec] = &[
    shared(URL, "avro, protobuf, json-schema: the schema registry, several separated by commas"),
    shared(USER_INFO, "the user of the schema registry, as user:password"),
    shared(TOKEN, "a token for the schema registry, instead of a user"),
    shared(
        CA,
        "a file of certificates that the schema registry's is signed by (default: the system's)",
    ),
    shared(CERTIFICATE, "the client's certificate for the schema registry, a PEM file"),
    shared(KEY, "the key of that certificate, a PEM file"),
    shared(
        "value.schema",
        "the schema as text: of all records, or with a registry what they are read as, or what is \
         registered when they are written",
    ),
    shared(
        "value.schema.file",
        "a file with the schema: .avsc, .proto, or a descriptor set of protoc",
    ),
    shared("value.message", "protobuf: the message, if it is not the schema's first"),
    shared(
        "value.subject",
        "where the columns come from if none are declared, or the schema of what is written is \
         registered (default: TOPIC-value)",
    ),
    shared("value.subject.version", "the version of the subject: a number, or latest (default)"),
    option("enums.as.ints", "protobuf: enums are INT, not STRING (default false)"),
    option(
        "upcast.unsigned.ints",
        "protobuf: uint32 is BIGINT, uint64 DECIMAL(20,0) (default false)",
    ),
    option(
        "unwrap.primitive.wrapper.types",
        "protobuf: wrappers are the type within (default false)",
    ),
    option("retain.empty.message.types", "protobuf: messages without fields stay (default false)"),
    option(
        "emit.default.values",
        "protobuf: fields that are zero, and so not written, are zero and not null (default true)",
    ),
    option(
        "recursive.fields.max.depth",
        "protobuf: how deep recursive messages become columns (default: refused)",
    ),
];

/// A part of each record, and the options that are about it.
pub struct Part<'a> {
    /// The table's options.
    pub options: &'a Options,
    /// `value` or `key`.
    pub name: &'static str,
    /// The subject that its schemas are under, if that is known.
    pub subject: Option<String>,
}

/// What a table with schemas needs outside: its registry, and files.
pub fn needs(options: &Options) -> Vec<Need> {
    let given = |key: &&str| options.get(key).map(str::trim).filter(|text| !text.is_empty());
    let urls = given(&URL).into_iter().flat_map(|urls| urls.split(','));
    let servers = urls.map(|url| Need::server(without_user(url.trim()), "the schema registry"));
    let keys = [CA, CERTIFICATE, KEY, "value.schema.file", "key.schema.file"];
    let files = keys.iter().filter_map(given);
    servers
        .chain(files.map(|path| Need::reads(path, "schemas, and who may ask for them")))
        .collect()
}

/// What the options say.
pub(super) struct Given {
    pub writers: Writers,
    /// The schema of `value.schema` or of a subject.
    pub reader: Option<Parsed>,
    pub protobuf: protobuf::Options,
}

impl Part<'_> {
    /// The name of an option that is about this part.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// The value of such an option.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let text = self.options.get(&self.key(name)).map(str::trim);
        text.filter(|text| !text.is_empty())
    }

    /// The version of the subject; none is the latest.
    pub(super) fn version(&self) -> Result<Option<u32>, OptionError> {
        match self.get("subject.version") {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("latest") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                OptionError::invalid(&self.key("subject.version"), text, "a number or latest")
            }),
        }
    }

    /// The columns of a schema.
    pub(super) fn columns_of(
        &self,
        schema: &Parsed,
        options: &protobuf::Options,
    ) -> Result<Schema, OptionError> {
        let columns = schema.columns(options).map_err(|problem| {
            let help = "declare the columns that are wanted: CREATE TABLE name (a INT, ...)";
            OptionError::table(problem, Some(help.to_owned()))
        })?;
        if columns.fields().is_empty() {
            return Err(OptionError::table(
                "the schema has no fields, so there are no columns",
                None,
            ));
        }
        Ok(columns)
    }
}

/// Reads the options of a part.
pub(super) fn parse(
    kind: SchemaKind,
    part: &Part<'_>,
    has_columns: bool,
    registries: &Registries,
) -> Result<Given, OptionError> {
    let protobuf = protobuf_options(part.options)?;
    let own = own_schema(kind, part, registries)?;
    let Some(settings) = settings(part.options, registries)? else {
        return without_registry(kind, part, own, protobuf);
    };
    let registry = registries.registry(&settings).map_err(|error| of_registry(&error))?;
    if has_columns && own.is_some() {
        let problem = "columns are declared, and a schema to read records as is given as well";
        let help = "leave one of the two out; with a registry, records bring their own schema";
        return Err(OptionError::of(&part.key("schema"), problem, Some(help.to_owned())));
    }
    let reader = match own {
        Some(schema) => Some(schema),
        None if has_columns => None,
        None => Some(of_subject(kind, part, &registry, registries)?),
    };
    Ok(Given { writers: Writers::Registry(registry), reader, protobuf })
}

fn without_registry(
    kind: SchemaKind,
    part: &Part<'_>,
    own: Option<Parsed>,
    protobuf: protobuf::Options,
) -> Result<Given, OptionError> {
    match own {
        Some(schema) => {
            Ok(Given { writers: Writers::Fixed(schema.clone()), reader: Some(schema), protobuf })
        }
        None if kind == SchemaKind::Json => {
            let help =
                "say where the schema registry is; for JSON alone use 'value.format' = 'json'";
            Err(OptionError::missing(URL, help))
        }
        None => {
            let help = format!(
                "say by which schema records are read: '{URL}' = 'http://...', '{}' = '...' or \
                 '{}' = 'path'",
                part.key("schema"),
                part.key("schema.file")
            );
            Err(OptionError::missing(URL, help))
        }
    }
}

/// The schema that the options have themselves.
fn own_schema(
    kind: SchemaKind,
    part: &Part<'_>,
    registries: &Registries,
) -> Result<Option<Parsed>, OptionError> {
    let Some((key, bytes)) = own_bytes(part, registries)? else { return Ok(None) };
    let parsed = Parsed::from_bytes(kind, &bytes, part.get("message"));
    parsed.map(Some).map_err(|problem| OptionError::of(&key, problem, None))
}

/// The schema that the options have themselves, with the option that it is of.
pub(super) fn own_bytes(
    part: &Part<'_>,
    registries: &Registries,
) -> Result<Option<(String, Vec<u8>)>, OptionError> {
    Ok(Some(match (part.get("schema"), part.get("schema.file")) {
        (None, None) => return Ok(None),
        (Some(text), None) => (part.key("schema"), text.as_bytes().to_vec()),
        (None, Some(path)) => {
            let (key, path) = (part.key("schema.file"), registries.path(path));
            let bytes = std::fs::read(&path).map_err(|error| {
                let problem = format!("{} cannot be read: {error}", path.display());
                OptionError::of(&key, problem, None)
            })?;
            (key, bytes)
        }
        (Some(_), Some(_)) => {
            let problem = "a schema is given as a text and as a file";
            return Err(OptionError::of(&part.key("schema"), problem, None));
        }
    }))
}

fn of_subject(
    kind: SchemaKind,
    part: &Part<'_>,
    registry: &millstream_registry::Registry,
    registries: &Registries,
) -> Result<Parsed, OptionError> {
    let subject = part.get("subject").map(str::to_owned).or_else(|| part.subject.clone());
    let Some(subject) = subject else {
        let help = "say under which subject the schema of the columns is, or declare the columns";
        return Err(OptionError::missing(&part.key("subject"), help));
    };
    if kind == SchemaKind::Json {
        let problem = "a table of 'json-schema' has no columns";
        let help = "declare the columns of the value: CREATE TABLE name (a INT, ...)";
        return Err(OptionError::table(problem, Some(help.to_owned())));
    }
    let version = part.version()?;
    let registered = registries.of_subject(registry, &subject, version);
    let registered = registered.map_err(|error| of_registry(&error))?;
    Parsed::of(kind, &registered, part.get("message")).map_err(|problem| {
        let problem = format!("the schema of the subject '{subject}': {problem}");
        OptionError::of(&part.key("subject"), problem, None)
    })
}

pub(super) fn of_registry(error: &RegistryError) -> OptionError {
    OptionError::of(URL, error.to_string(), None)
}

/// The registry that the options say, if there is one.
pub(super) fn settings(
    options: &Options,
    registries: &Registries,
) -> Result<Option<Settings>, OptionError> {
    let get = |key: &str| options.get(key).map(str::trim).filter(|text| !text.is_empty());
    let Some(urls) = get(URL) else { return Ok(None) };
    let urls = urls.split(',').map(|url| url.trim().to_owned());
    let urls = urls.filter(|url| !url.is_empty()).collect();
    let auth = match (get(USER_INFO), get(TOKEN)) {
        (None, None) => Auth::None,
        (Some(user), None) => {
            let Some((user, password)) = user.split_once(':') else {
                return Err(OptionError::of(
                    USER_INFO,
                    "it is not of the form user:password",
                    None,
                ));
            };
            secrets::remember(password);
            Auth::Basic { user: user.to_owned(), password: password.to_owned() }
        }
        (None, Some(token)) => {
            secrets::remember(token);
            Auth::Bearer { token: token.to_owned() }
        }
        (Some(_), Some(_)) => {
            return Err(OptionError::of(TOKEN, "a user and a token are given", None));
        }
    };
    let file = |key: &str| get(key).map(|path| Pem::File(registries.path(path)));
    let own = match (file(CERTIFICATE), file(KEY)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(OptionError::missing(KEY, "the certificate needs its key")),
        (None, Some(_)) => {
            return Err(OptionError::missing(CERTIFICATE, "the key needs its certificate"));
        }
    };
    let tls = Tls { authorities: file(CA), own, checks_certificates: true };
    Ok(Some(Settings { urls, auth, tls }))
}

fn protobuf_options(options: &Options) -> Result<protobuf::Options, OptionError> {
    // By Protobuf's own rule a field without presence that is absent is zero: it is not written.
    let mut parsed = protobuf::Options { emit_default_values: true, ..Default::default() };
    for (key, value) in options.iter() {
        parsed.set(key, value).map_err(|error| OptionError::of(key, error.to_string(), None))?;
    }
    Ok(parsed)
}
