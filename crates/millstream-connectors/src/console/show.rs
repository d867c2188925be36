//! A table of text, as Spark's `show()` draws it.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::DateTime;
use millstream_sql::types::is_variant;
use millstream_sql::variant::text_of;

const COLUMN_WIDTH_MIN: usize = 3;

/// Draws `rows` as a table that ends in a line break. Cells are cut at `cell_characters_max` and
/// right-aligned; with `None` they are whole and left-aligned.
///
/// Origin: Spark's `Dataset.show`.
pub fn show(
    schema: &Schema,
    rows: &[RecordBatch],
    cell_characters_max: Option<usize>,
) -> Result<String, ArrowError> {
    let cut = |text: &str| truncate(&escape(text), cell_characters_max);
    let header: Vec<String> = schema.fields().iter().map(|field| cut(field.name())).collect();
    let mut lines = Vec::new();
    for record_batch in rows {
        for row in 0..record_batch.num_rows() {
            let cells = record_batch.columns().iter().map(|column| Ok(cut(&cell(column, row)?)));
            lines.push(cells.collect::<Result<Vec<String>, ArrowError>>()?);
        }
    }
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = std::iter::once(&header).chain(&lines).map(|line| width(&line[column]));
            cells.max().unwrap_or(0).max(COLUMN_WIDTH_MIN)
        })
        .collect();

    let rule = {
        let mut rule = String::from("+");
        widths.iter().for_each(|width| rule.extend(["-".repeat(*width).as_str(), "+"]));
        rule
    };
    let mut table = format!("{rule}\n");
    draw_line(&mut table, &header, &widths, cell_characters_max.is_some());
    table.extend([rule.as_str(), "\n"]);
    for line in &lines {
        draw_line(&mut table, line, &widths, cell_characters_max.is_some());
    }
    table.extend([rule.as_str(), "\n"]);
    Ok(table)
}

fn draw_line(table: &mut String, cells: &[String], widths: &[usize], right_aligned: bool) {
    table.push('|');
    for (cell, column_width) in cells.iter().zip(widths) {
        let padding = " ".repeat(column_width - width(cell));
        let (left, right) = if right_aligned { (&*padding, "") } else { ("", &*padding) };
        table.extend([left, cell, right, "|"]);
    }
    table.push('\n');
}

fn truncate(text: &str, characters_max: Option<usize>) -> String {
    let Some(characters_max) = characters_max else { return text.to_owned() };
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    // No room for an ellipsis in a very narrow column.
    if characters_max < 4 {
        return text.chars().take(characters_max).collect();
    }
    text.chars().take(characters_max - 3).chain("...".chars()).collect()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            '\u{b}' => escaped.push_str("\\v"),
            '\u{7}' => escaped.push_str("\\a"),
            // Anything else that moves a terminal's cursor or changes its colours.
            control if control.is_control() => escaped.extend(control.escape_unicode()),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Columns on a terminal: East Asian wide characters take two.
fn width(text: &str) -> usize {
    text.chars().map(|character| if is_wide(character) { 2 } else { 1 }).sum()
}

fn is_wide(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' | '\u{fe10}'..='\u{fe19}' | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}')
}

/// One value as Spark casts it for showing.
fn cell(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    if column.is_null(row) {
        return Ok("NULL".into());
    }
    Ok(match column.data_type() {
        DataType::Null => "NULL".into(),
        DataType::Timestamp(_, _) => timestamp(column, row)?,
        DataType::Time64(_) => time_of_day(column, row)?,
        DataType::Float32 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            float(f64::from(value), &format!("{value:e}"), value.abs() >= 1e-3 && value.abs() < 1e7)
        }
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            float(value, &format!("{value:e}"), value.abs() >= 1e-3 && value.abs() < 1e7)
        }
        DataType::Binary => bytes(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(column.as_fixed_size_binary().value(row)),
        DataType::List(_) => list(&column.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(_, _) => list(&column.as_fixed_size_list().value(row))?,
        of if is_variant(of) => {
            let text = text_of(column, row)
                .map_err(|error| ArrowError::from_external_error(Box::new(error)))?;
            text.unwrap_or_else(|| "NULL".into())
        }
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter().map(|field| cell(field, row));
            format!("{{{}}}", fields.collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        DataType::Map(_, _) => {
            let entries = column.as_map().value(row);
            let pairs = (0..entries.len()).map(|entry| {
                let (key, value) =
                    (cell(entries.column(0), entry)?, cell(entries.column(1), entry)?);
                Ok::<_, ArrowError>(format!("{key} -> {value}"))
            });
            format!("{{{}}}", pairs.collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        _ => plain(column, row)?,
    })
}

fn plain(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    ArrayFormatter::try_new(column.as_ref(), &FormatOptions::new())?.value(row).try_to_string()
}

/// `12:30:00.5`, without trailing zeros of the fraction.
fn time_of_day(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    let text = plain(column, row)?;
    let digits: &str = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    Ok(digits.to_owned())
}

fn list(values: &ArrayRef) -> Result<String, ArrowError> {
    let cells = (0..values.len()).map(|row| cell(values, row));
    Ok(format!("[{}]", cells.collect::<Result<Vec<_>, _>>()?.join(", ")))
}

fn bytes(value: &[u8]) -> String {
    let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("[{}]", hex.join(" "))
}

/// `2026-01-01 00:00:00.25`, in UTC, without trailing zeros.
fn timestamp(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    let micros = arrow::compute::cast(
        &column.slice(row, 1),
        &DataType::Timestamp(TimeUnit::Microsecond, None),
    )?;
    let value = micros.as_primitive::<TimestampMicrosecondType>().value(0);
    let Some(moment) = DateTime::from_timestamp_micros(value) else { return Ok(value.to_string()) };
    let mut text = moment.format("%Y-%m-%d %H:%M:%S").to_string();
    let fraction = moment.timestamp_subsec_micros();
    if fraction > 0 {
        let _ = write!(text, "{}", format!(".{fraction:06}").trim_end_matches('0'));
    }
    Ok(text)
}

/// As Java prints it: `1.0`, `1.0E10`, `1.0E-5`, `NaN`, `Infinity`.
fn float(value: f64, scientific: &str, plain: bool) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0".into() } else { "0.0".into() };
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    if plain {
        return plain_decimal(mantissa, exponent.parse().unwrap_or(0));
    }
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}E{exponent}")
}

/// Moves the point of `mantissa` by `exponent`; keeps the shortest digits of the original type.
fn plain_decimal(mantissa: &str, exponent: i32) -> String {
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = 1 + exponent;
    if point <= 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    let point = point.unsigned_abs() as usize;
    if digits.len() <= point {
        return format!("{sign}{digits}{}.0", "0".repeat(point - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}
