//! Log lines: structured, on standard error, warnings only unless asked for more.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::screen::Screen;

/// A filter in the form of `RUST_LOG`, which overrides `-v`.
const FILTER_VARIABLE: &str = "MILLSTREAM_LOG";

/// Sends log lines to `screen` from here on.
///
/// # Errors
/// What is wrong with the filter in the environment.
pub fn start(verbose: u8, screen: &Screen) -> Result<(), String> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => text.parse::<Targets>().map_err(|error| {
            format!("{FILTER_VARIABLE} is '{text}': {error}; an example is 'info,millstream=debug'")
        })?,
        Err(_) => default_filter(verbose).parse().expect("the levels' filters are valid"),
    };
    let screen = screen.clone();
    let lines = fmt::layer().with_ansi(false).with_target(verbose > 1);
    let lines = lines.with_writer(move || screen.clone());
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}

/// What `-v` means. Names of crates are prefixes: `millstream` stands for all of ours. The protocol
/// library of Delta tables logs each error that it returns, which is ours to tell, or none at all:
/// a table that is not there yet. Ballista logs each request of a node that has failed, which a
/// node reports once; Cassandra's driver logs each attempt to connect, several a second, and the
/// flow reports once that nobody answers. What libraries say by way of the crate `log` comes here,
/// too.
fn default_filter(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn,delta_kernel=off,scylla=off,ballista_executor::execution_loop=error",
        1 => {
            "warn,delta_kernel=off,scylla=off,ballista_executor::execution_loop=error,\
             millstream=info,librdkafka=info,rdkafka=info"
        }
        2 => "info,delta_kernel=off,millstream=debug,librdkafka=debug,rdkafka=debug",
        _ => "debug,millstream=trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_a_valid_filter() {
        for verbose in 0..4 {
            assert!(default_filter(verbose).parse::<Targets>().is_ok(), "-v times {verbose}");
        }
    }
}
