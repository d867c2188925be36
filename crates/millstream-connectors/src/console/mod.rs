//! `USING console`: each micro-batch as a table on standard output, as Spark prints it.
//!
//! For looking at a query while writing it. Micro-batches without rows are not printed, except the
//! first, which shows the columns.

mod show;
mod sink;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_engine::api::sink::{Failure, Sink};
pub use show::show;
pub use sink::{ConsoleSink, OutputClosed};

/// The `console` connector.
pub struct Console;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "numRows",
        side: Side::Sink,
        about: "rows printed of each micro-batch (default 20)",
    },
    OptionSpec {
        name: "truncate",
        side: Side::Sink,
        about: "true cuts cells at 20 characters (the default), false prints all, a number cuts there",
    },
];

/// What a `console` table's options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// Rows printed of each micro-batch.
    pub rows_max: usize,
    /// Characters printed of each cell; `None` prints all.
    pub cell_characters_max: Option<usize>,
}

impl ConsoleOptions {
    /// Reads the options of a table.
    pub fn parse(options: &Options) -> Result<Self, OptionError> {
        let rows_max = options.parse("numRows", "a whole number")?.unwrap_or(20);
        let truncate = options.get("truncate").unwrap_or("true");
        let cell_characters_max = match truncate.trim().to_ascii_lowercase().as_str() {
            "true" => Some(20),
            "false" | "0" => None,
            number => match number.parse() {
                Ok(number) => Some(number),
                Err(_) => {
                    let wanted = "true, false or a number of characters";
                    return Err(OptionError::invalid("truncate", truncate, wanted));
                }
            },
        };
        Ok(Self { rows_max, cell_characters_max })
    }
}

impl Connector for Console {
    fn name(&self) -> &'static str {
        "console"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        ConsoleOptions::parse(&table.options).map(|_| ())
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = ConsoleOptions::parse(&table.options)?;
        let out = Box::new(std::io::stdout());
        Ok(Box::new(ConsoleSink::new(options, schema.clone(), out, context.env.clone())))
    }
}

#[cfg(test)]
mod tests;
