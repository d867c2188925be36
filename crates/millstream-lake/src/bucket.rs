//! Tables clustered by a column: all rows with one value of it are in files of one bucket.
//!
//! A file's bucket stands in its name, as Spark has the buckets of its own tables in names:
//! `part-00000-...-c000.bucket-3-of-8-by-user_id.snappy.parquet`. The protocol gives names no
//! meaning, so other readers read such a table as any other; a file by another writer has no
//! bucket, and a file that is copied or restored keeps its own. A property of the table would be
//! taken for true of files by writers that do not know it.
//!
//! The bucket of a value must never change: it is the remainder of a hash, which is defined here.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Int64Type};

/// The most buckets that a table may have: each is a file of every writer in every commit.
pub const BUCKETS_MAX: u32 = 1_024;

/// Where a file is among those of a clustered table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The remainder of the hash of each row's value, divided by [`Self::of`].
    pub number: u32,
    /// How many buckets there are.
    pub of: u32,
    /// The column.
    pub column: String,
}

/// How rows are divided among buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterBy {
    /// A column of the table, whose name [`can_name`] takes.
    pub column: String,
    /// From 1 to [`BUCKETS_MAX`].
    pub buckets: u32,
}

/// Whether a column's name can stand in names of files.
pub fn can_name(column: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=64).contains(&column.len()) && column.bytes().all(is_plain)
}

/// Whether values of a type have a bucket. Equal values must be equal as bytes, which numbers with
/// a fraction are not.
pub fn can_hash(data_type: &DataType) -> bool {
    data_type.is_signed_integer()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
}

impl Bucket {
    /// What stands in a file's name before its codec.
    pub(crate) fn in_name(&self) -> String {
        format!(".bucket-{}-of-{}-by-{}", self.number, self.of, self.column)
    }

    /// The bucket that the path of a file names, if it names one.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (_, bucket) = name.split_once(".bucket-")?;
        let (number, rest) = bucket.split_once("-of-")?;
        let (of, rest) = rest.split_once("-by-")?;
        let (column, _) = rest.split_once('.')?;
        let digits = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
        let (number, of) = (digits(number)?, digits(of)?);
        let is_one = number < of && of <= BUCKETS_MAX && can_name(column);
        is_one.then(|| Self { number, of, column: column.to_owned() })
    }
}

/// The rows of each bucket, in their order.
pub(crate) fn split(
    rows: &RecordBatch,
    column: usize,
    buckets: u32,
) -> Result<Vec<(u32, RecordBatch)>, String> {
    let mut indices = vec![Vec::new(); buckets as usize];
    for (row, hash) in hashes(rows.column(column))?.into_iter().enumerate() {
        let row = u32::try_from(row).map_err(|error| error.to_string())?;
        indices[(hash % u64::from(buckets)) as usize].push(row);
    }
    let filled = (0..buckets).zip(indices).filter(|(_, indices)| !indices.is_empty());
    let taken = filled.map(|(bucket, indices)| {
        let rows = take_record_batch(rows, &UInt32Array::from(indices));
        Ok((bucket, rows.map_err(|error| error.to_string())?))
    });
    taken.collect()
}

/// The hash of each value: of a number, a date or a time by [`mixed`]; of text and bytes by FNV-1a
/// of 64 bits, mixed; zero for NULL.
fn hashes(values: &ArrayRef) -> Result<Vec<u64>, String> {
    let is_bytes = values.data_type().is_string() || values.data_type().is_binary();
    let wanted = if is_bytes { DataType::Binary } else { DataType::Int64 };
    let whole = match values.data_type() {
        // Arrow casts no date to 64 bits at once.
        DataType::Date32 => cast(values, &DataType::Int32).and_then(|days| cast(&days, &wanted)),
        _ => cast(values, &wanted),
    };
    let whole = whole.map_err(|error| error.to_string())?;
    let hash = |row: usize| match whole.is_valid(row) {
        false => 0,
        true if is_bytes => {
            let fold = |hash: u64, byte: &u8| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            };
            let bytes = whole.as_binary::<i32>().value(row);
            mixed(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
        }
        true => mixed(whole.as_primitive::<Int64Type>().value(row).cast_unsigned()),
    };
    Ok((0..whole.len()).map(hash).collect())
}

/// Spreads numbers.
///
/// Origin: the finalizer of Sebastiano Vigna's splitmix64.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Int32Array, Int64Array, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn the_hash_of_a_value_never_changes() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), Some(1), None]));
        let found = hashes(&numbers).expect("numbers have hashes");
        assert_eq!(found, [0, 0x5692_161d_100b_05e5, 0]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
        let found = hashes(&texts).expect("texts have hashes");
        assert_eq!(found, [mixed(0xaf63_dc4c_8601_ec8c), mixed(0xcbf2_9ce4_8422_2325)]);
    }

    #[test]
    fn the_hash_depends_on_the_value_and_not_on_its_arrow_type() {
        let same = |left: ArrayRef, right: ArrayRef| {
            assert_eq!(hashes(&left).expect("hashes"), hashes(&right).expect("hashes"));
        };
        let (wide, narrow) = (Int64Array::from(vec![5, -5]), Int32Array::from(vec![5, -5]));
        same(Arc::new(wide), Arc::new(narrow.clone()));
        same(Arc::new(Date32Array::from(vec![5, -5])), Arc::new(narrow));
        let words = vec!["a", "longer than what is inlined"];
        same(Arc::new(StringArray::from(words.clone())), Arc::new(StringViewArray::from(words)));
    }

    #[test]
    fn a_bucket_is_read_back_from_its_name() {
        let bucket = Bucket { number: 3, of: 8, column: "user_id".to_owned() };
        let path = format!("day=1/part-00000-x-c000{}.snappy.parquet", bucket.in_name());
        assert_eq!(Bucket::of_path(&path), Some(bucket));
        for other in [
            "part-00000-x-c000.snappy.parquet",
            "part-00000-x-c000.bucket-8-of-8-by-user_id.snappy.parquet",
            "part-00000-x-c000.bucket-1-of-8-by-a%20b.snappy.parquet",
            "part-00000-x-c000.bucket-+1-of-8-by-a.snappy.parquet",
            "x.bucket-1-of-8-by-a.parquet/part-0.parquet",
        ] {
            assert_eq!(Bucket::of_path(other), None, "{other}");
        }
    }

    #[test]
    fn rows_are_spread_evenly_and_all_stay() {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8_000));
        let rows = RecordBatch::try_from_iter([("id", ids)]).expect("a column");
        let parts = split(&rows, 0, 8).expect("they have buckets");
        assert_eq!(parts.iter().map(|(_, rows)| rows.num_rows()).sum::<usize>(), 8_000);
        assert!(parts.iter().all(|(_, rows)| (900..1_100).contains(&rows.num_rows())));
    }
}
