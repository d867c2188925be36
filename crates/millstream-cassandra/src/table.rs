//! The table that is written: its columns beside those of the query, and the statements.

use std::fmt::Write as _;

use arrow::datatypes::{DataType, Schema};
use scylla::cluster::metadata::{ColumnKind, Table};
use scylla::frame::response::result::{CollectionType, ColumnType, NativeType};

use crate::options::SinkOptions;
use crate::types::{Encoding, Mismatch, fit, shown};

/// A column of the query, and how its values are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetColumn {
    /// Its index among the query's.
    pub(crate) source: usize,
    /// Its name in the table.
    pub(crate) name: String,
    pub(crate) cast: DataType,
    pub(crate) encoding: Encoding,
}

/// A table that takes the rows of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Those of the partition key first, in the key's order, then those of the clustering key, then
    /// the others.
    pub(crate) columns: Vec<TargetColumn>,
    /// How many of them make the partition key.
    pub(crate) partition_columns: usize,
    /// How many make the whole key.
    pub(crate) key_columns: usize,
    /// Index of the query's column that says which rows are deleted.
    pub(crate) delete: Option<usize>,
    /// Writes a row: a value for each of the columns, then the write time.
    pub(crate) insert: String,
    /// Deletes one: the write time, then a value for each column of the key.
    pub(crate) remove: String,
}

/// A column that does not fit, by name.
pub(crate) type Misfit = (String, Mismatch);

impl Target {
    /// Matches the columns of a query with those of the table.
    ///
    /// # Errors
    /// A column is not there, has another type, or its writes could not be repeated.
    pub(crate) fn new(
        options: &SinkOptions,
        query: &Schema,
        table: &Table,
    ) -> Result<Self, Misfit> {
        check_whole(table)?;
        let mut columns = Vec::with_capacity(query.fields().len());
        for (source, field) in query.fields().iter().enumerate() {
            if options.delete == Some(source) {
                continue;
            }
            let (name, column) = find(table, field.name())?;
            if columns.iter().any(|other: &TargetColumn| other.name == *name) {
                let remedy = "give one of them another name";
                return Err((name.clone(), Mismatch::new("it is there twice", remedy)));
            }
            check_repeatable(name, &column.kind, &column.typ)?;
            let fit = fit(field.data_type(), &column.typ)
                .map_err(|mismatch| (field.name().clone(), mismatch))?;
            let (cast, encoding) = (fit.cast, fit.encoding);
            columns.push(TargetColumn { source, name: name.clone(), cast, encoding });
        }
        let key: Vec<&String> = table.partition_key.iter().chain(&table.clustering_key).collect();
        for name in &key {
            if !columns.iter().any(|column| column.name == **name) {
                let problem = format!(
                    "it is part of the table's key ({}), and the query has no such column",
                    key.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
                );
                let remedy = format!("select it, as in SELECT ... AS {name}");
                return Err(((*name).clone(), Mismatch::new(problem, remedy)));
            }
        }
        let place = |column: &TargetColumn| key.iter().position(|name| **name == column.name);
        // The sort is stable: the others keep the query's order.
        columns.sort_by_key(|column| place(column).unwrap_or(usize::MAX));
        let (partition_columns, key_columns) = (table.partition_key.len(), key.len());
        let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
        let place = format!("{}.{}", quoted(&options.keyspace), quoted(&options.table));
        Ok(Self {
            insert: insert(&place, &names, options.ttl_s),
            remove: remove(&place, &names[..key_columns]),
            columns,
            partition_columns,
            key_columns,
            delete: options.delete,
        })
    }
}

/// What makes the whole table one that cannot be written to exactly once.
fn check_whole(table: &Table) -> Result<(), Misfit> {
    let is_counter = |typ: &ColumnType<'_>| matches!(typ, ColumnType::Native(NativeType::Counter));
    match table.columns.iter().find(|(_, column)| is_counter(&column.typ)) {
        None => Ok(()),
        Some((name, _)) => {
            let problem = "it is a counter: a repeated micro-batch would count twice";
            let remedy = "write sums into a table of bigint, with GROUP BY and 'outputMode' = \
                          'update'";
            Err((name.clone(), Mismatch::new(problem, remedy)))
        }
    }
}

/// The table's column called `name`, by its own name; without regard to case where that is clear.
pub(crate) fn find<'a>(
    table: &'a Table,
    name: &str,
) -> Result<(&'a String, &'a scylla::cluster::metadata::Column), Misfit> {
    if let Some(found) = table.columns.get_key_value(name) {
        return Ok(found);
    }
    let mut alike = table.columns.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    if let (Some(found), None) = (alike.next(), alike.next()) {
        return Ok(found);
    }
    let mut names: Vec<&str> = table.columns.keys().map(String::as_str).collect();
    names.sort_unstable();
    let remedy = format!("its columns are {}; add it there, or leave it out", names.join(", "));
    Err((name.to_owned(), Mismatch::new("the table has no such column", remedy)))
}

/// A repeated write must come to the same as one.
fn check_repeatable(name: &str, kind: &ColumnKind, typ: &ColumnType<'_>) -> Result<(), Misfit> {
    let mismatch = match (kind, typ) {
        (ColumnKind::Static, _) => Mismatch::new(
            "it is static: rows of one partition share it, and those of a micro-batch have one \
             write time, so that not the last of them would count",
            "leave it out, and keep it in a table of its own",
        ),
        (_, ColumnType::Collection { frozen: false, typ: CollectionType::List(_) }) => {
            Mismatch::new(
                format!(
                    "it is {}: Cassandra gives the elements new places with each write, and a \
                     repeated micro-batch would write them twice",
                    shown(typ)
                ),
                format!("make the table's column frozen<{}> or a set", shown(typ)),
            )
        }
        _ => return Ok(()),
    };
    Err((name.to_owned(), mismatch))
}

fn insert(place: &str, names: &[String], ttl_s: Option<u32>) -> String {
    let marks = vec!["?"; names.len()].join(", ");
    let mut text =
        format!("INSERT INTO {place} ({}) VALUES ({marks}) USING TIMESTAMP ?", names.join(", "));
    if let Some(seconds) = ttl_s {
        write!(text, " AND TTL {seconds}").expect("a text can be written to");
    }
    text
}

fn remove(place: &str, key: &[String]) -> String {
    let equal: Vec<String> = key.iter().map(|name| format!("{name} = ?")).collect();
    format!("DELETE FROM {place} USING TIMESTAMP ? WHERE {}", equal.join(" AND "))
}

/// A name as CQL takes it whatever its letters.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_quote_every_name() {
        let names = [quoted("Id"), quoted("a\"b")];
        let place = format!("{}.{}", quoted("k"), quoted("batch"));
        assert_eq!(
            insert(&place, &names, Some(60)),
            "INSERT INTO \"k\".\"batch\" (\"Id\", \"a\"\"b\") VALUES (?, ?) USING TIMESTAMP ? AND \
             TTL 60"
        );
        assert_eq!(
            remove(&place, &names),
            "DELETE FROM \"k\".\"batch\" USING TIMESTAMP ? WHERE \"Id\" = ? AND \"a\"\"b\" = ?"
        );
    }
}
