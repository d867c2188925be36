//! The book tells what there is: every connector's page lists its options, every link leads
//! somewhere, and the command line's page has every flag.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use crate::cli::Cli;

fn root() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let binary = Path::new(&here);
    binary.ancestors().nth(2).expect("crates/<crate> stands two levels down").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page of a connector.
fn page(connector: &str) -> &'static str {
    match connector {
        "kafka" => "docs/connectors/kafka.md",
        "files" | "json" | "csv" | "parquet" | "text" => "docs/connectors/files.md",
        "delta" => "docs/connectors/delta.md",
        "redis" => "docs/connectors/redis.md",
        "cassandra" => "docs/connectors/cassandra.md",
        "bigquery" => "docs/connectors/bigquery.md",
        "pubsub" => "docs/connectors/pubsub.md",
        "pulsar" => "docs/connectors/pulsar.md",
        "rate" => "docs/connectors/rate.md",
        "email" => "docs/connectors/email.md",
        "webhook" => "docs/connectors/webhook.md",
        "stats" => "docs/connectors/stats.md",
        "console" | "noop" | "memory" => "docs/connectors/console-noop-memory.md",
        other => panic!("the connector '{other}' has no page"),
    }
}

#[test]
fn every_option_is_on_its_connectors_page() {
    let registry = millstream_connectors::registry(Path::new(""));
    for name in registry.names() {
        let text = read(page(name));
        for option in registry.get(name).expect("it is one of the names").options() {
            let quoted = format!("`{}`", option.name);
            assert!(text.contains(&quoted), "{} lacks {quoted} of '{name}'", page(name));
        }
    }
}

#[test]
fn every_command_and_flag_is_on_the_command_lines_page() {
    let text = read("docs/reference/command-line.md");
    let mut commands: Vec<_> = Cli::command().get_subcommands().cloned().collect();
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let name = command.get_name();
        assert!(text.contains(name), "no {name}");
        for flag in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(text.contains(&format!("--{flag}")), "no --{flag} of {name}");
        }
    }
}

#[test]
fn links_lead_somewhere() {
    let mut pages = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    for directory in ["docs", "docs/connectors", "docs/reference", "docs/internals"] {
        let entries = fs::read_dir(root().join(directory)).expect("the book is there");
        let names = entries.map(|entry| entry.expect("it can be listed").file_name());
        let names = names.map(|name| name.into_string().expect("names are text"));
        pages.extend(
            names.filter(|name| name.ends_with(".md")).map(|name| format!("{directory}/{name}")),
        );
    }
    for page in &pages {
        let directory = Path::new(page).parent().expect("a page is in a directory");
        for target in read(page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || target.contains("://") {
                continue;
            }
            assert!(root().join(directory).join(path).exists(), "{page} links to {target}");
        }
    }
}
