//! Rows to the bytes of one file.
//!
//! Timestamps in JSON end at the millisecond, as Spark writes them; in the other formats they are
//! whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use millstream_engine::connector::OptionError;
use millstream_engine::json::{self, EncodeOptions};
use millstream_engine::sql::spark_type;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::csv::write_value;
use super::options::{Format, WriteOptions};

/// Errors if files of the format cannot hold rows of `schema`.
pub(super) fn check(options: &WriteOptions, schema: &Schema) -> Result<(), OptionError> {
    let fields = schema.fields();
    match options.format {
        Format::Parquet => Ok(()),
        Format::Text => {
            if fields.len() == 1 && is_text(fields[0].data_type()) {
                return Ok(());
            }
            let columns: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), spark_type(field.data_type())))
                .collect();
            Err(OptionError::table(
                format!(
                    "text files hold one STRING column, and the query has {}",
                    columns.join(", ")
                ),
                Some("build one text column, for example with concat_ws, or write json".into()),
            ))
        }
        Format::Csv => {
            for field in fields {
                let data_type = field.data_type();
                let wanted = spark_type(data_type);
                if data_type.is_nested() || wanted == "BINARY" || json::check(data_type).is_err() {
                    return Err(OptionError::table(
                        format!("column {}: csv cannot hold {wanted}", field.name()),
                        Some("convert it to STRING in the query, or write json".into()),
                    ));
                }
            }
            Ok(())
        }
        Format::Json => {
            for field in fields {
                json::check(field.data_type()).map_err(|error| {
                    OptionError::table(format!("column {}: {error}", field.name()), None)
                })?;
            }
            Ok(())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Writes `rows` to the new file `path` and forces them to the disk; gives the file's size.
pub(super) fn write(
    path: &Path,
    options: &WriteOptions,
    schema: &SchemaRef,
    rows: &[RecordBatch],
) -> io::Result<u64> {
    let mut out = BufWriter::new(File::create(path)?);
    match options.format {
        Format::Json => write_json(&mut out, options, rows)?,
        Format::Csv => write_csv(&mut out, options, schema, rows)?,
        Format::Text => {
            for rows in rows {
                write_lines(&mut out, &text(rows, 0)?)?;
            }
        }
        Format::Parquet => write_parquet(&mut out, schema, rows)?,
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn write_json(
    out: &mut impl Write,
    options: &WriteOptions,
    rows: &[RecordBatch],
) -> io::Result<()> {
    let encode_options = EncodeOptions { ignore_null_fields: options.ignore_null_fields };
    for rows in rows {
        let objects = StructArray::from(rows.clone());
        write_lines(out, &json::encode(&objects, encode_options).map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn write_lines(out: &mut impl Write, lines: &StringArray) -> io::Result<()> {
    for line in lines {
        out.write_all(line.unwrap_or_default().as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn write_csv(
    out: &mut impl Write,
    options: &WriteOptions,
    schema: &SchemaRef,
    rows: &[RecordBatch],
) -> io::Result<()> {
    let separator = char::from(options.csv.separator);
    let mut line = String::new();
    if options.csv.header {
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                line.push(separator);
            }
            write_value(Some(field.name()), &options.csv, &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    for rows in rows {
        let columns = rows.columns().iter().map(|values| json::plain_texts(values));
        let columns = columns.collect::<Result<Vec<StringArray>, _>>().map_err(io::Error::other)?;
        for row in 0..rows.num_rows() {
            line.clear();
            for (index, column) in columns.iter().enumerate() {
                if index > 0 {
                    line.push(separator);
                }
                let value = column.is_valid(row).then(|| column.value(row));
                write_value(value, &options.csv, &mut line);
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
    }
    Ok(())
}

fn text(rows: &RecordBatch, column: usize) -> io::Result<StringArray> {
    let text = cast(rows.column(column), &DataType::Utf8).map_err(io::Error::other)?;
    Ok(text.as_string::<i32>().clone())
}

fn write_parquet(
    out: &mut (impl Write + Send),
    schema: &SchemaRef,
    rows: &[RecordBatch],
) -> io::Result<()> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties));
    let mut writer = writer.map_err(io::Error::from)?;
    for rows in rows {
        writer.write(rows).map_err(io::Error::from)?;
    }
    writer.close().map_err(io::Error::from)?;
    Ok(())
}
