//! Spark's names for types: written in messages, read in the schema argument of `from_json`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use thiserror::Error;

/// What Spark calls `data_type`; Arrow's own name where Spark has none.
pub(crate) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "VOID".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BINARY".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP_NTZ".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::List(item) => format!("ARRAY<{}>", type_name(item.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                format!(
                    "MAP<{}, {}>",
                    type_name(fields[0].data_type()),
                    type_name(fields[1].data_type())
                )
            }
            other => other.to_string(),
        },
        DataType::Struct(fields) => {
            let field =
                |field: &Arc<Field>| format!("{}: {}", field.name(), type_name(field.data_type()));
            format!("STRUCT<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A TIMESTAMP: an instant, in microseconds.
pub(crate) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The text does not describe a schema.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{ddl:?} is not a schema: at byte {position}, expected {expected}. Write for example a INT, b STRUCT<c: STRING>"
)]
pub(crate) struct InvalidSchema {
    /// The whole text.
    pub ddl: String,
    /// Where it stops making sense.
    pub position: usize,
    /// What could have stood there.
    pub expected: &'static str,
}

/// Reads a schema as Spark's `from_json` does: one type, such as `ARRAY<INT>`, or the columns of a
/// table, such as `a INT, b STRING`, which make a STRUCT. Everything is nullable.
pub(crate) fn schema_of(ddl: &str) -> Result<DataType, InvalidSchema> {
    let mut reader = Reader { text: ddl, at: 0 };
    if let Ok(data_type) = reader.data_type()
        && reader.is_at_end()
    {
        return Ok(data_type);
    }
    reader.at = 0;
    let fields = reader.fields(None)?;
    if reader.is_at_end() { Ok(DataType::Struct(fields)) } else { Err(reader.expected("a comma")) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

type Read<T> = Result<T, InvalidSchema>;

impl<'a> Reader<'a> {
    fn expected(&self, expected: &'static str) -> InvalidSchema {
        InvalidSchema { ddl: self.text.to_owned(), position: self.at, expected }
    }

    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn is_at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn follows(&mut self, symbol: char) -> bool {
        let follows = self.rest().starts_with(symbol);
        self.at += if follows { symbol.len_utf8() } else { 0 };
        follows
    }

    fn require(&mut self, symbol: char, expected: &'static str) -> Read<()> {
        if self.follows(symbol) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Consumes `word` whatever its case.
    fn word_follows(&mut self, word: &str) -> bool {
        let start = self.at;
        if self.word().is_some_and(|found| found.eq_ignore_ascii_case(word)) {
            return true;
        }
        self.at = start;
        false
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    /// A name, in backticks if it is not a plain word.
    fn name(&mut self) -> Read<String> {
        if !self.rest().starts_with('`') {
            return match self.word() {
                Some(word) => Ok(word.to_owned()),
                None => Err(self.expected("a column's name")),
            };
        }
        let mut name = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find('`').ok_or_else(|| self.expected("a closing backtick"))?;
            name.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.text[self.at..].starts_with('`') {
                return Ok(name);
            }
            name.push('`');
            self.at += 1;
        }
    }

    /// Columns up to `close`, which is consumed, or up to the end of the text.
    fn fields(&mut self, close: Option<char>) -> Read<Fields> {
        let mut fields = Vec::new();
        if close.is_some_and(|close| self.follows(close)) {
            return Ok(Fields::empty());
        }
        loop {
            let name = self.name()?;
            self.follows(':');
            fields.push(Field::new(name, self.data_type()?, true));
            if self.word_follows("NOT") && !self.word_follows("NULL") {
                return Err(self.expected("NULL"));
            }
            if self.word_follows("COMMENT") {
                self.comment()?;
            }
            if self.follows(',') {
                continue;
            }
            if let Some(close) = close {
                self.require(close, "a comma or >")?;
            }
            return Ok(fields.into());
        }
    }

    fn comment(&mut self) -> Read<()> {
        let quote = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or_else(|| self.expected("a comment in quotation marks"))?;
        self.at += 1;
        let end = self.text[self.at..].find(quote);
        self.at += end.ok_or_else(|| self.expected("the comment's end"))? + 1;
        Ok(())
    }

    fn data_type(&mut self) -> Read<DataType> {
        let start = self.at;
        let word = self.word().ok_or_else(|| self.expected("a type"))?;
        Ok(match word.to_ascii_uppercase().as_str() {
            "BOOLEAN" => DataType::Boolean,
            "TINYINT" | "BYTE" => DataType::Int8,
            "SMALLINT" | "SHORT" => DataType::Int16,
            "INT" | "INTEGER" => DataType::Int32,
            "BIGINT" | "LONG" => DataType::Int64,
            "FLOAT" | "REAL" => DataType::Float32,
            "DOUBLE" => DataType::Float64,
            "STRING" => DataType::Utf8,
            "VARCHAR" | "CHAR" | "CHARACTER" => {
                self.numbers()?;
                DataType::Utf8
            }
            "BINARY" => DataType::Binary,
            "DATE" => DataType::Date32,
            "TIMESTAMP" | "TIMESTAMP_LTZ" => timestamp(),
            "TIMESTAMP_NTZ" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "DECIMAL" | "DEC" | "NUMERIC" => self.decimal()?,
            "ARRAY" => {
                self.require('<', "<")?;
                let item = self.data_type()?;
                self.require('>', ">")?;
                DataType::new_list(item, true)
            }
            "MAP" => self.map()?,
            "STRUCT" => {
                self.require('<', "<")?;
                DataType::Struct(self.fields(Some('>'))?)
            }
            _ => {
                self.at = start;
                return Err(self.expected("a type"));
            }
        })
    }

    fn map(&mut self) -> Read<DataType> {
        self.require('<', "<")?;
        let key = self.data_type()?;
        self.require(',', "a comma")?;
        let value = self.data_type()?;
        self.require('>', ">")?;
        Ok(map_type(key, value))
    }

    fn decimal(&mut self) -> Read<DataType> {
        let start = self.at;
        let numbers = self.numbers()?;
        let precision = numbers.first().copied().unwrap_or(10);
        let scale = numbers.get(1).copied().unwrap_or(0);
        if precision == 0 || precision > 38 || scale > precision || numbers.len() > 2 {
            self.at = start;
            return Err(self.expected("a precision of at most 38 and a scale within it"));
        }
        Ok(DataType::Decimal128(precision as u8, scale as i8))
    }

    /// Numbers in parentheses, if there are any.
    fn numbers(&mut self) -> Read<Vec<u32>> {
        let mut numbers = Vec::new();
        if !self.follows('(') {
            return Ok(numbers);
        }
        loop {
            let number = self.word().and_then(|word| word.parse().ok());
            numbers.push(number.ok_or_else(|| self.expected("a number"))?);
            if !self.follows(',') {
                self.require(')', "a closing parenthesis")?;
                return Ok(numbers);
            }
        }
    }
}

/// A MAP, with the names that DataFusion gives to its parts.
pub(crate) fn map_type(key: DataType, value: DataType) -> DataType {
    let fields = vec![Field::new("key", key, false), Field::new("value", value, true)];
    let entries = Field::new("entries", DataType::Struct(fields.into()), false);
    DataType::Map(Arc::new(entries), false)
}
