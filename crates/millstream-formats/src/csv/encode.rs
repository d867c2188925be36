//! Encodes rows as lines of separated values.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use millstream_sql::json;

use super::CsvOptions;

/// Writes the line of column names.
pub fn write_header(out: &mut impl Write, options: &CsvOptions, schema: &Schema) -> io::Result<()> {
    let mut line = String::new();
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            line.push(char::from(options.separator));
        }
        write_value(Some(field.name()), options, &mut line);
    }
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// Writes a line for each row.
pub fn write_rows(
    out: &mut impl Write,
    options: &CsvOptions,
    rows: &RecordBatch,
) -> io::Result<()> {
    let mut line = String::new();
    let columns = rows.columns().iter().map(json::plain_texts);
    let columns = columns.collect::<Result<Vec<StringArray>, _>>().map_err(io::Error::other)?;
    for row in 0..rows.num_rows() {
        line.clear();
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                line.push(char::from(options.separator));
            }
            let value = column.is_valid(row).then(|| column.value(row));
            write_value(value, options, &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Appends `value` to a line so that splitting gives it back; `None` is null.
pub fn write_value(value: Option<&str>, options: &CsvOptions, line: &mut String) {
    let Some(value) = value else { return line.push_str(&options.null_value) };
    let Some(quote) = options.quote else { return line.push_str(value) };
    let special = [options.separator, quote, b'\n', b'\r'];
    let is_plain = !value.bytes().any(|byte| special.contains(&byte));
    // An empty text, and one that looks like null, is quoted, so that reading does not take it for
    // null.
    if is_plain && !value.is_empty() && value != options.null_value {
        return line.push_str(value);
    }
    let escape = options.escape.unwrap_or(quote);
    line.push(char::from(quote));
    for character in value.chars() {
        if character == char::from(quote) || character == char::from(escape) {
            line.push(char::from(escape));
        }
        line.push(character);
    }
    line.push(char::from(quote));
}
