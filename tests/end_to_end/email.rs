//! Rows as mails, through a real mail server (aiosmtpd), which checks each mail's syntax. Whatever
//! happens to the process, each row comes at least once, and always under the same Message-ID.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::files_and_static::put;
use crate::live::{ASYNC, Numbers, kills, occurrences, some_time};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::webhook::STEPS;
use crate::{cache, certificates, kafka, process, wait};

const ROWS: usize = 10;
const LATE: u64 = 20;
/// Of the numbers produced each so many is sent.
const EACH: u64 = 20;
const FROM: (&str, &str) = ("from", "Alerts <alerts@example.com>");

/// A mail server on loopback, and the mails that it has.
pub struct MailServer {
    child: Child,
    port: u16,
    directory: TempDir,
    settings: Vec<String>,
}

impl MailServer {
    pub fn start(settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-smtp-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let port = kafka::free_port();
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let child = run_server(&directory, port, &settings);
        Self { child, port, directory, settings }
    }

    /// Ends it, as a crash would.
    fn stop(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again on the same port, with the mails that it had.
    fn start_again(&mut self) {
        self.child = run_server(&self.directory, self.port, &self.settings);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn mails(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.path().join("mails")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    /// The options of a table that writes to it.
    fn options(&self) -> Vec<(&'static str, String)> {
        let fixed = [("host", "127.0.0.1"), FROM, ("retryBackoff", "20ms"), ("security", "none")];
        let fixed = fixed.map(|(key, value)| (key, value.to_owned()));
        fixed.into_iter().chain([("port", self.port.to_string())]).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_server(directory: &TempDir, port: u16, settings: &[String]) -> Child {
    let requirements = include_str!("../smtp/requirements.txt");
    let installed = cache::python("smtp", requirements).expect("it can be installed");
    let log = File::create(directory.path().join("log")).expect("it is writable");
    let errors = log.try_clone().expect("a file can be shared");
    let mut command = Command::new(installed.join("bin/python"));
    command.arg(cache::repository().join("tests/smtp/server.py"));
    command.args(["--mails", "mails", "--port"]).arg(port.to_string()).args(settings);
    command.current_dir(directory.path());
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let child = process::spawn(command).expect("python can start");
    wait::until_true("the mail server to listen", wait::SOON, || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    child
}

/// A table `target`; later options override earlier ones.
fn target(server: &MailServer, options: &[(&str, &str)]) -> String {
    let fixed = server.options();
    let mut all: BTreeMap<&str, &str> =
        fixed.iter().map(|(key, value)| (*key, value.as_str())).collect();
    all.extend(options.iter().copied());
    table("target", "", "email", &all.into_iter().collect::<Vec<_>>())
}

/// A pipeline from files of ten rows, one to a micro-batch.
fn of_files(server: &MailServer, options: &[(&str, &str)], files: usize) -> Pipeline {
    let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW told AS INSERT INTO target SELECT * FROM STREAM source;\n",
        table("source", "(n BIGINT, name STRING, owner STRING)", "json", &source),
        target(server, options),
    ));
    put_rows(&pipeline, 0..files);
    pipeline
}

fn put_rows(pipeline: &Pipeline, files: std::ops::Range<usize>) {
    for file in files {
        let row = |n: usize| {
            let owner = format!("owner{}@example.com", n % 3);
            format!("{{\"n\":{n},\"name\":\"Tür {n}\",\"owner\":\"{owner}\"}}\n")
        };
        let rows: String = (file * ROWS..(file + 1) * ROWS).map(row).collect();
        put(pipeline, &format!("input/{file:03}.json"), &rows);
    }
}

fn run(pipeline: &Pipeline) -> Finished {
    pipeline.run(&["--trigger", "availableNow", "--restart", "never"]).without_internals()
}

fn text<'a>(mail: &'a Value, key: &str) -> &'a str {
    mail[key].as_str().expect("it is a text")
}

/// The servers' own judgement of the syntax.
fn assert_well_formed(mails: &[Value]) {
    for mail in mails {
        assert_eq!(mail["defects"].as_array().map(Vec::len), Some(0), "{mail}");
    }
}

#[test]
fn each_row_is_a_mail_to_the_owner_of_its_row() {
    let server = MailServer::start(&[]);
    let options =
        [("toColumn", "owner"), ("subject", "Alert: {name}"), ("text", "Number {n}\n{{ok}}")];
    run(&of_files(&server, &options, 2)).expect_success();
    let mails = server.mails();
    assert_well_formed(&mails);
    assert_eq!(mails.len(), 2 * ROWS);
    for (n, mail) in mails.iter().enumerate() {
        assert_eq!(text(mail, "subject"), format!("Alert: Tür {n}"), "in order");
        assert_eq!(mail["to"], serde_json::json!([format!("owner{}@example.com", n % 3)]));
        assert_eq!(text(mail, "from"), "alerts@example.com");
        assert_eq!(text(mail, "text").replace("\r\n", "\n").trim(), format!("Number {n}\n{{ok}}"));
    }
    let ids: BTreeSet<&str> = mails.iter().map(|mail| text(mail, "id")).collect();
    assert_eq!(ids.len(), 2 * ROWS);
}

#[test]
fn hostile_values_become_neither_headers_nor_recipients() {
    let server = MailServer::start(&[]);
    let options = [("to", "guards@example.com"), ("subject", "{name}"), ("text", "{name}\n{n}")];
    let pipeline = of_files(&server, &options, 0);
    let hostile = [
        r"a\r\nBcc: evil@example.com",
        r"a\nTo: evil@example.com\n\nbody",
        r"a\r\n.\r\nMAIL FROM:<evil@example.com>\r\nRCPT TO:<evil@example.com>",
        r".\n.\n..\nend",
        r"=?utf-8?q?a=0d=0aBcc:_evil@example.com?=",
        r"\u0000\u202e\u2028x",
        &"long ".repeat(600),
        &"l\u{f6}ng".repeat(2_000),
    ];
    let row = |(n, name): (usize, &&str)| format!("{{\"n\":{n},\"name\":\"{name}\"}}\n");
    let rows: String = hostile.iter().enumerate().map(row).collect();
    put(&pipeline, "input/000.json", &rows);
    run(&pipeline).expect_success();
    let mails = server.mails();
    assert_well_formed(&mails);
    assert_eq!(mails.len(), hostile.len());
    for (n, mail) in mails.iter().enumerate() {
        assert_eq!(mail["to"], serde_json::json!(["guards@example.com"]));
        let body = text(mail, "text").replace("\r\n", "\n");
        assert!(body.trim_end().ends_with(&format!("\n{n}")), "it is cut off: {body}");
    }
    assert!(text(&mails[3], "text").starts_with(".\r\n.\r\n..\r\nend"), "{}", mails[3]);
}

#[test]
fn a_digest_has_the_rows_of_a_micro_batch_for_each_recipient() {
    let server = MailServer::start(&[]);
    let options = [
        ("toColumn", "owner"),
        ("digest", "true"),
        ("subject", "{count} doors are open"),
        ("text", "{name}"),
    ];
    run(&of_files(&server, &options, 2)).expect_success();
    let mails = server.mails();
    assert_well_formed(&mails);
    let subjects: Vec<&str> = mails.iter().map(|mail| text(mail, "subject")).collect();
    let of = |count: usize| format!("{count} doors are open");
    assert_eq!(subjects, [of(4), of(3), of(3), of(3), of(4), of(3)]);
    assert_eq!(text(&mails[1], "text").replace("\r\n", "\n"), "Tür 1\nTür 4\nTür 7\n");
}

#[test]
fn tls_from_the_beginning_and_by_starttls_with_a_user() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let authority = certificates::Authority::new(directory.path()).expect("OpenSSL works");
    let files = authority.issue("IP:127.0.0.1").expect("OpenSSL works");
    let [cert, key, ca] = [&files.cert, &files.key, &files.ca].map(|file| file.to_str().unwrap());
    for security in ["tls", "starttls"] {
        let files = ["--security", security, "--cert", cert, "--key", key];
        let server = MailServer::start(&[&files[..], &["--password", "right-word"]].concat());
        let options = |password| {
            let secure = [("security", security), ("tls.caFile", ca), ("user", "us")];
            let mail = [("to", "guards@example.com"), ("subject", "{n}"), ("password", password)];
            [secure, mail].concat()
        };
        run(&of_files(&server, &options("right-word"), 1)).expect_success();
        let mails = server.mails();
        assert_eq!(mails.len(), ROWS);
        assert!(mails.iter().all(|mail| mail["tls"] == true && text(mail, "user") == "us"));
        let refused = run(&of_files(&server, &options("wrong-word"), 1)).expect_exit(1);
        refused.says(&["refused the credentials"]).says_not(&["wrong-word"]);
        let mut untrusted = options("right-word");
        untrusted.retain(|(key, _)| *key != "tls.caFile");
        untrusted.push(("maxRetries", "0"));
        run(&of_files(&server, &untrusted, 1)).expect_exit(1).says(&["certificate"]);
        assert_eq!(server.mails().len(), ROWS, "nothing came without trust");
    }
    let plain = MailServer::start(&[]);
    let options = [("security", "starttls"), ("to", "a@example.com"), ("subject", "{n}")];
    run(&of_files(&plain, &options, 1)).expect_exit(1).says(&["STARTTLS"]);
    assert!(plain.mails().is_empty(), "nothing goes without TLS");
}

#[test]
fn refused_mails_name_the_record_or_go_to_a_file() {
    let server = MailServer::start(&[]);
    let options = [("toColumn", "owner"), ("subject", "{n}")];
    let bad = concat!(
        "{\"n\":1,\"owner\":\"a@example.com\"}\n{\"n\":2,\"owner\":\"refused@example.com\"}\n",
        "{\"n\":3,\"owner\":\"a@example.com, b@example.com\"}\n{\"n\":4}\n",
        "{\"n\":5,\"owner\":\"a@example.com\"}\n",
    );
    let pipeline = of_files(&server, &options, 0);
    put(&pipeline, "input/000.json", bad);
    let named = ["/input/000.json:2 cannot be written", "550", "no such mailbox"];
    run(&pipeline).expect_exit(1).says(&named);
    let with_file = [&options[..], &[("refusedPath", "refused.jsonl")]].concat();
    let pipeline = of_files(&server, &with_file, 0);
    put(&pipeline, "input/000.json", bad);
    run(&pipeline).expect_success();
    let lines = fs::read_to_string(pipeline.path("refused.jsonl")).expect("it is there");
    let refused: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let subjects: Vec<&str> =
        refused.iter().map(|line| text(&line["content"], "subject")).collect();
    assert_eq!(subjects, ["2", "3", "4"]);
    assert!(text(&refused[2], "answer").contains("is null"));
    let subjects: Vec<String> =
        server.mails().iter().map(|mail| text(mail, "subject").to_owned()).collect();
    assert_eq!(subjects, ["1", "1", "5"]);
}

#[test]
fn a_server_that_is_busy_stands_still_and_restarts_gets_every_row() {
    let mut server = MailServer::start(&["--busy-every", "4"]);
    let options = [("to", "guards@example.com"), ("subject", "{n}"), ("sendTimeout", "30s")];
    let pipeline = of_files(&server, &options, 1);
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the first mails", || server.mails().len() == ROWS);
    process::pause(&server.child);
    put_rows(&pipeline, 1..2);
    let says = |words: &str| {
        fs::read_to_string(pipeline.path("stderr.0")).is_ok_and(|said| said.contains(words))
    };
    running.wait_while_running("the report", || says("no answer from the mail server"));
    wait::pause(std::time::Duration::from_secs(15));
    process::go_on(&server.child);
    running.wait_while_running("the mails after it", || server.mails().len() == 2 * ROWS);
    server.stop();
    put_rows(&pipeline, 2..3);
    wait::pause(std::time::Duration::from_secs(2));
    server.start_again();
    running.wait_while_running("the mails after the restart", || server.mails().len() == 3 * ROWS);
    running.stop().expect_success();
    let subjects: Vec<String> =
        server.mails().iter().map(|mail| text(mail, "subject").to_owned()).collect();
    assert_eq!(subjects, (0..30).map(|n| n.to_string()).collect::<Vec<_>>(), "in order");
}

#[test]
fn a_stop_does_not_wait_for_mails_that_may_be_sent_much_later() {
    let server = MailServer::start(&[]);
    let options = [("to", "guards@example.com"), ("subject", "{n}"), ("maxMailsPerMinute", "1")];
    let pipeline = of_files(&server, &options, 3);
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the first mail", || server.mails().len() == 1);
    // The driver waits for space as well.
    let words = ["warning: flow", "may be sent only in", "the next run continues with it"];
    running.stop().expect_success().says(&words);
    assert_eq!(server.mails().len(), 1);
    // Which sends what is left, and only that.
    let faster = ["--set", "target.maxMailsPerMinute=6000"];
    let mut running = pipeline.start(&faster);
    running.wait_while_running("the other mails", || server.mails().len() >= 3 * ROWS);
    running.stop().expect_success();
    let subjects: Vec<String> =
        server.mails().iter().map(|mail| text(mail, "subject").to_owned()).collect();
    assert_eq!(subjects, (0..30).map(|n| n.to_string()).collect::<Vec<_>>(), "each once");
    let server = MailServer::start(&[]);
    // Nor does a run that has read all of its input.
    let pipeline = of_files(&server, &options, 1);
    let mut running = pipeline.start(&["--trigger", "availableNow", "--restart", "never"]);
    running.wait_while_running("a mail", || server.mails().len() == 1);
    wait::pause(std::time::Duration::from_secs(2));
    assert!(running.is_running());
    let stopped = running.stop().expect_success();
    stopped.says(&["the run ends when these messages are sent", "may be sent only in"]);
    // A query that runs once has no next run.
    let columns = "(n BIGINT, name STRING, owner STRING)";
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW told AS INSERT INTO target SELECT * FROM source;\n",
        table("source", columns, "json", &[("path", "input")]),
        target(&server, &options),
    ));
    put_rows(&pipeline, 0..1);
    let mut running = pipeline.start(&[]);
    running.wait_while_running("its first mail", || server.mails().len() == 2);
    running.stop().expect_exit(1).says(&["may be sent only in", "does not continue"]);
}

/// A flow from a topic of numbers to a mail server that fails now and then.
struct Mailed<'a> {
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    server: MailServer,
}

impl Mailed<'_> {
    fn new(name: &str, options: &[(&str, &str)]) -> Self {
        let broker = kafka::shared();
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let server = MailServer::start(&["--busy-every", "30", "--cut-every", "37"]);
        let fixed = [("to", "guards@example.com"), ("text", "{partition}-{n}")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW mailed AS INSERT INTO target\n\
             SELECT * FROM (SELECT CAST(CAST(value AS STRING) AS BIGINT) AS n, partition\n\
             FROM STREAM source) WHERE n % {EACH} = 0;\n",
            numbers.source_table(&broker.address()),
            target(&server, &[&fixed, options].concat()),
        ));
        Self { numbers, pipeline, server }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.server.mails().len();
        running.wait_while_running("more mails", || self.server.mails().len() > before);
    }

    /// Runs what is left, and compares what the server has with what was produced.
    fn assert_complete(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let mails = self.server.mails();
        assert_well_formed(&mails);
        let (mut raw, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for mail in &mails {
            let id = text(mail, "id");
            let first = raw.entry(id).or_insert(text(mail, "raw"));
            assert_eq!(*first, text(mail, "raw"), "another mail under {id}");
            for row in text(mail, "text").split_whitespace() {
                assert_eq!(*ids.entry(row).or_insert(id), id, "another Message-ID of {row}");
            }
        }
        let numbers = || (0..self.numbers.produced()).filter(|n| n % EACH == 0);
        let rows = (0..2).flat_map(|part| numbers().map(move |n| format!("{part}-{n}")));
        let rows: BTreeSet<String> = rows.collect();
        let found: BTreeSet<String> = ids.keys().map(|row| (*row).to_owned()).collect();
        assert!(found == rows, "{} of {} rows are there", found.len(), rows.len());
        eprintln!("{} rows, {} mails, {} of them different", rows.len(), mails.len(), raw.len());
        self.numbers.assert_logged(&self.pipeline);
    }

    fn kill_at_random(&self) {
        self.numbers.while_producing(|| {
            for round in 0..kills(2) * 5 {
                let mut running = self.pipeline.start(&[]);
                self.wait_for_more(&mut running);
                some_time(round, 300);
                running.kill();
            }
        });
        self.assert_complete();
    }
}

const SUBJECT: (&str, &str) = ("subject", "Number {n}");
const DIGEST: [(&str, &str); 2] = [("digest", "true"), ("subject", "{count} numbers")];

#[test]
fn kills_at_random_moments_lose_no_row_and_change_no_message_id() {
    Mailed::new("email_killed", &[SUBJECT]).kill_at_random();
}

#[test]
fn kills_at_random_moments_lose_no_row_and_change_no_message_id_with_asynchronous_tracking() {
    let options = [&ASYNC[..], &[SUBJECT]].concat();
    Mailed::new("email_killed_async", &options).kill_at_random();
}

#[test]
fn kills_at_random_moments_lose_no_row_of_a_digest_and_change_no_message_id() {
    Mailed::new("email_killed_digest", &DIGEST).kill_at_random();
}

#[test]
fn a_crash_at_any_step_loses_no_row_and_changes_no_message_id() {
    let mailed = Mailed::new("email_steps", &DIGEST);
    mailed.numbers.crash_at_steps(&mailed.pipeline, &STEPS, &occurrences(LATE));
    mailed.assert_complete();
}
