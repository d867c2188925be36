//! How Kafka's Java is started: for a test, or for a measurement.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache;
use crate::error::Error;

/// The version that is started.
pub const VERSION: &str = "4.3.1";
const POM: &str = include_str!("../../tests/kafka/pom.xml");
/// What Java is to do for a test: start quickly and take little.
const FOR_TESTS: [&str; 2] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// What Kafka's own script for servers asks of Java.
const IN_PRODUCTION: [&str; 4] = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"];
static AS_IN_PRODUCTION: AtomicBool = AtomicBool::new(false);

/// Makes brokers that start from now on run as Kafka's script for servers starts them, and not as
/// a test wants them: with a heap of 1 GiB, the G1 collector and all compilers. For measurements:
/// without its optimizing compiler a broker takes two or three times as long for a request.
pub fn run_as_in_production() {
    AS_IN_PRODUCTION.store(true, Ordering::Relaxed);
}

/// Java with Kafka's jars, in `directory`, with `options` for Java itself.
pub(crate) fn java(directory: &Path, options: &[String]) -> Result<Command, Error> {
    let jars = cache::jars(&format!("kafka-{VERSION}"), POM)?;
    let mut java = Command::new("java");
    // The last of several heaps counts.
    match AS_IN_PRODUCTION.load(Ordering::Relaxed) {
        true => java.args(options).args(IN_PRODUCTION),
        false => java.args(options).args(FOR_TESTS),
    };
    java.arg("-cp").arg(jars.join("*")).current_dir(directory).stdin(Stdio::null());
    Ok(java)
}
