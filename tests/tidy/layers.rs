//! What may depend on what: between crates, and between the modules of a crate.

use std::collections::BTreeMap;
use std::path::Path;

use super::imports::{Imports, Module, imports, loops, upward};
use super::{files, product_manifests, report, root};

/// The crates of the product, each with those of ours that it may depend on. No other crate may.
const CRATES: &[(&str, &[&str])] = &[
    ("millstream-store", &[]),
    ("millstream-records", &[]),
    // Whatever plans or runs queries without streams links this alone, with the records that its
    // functions decode.
    ("millstream-sql", &["millstream-records"]),
    ("millstream-registry", &["millstream-store"]),
    ("millstream-lake", &["millstream-store"]),
    ("millstream-generate", &[]),
    ("millstream-engine", &["millstream-store", "millstream-sql"]),
    (
        "millstream-formats",
        &[
            "millstream-store",
            "millstream-sql",
            "millstream-engine",
            "millstream-records",
            "millstream-registry",
        ],
    ),
    (
        "millstream-kafka",
        &["millstream-store", "millstream-sql", "millstream-engine", "millstream-formats"],
    ),
    (
        "millstream-gcp",
        &["millstream-store", "millstream-sql", "millstream-engine", "millstream-formats"],
    ),
    ("millstream-cassandra", &["millstream-store", "millstream-sql", "millstream-engine"]),
    (
        "millstream-pulsar",
        &["millstream-store", "millstream-sql", "millstream-engine", "millstream-formats"],
    ),
    (
        "millstream-connectors",
        &[
            "millstream-store",
            "millstream-cassandra",
            "millstream-sql",
            "millstream-lake",
            "millstream-engine",
            "millstream-formats",
            "millstream-gcp",
            "millstream-kafka",
            "millstream-pulsar",
        ],
    ),
    // Whether a table is Delta's or another's is the connectors' business: queries get files.
    ("millstream-query", &["millstream-store", "millstream-sql", "millstream-engine"]),
    // What a runner has no use for would make its package larger.
    ("millstream-runner", &["millstream-store", "millstream-query"]),
    (
        "millstream",
        &[
            "millstream-store",
            "millstream-sql",
            "millstream-lake",
            "millstream-generate",
            "millstream-engine",
            "millstream-formats",
            "millstream-connectors",
            "millstream-query",
        ],
    ),
];

/// Crates that name DataFusion; the others get record batches.
const KNOW_DATAFUSION: &[&str] = &["millstream-sql", "millstream-engine", "millstream-query"];

/// The top-level modules of a crate in order: each may import from those before it only, and no
/// files of the crate import each other in a loop, but for a module and those within it.
const MODULES: &[(&str, &[&str])] = &[
    (
        "millstream-store",
        &[
            "error",
            "env",
            "timer",
            "codec",
            "crash_points",
            "directory_name",
            "time_text",
            "secrets",
            "offset",
            "metadata",
            "layout",
            "storage",
            "commit_log",
            "offset_log",
            "sink_log",
            "source_log",
            "inspect",
            "lock",
            "checkpoint",
            "log_writer",
            "recovery",
            "state_log",
            "journal",
        ],
    ),
    (
        "millstream-generate",
        &[
            "error",
            "random",
            "letters",
            "words",
            "clock",
            "state",
            "token",
            "java",
            "functions",
            "call",
            "repeat",
            "op",
            "scan",
            "template",
            "generator",
        ],
    ),
    (
        "millstream-sql",
        &[
            "lines",
            "diagnostic",
            "nearest",
            "syntax",
            "types",
            "values",
            "variant",
            "json",
            "csv",
            "xml",
            "functions",
            "recursion",
            "session",
            "query",
            "plan",
        ],
    ),
    (
        "millstream-engine",
        &[
            "api",
            "failures",
            "constraints",
            "pipeline",
            "state",
            "plan",
            "dead_letters",
            "driver",
            "flow",
        ],
    ),
    (
        "millstream-query",
        &[
            "error",
            "result_names",
            "progress",
            "spark_settings",
            "setting_statements",
            "statements",
            "cache",
            "narrow_gaps",
            "stores",
            "tables",
            "yielding",
            "state",
            "cluster",
            "session",
            "flight_sql",
        ],
    ),
    (
        "millstream-formats",
        &["excerpt", "text", "records", "csv", "infer", "encoder", "decoder", "schema"],
    ),
    ("millstream-records", &["types", "columns", "avro", "protobuf"]),
    (
        "millstream-registry",
        &[
            "error",
            "frame",
            "settings",
            "schema",
            "patience",
            "ask",
            "tls",
            "server",
            "answer",
            "exchange",
            "fetch",
            "references",
            "cache",
            "registry",
        ],
    ),
    (
        "millstream-kafka",
        &[
            "offsets",
            "remedy",
            "error",
            "protocol",
            "tokens",
            "client",
            "brokers",
            "sink",
            "source",
            "known_options",
            "connector",
        ],
    ),
    (
        "millstream-cassandra",
        &[
            "types",
            "error",
            "server",
            "repeat",
            "options",
            "table",
            "write_times",
            "rows",
            "requests",
            "opening",
            "writer",
            "sink",
            "lookup",
        ],
    ),
    (
        "millstream-pulsar",
        &[
            "columns",
            "topic",
            "protocol",
            "error",
            "options",
            "client",
            "sink",
            "source",
            "connector",
        ],
    ),
    ("millstream-gcp", &["credentials", "service", "pubsub", "bigquery"]),
    (
        "millstream-lake",
        &[
            "store",
            "error",
            "columns",
            "entry",
            "bucket",
            "partition",
            "statistics",
            "parquet_file",
            "checkpoint",
            "kernel",
            "data_file",
            "table",
            "file_writer",
            "applications",
            "read",
            "stream",
            "describe",
            "history",
            "compact",
            "maintenance",
            "merge",
            "vacuum",
        ],
    ),
    (
        "millstream-connectors",
        &[
            "paths", "places", "gather", "notify", "console", "memory", "noop", "rate", "redis",
            "stats", "delta", "files", "webhook", "email",
        ],
    ),
    (
        "millstream",
        &[
            "allocator",
            "large_state",
            "client_error",
            "key_value",
            "hiding",
            "histogram",
            "human",
            "lookup",
            "render",
            "metrics_server",
            "progress_json",
            "restart",
            "screen",
            "announce",
            "logging",
            "report",
            "stopping",
            "watch",
            "metrics",
            "terminal",
            "checkpoints",
            "load",
            "app",
            "supervise",
            "descriptors",
            "bench",
            "cli",
            "checkpoint_show",
            "run",
            "replay",
            "validate",
            "table",
            "credentials",
            "query",
            "cluster",
            "generate",
            "demo",
        ],
    ),
    (
        "bench",
        &[
            "clock",
            "error",
            "payload",
            "quantiles",
            "turns",
            "schedule",
            "settings",
            "messages",
            "offsets",
            "progress",
            "sender",
            "work_directory",
            "broker",
            "report",
            "generator",
            "numbered",
            "meter",
            "read_back",
            "relay",
            "plot",
            "state_size",
            "throughput",
            "system",
            "engine",
            "sending",
            "round",
            "testbed",
            "live",
            "in_process",
            "rate_to_stats",
            "recovery",
            "operational",
            "planning",
            "kafka_to_kafka",
            "kafka_throughput",
            "log_length",
            "offset_management",
            "journal",
            "peers",
            "sinks",
            "olap",
            "freshness",
            "compaction",
            "merge",
            "delta",
            "delta_stream",
            "map_only",
            "bigquery",
            "beside_client",
            "cassandra",
            "redis",
            "pulsar",
            "windowed",
            "nexmark",
        ],
    ),
    (
        "testkit",
        &[
            "error",
            "disk_record",
            "process",
            "proxy",
            "passage",
            "wait",
            "admin",
            "program",
            "cache",
            "spark_inputs",
            "certificates",
            "http_receiver",
            "requests",
            "topics",
            "tokens",
            "kafka_java",
            "kafka",
            "rights",
            "redis",
            "cassandra",
            "bigquery",
            "pubsub",
            "registry",
            "pulsar",
            "pulsar_pair",
            "cluster",
        ],
    ),
];

#[test]
fn crates_depend_on_those_below_them() {
    let mut complaints = Vec::new();
    let mut seen = 0;
    for (path, manifest) in product_manifests() {
        let Some(name) = path.parent().and_then(Path::file_name).and_then(|name| name.to_str())
        else {
            continue;
        };
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
            complaints.push(format!("{name} is not in the table of crates"));
            continue;
        };
        seen += 1;
        let dependencies = manifest.lines().filter_map(|line| line.split_once(" = "));
        for (dependency, _) in dependencies.filter(|(name, _)| name.starts_with("millstream")) {
            if !allowed.contains(&dependency) {
                complaints.push(format!("{name} depends on {dependency}, which it may not know"));
            }
        }
        let knows = manifest.lines().any(|line| line.starts_with("datafusion"));
        if knows && !KNOW_DATAFUSION.contains(&name) {
            complaints.push(format!("{name} knows DataFusion"));
        }
    }
    assert_eq!(seen, CRATES.len(), "every crate of the table has a manifest");
    report(&complaints);
}

#[test]
fn modules_import_from_those_below_them() {
    let mut complaints = Vec::new();
    for (name, order) in MODULES {
        let imports = imports_of(name);
        let here = |complaint: &String| format!("{name}: {complaint}");
        complaints.extend(upward(order, &imports).iter().map(here));
        complaints.extend(loops(&imports).iter().map(here));
    }
    report(&complaints);
}

fn imports_of(name: &str) -> Imports {
    let crates = root().join("crates").join(name);
    let directory = if crates.is_dir() { crates } else { root().join(name) }.join("src");
    let modules = files("rs")
        .into_iter()
        .filter_map(|(path, text)| Some((module(path.strip_prefix(&directory).ok()?)?, text)));
    let modules: BTreeMap<Module, String> = modules.collect();
    assert!(modules.len() > 1, "{name} has modules in {}", directory.display());
    imports(&modules)
}

/// The module in the file at `path` below `src`; `None` for one of tests.
fn module(path: &Path) -> Option<Module> {
    let path = path.with_extension("");
    let mut names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.iter().any(|name| name == "tests" || name == "testing") {
        return None;
    }
    if names.last().is_some_and(|last| last == "mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    Some(names)
}

/// What is found in a crate of these modules, the lower ones first.
fn found(order: &[&str], texts: &[(&str, &str)]) -> Vec<String> {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let mut sources: BTreeMap<Module, String> =
        texts.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
    sources.insert(Vec::new(), "pub mod state; pub mod plan;".to_owned());
    let imports = imports(&sources);
    [upward(order, &imports), loops(&imports)].concat()
}

#[test]
fn an_import_from_above_is_found() {
    const ORDER: &[&str] = &["state", "plan"];
    let of = |state: &str| {
        let plan = "pub use cut::{Cut, self as cutting}; mod cut;";
        let cut = "use crate::state::Store; pub struct Cut;";
        found(ORDER, &[("state", state), ("plan", plan), ("plan::cut", cut)])
    };
    let wrong = |module: &str| format!("state imports from {module}, which comes after it");
    for planted in ["use crate::plan;", "use super::{plan};", "fn f() { crate::plan::run() }"] {
        assert_eq!(of(planted), [wrong("plan")], "{planted}");
    }
    let looped = "plan::cut, state import each other".to_owned();
    for planted in ["use crate::plan::Cut;", "use std::fmt;\nuse crate::{plan::{Cut as C}};"] {
        assert_eq!(of(planted), [wrong("plan::cut"), looped.clone()], "{planted}");
    }
    for fine in [
        "// use crate::plan;",
        "const A: &str = \"use crate::plan; \\\"\"; const B: char = '\"';",
        "fn f<'a>(a: &'a str) {}",
        "#[cfg(test)]\nmod tests { use crate::plan; }",
        "use plan::Other;",
    ] {
        assert_eq!(of(fine), [""; 0], "{fine}");
    }
    assert_eq!(found(&["plan"], &[("state", "")]), ["state is not in the table of modules"]);
}

#[test]
fn a_loop_of_files_is_found_and_a_module_may_import_from_those_within() {
    let texts = [
        ("state", "mod a; mod b; use a::A; pub struct State;"),
        ("state::a", "use super::State; pub struct A;"),
        ("state::b", "use super::a::A;"),
    ];
    assert_eq!(found(&["state"], &texts), [""; 0]);
    let looped = [texts[0], ("state::a", "use super::b::B;"), texts[2]];
    assert_eq!(found(&["state"], &looped), ["state::a, state::b import each other"]);
}
