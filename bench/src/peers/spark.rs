//! Apache Spark 4.2 through PySpark. The query is in `bench/peers/spark.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use millstream_testkit::cache;
use millstream_testkit::program::Process;

use crate::error::Error;
use crate::system::{self, Route, SystemUnderTest};

const QUERY: &str = include_str!("../../peers/spark.py");
const REQUIREMENTS: &str = include_str!("../../../tests/spark/requirements.txt");
const POM: &str = include_str!("../../../tests/spark/pom.xml");

/// Spark in one of its modes.
pub struct Spark {
    mode: &'static str,
    partitions: i32,
    python: PathBuf,
    jars: PathBuf,
}

impl Spark {
    /// Downloads Spark, if need be. `mode` is the script's first argument.
    pub fn new(mode: &'static str, partitions: i32) -> Result<Self, Error> {
        let python = cache::python("pyspark-4.2.0", REQUIREMENTS)?.join("bin/python");
        let jars = cache::jars("spark-jars-4.2.0", POM)?;
        Ok(Self { mode, partitions, python, jars })
    }
}

impl SystemUnderTest for Spark {
    fn start(&self, route: Route<'_>, directory: &Path) -> Result<Process, Error> {
        let mut python = Command::new(&self.python);
        python.arg(system::write(directory, "spark.py", QUERY)?).arg(self.mode);
        python.arg(&self.jars).args([route.brokers, route.from, route.to]);
        python.arg(directory.join("checkpoint")).arg(self.partitions.to_string());
        python.current_dir(directory).env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
        Ok(Process::start("Spark", python, &directory.join("spark.log"))?)
    }
}
