//! The views that a query reads and that cannot be tables: those with a column of a type that our
//! Parquet files cannot have, like INTERVAL, or with too many rows.
//!
//! They stand in front of the query as statements of their own, so that what a query reads is what
//! our engine makes of the view's text. A view that the query does not read is left out, as one
//! that is refused would have the query refused with it.

use std::collections::{BTreeMap, HashSet};

use millstream_sql::types::quoted;

/// The texts of views' queries, by the views' names in lower case.
#[derive(Default)]
pub struct Views(BTreeMap<String, String>);

impl Views {
    /// Makes a name that of the view of a query; of no view where there is none.
    pub fn set(&mut self, name: &str, query: Option<String>) {
        self.0.remove(name);
        self.0.extend(query.map(|query| (name.to_owned(), query)));
    }

    /// The statements that make the views that `text` may read, each after those that it reads.
    pub fn before(&self, text: &str) -> String {
        let (mut made, mut statements) = (HashSet::new(), String::new());
        self.add(text, &mut made, &mut statements);
        statements
    }

    fn add<'a>(&'a self, text: &str, made: &mut HashSet<&'a str>, statements: &mut String) {
        let words: HashSet<String> = words(text).map(str::to_lowercase).collect();
        for (name, query) in &self.0 {
            if !words.contains(name) || !made.insert(name) {
                continue;
            }
            self.add(query, made, statements);
            *statements += &format!("CREATE TEMPORARY VIEW {} AS {query};\n", quoted(name));
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|ch: char| !ch.is_alphanumeric() && ch != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_stand_before_those_that_read_them() {
        let mut views = Views::default();
        for (name, query) in [("a", "SELECT * FROM b"), ("b", "SELECT 1 AS x"), ("c", "oops")] {
            views.set(name, Some(query.to_owned()));
        }
        let wanted = "CREATE TEMPORARY VIEW b AS SELECT 1 AS x;\n\
                      CREATE TEMPORARY VIEW a AS SELECT * FROM b;\n";
        assert_eq!(views.before("SELECT * FROM A, b"), wanted);
        assert_eq!(views.before("SELECT abc FROM d"), "");
        views.set("b", None);
        assert_eq!(views.before("SELECT * FROM b"), "");
    }

    #[test]
    fn views_that_read_each_other_end() {
        let mut views = Views::default();
        views.set("a", Some("SELECT * FROM b".to_owned()));
        views.set("b", Some("SELECT * FROM a".to_owned()));
        assert_eq!(views.before("SELECT * FROM a").lines().count(), 2);
    }
}
