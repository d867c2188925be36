//! `millstream table`: a Delta table described, listed, and taken care of.

use std::fmt::Write as _;
use std::process::ExitCode;

use arrow::array::RecordBatch;
use chrono::DateTime;
use millstream_lake::checkpoint::{Checkpointer, Settings};
use millstream_lake::compact::optimize::{OptimizeOptions, Partitions, optimize, partition_schema};
use millstream_lake::describe::{Description, describe};
use millstream_lake::error::TableError;
use millstream_lake::history::{Version, history};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::vacuum::{VacuumOptions, Vacuumed, vacuum};
use millstream_sql::plan::row_test::RowTest;
use millstream_store::env::Env;
use millstream_store::error::{Failure, Kind};
use serde_json::json;

use crate::app::App;
use crate::cli::TableCommand;
use crate::human;

/// Runs the command.
pub async fn run(command: TableCommand, app: &App) -> ExitCode {
    let env = app.env.clone();
    let result = app.env.spawn_blocking("table", move || execute(command, &env)).join().await;
    match result {
        Ok(text) => app.print(&text),
        Err(failure) if failure.kind() == Kind::Config => app.wrong(&failure.to_string()),
        Err(failure) => app.failed(&failure.to_string()),
    }
}

/// Does what was asked, and gives what to print.
fn execute(command: TableCommand, env: &Env) -> Result<String, Failure> {
    match command {
        TableCommand::Describe { location } => {
            let reader = TableReader::open(&TableStore::parse(&location, env)?)?;
            Ok(described(&describe(&reader)?))
        }
        TableCommand::History { location, limit, json } => {
            let reader = TableReader::open(&TableStore::parse(&location, env)?)?;
            let versions = history(&reader, limit)?;
            Ok(if json { lines(&versions) } else { listed(&versions) })
        }
        TableCommand::Checkpoint { location, part_size } => {
            let store = TableStore::parse(&location, env)?;
            checkpoint(&store, part_size)
        }
        TableCommand::Optimize { location, condition, target_size, dry_run } => {
            let store = TableStore::parse(&location, env)?;
            optimized(&store, condition.as_deref(), (target_size, dry_run))
        }
        TableCommand::Vacuum { location, retain, force, dry_run } => {
            let retention_ms =
                retain.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
            let options = VacuumOptions { retention_ms, is_forced: force, is_dry_run: dry_run };
            let vacuumed = vacuum(&TableStore::parse(&location, env)?, &options)?;
            Ok(swept(&vacuumed, dry_run))
        }
    }
}

fn checkpoint(store: &TableStore, part_rows: u64) -> Result<String, Failure> {
    let version = TableReader::open(store)?.version();
    let settings = Settings { part_rows, ..Settings::default() };
    let written = Checkpointer::open(store.clone(), settings)?.write(version)?;
    Ok(format!(
        "version {version}: {} in {}, {}\n",
        human::counted(written.rows, "action"),
        human::counted(written.parts as u64, "file"),
        human::bytes(written.bytes)
    ))
}

fn optimized(
    store: &TableStore,
    condition: Option<&str>,
    (target_bytes, is_dry_run): (u64, bool),
) -> Result<String, Failure> {
    let test = condition.map(|text| partition_test(store, text)).transpose()?;
    let holds = test.map(|test| move |rows: &RecordBatch| test.holds(rows));
    let partitions = holds.as_ref().map(|holds| holds as &Partitions<'_>);
    let options = OptimizeOptions { target_bytes, partitions, condition, is_dry_run };
    let done = optimize(store, &options)?;
    let files = human::counted(done.files_removed, "file");
    let bytes = human::bytes(done.bytes_removed);
    let new = human::count(done.files_added);
    if is_dry_run {
        return Ok(format!("{files} of {bytes} would become {new} or fewer\n"));
    }
    let mut text = format!("{files} of {bytes} became {new} of {}", human::bytes(done.bytes_added));
    let _ = writeln!(text, ", in {}", human::counted(done.commits, "commit"));
    if done.files_given_up > 0 {
        let left = human::counted(done.files_given_up, "file");
        let _ = writeln!(text, "{left} left as they are: others changed some of them meanwhile");
    }
    Ok(text)
}

/// Which partitions are meant by the condition `text`.
fn partition_test(store: &TableStore, text: &str) -> Result<RowTest, Failure> {
    let schema = partition_schema(store)?;
    let test = RowTest::new(text, &schema, "--where", store.env().now_us());
    Ok(test.map_err(|found| {
        let problem = found.0.into_iter().next().map(|first| first.message).unwrap_or_default();
        let columns = match schema.fields().is_empty() {
            true => "the table has no partition columns; leave --where out".to_owned(),
            false => {
                let names: Vec<_> = schema.fields().iter().map(|field| &**field.name()).collect();
                format!("its partition columns are {}", names.join(", "))
            }
        };
        let problem = format!("--where: {problem}; {columns}");
        TableError::Condition { table: store.shown(), problem }
    })?)
}

fn described(table: &Description) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("location", &table.location);
    line("version", &human::count(table.version));
    line("id", &table.id);
    for (name, value) in [("name", &table.name), ("description", &table.description)] {
        value.iter().for_each(|value| line(name, value));
    }
    let size = human::bytes(table.bytes);
    line("size", &format!("{}, {size}", human::counted(table.files, "file")));
    let features = |features: &[String]| match features {
        [] => String::new(),
        features => format!(" ({})", features.join(", ")),
    };
    let (reader, writer) = (features(&table.reader_features), features(&table.writer_features));
    line("protocol", &format!("reader {}{reader}", table.reader_version));
    line("", &format!("writer {}{writer}", table.writer_version));
    line(
        "checkpoint",
        &match &table.checkpoint {
            None => "none".to_owned(),
            Some(found) => format!(
                "version {}, {:?}, {}, {}",
                human::count(found.version),
                found.kind,
                human::counted(found.parts as u64, "file"),
                human::bytes(found.bytes)
            ),
        },
    );
    if !table.partition_columns.is_empty() {
        line("partitioned", &table.partition_columns.join(", "));
    }
    for (number, (key, value)) in table.properties.iter().enumerate() {
        line(if number == 0 { "properties" } else { "" }, &format!("{key} = {value}"));
    }
    for (number, field) in table.schema.fields().iter().enumerate() {
        let null = if field.is_nullable() { "" } else { " NOT NULL" };
        let kind = millstream_sql::types::spark_type(field.data_type());
        line(if number == 0 { "columns" } else { "" }, &format!("{} {kind}{null}", field.name()));
    }
    text
}

/// Versions in columns for people.
fn listed(versions: &[Version]) -> String {
    let mut text = format!(
        "{:>10}  {:<23}  {:<18}  {:>13}  {:>15}  {}\n",
        "version", "time", "operation", "files", "rows", "by"
    );
    for version in versions {
        let rows = |rows: Option<u64>| rows.map_or("?".to_owned(), human::count);
        let _ = writeln!(
            text,
            "{:>10}  {:<23}  {:<18}  {:>13}  {:>15}  {}",
            version.version,
            moment(version.timestamp_ms),
            version.operation.as_deref().unwrap_or("-"),
            format!("+{} -{}", version.files_added, version.files_removed),
            format!("+{} -{}", rows(version.rows_added), rows(version.rows_removed)),
            version.engine_info.as_deref().unwrap_or("-"),
        );
    }
    text
}

/// Versions as lines of JSON for programs.
fn lines(versions: &[Version]) -> String {
    let line = |version: &Version| {
        json!({
            "version": version.version,
            "timestampMs": version.timestamp_ms,
            "operation": version.operation,
            "operationParameters": version.operation_parameters,
            "engineInfo": version.engine_info,
            "userMetadata": version.user_metadata,
            "filesAdded": version.files_added,
            "filesRemoved": version.files_removed,
            "rowsAdded": version.rows_added,
            "rowsRemoved": version.rows_removed,
        })
    };
    versions.iter().map(|version| format!("{}\n", line(version))).collect()
}

fn moment(ms: i64) -> String {
    let moment = DateTime::from_timestamp_millis(ms);
    moment.map_or("-".to_owned(), |moment| moment.format("%Y-%m-%d %H:%M:%S%.3f").to_string())
}

fn swept(vacuumed: &Vacuumed, dry_run: bool) -> String {
    let mut text = String::new();
    if dry_run {
        vacuumed.files.iter().for_each(|file| {
            let _ = writeln!(text, "{file}");
        });
    }
    let what = if dry_run { "would be deleted" } else { "deleted" };
    let files = human::counted(vacuumed.files.len() as u64, "file");
    let _ = writeln!(text, "{files} {what}, {}", human::bytes(vacuumed.bytes));
    if vacuumed.files_young > 0 {
        let young = human::counted(vacuumed.files_young, "file");
        let _ = writeln!(text, "{young} of no version, too young to be deleted");
    }
    text
}
