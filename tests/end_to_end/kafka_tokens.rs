//! Logins to Kafka by tokens (OAUTHBEARER), against a real broker that verifies them and an
//! identity provider: tokens are renewed while a flow runs, and whatever is wrong is said.
//!
//! The broker lets a login count for four seconds, and tokens are good for forty.

use std::time::Duration;

use millstream_testkit::certificates::{Authority, Files};
use millstream_testkit::tokens::{AUDIENCE, CLIENT, Provider, SECRET};

use crate::kafka::Broker;
use crate::live::{Numbers, PARTITIONS};
use crate::millstream::{Pipeline, table};
use crate::wait;

type Options = Vec<(&'static str, String)>;

struct Setting {
    broker: Broker,
    port: u16,
    provider: Provider,
    files: Files,
    /// Holds the files.
    directory: tempfile::TempDir,
}

impl Setting {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("it can be made");
        let authority = Authority::new(directory.path()).unwrap();
        let files = authority.issue("IP:127.0.0.1").unwrap();
        let provider = Provider::start(&files);
        provider.set_life(40);
        let (broker, port) = Broker::start_with_tokens(&authority, &provider);
        Self { broker, port, provider, files, directory }
    }

    fn common(&self) -> Options {
        vec![
            ("kafka.bootstrap.servers", format!("127.0.0.1:{}", self.port)),
            ("kafka.security.protocol", "SASL_SSL".to_owned()),
            ("kafka.sasl.mechanism", "OAUTHBEARER".to_owned()),
            ("kafka.ssl.ca.location", self.files.ca.display().to_string()),
        ]
    }

    fn endpoint(&self) -> Options {
        let mut options = self.common();
        options.extend([
            ("kafka.sasl.oauthbearer.token.endpoint.url", self.provider.url()),
            ("kafka.https.ca.location", self.files.ca.display().to_string()),
            ("kafka.sasl.oauthbearer.client.id", CLIENT.to_owned()),
            ("kafka.sasl.oauthbearer.client.secret", SECRET.to_owned()),
            ("kafka.sasl.oauthbearer.scope", "kafka".to_owned()),
        ]);
        options
    }

    fn copied(
        &self,
        name: &str,
        client: &Options,
        sink: &[(&str, &str)],
    ) -> (Numbers<'_>, Pipeline) {
        let topics = self.broker.topics();
        topics.create(&output(name), PARTITIONS as usize);
        let numbers = Numbers::new(topics, format!("{name}_in"));
        let client: Vec<(&str, &str)> =
            client.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let source = [("subscribe", numbers.topic.as_str()), ("startingOffsets", "earliest")];
        let output = output(name);
        let to = [("topic", output.as_str())];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
             SELECT value, partition FROM STREAM source;\n",
            table("source", "", "kafka", &[&client[..], &source].concat()),
            table("target", "", "kafka", &[&client[..], &to, sink].concat()),
        ));
        (numbers, pipeline)
    }
}

fn output(name: &str) -> String {
    format!("{name}_out")
}

const EXACTLY: (&str, &str) = ("delivery", "exactly-once");

#[test]
fn tokens_are_renewed_while_flows_run() {
    let setting = Setting::start();
    let client = setting.endpoint();
    let librdkafka = ("kafka.millstream.transactions", "librdkafka");
    let names = ["protocol", "librdkafka", "once_or_more"];
    let sinks = [&[EXACTLY][..], &[EXACTLY, librdkafka], &[("delivery", "at-least-once")]];
    let copied: Vec<_> = std::iter::zip(names, sinks)
        .map(|(name, sink)| setting.copied(name, &client, sink))
        .collect();
    let mut running: Vec<_> = copied.iter().map(|(_, pipeline)| pipeline.start(&[])).collect();
    let written = |name: &str| setting.broker.topics().written(&output(name));
    // Longer than a token is good, and the provider is away when the next one is asked for.
    let away = || {
        std::thread::sleep(Duration::from_secs(31));
        let asked = setting.provider.asked();
        setting.provider.stop();
        std::thread::sleep(Duration::from_secs(4));
        setting.provider.start_again();
        asked
    };
    let end = wait::Deadline::after(Duration::from_secs(46));
    // Two tables of each flow ask for another token each. A busy machine needs longer for that.
    let (all, late) = (6, wait::Deadline::after(Duration::from_secs(240)));
    std::thread::scope(|scope| {
        let (mut away, mut asked) = (Some(scope.spawn(away)), None);
        while !end.is_over() || asked.is_none_or(|asked| setting.provider.asked() < asked + all) {
            assert!(!late.is_over(), "each table has asked for another token");
            for ((numbers, _), (name, running)) in copied.iter().zip(names.iter().zip(&mut running))
            {
                let before = written(name);
                numbers.produce(5);
                running.wait_while_running("more output", || written(name) > before);
            }
            if let Some(back) = away.take_if(|away| away.is_finished()) {
                asked = Some(back.join().expect("it does not panic"));
            }
        }
    });
    for ((numbers, pipeline), (name, running)) in copied.iter().zip(names.iter().zip(running)) {
        running.stop().expect_success().says_not(&["starts again in", SECRET, "eyJ"]);
        numbers.run_the_rest(pipeline, "target");
        numbers.assert_in(&output(name), |_| true);
    }
}

#[test]
fn names_of_javas_clients_and_files_serve_as_well() {
    let setting = Setting::start();
    let code = "org.apache.kafka.common.security.oauthbearer";
    let mut java = setting.common();
    java.extend([
        (
            "kafka.sasl.login.callback.handler.class",
            format!("{code}.OAuthBearerLoginCallbackHandler"),
        ),
        ("kafka.sasl.oauthbearer.token.endpoint.url", setting.provider.url()),
        ("kafka.https.ca.location", setting.files.ca.display().to_string()),
        (
            "kafka.sasl.jaas.config",
            format!(
                "{code}.OAuthBearerLoginModule required clientId=\"{CLIENT}\" \
                 clientSecret=\"{SECRET}\" scope=\"kafka\" extension_pool=\"p1\";"
            ),
        ),
    ]);
    let token = setting.directory.path().join("token");
    setting.provider.set_life(3_600);
    std::fs::write(&token, setting.provider.token(AUDIENCE)).unwrap();
    let mut file = setting.common();
    let url = format!("file://{}", token.display());
    file.push(("kafka.sasl.oauthbearer.token.endpoint.url", url));
    for (name, client) in [("java", java), ("file", file)] {
        let (numbers, pipeline) = setting.copied(name, &client, &[EXACTLY]);
        numbers.produce(100);
        numbers.run_the_rest(&pipeline, "target");
        numbers.assert_in(&output(name), |_| true);
    }
}

#[test]
fn tokens_that_are_not_taken_are_named_with_a_remedy() {
    let setting = Setting::start();
    let changed = |key: &str, value: &str| -> Options {
        let replace = |(name, old)| (name, if name == key { value.to_owned() } else { old });
        setting.endpoint().into_iter().map(replace).collect()
    };
    let elsewhere = setting.directory.path().join("elsewhere");
    std::fs::write(&elsewhere, setting.provider.token("another")).unwrap();
    let url = "kafka.sasl.oauthbearer.token.endpoint.url";
    let elsewhere = format!("file://{}", elsewhere.display());
    for (name, forges, client, wanted) in [
        ("forged", true, setting.endpoint(), &["refuse this client", "invalid_token"][..]),
        ("audience", false, changed(url, &elsewhere), &["refuse this client", "invalid_token"]),
        (
            "secret",
            false,
            changed("kafka.sasl.oauthbearer.client.secret", "pl4nted-two"),
            &["invalid_client", "kafka.sasl.oauthbearer.client.secret"],
        ),
        (
            "nowhere",
            false,
            changed(url, "https://127.0.0.1:1/token"),
            &["no token from", "refused"],
        ),
        ("no_file", false, changed(url, "file:///nowhere/token"), &["/nowhere/token"]),
    ] {
        setting.provider.forge(forges);
        let (numbers, pipeline) = setting.copied(&format!("wrong_{name}"), &client, &[EXACTLY]);
        numbers.produce(1);
        let refused = pipeline.run(&["--restart", "never"]);
        let refused = refused.says(wanted).says_not(&["pl4nted", "eyJ"]);
        assert!(!refused.status.success(), "{name}");
    }
}
