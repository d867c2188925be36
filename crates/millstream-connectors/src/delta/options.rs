//! What may stand in the OPTIONS of a Delta table.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_lake::bucket::{BUCKETS_MAX, ClusterBy, can_hash, can_name};
use millstream_lake::checkpoint::{LayoutChoice, Settings as CheckpointSettings};
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::file_writer::{FileCompression, FileSettings};
use millstream_lake::store::CREDENTIALS;
use millstream_store::secrets::credentials_in_url;

use super::merge_options::MergeOptions;
use crate::duration;

/// A table gets a commit a second: fresh enough for people and dashboards, and 86,400 files a day
/// per partition at most.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
const PATH_HELP: &str = "LOCATION '/lake/table', or OPTIONS ('path' = 's3://bucket/table')";
const TARGET_FILE_BYTES: u64 = 128 << 20;
/// Of a table that is clustered by a column: each is a file of every writer in every commit.
const BUCKETS: u32 = 8;

/// How a table is written.
#[derive(Clone, Debug)]
pub(super) struct WriteOptions {
    /// As written.
    pub(super) path: String,
    pub(super) partition_by: Vec<String>,
    /// Micro-batches are gathered for so long; zero for a commit each.
    pub(super) commit_interval: Duration,
    pub(super) files: FileSettings,
    /// Whether columns that the table has not are added to it.
    pub(super) merge_schema: bool,
    pub(super) checkpoints: CheckpointSettings,
    pub(super) compaction: Compaction,
    /// Rows take the place of those with the same key; `None`: they are appended.
    pub(super) merge: Option<MergeOptions>,
    /// For a table that is made.
    pub(super) properties: Vec<(String, String)>,
}

impl WriteOptions {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let path = path(options)?;
        let partition_by = options.get("partitionBy").unwrap_or_default().split(',');
        let partition_by = partition_by.map(str::trim).filter(|name| !name.is_empty());
        let properties = options.iter().filter(|(key, _)| is_property(key));
        if let Some((key, _)) = properties.clone().find(|(key, _)| options.is_secret(key)) {
            let problem = format!("'{key}' would be in the table's log, for all who read it");
            let help = Some("leave secrets out of a table's properties".to_owned());
            return Err(OptionError::of(key, problem, help));
        }
        Ok(Self {
            path: path.to_owned(),
            partition_by: partition_by.map(str::to_owned).collect(),
            commit_interval: duration::option(options, "commitInterval")?
                .unwrap_or(COMMIT_INTERVAL),
            files: FileSettings {
                target_bytes: options.parse_bytes("targetFileSize")?.unwrap_or(TARGET_FILE_BYTES),
                compression: compression(options)?,
                cluster_by: cluster_by(options)?,
            },
            checkpoints: checkpoints(options)?,
            compaction: compaction(options)?,
            merge: MergeOptions::parse(options)?,
            merge_schema: options.parse_bool("mergeSchema")?.unwrap_or(false),
            properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }

    /// Checks rows of `schema` as far as that goes without looking at the table.
    pub(super) fn check(&self, schema: &SchemaRef) -> Result<(), OptionError> {
        if let Some(merge) = &self.merge {
            merge.check(schema)?;
        }
        self.check_written(&self.written(schema))
    }

    /// The columns that are written of the query's.
    pub(super) fn written(&self, schema: &SchemaRef) -> SchemaRef {
        let delete = self.merge.as_ref().and_then(|merge| merge.delete_column.as_deref());
        let is_written =
            |name: &str| delete.is_none_or(|delete| !delete.eq_ignore_ascii_case(name));
        let written: Vec<usize> = (0..schema.fields().len())
            .filter(|index| is_written(schema.field(*index).name()))
            .collect();
        Arc::new(schema.project(&written).expect("they are columns of it"))
    }

    fn check_written(&self, schema: &SchemaRef) -> Result<(), OptionError> {
        for name in &self.partition_by {
            let found =
                schema.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
            let Some(field) = found else {
                let problem = format!("the query has no column {name} to partition by");
                return Err(OptionError::of("partitionBy", problem, None));
            };
            if field.data_type().is_nested() {
                let problem =
                    format!("{name} is {}, which cannot be a partition column", field.data_type());
                return Err(OptionError::of("partitionBy", problem, None));
            }
        }
        self.check_cluster_by(schema)?;
        if self.partition_by.len() == schema.fields().len() {
            let problem = "a table needs a column that it is not partitioned by";
            return Err(OptionError::of("partitionBy", problem, None));
        }
        match schema.fields().iter().find(|field| !has_delta_type(field.data_type())) {
            None => Ok(()),
            Some(field) => Err(OptionError::table(
                format!(
                    "column {} is {}, which Delta does not have",
                    field.name(),
                    field.data_type()
                ),
                Some(format!("write CAST({} AS ...) in the SELECT", field.name())),
            )),
        }
    }
}

impl WriteOptions {
    fn check_cluster_by(&self, schema: &SchemaRef) -> Result<(), OptionError> {
        let Some(ClusterBy { column, .. }) = &self.files.cluster_by else { return Ok(()) };
        let refused = |problem| Err(OptionError::of("clusterBy", problem, None));
        let is_it = |name: &str| name.eq_ignore_ascii_case(column);
        let Some(field) = schema.fields().iter().find(|field| is_it(field.name())) else {
            return refused(format!("the query has no column {column} to cluster by"));
        };
        if !can_hash(field.data_type()) {
            return refused(format!(
                "{column} is {}; rows can be clustered by whole numbers, texts, dates, times, \
                 BOOLEAN and BINARY",
                field.data_type()
            ));
        }
        if !can_name(field.name()) {
            return refused(format!(
                "{column} is to be in names of files, and has characters other than letters, \
                 digits and _"
            ));
        }
        if self.partition_by.iter().any(|name| is_it(name)) {
            return refused(format!("the table is partitioned by {column} already"));
        }
        Ok(())
    }
}

/// What rows are clustered by.
fn cluster_by(options: &Options) -> Result<Option<ClusterBy>, OptionError> {
    let wanted = "a number from 1 to 1024";
    let buckets = match options.parse("buckets", wanted)? {
        Some(buckets) if (1..=BUCKETS_MAX).contains(&buckets) => Some(buckets),
        Some(other) => return Err(OptionError::invalid("buckets", &other.to_string(), wanted)),
        None => None,
    };
    match (options.get("clusterBy"), buckets) {
        (Some(column), buckets) => {
            let column = column.trim().to_owned();
            Ok(Some(ClusterBy { column, buckets: buckets.unwrap_or(BUCKETS) }))
        }
        (None, Some(_)) => {
            let help = Some("add 'clusterBy' = 'COLUMN', or leave 'buckets' out".to_owned());
            Err(OptionError::of("buckets", "'buckets' is given without 'clusterBy'", help))
        }
        (None, None) => Ok(None),
    }
}

/// Whether small files are compacted beside the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compaction {
    /// `None`: as the table's property says.
    pub(super) is_on: Option<bool>,
    pub(super) files_min: usize,
    pub(super) target_bytes: u64,
}

const FILES_MIN: [&str; 2] =
    ["autoCompact.minNumFiles", "spark.databricks.delta.autoCompact.minNumFiles"];
const FILE_BYTES_MAX: [&str; 2] =
    ["autoCompact.maxFileSize", "spark.databricks.delta.autoCompact.maxFileSize"];

fn compaction(options: &Options) -> Result<Compaction, OptionError> {
    let default = AutoCompact::default();
    let AutoCompact { mut files_min, mut target_bytes, .. } = default;
    for key in FILES_MIN {
        let wanted = "a number of files from 2";
        match options.parse(key, wanted)? {
            Some(files) if files >= 2 => files_min = files,
            Some(files) => return Err(OptionError::invalid(key, &files.to_string(), wanted)),
            None => {}
        }
    }
    for key in FILE_BYTES_MAX {
        match options.parse_bytes(key)? {
            Some(0) => return Err(OptionError::invalid(key, "0", "a size such as 128mb")),
            Some(bytes) => target_bytes = bytes,
            None => {}
        }
    }
    let is_on = options.parse_bool("autoCompact")?;
    let given = FILES_MIN.iter().chain(&FILE_BYTES_MAX).find(|key| options.get(key).is_some());
    match given {
        Some(key) if is_on == Some(false) => {
            let problem = format!("'{key}' is given, and 'autoCompact' is false");
            Err(OptionError::of(key, problem, Some(format!("leave '{key}' out"))))
        }
        _ => Ok(Compaction { is_on, files_min, target_bytes }),
    }
}

/// Where the table is.
pub(super) fn path(options: &Options) -> Result<&str, OptionError> {
    let path = options.get("path").ok_or_else(|| OptionError::missing("path", PATH_HELP))?;
    if credentials_in_url(path).is_some() {
        return Err(OptionError::of("path", format!("'path': {CREDENTIALS}"), None));
    }
    Ok(path)
}

/// Which rows of a table are read.
#[derive(Clone, Debug)]
pub(super) struct ReadOptions {
    /// As written.
    pub(super) path: String,
    pub(super) version: AsOf,
}

/// A version of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsOf {
    /// The newest at any time.
    Newest,
    /// The one with this number.
    Version(u64),
    /// The newest at this moment, milliseconds since the epoch.
    Moment(i64),
}

impl ReadOptions {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let path = path(options)?;
        let version = options.parse("versionAsOf", "a version's number")?;
        let version = match (version, options.get("timestampAsOf")) {
            (Some(_), Some(_)) => {
                let problem = "both 'versionAsOf' and 'timestampAsOf' are given";
                let help = Some("keep one of them".to_owned());
                return Err(OptionError::of("timestampAsOf", problem, help));
            }
            (Some(version), None) => AsOf::Version(version),
            (None, Some(text)) => AsOf::Moment(moment("timestampAsOf", text)?),
            (None, None) => AsOf::Newest,
        };
        Ok(Self { path: path.to_owned(), version })
    }
}

/// A moment as Spark takes it, in UTC where no zone is given.
pub(super) fn moment(key: &str, text: &str) -> Result<i64, OptionError> {
    let text = text.trim();
    if let Ok(moment) = chrono::DateTime::parse_from_rfc3339(text) {
        return Ok(moment.timestamp_millis());
    }
    for format in ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"] {
        if let Ok(moment) = chrono::NaiveDateTime::parse_from_str(text, format) {
            return Ok(moment.and_utc().timestamp_millis());
        }
    }
    let day = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    let midnight = day.and_then(|day| day.and_hms_opt(0, 0, 0));
    let wanted = "a moment such as '2026-01-31' or '2026-01-31T12:00:00Z'";
    let invalid = || OptionError::invalid(key, text, wanted);
    midnight.map(|moment| moment.and_utc().timestamp_millis()).ok_or_else(invalid)
}

fn checkpoints(options: &Options) -> Result<CheckpointSettings, OptionError> {
    let mut settings = CheckpointSettings::default();
    for key in ["partSize", "spark.delta.checkpoint.partSize"] {
        let wanted = "a number of actions from 1";
        match options.parse(key, wanted)? {
            Some(0) => return Err(OptionError::invalid(key, "0", wanted)),
            Some(rows) => settings.part_rows = rows,
            None => {}
        }
    }
    let Some(text) = options.get("checkpointLayout") else { return Ok(settings) };
    settings.layout = match text.trim().to_ascii_lowercase().as_str() {
        "auto" => LayoutChoice::Auto,
        "classic" => LayoutChoice::Classic,
        "multi-part" => LayoutChoice::MultiPart,
        "v2" => LayoutChoice::V2,
        _ => {
            let wanted = "auto, classic, multi-part or v2";
            return Err(OptionError::invalid("checkpointLayout", text, wanted));
        }
    };
    Ok(settings)
}

fn is_property(key: &str) -> bool {
    key.get(..6).is_some_and(|prefix| prefix.eq_ignore_ascii_case("delta."))
}

fn has_delta_type(kind: &DataType) -> bool {
    match kind {
        DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
            has_delta_type(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| has_delta_type(field.data_type())),
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(_, _)
        | DataType::Date32
        | DataType::Timestamp(_, _)
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => true,
        _ => false,
    }
}

fn compression(options: &Options) -> Result<FileCompression, OptionError> {
    let Some(text) = options.get("compression") else { return Ok(FileCompression::default()) };
    match text.trim().to_ascii_lowercase().as_str() {
        "snappy" => Ok(FileCompression::Snappy),
        "zstd" => Ok(FileCompression::Zstd),
        "none" | "uncompressed" => Ok(FileCompression::None),
        _ => Err(OptionError::invalid("compression", text, "snappy, zstd or none")),
    }
}

/// The options of a table that is written, or read at rest.
pub(super) const AT_REST: &[OptionSpec] = &[
    OptionSpec {
        name: "path",
        side: Side::Both,
        about: "the table's directory or URL; LOCATION says the same",
    },
    OptionSpec {
        name: "partitionBy",
        side: Side::Sink,
        about: "partition columns of a new table; PARTITIONED BY is the same",
    },
    OptionSpec {
        name: "clusterBy",
        side: Side::Sink,
        about: "a column: the rows of each of its values are in files of one bucket",
    },
    OptionSpec {
        name: "buckets",
        side: Side::Sink,
        about: "how many buckets 'clusterBy' makes, each at least a file in every commit (default 8)",
    },
    OptionSpec {
        name: "commitInterval",
        side: Side::Sink,
        about: "how long micro-batches are collected for one commit (default 1s; 0: a commit for each)",
    },
    OptionSpec {
        name: "targetFileSize",
        side: Side::Sink,
        about: "a data file that has reached this size is closed (default 128mb)",
    },
    OptionSpec { name: "compression", side: Side::Sink, about: "snappy (default), zstd or none" },
    OptionSpec {
        name: "partSize",
        side: Side::Sink,
        about: "actions in a part of a checkpoint, above which it has several (default 50000)",
    },
    OptionSpec {
        name: "spark.delta.checkpoint.partSize",
        side: Side::Sink,
        about: "the same as partSize",
    },
    OptionSpec {
        name: "checkpointLayout",
        side: Side::Sink,
        about: "auto (default), classic, multi-part or v2",
    },
    OptionSpec {
        name: "mergeSchema",
        side: Side::Sink,
        about: "add columns that the table does not have (default false)",
    },
    OptionSpec {
        name: "mode",
        side: Side::Sink,
        about: "append (default), or merge: a row takes the place of the one with the same keys",
    },
    OptionSpec {
        name: "keys",
        side: Side::Sink,
        about: "with 'mode' = 'merge': the columns that are a row's key",
    },
    OptionSpec {
        name: "delete.column",
        side: Side::Sink,
        about: "with 'mode' = 'merge': a BOOLEAN column, where it is true the row is deleted",
    },
    OptionSpec {
        name: "merge.indexMemory",
        side: Side::Sink,
        about: "with 'mode' = 'merge': memory to know in which file each key is (default 256mb)",
    },
    OptionSpec {
        name: "autoCompact",
        side: Side::Sink,
        about: "put small files together in the background (default: as the table's property \
                delta.autoOptimize.autoCompact says)",
    },
    OptionSpec {
        name: "autoCompact.minNumFiles",
        side: Side::Sink,
        about: "so many files of a size are put together (default 50)",
    },
    OptionSpec {
        name: "spark.databricks.delta.autoCompact.minNumFiles",
        side: Side::Sink,
        about: "the same as autoCompact.minNumFiles",
    },
    OptionSpec {
        name: "autoCompact.maxFileSize",
        side: Side::Sink,
        about: "the size of what comes of it, at most (default 128mb)",
    },
    OptionSpec {
        name: "spark.databricks.delta.autoCompact.maxFileSize",
        side: Side::Sink,
        about: "the same as autoCompact.maxFileSize",
    },
    OptionSpec {
        name: "versionAsOf",
        side: Side::Source,
        about: "read the version with this number (default: the newest)",
    },
    OptionSpec {
        name: "timestampAsOf",
        side: Side::Source,
        about: "read the version that was the newest at this moment",
    },
    OptionSpec {
        name: "delta.*",
        side: Side::Sink,
        about: "properties of a table that is created, for example delta.logRetentionDuration",
    },
];
