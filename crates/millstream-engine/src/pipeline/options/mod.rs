//! Options of tables: the connector's own, the writer's, and overrides from the command line.

mod elsewhere;
mod several;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::nearest::{nearest, suggest};
use millstream_sql::syntax::cursor::Name;
use millstream_sql::values::interval::parse_duration;
use millstream_store::log_writer::{PurgeTime, RETAINED_ENTRIES_MIN};

use crate::api::connector::{Connector, ReadMode, Registry, Table};
use crate::api::options::{OptionError, OptionSpec, Options, Side};

use crate::api::references::Lookup;

use super::declarations::{OptionDeclaration, TableDeclaration};
use crate::api::dead_letter;
use crate::api::settings::{
    Idling, Logging, OnError, OutputMode, Policy, ProgressTracking, SnapshotSettings,
};
use crate::api::trigger::Trigger;

/// Options of the driver, which are given among a sink's.
pub const WRITER_OPTIONS: &[&str] = &[
    CHECKPOINT,
    "trigger",
    "outputMode",
    ASYNC_ENABLED,
    ASYNC_INTERVAL,
    ASYNC_INTERVAL_OLD,
    PROGRESS_LOGGING,
    LOG_PURGE,
    ENTRIES_TO_RETAIN,
    SNAPSHOT_INTERVAL,
    SNAPSHOT_BYTES,
    MEMORY_LIMIT,
    WATERMARK_POLICY,
    IDLE_TIMEOUT,
    ADVANCE_AFTER,
    OTHER_QUERIES,
    ON_ERROR,
];

/// What happens to a record that the query cannot compute.
pub(super) const ON_ERROR: &str = "onError";

const CHECKPOINT: &str = "checkpointLocation";
const ASYNC_ENABLED: &str = "asyncProgressTrackingEnabled";
const ASYNC_INTERVAL: &str = "asyncProgressTrackingCheckpointIntervalMs";
/// Its name in the announcement of the feature, with an interval as its value.
const ASYNC_INTERVAL_OLD: &str = "asyncProgressCheckpointingInterval";
/// `overlapped`, or `blocking` for comparison.
const PROGRESS_LOGGING: &str = "progressLogging";
/// `background`, or `blocking` for comparison.
const LOG_PURGE: &str = "logPurge";
/// As Spark's `spark.sql.streaming.minBatchesToRetain`.
const ENTRIES_TO_RETAIN: &str = "minBatchesToRetain";
/// How much time passes between two snapshots of the state, at most.
const SNAPSHOT_INTERVAL: &str = "stateSnapshotInterval";
/// How much of the state is kept in memory.
const MEMORY_LIMIT: &str = "memoryLimit";
/// By how much the state log grows between two snapshots, at most.
const SNAPSHOT_BYTES: &str = "stateSnapshotBytes";
/// As Spark's `spark.sql.streaming.multipleWatermarkPolicy`.
const WATERMARK_POLICY: &str = "multipleWatermarkPolicy";
/// The time after which a source without new rows no longer holds the watermark back.
const IDLE_TIMEOUT: &str = "watermarkIdleTimeout";
/// The time without any rows after which the watermark follows the clock.
const ADVANCE_AFTER: &str = "watermarkAdvanceAfter";
/// Whether a new query may write to tables that record the progress of other queries.
pub const OTHER_QUERIES: &str = "otherQueries";
/// Spark's default.
const ASYNC_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// The interval where the older name has no value.
const ASYNC_INTERVAL_OLD_DEFAULT: Duration = Duration::from_secs(60);

/// How a flow is driven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// `checkpointLocation`, where it is set.
    pub checkpoint_location: Option<String>,
    /// `trigger`.
    pub trigger: Trigger,
    /// `asyncProgressTrackingEnabled` and others: what the logs hold.
    pub logging: Logging,
    /// `outputMode`.
    pub output_mode: OutputMode,
    /// `stateSnapshotInterval` and `stateSnapshotBytes`.
    pub snapshots: SnapshotSettings,
    /// `memoryLimit`, in bytes: beyond it, state is kept in files.
    pub memory_limit: Option<u64>,
    /// `multipleWatermarkPolicy`.
    pub watermark_policy: Policy,
    /// `watermarkIdleTimeout` and `watermarkAdvanceAfter`.
    pub idling: Idling,
    /// `otherQueries` is `allowed`: a new query writes beside others.
    pub beside_others: bool,
    /// `onError`.
    pub on_error: OnError,
    /// `deadLetter` beside it: the table for what is rejected.
    pub dead_letter: Option<String>,
}

/// What a table is used for in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roles {
    pub(super) read: bool,
    pub(super) written: bool,
}

/// A table with its connector, and the places of its parts in the file.
pub struct DeclaredTable {
    /// The table as connectors see it.
    pub table: Table,
    /// The connector named after USING.
    pub connector: Arc<dyn Connector>,
    /// The place of the table's name; `None` for the console that a bare SELECT writes to.
    pub span: Option<Span>,
    /// Key and value of each option by the key in lower case; `None` where it was overridden.
    spans: HashMap<String, Option<(Span, Span)>>,
}

impl DeclaredTable {
    /// Resolves the connector and gathers options; unknown keys come later, when it is known what
    /// the table is used for.
    pub(super) fn declare(
        declaration: &TableDeclaration,
        registry: &Registry,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<Self, Diagnostics> {
        let name = &declaration.connector;
        let Some(connector) = registry.get(&name.text) else {
            let diagnostic =
                Diagnostic::at(name.span, format!("there is no connector `{}`", name.text));
            let known: Vec<&str> = registry.names().collect();
            return Err(diagnostic
                .help(suggest(&name.text, "connectors", known.iter().copied()))
                .into());
        };
        let columns: Option<SchemaRef> = declaration.columns.as_ref().map(|columns| {
            let fields = columns.iter().map(|column| column.field.clone());
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        });
        let mut table = Self {
            table: Table {
                name: declaration.name.text.clone(),
                columns,
                options: Options::default(),
            },
            connector: connector.clone(),
            span: Some(declaration.name.span),
            spans: HashMap::new(),
        };
        let mut found = Diagnostics::default();
        for OptionDeclaration { key, value } in &declaration.options {
            found.take(table.set(key, value, lookup));
        }
        found.into_result()?;
        table.location(declaration, lookup)?;
        table.partitions(declaration, lookup)?;
        Ok(table)
    }

    /// The table that a query alone writes to.
    pub(super) fn console(registry: &Registry) -> Option<Self> {
        let connector = registry.get("console")?.clone();
        let table = Table { name: "console".into(), columns: None, options: Options::default() };
        Some(Self { table, connector, span: None, spans: HashMap::new() })
    }

    fn set(
        &mut self,
        key: &Name,
        value: &Name,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), Diagnostic> {
        self.spans.insert(key.text.to_lowercase(), Some((key.span, value.span)));
        self.look_up(&key.text, &value.text, lookup).map_err(|error| self.blame(error, None))
    }

    fn knows(&self, key: &str) -> bool {
        self.connector.options().iter().any(|spec| matches(spec.name, key))
    }

    /// `LOCATION '...'` is the option `path`.
    fn location(
        &mut self,
        declaration: &TableDeclaration,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), Diagnostic> {
        let Some(location) = &declaration.location else { return Ok(()) };
        let connector = self.connector.name();
        if !self.knows("path") {
            return Err(Diagnostic::at(
                location.span,
                format!("a {connector} table has no LOCATION"),
            )
            .help("say where it is in OPTIONS"));
        }
        if let Some(Some((key, _))) = self.spans.get("path") {
            return Err(Diagnostic::at(
                location.span,
                "LOCATION and the option 'path' say the same",
            )
            .note_at(*key, "the option")
            .help("leave one of them out"));
        }
        let key = Name { text: "path".into(), span: location.span };
        self.set(&key, location, lookup)
    }

    /// `PARTITIONED BY (a, b)` is the option `partitionBy`, for connectors that know it.
    fn partitions(
        &mut self,
        declaration: &TableDeclaration,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), Diagnostic> {
        let Some(first) = declaration.partitioned_by.first() else { return Ok(()) };
        if !self.knows("partitionBy") {
            let message = format!("a {} table cannot be PARTITIONED BY", self.connector.name());
            return Err(Diagnostic::at(first.span, message).help("leave PARTITIONED BY out"));
        }
        if let Some(columns) = &self.table.columns {
            for name in &declaration.partitioned_by {
                let mut fields = columns.fields().iter();
                if !fields.any(|field| field.name().eq_ignore_ascii_case(&name.text)) {
                    let names = columns.fields().iter().map(|field| field.name().as_str());
                    let message = format!("there is no column `{}`", name.text);
                    return Err(Diagnostic::at(name.span, message)
                        .help(suggest(&name.text, "columns", names)));
                }
            }
        }
        let names: Vec<&str> =
            declaration.partitioned_by.iter().map(|name| name.text.as_str()).collect();
        let span = declaration.partitioned_by.iter().map(|name| name.span).reduce(Span::to);
        let span = span.unwrap_or(first.span);
        let key = Name { text: "partitionBy".into(), span };
        self.set(&key, &Name { text: names.join(",").replace("${", "$${"), span }, lookup)
    }

    /// Sets an option from the command line.
    pub(super) fn override_option(
        &mut self,
        key: &str,
        value: &str,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), Diagnostic> {
        self.spans.insert(key.to_lowercase(), None);
        self.look_up(key, value, lookup).map_err(|error| self.blame(error, None))
    }

    /// Refuses keys that the connector does not know on the sides the table is used.
    pub(super) fn check_keys(&self, roles: Roles) -> Diagnostics {
        let mut found = Diagnostics::default();
        for (key, _) in self.table.options.iter() {
            if let Some((message, help)) = self.wrong_key(key, roles) {
                let diagnostic = match self.spans.get(&key.to_lowercase()).copied().flatten() {
                    Some((at, _)) => Diagnostic::at(at, message),
                    None => {
                        Diagnostic::nowhere(format!("--set {}.{key}: {message}", self.table.name))
                    }
                };
                found.0.push(diagnostic.help(help));
            }
        }
        found
    }

    fn wrong_key(&self, key: &str, roles: Roles) -> Option<(String, String)> {
        let unused = !roles.read && !roles.written;
        let (may_read, may_write) = (roles.read || unused, roles.written || unused);
        let (name, connector) = (&self.table.name, self.connector.name());
        let fits = |side: Side| match side {
            Side::Both => true,
            Side::Source => may_read,
            Side::Sink => may_write,
        };
        let mut specs = self.connector.options().iter().filter(|spec| matches(spec.name, key));
        if key.eq_ignore_ascii_case(dead_letter::OPTION)
            && may_write
            && self.table.options.get(ON_ERROR).is_some()
        {
            return None;
        }
        if let Some(first) = specs.clone().next() {
            if specs.any(|spec| fits(spec.side)) {
                return None;
            }
            let (of, used) = match first.side {
                Side::Source => ("read", "only written"),
                _ => ("written", "only read"),
            };
            let help = if key.eq_ignore_ascii_case(dead_letter::OPTION) {
                "put it on the table that is read, or 'onError' = 'dead letter' beside it"
            } else {
                "leave the option out, or put it on another table"
            };
            return Some((
                format!("'{key}' is for a {connector} table that is {of}, but `{name}` is {used}"),
                help.into(),
            ));
        }
        if WRITER_OPTIONS.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            return (!may_write).then(|| {
                (
                    format!("'{key}' is an option of a flow, but `{name}` is only read"),
                    "put it on the table the flow writes to".into(),
                )
            });
        }
        let own = self.connector.options().iter().filter(|spec| fits(spec.side));
        let mut known: Vec<&str> = own.map(|spec| spec.name).collect();
        known.extend(may_write.then_some(WRITER_OPTIONS).into_iter().flatten());
        let message = format!("a {connector} table has no option '{key}'");
        if key.eq_ignore_ascii_case(dead_letter::OPTION) && may_write {
            let help = "it stands beside 'onError' = 'dead letter', or among the options of the \
                        table that is read";
            return Some((message, help.to_owned()));
        }
        let help = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => {
                known.sort_unstable();
                let known: Vec<String> = known.iter().map(|known| format!("'{known}'")).collect();
                format!("the options here are {}", known.join(", "))
            }
        };
        Some((message, help))
    }

    /// The mistake in an option's value, for a table that no flow uses. Missing options or columns
    /// are not reported: whether they are needed depends on the use.
    pub(super) fn check_unused(&self) -> Option<Diagnostic> {
        let rows = self.table.columns.clone().unwrap_or_else(|| Arc::new(Schema::empty()));
        let as_source = self.connector.check_source(&self.table, ReadMode::Stream).err();
        let as_sink = self.connector.check_sink(&self.table, &rows).err();
        let both_fail = as_source.is_some() && as_sink.is_some();
        let concerns = |error: &OptionError, side: Side| {
            let Some(key) = error.key.as_deref() else { return false };
            let mut specs = self.connector.options().iter().filter(|spec| matches(spec.name, key));
            let fits = |spec: &OptionSpec| match spec.side {
                Side::Both => both_fail,
                only => only == side,
            };
            self.table.options.get(key).is_some() && specs.any(fits)
        };
        let wrong = as_source.filter(|error| concerns(error, Side::Source));
        let wrong = wrong.or_else(|| as_sink.filter(|error| concerns(error, Side::Sink)));
        wrong.map(|error| self.blame(error, None))
    }

    /// A connector's error as a diagnostic at the option that it is about; else at `otherwise`.
    pub(super) fn blame(&self, error: OptionError, otherwise: Option<Span>) -> Diagnostic {
        let spans = error.key.as_ref().map(|key| self.spans.get(&key.to_lowercase()).copied());
        let span = match spans {
            Some(Some(None)) => None,
            Some(Some(Some((_, value)))) => Some(value),
            _ => self.span.or(otherwise),
        };
        let problem = match (&error.key, spans) {
            (Some(key), Some(Some(None))) => {
                format!("--set {}.{key}: {}", self.table.name, error.problem)
            }
            (None, _) if self.span.is_some() => {
                format!("table `{}`: {}", self.table.name, error.problem)
            }
            _ => error.problem,
        };
        let diagnostic = Diagnostic { span, ..Diagnostic::nowhere(problem) };
        diagnostic.maybe_help(error.help)
    }

    /// Reads the writer's options, `overrides` being those given for all flows.
    pub(super) fn writer(
        &self,
        overrides: &[(String, String)],
    ) -> Result<WriterOptions, Diagnostics> {
        let mut options = Options::default();
        for name in WRITER_OPTIONS {
            let all = overrides.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case(name));
            let value = match all {
                Some((_, value)) => Some(value.as_str()),
                None => self.table.options.get(name),
            };
            if let Some(value) = value {
                options.set(*name, value);
            }
        }
        let blame = |error: OptionError| {
            let overridden = error.key.as_ref().is_some_and(|wrong| {
                overrides.iter().any(|(key, _)| key.eq_ignore_ascii_case(wrong))
            });
            if overridden {
                let key = error.key.unwrap_or_default();
                let message = format!("--set {key}: {}", error.problem);
                Diagnostic::nowhere(message).maybe_help(error.help)
            } else {
                self.blame(error, None)
            }
        };
        let mut found = Diagnostics::default();
        let output_mode = found.take(output_mode(&options).map_err(blame)).unwrap_or_default();
        let on_error = found.take(on_error(&options).map_err(blame)).unwrap_or_default();
        let snapshots = found.take(snapshots(&options).map_err(blame)).unwrap_or_default();
        let memory_limit = found.take(options.parse_bytes(MEMORY_LIMIT).map_err(blame)).flatten();
        let idling = found.take(idling(&options).map_err(blame)).unwrap_or_default();
        let policy = watermark_policy(&options).map_err(blame);
        let watermark_policy = found.take(policy).unwrap_or_default();
        let beside_others = found.take(beside_others(&options).map_err(blame)).unwrap_or_default();
        let trigger = found.take(trigger(&options).map_err(blame)).unwrap_or_default();
        let logging = found.take(logging(&options).map_err(blame)).unwrap_or_default();
        if matches!(logging.tracking, ProgressTracking::Interval(_))
            && matches!(trigger, Trigger::Once | Trigger::AvailableNow)
        {
            let message = "asyncProgressTrackingEnabled does not go with the triggers 'once' and \
                           'availableNow', which end only when every micro-batch is in the logs";
            let help =
                Some("use an interval, or leave asyncProgressTrackingEnabled out".to_owned());
            found.0.push(blame(OptionError::of(ASYNC_ENABLED, message, help)));
        }
        let checkpoint_location = found.take(checkpoint(&options).map_err(blame)).flatten();
        found.into_result()?;
        let dead_letter = self.table.options.get(dead_letter::OPTION).map(str::to_owned);
        let dead_letter = dead_letter.filter(|_| self.table.options.get(ON_ERROR).is_some());
        Ok(WriterOptions {
            checkpoint_location,
            trigger,
            logging,
            output_mode,
            snapshots,
            memory_limit,
            watermark_policy,
            idling,
            beside_others,
            on_error,
            dead_letter,
        })
    }
}

fn checkpoint(options: &Options) -> Result<Option<String>, OptionError> {
    match options.get(CHECKPOINT) {
        Some(location) if location.trim().is_empty() => {
            let help = Some("write a directory, or leave the option out".to_owned());
            Err(OptionError::of(CHECKPOINT, format!("'{CHECKPOINT}' is empty"), help))
        }
        location => Ok(location.map(str::to_owned)),
    }
}

fn snapshots(options: &Options) -> Result<SnapshotSettings, OptionError> {
    let interval = duration(options, SNAPSHOT_INTERVAL)?;
    let bytes = options.parse::<u64>(SNAPSHOT_BYTES, "a number of bytes")?;
    let default = SnapshotSettings::default();
    Ok(SnapshotSettings { after_bytes: bytes.unwrap_or(default.after_bytes), interval })
}

fn idling(options: &Options) -> Result<Idling, OptionError> {
    let left_out_after = duration(options, IDLE_TIMEOUT)?;
    Ok(Idling { left_out_after, closes_after: duration(options, ADVANCE_AFTER)? })
}

fn watermark_policy(options: &Options) -> Result<Policy, OptionError> {
    match options.get(WATERMARK_POLICY) {
        None => Ok(Policy::default()),
        Some(policy) if policy.trim().eq_ignore_ascii_case("min") => Ok(Policy::Min),
        Some(policy) if policy.trim().eq_ignore_ascii_case("max") => Ok(Policy::Max),
        Some(policy) => Err(OptionError::invalid(WATERMARK_POLICY, policy, "'min' or 'max'")),
    }
}

fn beside_others(options: &Options) -> Result<bool, OptionError> {
    match options.get(OTHER_QUERIES) {
        None => Ok(false),
        Some(text) if text.trim().eq_ignore_ascii_case("refused") => Ok(false),
        Some(text) if text.trim().eq_ignore_ascii_case("allowed") => Ok(true),
        Some(text) => Err(OptionError::invalid(OTHER_QUERIES, text, "'refused' or 'allowed'")),
    }
}

fn duration(options: &Options, key: &'static str) -> Result<Option<Duration>, OptionError> {
    let read = |text: &str| {
        parse_duration(text).map_err(|help| {
            OptionError::of(key, format!("'{text}' is not an interval"), Some(help))
        })
    };
    options.get(key).map(read).transpose()
}

fn trigger(options: &Options) -> Result<Trigger, OptionError> {
    let Some(text) = options.get("trigger") else { return Ok(Trigger::default()) };
    text.parse().map_err(|help| {
        OptionError::of("trigger", format!("'{text}' is not a trigger"), Some(help))
    })
}

fn tracking(options: &Options) -> Result<ProgressTracking, OptionError> {
    let enabled = options.parse_bool(ASYNC_ENABLED)?.unwrap_or(false);
    let interval = options.parse::<u64>(ASYNC_INTERVAL, "a number of milliseconds")?;
    let old = options.get(ASYNC_INTERVAL_OLD).map(|text| match text.trim() {
        "" => Ok(ASYNC_INTERVAL_OLD_DEFAULT),
        text => parse_duration(text).map_err(|help| {
            let problem = format!("'{text}' is not an interval");
            OptionError::of(ASYNC_INTERVAL_OLD, problem, Some(help))
        }),
    });
    let interval = match (interval, old.transpose()?) {
        (Some(_), Some(_)) => {
            let problem = format!("{ASYNC_INTERVAL_OLD} is an older name of {ASYNC_INTERVAL}");
            let help = Some("give one of the two".to_owned());
            return Err(OptionError::of(ASYNC_INTERVAL_OLD, problem, help));
        }
        (Some(interval_ms), None) => Duration::from_millis(interval_ms),
        (None, old) => old.unwrap_or(ASYNC_INTERVAL_DEFAULT),
    };
    match (enabled, is_blocking(options, PROGRESS_LOGGING, "overlapped")?) {
        (true, false) => Ok(ProgressTracking::Interval(interval)),
        (false, true) => Ok(ProgressTracking::Blocking),
        (false, false) => Ok(ProgressTracking::EveryMicroBatch),
        (true, true) => {
            let problem = format!("'{PROGRESS_LOGGING}' = 'blocking' waits for every entry");
            let help = Some(format!("leave it out, or {ASYNC_ENABLED}"));
            Err(OptionError::of(PROGRESS_LOGGING, problem, help))
        }
    }
}

fn logging(options: &Options) -> Result<Logging, OptionError> {
    let retained = options.parse::<u64>(ENTRIES_TO_RETAIN, "a number of micro-batches")?;
    if let Some(text) = options.get(ENTRIES_TO_RETAIN)
        && retained.is_some_and(|retained| retained < 2)
    {
        return Err(OptionError::invalid(
            ENTRIES_TO_RETAIN,
            text,
            "2 or more: a restart reads two",
        ));
    }
    let purge = if is_blocking(options, LOG_PURGE, "background")? {
        PurgeTime::WhenCalled
    } else {
        PurgeTime::InBackground
    };
    let retain_entries_min = retained.unwrap_or(RETAINED_ENTRIES_MIN);
    let tracking = tracking(options)?;
    Ok(Logging { tracking, purge, retain_entries_min, ..Logging::default() })
}

fn is_blocking(options: &Options, key: &'static str, otherwise: &str) -> Result<bool, OptionError> {
    match options.get(key) {
        Some(value) if value.eq_ignore_ascii_case("blocking") => Ok(true),
        Some(value) if !value.eq_ignore_ascii_case(otherwise) => {
            Err(OptionError::invalid(key, value, &format!("'{otherwise}' or 'blocking'")))
        }
        _ => Ok(false),
    }
}

fn on_error(options: &Options) -> Result<OnError, OptionError> {
    match options.get(ON_ERROR) {
        None => Ok(OnError::Fail),
        Some(value) if value.trim().eq_ignore_ascii_case("fail") => Ok(OnError::Fail),
        Some(value) if value.trim().eq_ignore_ascii_case("dead letter") => Ok(OnError::DeadLetter),
        Some(value) => Err(OptionError::invalid(ON_ERROR, value, "'fail' or 'dead letter'")),
    }
}

fn output_mode(options: &Options) -> Result<OutputMode, OptionError> {
    let modes = [OutputMode::Append, OutputMode::Update, OutputMode::Complete];
    let Some(named) = options.get("outputMode") else { return Ok(OutputMode::default()) };
    let known = modes.into_iter().find(|mode| named.trim().eq_ignore_ascii_case(mode.name()));
    let wanted = "'append', 'update' or 'complete'";
    known.ok_or_else(|| OptionError::invalid("outputMode", named, wanted))
}

/// True where `spec`, which may end in `.*`, names `key`.
fn matches(spec: &str, key: &str) -> bool {
    match spec.strip_suffix('*') {
        Some(prefix) => {
            key.len() > prefix.len()
                && key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        }
        None => spec.eq_ignore_ascii_case(key),
    }
}
