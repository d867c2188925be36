//! Apache Flink 2.2, a SQL script in one Java process. Its launcher is
//! `bench/peers/FlinkRelay.java`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use millstream_testkit::program::{self, Process};
use millstream_testkit::{cache, error as kit};

use crate::engine::{Delivery, sql_options};
use crate::error::Error;
use crate::report;
use crate::system::{self, Route, SystemUnderTest};

const LAUNCHER: &str = include_str!("../../peers/FlinkRelay.java");
const REQUIREMENTS: &str = include_str!("../../peers/flink-requirements.txt");
const POM: &str = include_str!("../../peers/flink-pom.xml");

/// Flink with one way to deliver.
pub struct Flink {
    delivery: Delivery,
    checkpoints: &'static str,
    files: PathBuf,
}

impl Flink {
    /// Downloads Flink, if need be. `checkpoints` is their interval.
    pub fn new(delivery: Delivery, checkpoints: &'static str) -> Result<Self, Error> {
        let recipe = [REQUIREMENTS, POM].concat();
        let files = cache::prepared("flink-2.2.1", &recipe, download)?;
        Ok(Self { delivery, checkpoints, files })
    }
}

/// The wheel's `lib` directory has what a cluster's has.
fn download(directory: &Path) -> Result<(), kit::Error> {
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).map_err(kit::Error::file("write", &requirements))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.arg("--target").arg(directory).arg("--requirement").arg(requirements);
    let remedy = "install Python: apt-get install python3 python3-pip";
    program::run("downloading Flink with pip", pip, remedy)?;
    cache::add_jars(directory, POM)
}

impl SystemUnderTest for Flink {
    fn start(&self, route: Route<'_>, directory: &Path) -> Result<Process, Error> {
        let launcher = system::write(directory, "FlinkRelay.java", LAUNCHER)?;
        let script = system::write(directory, "relay.sql", &script(route, self.delivery))?;
        let mut java = Command::new("java");
        for package in ["java.util", "java.lang", "java.net"] {
            java.arg(format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
        }
        let (flink, connector) = (self.files.join("pyflink/lib/*"), self.files.join("*"));
        let classes = format!("{}:{}", flink.display(), connector.display());
        java.args(["-Xmx1g", "-cp", &classes]).arg(launcher).arg(script);
        java.arg(directory.join("checkpoints")).arg(self.checkpoints).current_dir(directory);
        Ok(Process::start("Flink", java, &directory.join("flink.log"))?)
    }
}

fn script(route: Route<'_>, delivery: Delivery) -> String {
    let Route { brokers, from, to } = route;
    let guarantee = report::name(&delivery);
    let common = [
        ("connector", "kafka"),
        ("properties.bootstrap.servers", brokers),
        ("key.format", "raw"),
        ("key.fields", "k"),
        ("value.format", "raw"),
        ("value.fields-include", "EXCEPT_KEY"),
    ];
    let source = [
        ("topic", from),
        ("properties.group.id", from),
        ("scan.startup.mode", "latest-offset"),
        ("properties.fetch.max.wait.ms", "10"),
    ];
    let sink = [
        ("topic", to),
        ("properties.linger.ms", "0"),
        ("sink.delivery-guarantee", &guarantee),
        ("sink.transactional-id-prefix", to),
        // The default of an hour is more than brokers allow.
        ("properties.transaction.timeout.ms", "60000"),
    ];
    let columns = "(k STRING, v STRING) WITH";
    format!(
        "CREATE TABLE source {columns} ({});\nCREATE TABLE target {columns} ({});\n\
         INSERT INTO target SELECT k, v FROM source WHERE v IS NOT NULL;\n",
        sql_options(&[&common[..], &source].concat(), &[]),
        sql_options(&[&common[..], &sink].concat(), &[]),
    )
}
