//! `millstream-bench map-only --source in-process`: into a Delta table, and into nothing.

use std::path::PathBuf;

use millstream_store::env::Env;

use super::{
    Flags, MapOnlyLine, NAME, NOW, Summary, WIDTH, found_in_table, into_table, pipeline, table_row,
};
use crate::engine::{Delivery, EngineOptions, sql_options};
use crate::error::Error;
use crate::in_process::{self, CONNECTOR, Input};
use crate::messages::{Messages, MessagesFound};
use crate::report::Report;
use crate::throughput::{Medians, Throughput};
use crate::work_directory::WorkDirectory;

const INTO_TABLE: &str = "in-process-delta";
const INTO_NOTHING: &str = "in-process-noop";

/// Runs all rounds. True if every message was written once in every round.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let options = flags.topic.check_in_process()?;
    if flags.only.is_some() || !flags.delivery.contains(&Delivery::ExactlyOnce) {
        let problem = "--only and --delivery choose among what Kafka is the source of; leave them \
                       out with --source in-process";
        return Err(Error::Flags { problem: problem.to_owned() });
    }
    let report = Report::new(NAME, None);
    let sent = sent(flags.messages)?;
    eprintln!("{}", Throughput::table_head(WIDTH));
    let mut lines = Vec::new();
    for round in 1..=flags.topic.repeat {
        for configuration in [INTO_TABLE, INTO_NOTHING] {
            let line = measure(env, flags, &options, configuration, round, &sent)?;
            report.line("round", &line)?;
            eprintln!("{}", table_row(&line));
            lines.push(line);
        }
    }
    for configuration in [INTO_TABLE, INTO_NOTHING] {
        let of = lines.iter().filter(|line| line.configuration == configuration);
        let medians = Medians::of(of.map(|line| &line.throughput));
        let configuration = configuration.to_owned();
        report.line("summary", &Summary { configuration, medians })?;
    }
    Ok(lines.iter().all(|line| line.surplus_rows == Some(0)))
}

fn sent(count: u64) -> Result<MessagesFound, Error> {
    let (mut sent, mut messages) = (MessagesFound::default(), Messages::new(None));
    for _ in 0..count {
        sent.add(messages.make()?.id);
    }
    Ok(sent)
}

fn measure(
    env: &Env,
    flags: &Flags,
    options: &EngineOptions,
    configuration: &str,
    round: u32,
    sent: &MessagesFound,
) -> Result<MapOnlyLine, Error> {
    // Its own for each round: the next one needs the room.
    let work = WorkDirectory::create()?;
    let directory: PathBuf = work.subdirectory(configuration)?;
    let table = directory.join("table");
    let pipeline = match configuration {
        INTO_TABLE => into_table(CONNECTOR, &table, NOW),
        _ => pipeline(CONNECTOR, &format!("noop OPTIONS ({})", sql_options(NOW, &[]))),
    };
    let (messages, partitions) = (flags.messages, flags.topic.partitions);
    let input = Input { messages, partitions, windows: 0, keys: None, size: None };
    let (took, rows_out) = in_process::run(&pipeline, &input, options, &directory)?;
    let surplus = match configuration {
        INTO_TABLE => found_in_table(env, &table)?.surplus(sent, &table)?,
        // Nothing can be read back.
        _ => i64::try_from(rows_out).expect("rows are few") - i64::try_from(messages).expect("so"),
    };
    let throughput = Throughput::new(messages, partitions, &flags.topic.engine_option, &took);
    let configuration = configuration.to_owned();
    Ok(MapOnlyLine { configuration, round, throughput, surplus_rows: Some(surplus) })
}
