//! Columns of a table that declares none, from its first files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::api::options::OptionError;
use millstream_formats::infer::csv_columns;
use serde_json::Value;

use super::error::FileError;
use super::lines::{Lines, Skip};
use super::listing::{FileStatus, Place};
use super::options::{Format, ReadOptions};
use super::parquet;

/// Records that are looked at to learn the columns of JSON.
const SAMPLE_ROWS: usize = 10_000;

/// The only column of a table of text files.
pub(super) fn text_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Utf8, true)]))
}

/// The columns that the files have now.
pub(super) fn columns(options: &ReadOptions, base_dir: &Path) -> Result<SchemaRef, OptionError> {
    let failed = |error: FileError| {
        let problem = format!("the columns cannot be read from the files: {error}");
        OptionError::of("path", problem, Some("declare the columns".into()))
    };
    let place = Place::new(base_dir, &options.path, options.recursive).map_err(failed)?;
    let files = place.list(&|_| true).map_err(failed)?;
    let Some(first) = files.first() else {
        return Err(OptionError::of(
            "path",
            format!("there is no file in '{}' to read the columns from", options.path),
            Some("declare the columns, or put a file there first".into()),
        ));
    };
    let open = |file: &FileStatus| {
        File::open(&file.path).map_err(|error| failed(FileError::reading(&file.path, error)))
    };
    match options.format {
        Format::Text => Ok(text_columns()),
        Format::Parquet => parquet::columns(open(first)?, &first.path).map_err(failed),
        Format::Csv => {
            let skip = Skip { blank: true, header: false };
            let line = first_line(Lines::new(open(first)?, skip), first).map_err(failed)?;
            Ok(csv_columns(&line, &options.csv))
        }
        Format::Json => {
            let mut sample = Vec::new();
            for file in &files {
                let skip = Skip { blank: true, header: false };
                extend_sample(&mut sample, Lines::new(open(file)?, skip), file).map_err(failed)?;
            }
            json_columns(&sample)
        }
    }
}

fn first_line(mut lines: Lines, file: &FileStatus) -> Result<Vec<u8>, FileError> {
    let block = lines.next_block().map_err(|error| FileError::reading(&file.path, error))?;
    Ok(block.map(|block| block.line(0).to_vec()).unwrap_or_default())
}

fn extend_sample(
    sample: &mut Vec<Value>,
    mut lines: Lines,
    file: &FileStatus,
) -> Result<(), FileError> {
    while sample.len() < SAMPLE_ROWS {
        let block = lines.next_block().map_err(|error| FileError::reading(&file.path, error))?;
        let Some(block) = block else { break };
        let values =
            (0..block.len()).filter_map(|row| serde_json::from_slice(block.line(row)).ok());
        sample.extend(values.filter(Value::is_object).take(SAMPLE_ROWS - sample.len()));
    }
    Ok(())
}

fn json_columns(sample: &[Value]) -> Result<SchemaRef, OptionError> {
    let undecided = |problem: String| {
        let problem = format!("the columns cannot be read from the files: {problem}");
        Err(OptionError::of("path", problem, Some("declare the columns".into())))
    };
    if sample.is_empty() {
        return undecided("no line of them is a JSON object".into());
    }
    millstream_formats::infer::json_columns(sample).or_else(undecided)
}
