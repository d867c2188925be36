//! `to_xml`.
//!
//! A STRUCT is an element; its fields are attributes, where their names begin with a prefix, or
//! elements, and those that are NULL are left out. Lines are broken and indented where an element
//! has elements, and have the form of Spark's writer.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, FieldRef, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_err, plan_err};

use super::super::define::within_column;
use super::prepared::{Literals, Prepared, plain};
use super::xml_options::XmlOptions;
use crate::json;
use crate::types::{TIME, is_variant, spark_type};
use crate::values::calendar::DAY_US;
use crate::xml::is_name;

/// `to_xml(struct [, options])`.
pub(super) struct ToXml {
    options: XmlOptions,
    given: DataType,
}

impl Prepared for ToXml {
    const NAME: &'static str = "to_xml";
    const USAGE: &'static str = "to_xml(struct [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let options = XmlOptions::of(Self::NAME, literals, 1)?;
        if options.null_value.is_some() {
            return plan_err!("to_xml: nullValue is not supported yet; write coalesce(x, 'null')");
        }
        Ok(Self { options, given: data.data_type().clone() })
    }

    fn check(&self) -> Result<()> {
        match &self.given {
            of if is_variant(of) => {}
            DataType::Struct(fields) => {
                return fields.iter().try_for_each(|field| self.writable(field));
            }
            _ => {}
        }
        let given = spark_type(&self.given);
        plan_err!("to_xml takes a STRUCT and got {given}; write to_xml(struct(a, b))")
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let mut out = StringBuilder::new();
        let mut total = 0;
        for row in 0..data.len() {
            if data.is_null(row) {
                out.append_null();
                continue;
            }
            let mut writer = Writer { options: &self.options, out: String::new(), open: vec![] };
            writer.child(&self.options.row_tag, data, row)?;
            if self.options.indent.is_empty() {
                writer.out.push('\n');
            }
            within_column(&mut total, writer.out.len())?;
            out.append_value(&writer.out);
        }
        Ok(Arc::new(out.finish()))
    }
}

impl ToXml {
    /// Refuses what Spark refuses, or writes in a form that is not certain.
    fn writable(&self, field: &FieldRef) -> Result<()> {
        let (name, of) = (field.name(), field.data_type());
        let is_attribute = is_attribute(&self.options, name);
        let written = match is_attribute {
            true => &name[self.options.attribute_prefix.len()..],
            false => name,
        };
        if !is_name(written) {
            return plan_err!("to_xml: `{name}` is no name of an element; give it another alias");
        }
        let is_plain = matches!(of, DataType::Utf8 | DataType::Boolean | DataType::Null)
            || of.is_signed_integer();
        if is_attribute && !is_plain {
            let of = spark_type(of);
            return plan_err!("to_xml: the attribute `{name}` is {of}; cast it to STRING");
        }
        self.writable_type(field)
    }

    fn writable_type(&self, field: &FieldRef) -> Result<()> {
        match field.data_type() {
            of if is_variant(of) => {}
            DataType::Struct(fields) => {
                return fields.iter().try_for_each(|field| self.writable(field));
            }
            DataType::List(item) => return self.writable_type(item),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(parts) if parts[0].data_type().is_string() => {
                    return self.writable_type(&parts[1]);
                }
                _ => {}
            },
            DataType::Null
            | DataType::Utf8
            | DataType::Boolean
            | DataType::Binary
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _) => return Ok(()),
            of if of.is_signed_integer() || *of == TIME => return Ok(()),
            _ => {}
        }
        let (name, of) = (field.name(), spark_type(field.data_type()));
        plan_err!("to_xml: `{name}` is {of}, which is not written as XML; cast it to STRING")
    }
}

/// Whether a field is an attribute of its element.
fn is_attribute(options: &XmlOptions, name: &str) -> bool {
    name.starts_with(&options.attribute_prefix) && name != options.value_tag
}

/// What an element has in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Nothing: its first tag may become its only one.
    Nothing,
    Text,
    Elements,
}

struct Writer<'a> {
    options: &'a XmlOptions,
    out: String,
    /// The elements that have no end yet.
    open: Vec<Content>,
}

impl Writer<'_> {
    fn line(&mut self) {
        if !self.options.indent.is_empty() {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(self.options.indent.as_str(), self.open.len()));
        }
    }

    fn start(&mut self, name: &str) -> Result<()> {
        if !is_name(name) {
            return exec_err!("to_xml: '{name}' is no name of an element");
        }
        self.close_tag();
        if let Some(parent) = self.open.last_mut() {
            *parent = Content::Elements;
            self.line();
        }
        self.out.push('<');
        self.out.push_str(name);
        self.open.push(Content::Nothing);
        Ok(())
    }

    /// Ends the first tag of the innermost element, if that is still open.
    fn close_tag(&mut self) {
        if self.open.last() == Some(&Content::Nothing) {
            self.out.push('>');
        }
    }

    fn end(&mut self, name: &str) {
        match self.open.pop() {
            Some(Content::Nothing) => return self.out.push_str("/>"),
            Some(Content::Elements) => self.line(),
            _ => {}
        }
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.close_tag();
        if let Some(parent) = self.open.last_mut() {
            *parent = Content::Text;
        }
        let mut before = None;
        for char in text.chars() {
            match char {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                // Spark's writer leaves it where it cannot end a CDATA.
                '>' if before.is_none_or(|before| before == ']') => self.out.push_str("&gt;"),
                '\r' => self.out.push_str("&#xd;"),
                char if is_control(char) => return refused_char(char),
                char => self.out.push(char),
            }
            before = Some(char);
        }
        Ok(())
    }

    fn attribute(&mut self, name: &str, value: &str) -> Result<()> {
        if self.open.last() != Some(&Content::Nothing) {
            return exec_err!("to_xml: the attribute {name} comes behind an element or a text");
        }
        write!(self.out, " {name}=\"").map_err(|error| exec_datafusion_err!("{error}"))?;
        for char in value.chars() {
            match char {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '"' => self.out.push_str("&quot;"),
                '\n' => self.out.push_str("&#xa;"),
                '\r' => self.out.push_str("&#xd;"),
                '\t' => self.out.push_str("&#x9;"),
                char if is_control(char) => return refused_char(char),
                char => self.out.push(char),
            }
        }
        self.out.push('"');
        Ok(())
    }

    /// A value as the element `name`, or as text only; nothing for NULL.
    fn child(&mut self, name: &str, values: &ArrayRef, row: usize) -> Result<()> {
        if values.is_null(row) || values.data_type().is_null() {
            return Ok(());
        }
        if name == self.options.value_tag {
            return self.content(values, row);
        }
        self.start(name)?;
        self.content(values, row)?;
        self.end(name);
        Ok(())
    }

    /// A field: an attribute, several elements for an array, or one.
    fn field(&mut self, name: &str, values: &ArrayRef, row: usize) -> Result<()> {
        if is_attribute(self.options, name) {
            if values.is_null(row) || values.data_type().is_null() {
                return Ok(());
            }
            let text = self.scalar(values, row)?;
            return self.attribute(&name[self.options.attribute_prefix.len()..], &text);
        }
        if matches!(values.data_type(), DataType::List(_)) && values.is_valid(row) {
            return self.items(name, values, row, Self::child);
        }
        self.child(name, values, row)
    }

    fn items(
        &mut self,
        name: &str,
        values: &ArrayRef,
        row: usize,
        write: fn(&mut Self, &str, &ArrayRef, usize) -> Result<()>,
    ) -> Result<()> {
        let list = values.as_list::<i32>();
        let offsets = list.value_offsets();
        for item in offsets[row] as usize..offsets[row + 1] as usize {
            write(self, name, list.values(), item)?;
        }
        Ok(())
    }

    /// What is in an element.
    fn content(&mut self, values: &ArrayRef, row: usize) -> Result<()> {
        match values.data_type() {
            DataType::Struct(fields) => {
                let parts = values.as_struct().columns();
                for attributes in [true, false] {
                    for (field, part) in fields.iter().zip(parts) {
                        if is_attribute(self.options, field.name()) == attributes {
                            self.field(field.name(), part, row)?;
                        }
                    }
                }
                Ok(())
            }
            DataType::List(_) => {
                let options = self.options;
                self.items(&options.element_tag, values, row, Self::field)
            }
            DataType::Map(..) => {
                let map = values.as_map();
                let Some(keys) = map.keys().as_string_opt::<i32>() else {
                    return internal_err!("the keys of a MAP are STRINGs in to_xml");
                };
                let offsets = map.value_offsets();
                let entries = offsets[row] as usize..offsets[row + 1] as usize;
                for attributes in [true, false] {
                    for entry in entries.clone() {
                        let key = keys.value(entry);
                        if is_attribute(self.options, key) == attributes {
                            self.field(key, map.values(), entry)?;
                        }
                    }
                }
                Ok(())
            }
            _ => {
                let text = self.scalar(values, row)?;
                self.text(&text)
            }
        }
    }

    /// A value without parts as text.
    fn scalar(&self, values: &ArrayRef, row: usize) -> Result<String> {
        let options = self.options;
        let pattern = match values.data_type() {
            DataType::Date32 => options.dates.as_ref(),
            DataType::Timestamp(_, Some(_)) => options.timestamps.as_ref(),
            DataType::Timestamp(_, None) => options.local_times.as_ref(),
            of if *of == TIME => options.times.as_ref(),
            DataType::Utf8 => return Ok(values.as_string::<i32>().value(row).to_owned()),
            DataType::Binary => return Ok(bytes(values.as_binary::<i32>().value(row))),
            _ => None,
        };
        let Some(pattern) = pattern else {
            let texts = json::plain_texts(&values.slice(row, 1));
            let texts = texts.map_err(|error| exec_datafusion_err!("{error}"))?;
            return Ok(texts.value(0).to_owned());
        };
        let us = match values.data_type() {
            DataType::Date32 => {
                i64::from(values.as_primitive::<Date32Type>().value(row)).saturating_mul(DAY_US)
            }
            DataType::Timestamp(..) => values.as_primitive::<TimestampMicrosecondType>().value(row),
            _ => values.as_primitive::<Time64MicrosecondType>().value(row),
        };
        let mut text = String::new();
        match pattern.write(us, &mut text) {
            true => Ok(text),
            false => exec_err!("to_xml: {us} microseconds since 1970 are in no calendar"),
        }
    }
}

/// Bytes as Spark shows them: `[45 61]`.
fn bytes(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("[{}]", digits.join(" "))
}

fn is_control(char: char) -> bool {
    let is_space = matches!(char, '\t' | '\n' | '\r');
    (char < ' ' && !is_space) || matches!(char, '\u{fffe}' | '\u{ffff}')
}

fn refused_char<T>(char: char) -> Result<T> {
    exec_err!("to_xml: the character {} is none of XML", char.escape_unicode())
}
