//! Rows in any order, told apart from others by their number and a sum over their contents.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Decimal128Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

/// Between two values of a row; in no value.
const BETWEEN: u8 = 1;
/// Of the 64-bit FNV-1a hash.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// What is known of many rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// How many there are.
    pub count: u64,
    /// The sum of their hashes: it changes when a row is lost, doubled or another.
    sum: u64,
}

impl Rows {
    /// Adds a row of these values: numbers in digits, times as microseconds since the epoch.
    pub fn add(&mut self, values: &[&dyn std::fmt::Display]) {
        let values: Vec<_> = values.iter().map(|value| Some(value.to_string())).collect();
        self.add_texts(values.iter().map(Option::as_deref));
    }

    /// Adds the rows of a record batch. `Err`: a column has a type that no query gives.
    pub fn add_batch(&mut self, rows: &RecordBatch) -> Result<(), String> {
        let columns: Result<Vec<_>, _> =
            rows.columns().iter().map(|column| texts(column)).collect();
        let columns = columns?;
        for row in 0..rows.num_rows() {
            self.add_texts(columns.iter().map(|column| column[row].as_deref()));
        }
        Ok(())
    }

    fn add_texts<'t>(&mut self, values: impl Iterator<Item = Option<&'t str>>) {
        let mut hash = BASIS;
        let mut eat = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        for value in values {
            value.unwrap_or("\u{2}").bytes().for_each(&mut eat);
            eat(BETWEEN);
        }
        self.count += 1;
        self.sum = self.sum.wrapping_add(spread(hash));
    }
}

/// Lets each bit of a hash decide about all others. FNV's last bytes change so little that the sum
/// would stay the same where two rows had changed places with one value.
fn spread(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

fn texts(column: &dyn Array) -> Result<Vec<Option<String>>, String> {
    let text = |value: i64| value.to_string();
    let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
    let of = |values: &mut dyn Iterator<Item = Option<i64>>| {
        values.map(|value| value.map(text)).collect::<Vec<_>>()
    };
    Ok(match column.data_type() {
        DataType::Utf8 => {
            column.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect()
        }
        DataType::Int64 => of(&mut column.as_primitive::<Int64Type>().iter()),
        DataType::Int32 => {
            of(&mut column.as_primitive::<Int32Type>().iter().map(|value| value.map(i64::from)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            of(&mut column.as_primitive::<TimestampMicrosecondType>().iter())
        }
        DataType::Decimal128(_, _) => {
            let column = column.as_primitive::<Decimal128Type>();
            let text = |row| (!column.is_null(row)).then(|| column.value_as_string(row));
            (0..column.len()).map(text).collect()
        }
        other => return Err(format!("a column of type {other}, and not {microseconds} or so")),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, StringArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn rows_of_a_table_are_those_that_were_expected() {
        let price = Decimal128Array::from(vec![90_800, 5]).with_precision_and_scale(24, 3);
        let columns: Vec<(&str, Arc<dyn Array>)> = vec![
            ("id", Arc::new(Int64Array::from(vec![7, 8]))),
            ("price", Arc::new(price.expect("it fits"))),
            ("at", Arc::new(TimestampMicrosecondArray::from(vec![1_000, 2_000]))),
            ("name", Arc::new(StringArray::from(vec!["a", "b"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("they are as long as each other");
        let mut found = Rows::default();
        found.add_batch(&batch).expect("types are known");
        let mut expected = Rows::default();
        expected.add(&[&8, &"0.005", &2_000, &"b"]);
        expected.add(&[&7, &"90.800", &1_000, &"a"]);
        assert_eq!(found, expected);
        let mut other = Rows::default();
        other.add(&[&8, &"0.005", &2_000, &"a"]);
        other.add(&[&7, &"90.800", &1_000, &"b"]);
        assert_ne!(found, other);
    }
}
