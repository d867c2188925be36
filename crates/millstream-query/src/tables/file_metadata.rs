//! What a query that names `_metadata` asks of a file.

use datafusion::common::{Result, ScalarValue, internal_err};
use millstream_engine::api::snapshot::DataFile;
use millstream_sql::query::file_metadata::field_of;
use url::Url;

/// The value of a hidden column for the rows of `file`, which is at `url`. A file is taken to be
/// read as one block.
pub(super) fn value(column: &str, url: &Url, file: &DataFile) -> Result<ScalarValue> {
    let long = |number: u64| ScalarValue::Int64(i64::try_from(number).ok());
    Ok(match field_of(column) {
        Some("file_path") => ScalarValue::from(written(url)),
        Some("file_name") => ScalarValue::Utf8(url.path().rsplit('/').next().map(str::to_owned)),
        Some("file_size" | "file_block_length") => long(file.bytes),
        Some("file_block_start") => long(0),
        Some("file_modification_time") => {
            let us = file.modified_ms.saturating_mul(1_000);
            ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into()))
        }
        _ => return internal_err!("a file has no {column}"),
    })
}

/// A place as Spark writes it: `s3://bucket/a%20b.parquet`, and `file:/a%20b.parquet` without a
/// host.
fn written(url: &Url) -> String {
    match url.host_str() {
        Some(host) if !host.is_empty() => format!("{}://{host}{}", url.scheme(), url.path()),
        _ => format!("{}:{}", url.scheme(), url.path()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_spark_writes_them() {
        for (url, wanted) in [
            ("file:///lake/a%20b/c.parquet", "file:/lake/a%20b/c.parquet"),
            ("s3://bucket/lake/c.parquet", "s3://bucket/lake/c.parquet"),
        ] {
            assert_eq!(written(&Url::parse(url).expect("a URL")), wanted);
        }
    }
}
