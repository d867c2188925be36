//! The table that is looked up: its columns beside the declared ones, and keys as it has them.

use std::net::IpAddr;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use scylla::cluster::metadata::Table;
use scylla::frame::response::result::{ColumnType, NativeType};
use uuid::Uuid;

use super::options::LookupOptions;
use crate::rows::KEY_BYTES_MAX;
use crate::table::{Misfit, find, quoted};
use crate::types::{Encoding, Fit, Mismatch, append_cell, check_readable, fit};

/// A table whose rows are asked for.
pub(super) struct Source {
    /// By column of the table's key, in the key's order.
    key: Vec<KeyColumn>,
    /// How many of them make the partition key.
    partition_columns: usize,
    /// By declared column, its name as CQL takes it.
    names: Vec<String>,
    place: String,
}

struct KeyColumn {
    /// Its place among the declared columns of the key.
    place: usize,
    /// Its name as CQL takes it.
    name: String,
    fit: Fit,
}

impl Source {
    /// Matches the declared columns with those of the table.
    ///
    /// # Errors
    /// A column is not there or has another type, or the key is not the table's.
    pub(super) fn new(options: &LookupOptions, table: &Table) -> Result<Self, Misfit> {
        let schema = &options.form.schema;
        let mut names = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let (name, column) = find(table, field.name())?;
            check_readable(field.data_type(), &column.typ)
                .map_err(|mismatch| (field.name().clone(), mismatch))?;
            names.push(name.clone());
        }
        let own: Vec<&String> = table.partition_key.iter().chain(&table.clustering_key).collect();
        let declared: Vec<&String> = options.form.key.iter().map(|index| &names[*index]).collect();
        let differs = declared.iter().find(|name| !own.contains(*name));
        if let Some(name) = differs.or(own.iter().find(|name| !declared.contains(*name))) {
            let all: Vec<&str> = own.iter().map(|name| name.as_str()).collect();
            let problem = format!("the table's key is ({})", all.join(", "));
            let remedy = format!("set 'key.column' = '{}'", all.join(", "));
            return Err(((*name).clone(), Mismatch::new(problem, remedy)));
        }
        let column = |name: &&String| -> Result<KeyColumn, Misfit> {
            let place = declared.iter().position(|other| other == name).expect("it was compared");
            let field = schema.field(options.form.key[place]);
            let typ = &table.columns[name.as_str()].typ;
            check_key(typ).map_err(|mismatch| ((*name).clone(), mismatch))?;
            let fit =
                fit(field.data_type(), typ).map_err(|mismatch| (field.name().clone(), mismatch))?;
            Ok(KeyColumn { place, name: quoted(name), fit })
        };
        let key = own.iter().map(column).collect::<Result<_, _>>()?;
        Ok(Self {
            key,
            partition_columns: table.partition_key.len(),
            names: names.iter().map(|name| quoted(name)).collect(),
            place: format!("{}.{}", quoted(&options.keyspace), quoted(&options.table)),
        })
    }

    /// Asks for some declared columns of the row of a key.
    pub(super) fn select(&self, columns: &[usize]) -> String {
        let mut wanted: Vec<&str> =
            columns.iter().map(|column| self.names[*column].as_str()).collect();
        if wanted.is_empty() {
            wanted.push(&self.key[0].name);
        }
        let equal: Vec<String> = self.key.iter().map(|key| format!("{} = ?", key.name)).collect();
        format!("SELECT {} FROM {} WHERE {}", wanted.join(", "), self.place, equal.join(" AND "))
    }

    /// The cells of each key; `None` for one that no row of the table can have. `keys` has the
    /// columns in the order of the declared key.
    pub(super) fn cells(&self, keys: &[ArrayRef]) -> Vec<Option<Vec<u8>>> {
        let rows = keys.first().map_or(0, |column| column.len());
        // A number out of the range of the column's type is in no row.
        let may_be_null = CastOptions { safe: true, ..CastOptions::default() };
        let cast = |key: &KeyColumn| {
            let array = &keys[key.place];
            cast_with_options(array, &key.fit.cast, &may_be_null)
                .unwrap_or_else(|_| arrow::array::new_null_array(&key.fit.cast, rows))
        };
        let arrays: Vec<ArrayRef> = self.key.iter().map(cast).collect();
        (0..rows).map(|row| self.cell(&arrays, row)).collect()
    }

    fn cell(&self, arrays: &[ArrayRef], row: usize) -> Option<Vec<u8>> {
        let mut cells = Vec::new();
        for (at, (key, array)) in self.key.iter().zip(arrays).enumerate() {
            if array.is_null(row) || !is_as_shown(&key.fit.encoding, array, row) {
                return None;
            }
            let start = cells.len();
            append_cell(&key.fit.encoding, &**array, row, -1, &mut cells).ok()?;
            let bytes = cells.len() - start - 4;
            let is_empty = bytes == 0 && self.partition_columns == 1 && at == 0;
            if is_empty || bytes > KEY_BYTES_MAX {
                return None;
            }
        }
        Some(cells)
    }
}

/// Of some types one value has several forms: DECIMAL 1.0 and 1.00 are different partitions.
fn check_key(typ: &ColumnType<'_>) -> Result<(), Mismatch> {
    match typ {
        ColumnType::Native(NativeType::Decimal) => {
            let problem = "it is a decimal, of which equal values are different keys";
            Err(Mismatch::new(problem, "look rows up by a varint or a text"))
        }
        _ => Ok(()),
    }
}

/// Whether a text is the one that the table's value is read as: only that one equals it.
fn is_as_shown(encoding: &Encoding, array: &ArrayRef, row: usize) -> bool {
    let text = || array.as_string::<i32>().value(row);
    match encoding {
        Encoding::Uuid { .. } => Uuid::parse_str(text()).is_ok_and(|id| id.to_string() == text()),
        Encoding::Inet => {
            text().parse::<IpAddr>().is_ok_and(|address| address.to_string() == text())
        }
        _ => true,
    }
}
