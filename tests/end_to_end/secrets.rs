//! Secrets: given by reference, and found in nothing that is said or written, wherever they were
//! planted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::millstream::{Finished, Pipeline, table};
use crate::wait;

/// Has what is written otherwise in URLs, JSON and SQL.
const SECRET: &str = "pl4nted/Secret+of=\"mine\"";
/// A part that stays as it is however it is written.
const CORE: &str = "pl4nted";
/// The file with the secret in it, where there is one.
const SECRET_FILE: &str = "secret.txt";

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it is readable") {
        let path = entry.expect("it is readable").path();
        found.extend(if path.is_dir() { files(&path) } else { vec![path] });
    }
    found
}

/// Runs the command and looks for the secret in all that it said and wrote.
fn hides(pipeline: &Pipeline, mut command: Command, what: &str) -> Finished {
    command.env_remove("MILLSTREAM_LOG");
    let finished = pipeline.spawn(command).wait(wait::SOON);
    let inputs = ["pipeline.sql", SECRET_FILE].map(|name| pipeline.path(name));
    for file in files(&pipeline.path(".")) {
        let content = fs::read(&file).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        let line = content.lines().find(|line| line.contains(CORE));
        let is_input = inputs.iter().any(|input| input.file_name() == file.file_name());
        if let Some(line) = line.filter(|_| !is_input) {
            panic!("{what}: {} says: {line}", file.display());
        }
        assert!(!file.to_string_lossy().contains(CORE), "{what}: {}", file.display());
    }
    finished
}

fn sink(options: &[(&str, &str)], connector: &str) -> String {
    let (source, sink) = ([("rowsPerSecond", "100")], options);
    format!(
        "{}{}INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "rate", &source),
        table("target", "", connector, sink),
    )
}

fn source(options: &[(&str, &str)]) -> String {
    format!(
        "{}{}INSERT INTO target SELECT CAST(value AS STRING) AS value FROM STREAM source;\n",
        table("source", "", "kafka", options),
        table("target", "", "console", &[]),
    )
}

/// As written in SQL on one line, with every way to be shown: by a mistake on the line, when it is
/// validated, and when it runs, with all there is to log.
fn everywhere(sql: &str, what: &str) {
    let loud = ["--for", "300ms", "-vvv", "--progress", "json", "--metrics", "127.0.0.1:0"];
    let pipeline = Pipeline::new(sql);
    let command = pipeline.bare_command(&["validate", "pipeline.sql"]);
    hides(&pipeline, command, what);
    let command = pipeline.bare_command(&[&["run", "pipeline.sql"], &loud[..]].concat());
    hides(&pipeline, command, what);
    for broken in [
        sql.replacen("OPTIONS (", "OPTIONS ('kafka.no.such' = 'a', 'nor.this' = 'b', ", 2),
        sql.replacen("OPTIONS (", "OPTIONS ('unfinished, ", 1),
        sql.replacen(");", "') nonsense;", 2),
        sql.replacen("USING", "USNG", 2),
        sql.replacen(" = ", " ", 9),
        sql.replace('\n', " ").replace("SELECT", "SELEKT no_such_column, 'open"),
    ] {
        pipeline.rewrite(&broken);
        let command = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let finished = hides(&pipeline, command, what);
        assert!(!finished.stderr.contains("panicked"), "{what}: {}", finished.stderr);
    }
}

#[test]
fn an_option_that_is_secret_by_its_name_is_shown_nowhere() {
    for key in [
        "kafka.sasl.password",
        "kafka.sasl.jaas.config",
        "kafka.sasl.oauthbearer.client.secret",
        "kafka.ssl.key.password",
        "kafka.ssl.key.pem",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.password",
        "kafka.sasl.pasword",
        "kafka.unheard.of.token",
    ] {
        let value = match key {
            "kafka.sasl.jaas.config" => format!(
                "PlainLoginModule required username=\"ann\" password='{}';",
                SECRET.replace('"', "")
            ),
            _ => SECRET.to_owned(),
        };
        let servers = ("kafka.bootstrap.servers", "127.0.0.1:1");
        let protocol = ("kafka.security.protocol", "SASL_PLAINTEXT");
        let debug = ("kafka.debug", "all");
        let options = [(key, value.as_str()), servers, protocol, ("subscribe", "t"), debug];
        everywhere(&source(&options), key);
        let writing = [(key, value.as_str()), servers, protocol, ("topic", "t"), debug];
        everywhere(&sink(&writing, "kafka").replace("value FROM", "'x' AS value FROM"), key);
    }
    for key in ["fs.s3a.secret.key", "AWS_ACCESS_KEY_ID", "api_token", "delta.user.password"] {
        for connector in ["delta", "json", "stats"] {
            everywhere(&sink(&[(key, SECRET), ("path", "out")], connector), key);
        }
    }
}

#[test]
fn a_secret_in_a_url_is_shown_nowhere() {
    let plain = SECRET.replace('"', "");
    let quoted = "pl4nted%2FSecret%2Bof%3D%22mine%22";
    for url in [
        format!("s3://AKIA:{plain}@bucket/table"),
        format!("s3://AKIA:{quoted}@bucket/table"),
        format!("s3a://{quoted}@bucket/table"),
        format!("https://ann:{quoted}@host/table"),
        format!("abfss://c@a.dfs.core.windows.net/t?sv=1&sig={quoted}"),
        format!("s3://bucket/t?X-Amz-Credential={quoted}&X-Amz-Signature={quoted}"),
        format!("hdfs://ann:{quoted}@host/table"),
    ] {
        for connector in ["delta", "json", "stats"] {
            everywhere(&sink(&[("path", &url)], connector), &url);
        }
        everywhere(&sink(&[("checkpointLocation", &url)], "noop"), &url);
        let servers = [("kafka.bootstrap.servers", url.as_str()), ("subscribe", "t")];
        everywhere(&source(&servers), &url);

        let pipeline = Pipeline::new(&sink(&[], "noop"));
        for arguments in [
            &["table", "describe", &url][..],
            &["table", "history", &url],
            &["table", "checkpoint", &url],
            &["table", "vacuum", &url],
            &["checkpoint", "show", &url],
            &["run", "pipeline.sql", "--for", "300ms", "-vvv", "--checkpoint", &url],
            &["validate", "pipeline.sql", "--set", &format!("target.path={url}")],
            &["generate", "--to", "kafka", "--brokers", &url, "--topic", "t", "--rows", "1"],
        ] {
            let mut command = pipeline.bare_command(arguments);
            command.env("AWS_ENDPOINT", "http://127.0.0.1:1").env("AWS_ALLOW_HTTP", "true");
            hides(&pipeline, command, &arguments.join(" "));
        }
    }
}

#[test]
fn a_secret_of_the_command_line_or_the_environment_is_shown_nowhere() {
    let pipeline = Pipeline::new(&sink(&[("path", "s3://bucket/table")], "delta"));
    for setting in [
        format!("target.kafka.sasl.password={SECRET}"),
        format!("target.kafka.sasl.password {SECRET}"),
        format!("no_such.kafka.sasl.password={SECRET}"),
        format!("kafka.sasl.password={SECRET}"),
    ] {
        let command = pipeline.bare_command(&["validate", "pipeline.sql", "--set", &setting]);
        hides(&pipeline, command, &setting).expect_exit(2);
    }
    let mut command = pipeline.bare_command(&["run", "pipeline.sql", "--for", "1s", "-vvv"]);
    command.env("AWS_ENDPOINT", "http://127.0.0.1:1").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "AKIApl4nted").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_MAX_RETRIES", "0");
    hides(&pipeline, command, "the environment");
}

#[test]
fn a_value_given_by_reference_is_used_and_shown_nowhere() {
    let pipeline = Pipeline::new(&format!(
        "{}{}",
        table("unused", "", "kafka", &[("kafka.sasl.password", SECRET)]),
        sink(&[("path", "${env:OUTPUT}/$${plain}"), ("checkpointLocation", "ck")], "json"),
    ));
    let arguments = ["run", "pipeline.sql", "--for", "2s", "-vvv", "--metrics", "127.0.0.1:0"];
    let mut command = pipeline.bare_command(&arguments);
    command.env("OUTPUT", "out");
    hides(&pipeline, command, "a run that works").expect_success();
    assert!(pipeline.path("out/${plain}/_spark_metadata").is_dir(), "the value is used");

    fs::write(pipeline.path(SECRET_FILE), format!("{SECRET}\n")).expect("it is writable");
    let secret = format!("${{file:{SECRET_FILE}}}");
    let servers = ("kafka.bootstrap.servers", "127.0.0.1:1");
    let options =
        [servers, ("subscribe", "t"), ("kafka.group.id", &secret), ("kafka.debug", "all")];
    pipeline.rewrite(&source(&options));
    let arguments = ["run", "pipeline.sql", "--for", "1s", "-vvv", "--progress", "json"];
    hides(&pipeline, pipeline.bare_command(&arguments), "by reference");

    pipeline.rewrite(&sink(&[("path", "out"), ("minBatchesToRetain", &secret)], "json"));
    let finished = hides(&pipeline, pipeline.bare_command(&arguments), "a value that is wrong");
    finished.expect_exit(2).says(&["'minBatchesToRetain' is '***'"]);
}

#[test]
fn a_reference_that_leads_nowhere_is_refused_with_its_place() {
    let with = |value: &str| Pipeline::new(&sink(&[("path", value)], "json"));
    let run = |value: &str| {
        let pipeline = with(value);
        let mut command = pipeline.bare_command(&["run", "pipeline.sql", "--for", "1s"]);
        command.env_remove("NO_SUCH");
        pipeline.spawn(command).wait(wait::SOON).expect_exit(2)
    };
    let place = "pipeline.sql:6:";
    run("${env:NO_SUCH}").says(&[place, "the variable NO_SUCH is not set"]);
    run("${file:no/such}").says(&[place, "no/such", "cannot be read"]);
    run("${file:/dev/zero}").says(&[place, "/dev/zero", "is no file"]);
    run("${vault:x}").says(&[place, "there is no `vault`", "${env:", "$${"]);
    run("a${env:x").says(&[place, "has no `}`"]);

    let validate = |value: &str| {
        let pipeline = with(value);
        let mut command = pipeline.bare_command(&["validate", "pipeline.sql"]);
        command.env_remove("NO_SUCH").env("IS_SET", "out");
        pipeline.spawn(command).wait(wait::SOON)
    };
    validate("${vault:x}").expect_exit(2).says(&[place]);
    for (value, told) in [
        ("${env:NO_SUCH}", "needs       ${env:NO_SUCH} (not set here)\n"),
        ("${env:IS_SET}", "needs       ${env:IS_SET}\n"),
        ("${file:/no/such}", "needs       ${file:/no/such}\n"),
    ] {
        let finished = validate(value).expect_success();
        assert!(finished.stdout.contains(told), "{}", finished.stdout);
    }
}
