//! `millstream-bench windowed --source in-process`: into a Delta table, and into nothing.

use millstream_store::env::Env;
use serde::Serialize;

use super::query::{self, Form, Query, RowsFound, Sent};
use super::{Flags, NAME};
use crate::engine::EngineOptions;
use crate::error::Error;
use crate::in_process::{self, CONNECTOR, Input};
use crate::messages::{Messages, WINDOW_S};
use crate::report::{self, Report};
use crate::throughput::{Medians, Throughput};
use crate::work_directory::WorkDirectory;

/// Characters of a configuration's name.
const WIDTH: usize = 24;

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct InMemoryLine {
    configuration: String,
    round: u32,
    windows: u32,
    groups: u64,
    #[serde(flatten)]
    throughput: Throughput,
    /// Messages in all groups of the table less those sent, or groups where nothing is kept.
    surplus_rows: i64,
}

/// Medians of a configuration's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    #[serde(flatten)]
    medians: Medians,
}

/// Where results go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Table,
    Nothing,
}

/// Runs all rounds. True if every message was counted once in every round.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let options = flags.topic.check_in_process()?;
    let report = Report::new(NAME, None);
    let sent = sent(flags)?;
    eprintln!("{} {:>10}", Throughput::table_head(WIDTH), "groups");
    let mut lines = Vec::new();
    for round in 1..=flags.topic.repeat {
        for (form, into) in configurations(flags) {
            let line = measure(env, flags, &options, (form, into, round), &sent)?;
            report.line("round", &line)?;
            eprintln!("{}", table_row(&line));
            lines.push(line);
        }
    }
    for (form, into) in configurations(flags) {
        let configuration = name(form, into);
        let of = lines.iter().filter(|line| line.configuration == configuration);
        let medians = Medians::of(of.map(|line| &line.throughput));
        report.line("summary", &Summary { configuration, medians })?;
    }
    Ok(lines.iter().all(|line| line.surplus_rows == 0))
}

fn configurations(flags: &Flags) -> impl Iterator<Item = (Form, Destination)> {
    flags.forms().flat_map(|form| [(form, Destination::Table), (form, Destination::Nothing)])
}

fn name(form: Form, into: Destination) -> String {
    let sink = if into == Destination::Table { "delta" } else { "noop" };
    format!("{}-in-process-{sink}", report::name(&form))
}

fn sent(flags: &Flags) -> Result<RowsFound, Error> {
    let (mut sent, mut messages) = (Sent::default(), Messages::new(flags.keys));
    for number in 0..flags.messages {
        sent.add(flags.spread().of(number).0, messages.make()?.id);
    }
    Ok(sent.found)
}

fn measure(
    env: &Env,
    flags: &Flags,
    options: &EngineOptions,
    (form, into, round): (Form, Destination, u32),
    sent: &RowsFound,
) -> Result<InMemoryLine, Error> {
    let configuration = name(form, into);
    // Its own for each round: the next one needs the room.
    let work = WorkDirectory::create()?;
    let directory = work.subdirectory(&configuration)?;
    let path = directory.join("table");
    let table = (into == Destination::Table).then_some(path.as_path());
    let of_writer: &[_] = &[("trigger", "availableNow")];
    let query = Query { form, source: CONNECTOR, table, window_s: WINDOW_S, delay_s: 0, of_writer };
    let (messages, partitions) = (flags.messages, flags.topic.partitions);
    let input =
        Input { messages, partitions, windows: flags.windows, keys: flags.keys, size: None };
    let (took, rows_out) = in_process::run(&query.pipeline(), &input, options, &directory)?;
    let signed = |count: u64| i64::try_from(count).expect("groups are few");
    let surplus_rows = match table {
        Some(table) => query::read(env, table)?.surplus(sent, table)?,
        None => signed(rows_out) - signed(sent.groups),
    };
    let throughput = Throughput::new(messages, partitions, &flags.topic.engine_option, &took);
    let windows = flags.windows;
    Ok(InMemoryLine { configuration, round, windows, groups: rows_out, throughput, surplus_rows })
}

fn table_row(line: &InMemoryLine) -> String {
    let surplus = Some(line.surplus_rows).filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+}")).unwrap_or_default();
    let row = line.throughput.table_row(&line.configuration, WIDTH, line.round);
    format!("{row} {:>10}{surplus}", line.groups)
}
