//! Decodes records of any format into columns.

use arrow::datatypes::{Schema, SchemaRef};
use millstream_engine::api::options::OptionError;
use millstream_sql::json::{self, DecodeOptions, Values};

use crate::csv::{CsvDecoder, CsvFormat, CsvOptions};
use crate::records::{Decoded, Malformed, MalformedRecord};

/// The columns of a table, and how its records are decoded into them.
#[derive(Clone, Debug)]
pub struct RecordFormat {
    schema: SchemaRef,
    encoding: Encoding,
}

#[derive(Clone, Debug)]
enum Encoding {
    Json(DecodeOptions),
    Csv(CsvFormat),
}

impl RecordFormat {
    /// Each record is a JSON object.
    /// Errors: a column that JSON cannot be decoded into.
    pub fn json(columns: &Schema, malformed: &Malformed) -> Result<Self, OptionError> {
        let options = DecodeOptions {
            mode: malformed.mode,
            column_name_of_corrupt_record: Some(malformed.column.clone()),
            ignore_case: true,
        };
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        let decoder = json::Decoder::new(columns, &all, options.clone())
            .map_err(|error| OptionError::table(error.to_string(), None))?;
        Ok(Self { schema: decoder.schema().clone(), encoding: Encoding::Json(options) })
    }

    /// Each record is a line of separated values.
    /// Errors: a column that text cannot be converted to.
    pub fn csv(
        columns: &Schema,
        malformed: &Malformed,
        options: CsvOptions,
    ) -> Result<Self, OptionError> {
        let format = CsvFormat::new(columns, malformed, options)?;
        Ok(Self { schema: format.schema().clone(), encoding: Encoding::Csv(format) })
    }

    /// The columns a query sees: nullable wherever a null may come out, whatever was declared.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A decoder for the columns `projection` of [`schema`](Self::schema).
    pub fn decoder(&self, projection: &[usize]) -> RecordDecoder {
        RecordDecoder(match &self.encoding {
            Encoding::Json(options) => {
                let decoder = json::Decoder::new(&self.schema, projection, options.clone());
                Decoding::Json(Box::new(decoder.expect("all columns were checked")))
            }
            Encoding::Csv(format) => Decoding::Csv(Box::new(format.decoder(projection))),
        })
    }
}

/// Decodes records, many at a time; keeps its memory from one time to the next.
pub struct RecordDecoder(Decoding);

enum Decoding {
    Json(Box<json::Decoder>),
    Csv(Box<CsvDecoder>),
}

impl RecordDecoder {
    /// Decodes `values`; malformed ones as the mode says.
    /// Errors: the first malformed record, if the mode is FAILFAST.
    pub fn decode<'a>(
        &mut self,
        values: impl Into<Values<'a>>,
    ) -> Result<Decoded, MalformedRecord> {
        match &mut self.0 {
            Decoding::Json(decoder) => match decoder.decode(values) {
                Ok(json::Decoded { rows, malformed, .. }) => Ok(Decoded { rows, malformed }),
                Err(error) => Err(MalformedRecord { row: error.row, problem: error.to_string() }),
            },
            Decoding::Csv(decoder) => decoder.decode(values.into()),
        }
    }

    /// Decodes `values` but for malformed ones, whatever the mode; `reject` gets each one's row and
    /// what is wrong with it.
    pub fn decode_apart<'a>(
        &mut self,
        values: impl Into<Values<'a>>,
        reject: &mut dyn FnMut(usize, String),
    ) -> Decoded {
        match &mut self.0 {
            Decoding::Json(decoder) => {
                let decoded =
                    decoder.decode_apart(values, |record| reject(record.row, record.in_short()));
                Decoded { rows: decoded.rows, malformed: decoded.malformed }
            }
            Decoding::Csv(decoder) => decoder.decode_apart(values.into(), reject),
        }
    }
}
