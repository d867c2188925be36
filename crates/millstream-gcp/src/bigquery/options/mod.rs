//! What the options of a table that is written say.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::Table;
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_sql::values::interval::parse_duration;

use super::mapping;
use crate::credentials::Place;
use crate::service::{Service, host_and_port};

/// Where the service is.
const GRPC_URL: &str = "https://bigquerystorage.googleapis.com";
const REST_URL: &str = "https://bigquery.googleapis.com";
/// The variables that name an emulator; the first is the one of Google's own clients.
const REST_EMULATOR: &str = "BIGQUERY_EMULATOR_HOST";
const GRPC_EMULATOR: &str = "BIGQUERY_STORAGE_EMULATOR_HOST";
/// Says that the emulator's `FlushRows` takes a count, and not the last offset.
const FLUSH_COUNTS: &str = "BIGQUERY_EMULATOR_FLUSH_COUNTS";

/// Streams unless the option says otherwise: one carries more than most flows have.
const STREAMS: usize = 4;
/// As many as the service lets a project have open, more or less.
const STREAMS_MAX: usize = 1_000;
const INTERVAL: Duration = Duration::from_secs(1);

const fn sink(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

pub(super) const OPTIONS: &[OptionSpec] = &[
    sink("table", "PROJECT.DATASET.TABLE, DATASET.TABLE or TABLE (default: the table's name)"),
    sink("dataset", "the dataset, where 'table' does not say it"),
    sink("project", "the project, where 'table' does not say it (default: the credentials')"),
    sink("parentProject", "the project that is billed (default: the table's)"),
    sink("delivery", "exactly-once (default) or at-least-once"),
    sink("writeAtLeastOnce", "true for 'delivery' = 'at-least-once', as Spark has it"),
    sink("writeMethod", "direct, the only one that there is"),
    sink("triggeringFrequency", "how far commits are apart at least (default 1 second)"),
    sink("numStreams", "write streams, or connections at least once, at most (default 4)"),
    sink("numStorageWriteApiStreams", "the same, as Dataflow's template has it"),
    sink("storageWriteApiTriggeringFrequencySec", "'triggeringFrequency' in seconds, likewise"),
    sink("createDisposition", "CREATE_NEVER (default) or CREATE_IF_NEEDED"),
    sink("partitionField", "the column that a table is partitioned by when it is created"),
    sink("partitionType", "HOUR, DAY (default), MONTH or YEAR of that column"),
    sink("clusteredFields", "columns that it is clustered by, separated by commas"),
    sink("credentialsFile", "the key file of a service account, or of a user"),
    sink(
        "failOnDataLoss",
        "whether to stop where it is unknown if rows are visible (default true)",
    ),
    sink("bigQueryStorageGrpcEndpoint", "the URL of the Storage Write API"),
    sink("bigQueryHttpEndpoint", "the URL of the REST interface"),
];

/// What a table's options say.
#[derive(Clone, Debug)]
pub(super) struct SinkOptions {
    pub(super) name: TableName,
    /// The Storage Write API.
    pub(super) service: Service,
    /// The URL of the REST interface.
    pub(super) rest_url: String,
    pub(super) parent_project: Option<String>,
    pub(super) is_at_least_once: bool,
    pub(super) interval: Duration,
    pub(super) streams_max: usize,
    pub(super) creation: Option<Creation>,
    pub(super) fails_on_loss: bool,
    pub(super) flush_counts: bool,
}

/// The table's name, as far as the options say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) project: Option<String>,
    pub(super) dataset: String,
    pub(super) table: String,
}

/// How a table is made that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Creation {
    /// The column and the unit of its partitions.
    pub(super) partition: Option<(String, String)>,
    pub(super) clustered_by: Vec<String>,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(project) = &self.project {
            write!(f, "{project}.")?;
        }
        write!(f, "{}.{}", self.dataset, self.table)
    }
}

impl TableName {
    fn parse(options: &Options, declared: &str) -> Result<Self, OptionError> {
        let text = options.get("table").unwrap_or(declared);
        let wrong = || OptionError::invalid("table", text, "PROJECT.DATASET.TABLE");
        let (prefix, rest) = match text.rsplit_once(':') {
            Some((prefix, rest)) => (Some(prefix), rest),
            None => (None, text),
        };
        let parts: Vec<&str> = rest.split('.').collect();
        let named = |part: &str| Some(part.to_owned());
        let (project, dataset, table) = match (prefix, &parts[..]) {
            (None, [table]) => (None, None, *table),
            (None, [dataset, table]) => (None, named(dataset), *table),
            (None, [project, dataset, table]) => (named(project), named(dataset), *table),
            // As BigQuery's older SQL writes it.
            (Some(project), [dataset, table]) => (named(project), named(dataset), *table),
            // A project may belong to a domain, whose name is part of its own.
            (Some(domain), [project, dataset, table]) => {
                (Some(format!("{domain}:{project}")), named(dataset), *table)
            }
            _ => return Err(wrong()),
        };
        let table = table.to_owned();
        let project = project.or_else(|| options.get("project").map(str::to_owned));
        let dataset = dataset.or_else(|| options.get("dataset").map(str::to_owned));
        let Some(dataset) = dataset else {
            let help = "write 'table' = 'PROJECT.DATASET.TABLE', or name the dataset";
            return Err(OptionError::missing("dataset", help));
        };
        let project = project.or_else(|| options.get("parentProject").map(str::to_owned));
        let is_name = |part: &str| !part.is_empty() && !part.contains(['/', '`', '?', '#', ' ']);
        let is_all = is_name(&table) && is_name(&dataset) && !dataset.contains([':', '.']);
        match is_all && project.as_deref().is_none_or(is_name) {
            true => Ok(Self { project, dataset, table }),
            false => Err(wrong()),
        }
    }
}

impl SinkOptions {
    /// Checks a table for rows of `schema`; touches nothing.
    pub(super) fn parse(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        check_method(options)?;
        let place = Place::parse(options, base_dir)?;
        let grpc = endpoint(options, "bigQueryStorageGrpcEndpoint", GRPC_EMULATOR)?;
        let rest = endpoint(options, "bigQueryHttpEndpoint", REST_EMULATOR)?;
        let (url, rest_url) = match (grpc, rest) {
            (Some(grpc), Some(rest)) if is_secret(&grpc) != is_secret(&rest) => {
                let problem = "one endpoint is https and the other http, over which a token would \
                               be readable on its way";
                let help = "set both to https, or both to http for an emulator".to_owned();
                return Err(OptionError::of("bigQueryHttpEndpoint", problem, Some(help)));
            }
            (Some(grpc), Some(rest)) => (grpc, rest),
            (None, None) => (GRPC_URL.to_owned(), REST_URL.to_owned()),
            (grpc, _) => {
                let missing = match grpc {
                    Some(_) => "bigQueryHttpEndpoint",
                    None => "bigQueryStorageGrpcEndpoint",
                };
                let help = format!(
                    "the other endpoint is not the default; set both options, or the variables \
                     {REST_EMULATOR} and {GRPC_EMULATOR}"
                );
                return Err(OptionError::missing(missing, help));
            }
        };
        // An emulator asks nobody who asks.
        let credentials = is_secret(&url).then_some(place);
        let flush_counts = credentials.is_none() && std::env::var_os(FLUSH_COUNTS).is_some();
        let is_at_least_once = at_least_once(options)?;
        check_columns(schema)?;
        Ok(Self {
            name: TableName::parse(options, &table.name)?,
            service: Service { url, credentials },
            rest_url,
            parent_project: options.get("parentProject").map(str::to_owned),
            is_at_least_once,
            interval: if is_at_least_once { Duration::ZERO } else { interval(options)? },
            streams_max: streams(options)?,
            creation: creation(options, schema)?,
            fails_on_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
            flush_counts,
        })
    }
}

impl SinkOptions {
    /// What the table needs of the service; an emulator asks for no rights.
    pub(super) fn needs(&self) -> Vec<Need> {
        let mut needs = self.service.needs();
        needs.push(Need::server(host_and_port(&self.rest_url), "what the table looks like"));
        if self.service.credentials.is_none() {
            return needs;
        }
        let rights = ["bigquery.tables.get", "bigquery.tables.updateData"];
        let purpose = "its columns, and the rows; the role BigQuery Data Editor has them";
        needs.push(Need::rights(&rights, format!("table {}", self.name), purpose));
        if self.creation.is_some() {
            let dataset = format!("dataset {}", self.name.dataset);
            let purpose = "'createDisposition'; the same role has it";
            needs.push(Need::rights(&["bigquery.tables.create"], dataset, purpose));
        }
        if let Some(project) = &self.parent_project {
            let purpose = "'parentProject'; the role Service Usage Consumer has it";
            let on = format!("project {project}");
            needs.push(Need::rights(&["serviceusage.services.use"], on, purpose));
        }
        needs
    }
}

/// Whether nobody can read what goes there.
fn is_secret(url: &str) -> bool {
    url.starts_with("https://")
}

fn check_method(options: &Options) -> Result<(), OptionError> {
    match options.get("writeMethod") {
        None => Ok(()),
        Some(direct) if direct.eq_ignore_ascii_case("direct") => Ok(()),
        Some(other) if other.eq_ignore_ascii_case("indirect") => {
            let problem = "'indirect' writes files to Cloud Storage and loads them, which is neither \
                           exactly once nor soon";
            let help = "leave the option out: rows go through the Storage Write API".to_owned();
            Err(OptionError::of("writeMethod", problem, Some(help)))
        }
        Some(other) => Err(OptionError::invalid("writeMethod", other, "direct")),
    }
}

fn endpoint(options: &Options, key: &str, variable: &str) -> Result<Option<String>, OptionError> {
    let emulator = std::env::var(variable).ok().filter(|host| !host.is_empty());
    let (key, text) = match (options.get(key), emulator) {
        (Some(text), _) => (key, text.to_owned()),
        (None, Some(host)) => (variable, host),
        (None, None) => return Ok(None),
    };
    let url = if text.contains("://") { text.clone() } else { format!("http://{text}") };
    let parsed = url::Url::parse(&url).ok().filter(url::Url::has_host);
    match parsed.as_ref().map(url::Url::scheme) {
        Some("http" | "https") => Ok(Some(url.trim_end_matches('/').to_owned())),
        _ => {
            let wanted = "https://HOST, or http://HOST:PORT of an emulator";
            Err(OptionError::invalid(key, &text, wanted))
        }
    }
}

fn at_least_once(options: &Options) -> Result<bool, OptionError> {
    let spark = options.parse_bool("writeAtLeastOnce")?;
    let ours = match options.get("delivery") {
        None => None,
        Some("at-least-once") => Some(true),
        Some("exactly-once") => Some(false),
        Some(other) => {
            let wanted = "exactly-once or at-least-once";
            return Err(OptionError::invalid("delivery", other, wanted));
        }
    };
    match (ours, spark) {
        (Some(ours), Some(spark)) if ours != spark => {
            let problem = "'delivery' and 'writeAtLeastOnce' contradict each other";
            Err(OptionError::of("delivery", problem, Some("leave one out".to_owned())))
        }
        (ours, spark) => Ok(ours.or(spark).unwrap_or(false)),
    }
}

fn interval(options: &Options) -> Result<Duration, OptionError> {
    let wanted = "a duration such as '5 seconds'";
    let ours = match options.get("triggeringFrequency") {
        None => None,
        Some(text) => match parse_duration(text) {
            Ok(interval) => Some(interval),
            Err(_) => return Err(OptionError::invalid("triggeringFrequency", text, wanted)),
        },
    };
    let template: Option<u64> =
        options.parse("storageWriteApiTriggeringFrequencySec", "a whole number of seconds")?;
    Ok(ours.or(template.map(Duration::from_secs)).unwrap_or(INTERVAL))
}

fn streams(options: &Options) -> Result<usize, OptionError> {
    let wanted = "a whole number from 1 to 1000";
    for key in ["numStreams", "numStorageWriteApiStreams"] {
        let Some(streams) = options.parse::<usize>(key, wanted)? else { continue };
        return match (1..=STREAMS_MAX).contains(&streams) {
            true => Ok(streams),
            false => Err(OptionError::invalid(key, &streams.to_string(), wanted)),
        };
    }
    Ok(STREAMS)
}

fn creation(options: &Options, schema: &SchemaRef) -> Result<Option<Creation>, OptionError> {
    let is_wanted = match options.get("createDisposition") {
        None => false,
        Some(text) if text.eq_ignore_ascii_case("CREATE_NEVER") => false,
        Some(text) if text.eq_ignore_ascii_case("CREATE_IF_NEEDED") => true,
        Some(other) => {
            let wanted = "CREATE_NEVER or CREATE_IF_NEEDED";
            return Err(OptionError::invalid("createDisposition", other, wanted));
        }
    };
    let about_creation = ["partitionField", "partitionType", "clusteredFields"];
    if !is_wanted {
        return match about_creation.into_iter().find(|key| options.get(key).is_some()) {
            None => Ok(None),
            Some(key) => {
                let problem = "it says how a table is created";
                let help = "set 'createDisposition' = 'CREATE_IF_NEEDED', or leave it out";
                Err(OptionError::of(key, problem, Some(help.to_owned())))
            }
        };
    }
    for field in schema.fields() {
        mapping::column_for(field).map_err(|mismatch| of_column(&mismatch))?;
    }
    let column = |key: &str, name: &str| {
        let found = schema.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
        found
            .map(|field| field.name().clone())
            .ok_or_else(|| OptionError::of(key, format!("the query has no column '{name}'"), None))
    };
    let partition = match (options.get("partitionField"), options.get("partitionType")) {
        (None, None) => None,
        (None, Some(_)) => {
            let help = "name the column that 'partitionType' is about";
            return Err(OptionError::missing("partitionField", help));
        }
        (Some(name), unit) => {
            let unit = unit.unwrap_or("DAY").to_ascii_uppercase();
            if !["HOUR", "DAY", "MONTH", "YEAR"].contains(&unit.as_str()) {
                let wanted = "HOUR, DAY, MONTH or YEAR";
                return Err(OptionError::invalid("partitionType", &unit, wanted));
            }
            Some((column("partitionField", name)?, unit))
        }
    };
    let names = options.get("clusteredFields").into_iter().flat_map(|text| text.split(','));
    let clustered_by = names.map(|name| column("clusteredFields", name.trim()));
    Ok(Some(Creation { partition, clustered_by: clustered_by.collect::<Result<_, _>>()? }))
}

fn check_columns(schema: &SchemaRef) -> Result<(), OptionError> {
    let typed = schema.fields().iter().filter(|field| !field.data_type().is_null());
    for field in typed {
        mapping::column_for(field).map_err(|mismatch| of_column(&mismatch))?;
    }
    Ok(())
}

fn of_column(mismatch: &mapping::Mismatch) -> OptionError {
    let problem = format!("column {}: {}", mismatch.column, mismatch.problem);
    OptionError::table(problem, Some(mismatch.remedy.clone()))
}

#[cfg(test)]
mod tests;
