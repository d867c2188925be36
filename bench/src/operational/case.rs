//! The cases: what each reads, what it looks for, and where its alerts go.

use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

use crate::engine::sql_options;
use crate::error::Error;
use crate::system;

/// Requests of a source in a window from which on they are a surge.
pub const THRESHOLD: u64 = 20;
/// Length of a window of requests, seconds.
pub const WINDOW_S: i64 = 1;
/// Services whose logs are read; each has an owner.
pub const SERVICES: u64 = 50;
/// Buildings with elevators.
pub const BUILDINGS: u64 = 100;
/// What the subject of a mail begins with; the number of the record follows.
pub const SUBJECT: &str = "Leak";

/// What an operational pipeline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A source of traffic sends more requests in a second than the threshold: the security
    /// department gets a webhook.
    Surge,
    /// A service logs personal data: its owner gets a mail.
    Leak,
    /// An emergency button in an elevator: the building is looked up, its guard gets a webhook.
    Emergency,
    /// A generator is too hot: the supervisor's topic has it.
    Overheating,
}

/// Where alerts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Requests by HTTP.
    Webhook,
    /// Mails by SMTP.
    Email,
    /// A topic.
    Kafka,
}

/// Where a pipeline reads and writes.
pub struct Place<'a> {
    /// What the source table uses, with its options.
    pub source: &'a str,
    /// The options that lead to the receiver.
    pub receiver: Vec<(&'a str, &'a str)>,
    /// For files that the pipeline reads.
    pub directory: &'a Path,
}

impl Case {
    /// Where its alerts go.
    pub fn target(self) -> Target {
        match self {
            Self::Surge | Self::Emergency => Target::Webhook,
            Self::Leak => Target::Email,
            Self::Overheating => Target::Kafka,
        }
    }

    /// The pipeline file; what it looks up is written beside it.
    pub fn pipeline(self, place: &Place<'_>) -> Result<String, Error> {
        match self {
            Self::Surge => Ok(surge(place)),
            Self::Leak => {
                let rows = (0..SERVICES).map(|of| format!("svc-{of},owner-{of}@example.com\n"));
                let owners = format!("service,address\n{}", rows.collect::<String>());
                let owners = system::write(place.directory, "owners.csv", &owners)?;
                Ok(leak(place, &owners))
            }
            Self::Emergency => {
                let rows = (0..BUILDINGS).map(|of| format!("B{of},Mill Lane {of},guard-{of}\n"));
                let buildings = format!("building,address,guard\n{}", rows.collect::<String>());
                let buildings = system::write(place.directory, "buildings.csv", &buildings)?;
                Ok(emergency(place, &buildings))
            }
            Self::Overheating => Ok(overheating(place)),
        }
    }
}

/// A group causes an alert as soon as it reaches the threshold, and again whenever it grows.
fn surge(place: &Place<'_>) -> String {
    let own = [("outputMode", "update"), ("proxy", "none")];
    format!(
        "CREATE TABLE access (ts TIMESTAMP, source STRING, method STRING, path STRING,\n\
         status INT) USING {source};\n\
         CREATE TABLE department USING webhook OPTIONS ({sink});\n\
         CREATE FLOW surge AS INSERT INTO department\n\
         SELECT source, unix_seconds(window.start) AS second, count(*) AS requests\n\
         FROM STREAM access WATERMARK ts DELAY OF INTERVAL 5 SECONDS\n\
         GROUP BY window(ts, '{WINDOW_S} second'), source\n\
         HAVING count(*) >= {THRESHOLD};\n",
        source = place.source,
        sink = place.sink(&own),
    )
}

fn leak(place: &Place<'_>, owners: &Path) -> String {
    let subject = format!("{SUBJECT} {{number}} in the log of {{service}}");
    let own = [
        ("security", "none"),
        ("from", "Leaks <leaks@example.com>"),
        ("toColumn", "address"),
        ("subject", subject.as_str()),
        ("text", "{ts} {leak}: {message}"),
    ];
    let security_number = "\\\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\\\b";
    let card = "\\\\b([0-9]{4}[ -]?){3}[0-9]{4}\\\\b";
    format!(
        "CREATE TABLE logs (service STRING, ts TIMESTAMP, level STRING, message STRING,\n\
         number BIGINT) USING {source};\n\
         CREATE TABLE owners (service STRING, address STRING) USING csv OPTIONS ({owners});\n\
         CREATE TABLE mails USING email OPTIONS ({sink});\n\
         CREATE FLOW leak AS INSERT INTO mails\n\
         SELECT coalesce(owners.address, 'security@example.com') AS address, logs.service, ts,\n\
         CASE WHEN message RLIKE '{security_number}' THEN 'social security number'\n\
         ELSE 'card number' END AS leak,\n\
         regexp_replace(message,\n\
         '[0-9]{{3}}-[0-9]{{2}}-[0-9]{{4}}|([0-9]{{4}}[ -]?){{3}}[0-9]{{4}}', '###') AS message,\n\
         number\n\
         FROM STREAM logs LEFT JOIN owners ON logs.service = owners.service\n\
         WHERE message RLIKE '{security_number}' OR message RLIKE '{card}';\n",
        source = place.source,
        owners = csv(owners),
        sink = place.sink(&own),
    )
}

fn emergency(place: &Place<'_>, buildings: &Path) -> String {
    format!(
        "CREATE TABLE elevators (ts TIMESTAMP, building STRING, elevator INT, event STRING,\n\
         floor INT, number BIGINT) USING {source};\n\
         CREATE TABLE buildings (building STRING, address STRING, guard STRING)\n\
         USING csv OPTIONS ({buildings});\n\
         CREATE TABLE guards USING webhook OPTIONS ({sink});\n\
         CREATE FLOW emergencies AS INSERT INTO guards\n\
         SELECT concat('Elevator ', elevator, ', floor ', floor, ': ',\n\
         coalesce(b.address, concat('building ', e.building))) AS text, b.guard, e.ts, e.number\n\
         FROM STREAM elevators AS e LEFT JOIN buildings AS b ON e.building = b.building\n\
         WHERE e.event = 'emergency';\n",
        source = place.source,
        buildings = csv(buildings),
        sink = place.sink(&[("proxy", "none")]),
    )
}

fn overheating(place: &Place<'_>) -> String {
    format!(
        "CREATE TABLE readings (ts TIMESTAMP, generator STRING, sensor INT, celsius DOUBLE,\n\
         number BIGINT) USING {source};\n\
         CREATE TABLE supervisor USING kafka OPTIONS ({sink});\n\
         CREATE FLOW too_hot AS INSERT INTO supervisor BY NAME\n\
         SELECT generator AS key, to_json(struct(ts, generator, sensor, celsius,\n\
         CASE WHEN celsius >= 110 THEN 'critical' ELSE 'warning' END AS severity,\n\
         number)) AS value\n\
         FROM STREAM readings WHERE celsius > 95;\n",
        source = place.source,
        sink = place.sink(&[]),
    )
}

impl Place<'_> {
    fn sink(&self, own: &[(&str, &str)]) -> String {
        let all: Vec<_> = self.receiver.iter().chain(own).copied().collect();
        sql_options(&all, &[])
    }
}

fn csv(path: &Path) -> String {
    let path = path.display().to_string();
    sql_options(&[("path", path.as_str()), ("header", "true")], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(case: Case) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let receiver = match case.target() {
            Target::Webhook => vec![("url", "http://127.0.0.1:9/alerts")],
            Target::Email => vec![("host", "127.0.0.1"), ("port", "9")],
            Target::Kafka => vec![("kafka.bootstrap.servers", "127.0.0.1:9"), ("topic", "alerts")],
        };
        let source = "kafka OPTIONS ('kafka.bootstrap.servers' = '127.0.0.1:9', \
                      'subscribe' = 'in', 'startingOffsets' = 'earliest')";
        let place = Place { source, receiver, directory: directory.path() };
        case.pipeline(&place).expect("its files can be written")
    }

    #[test]
    fn what_is_looked_up_is_beside_the_pipeline() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place { source: "noop", receiver: Vec::new(), directory: directory.path() };
        let text = Case::Emergency.pipeline(&place).expect("it can be written");
        let path = directory.path().join("buildings.csv");
        assert!(text.contains(&path.display().to_string()), "{text}");
        let rows = std::fs::read_to_string(path).expect("it was written");
        assert_eq!(rows.lines().nth(3), Some("B2,Mill Lane 2,guard-2"));
        assert_eq!(rows.lines().count() as u64, BUILDINGS + 1);
    }

    #[test]
    fn patterns_have_their_backslashes() {
        let text = pipeline(Case::Leak);
        let pattern = r"RLIKE '\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b'";
        assert_eq!(text.matches(pattern).count(), 2, "{text}");
        assert!(text.contains("'subject' = 'Leak {number} in the log of {service}'"), "{text}");
    }

    #[test]
    fn each_case_has_one_source_and_one_sink() {
        for case in Case::value_variants() {
            let text = pipeline(*case);
            assert_eq!(text.matches("FROM STREAM").count(), 1, "{text}");
            assert_eq!(text.matches("INSERT INTO").count(), 1, "{text}");
        }
    }
}
