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

#[cfg(test)]
mod tests {
    use millstream_sql::csv::Splitter;

    use super::*;

    fn options() -> CsvOptions {
        CsvOptions {
            header: false,
            separator: b',',
            quote: Some(b'"'),
            escape: Some(b'\\'),
            null_value: String::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let null_value_set = CsvOptions { null_value: "NA".into(), ..options() };
        let semicolons = CsvOptions { separator: b';', quote: Some(b'\''), ..options() };
        let doubled = CsvOptions { escape: Some(b'"'), ..options() };
        let parts = ["", "a", ",", ";", "\"", "\\", "'", " ", "NA"];
        for options in [null_value_set, semicolons, doubled] {
            for (a, b) in parts.iter().flat_map(|a| parts.iter().map(move |b| (a, b))) {
                let value = format!("{a}{b}");
                // A quoted null value is null too: that is Spark's rule.
                let is_null = value == options.null_value;
                let mut line = String::new();
                write_value(Some(&value), &options, &mut line);
                line.push(char::from(options.separator));
                write_value(None, &options, &mut line);
                let mut splitter = Splitter::new(&options.dialect());
                assert_eq!(splitter.split(line.as_bytes()), 2, "{line}");
                let read = splitter.value_or_null(0).map(<[u8]>::to_vec);
                let wanted = (!is_null).then(|| value.clone().into_bytes());
                assert_eq!(read, wanted, "{value:?} was written as {line}");
                assert_eq!(splitter.value_or_null(1), None, "{line}");
            }
        }
    }
}
