//! `from_xml`.
//!
//! A text is one record, and its outermost element the STRUCT. Elements become the fields of their
//! names, attributes those with a prefix, and the text beside them one of its own. A value that
//! cannot be read leaves the reader where it stood, as in Spark: what follows it in its element is
//! then read as something else, or not at all.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, exec_err, internal_err, plan_err};

use super::options::Mode;
use super::prepared::{Literals, Prepared, columns_of, expect_texts, texts};
use super::xml_options::XmlOptions;
use super::xml_values::{Fail, Value, check, rows, scalar};
use crate::types::spark_type;
use crate::xml::{Attribute, Event, events, is_blank};

/// The name of a field that takes all elements without one in Spark.
const WILDCARD: &str = "xs_any";

/// `from_xml(text, schema [, options])`.
pub(super) struct FromXml {
    options: XmlOptions,
    fields: Fields,
    /// The place of the field for malformed texts, if the schema has it.
    corrupt: Option<usize>,
    /// What the first argument is, to be refused when types are final.
    given: DataType,
}

impl Prepared for FromXml {
    const NAME: &'static str = "from_xml";
    const USAGE: &'static str = "from_xml(text, schema [, options])";
    const ARGUMENTS: (usize, usize) = (2, 3);

    fn data(given: &DataType) -> DataType {
        texts(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let ddl = literals.text(1, "the schema")?;
        let options = XmlOptions::of(Self::NAME, literals, 2)?;
        let fields = columns_of(Self::NAME, ddl)?;
        let of = DataType::Struct(fields.clone());
        check("the schema", &of)?;
        refuse_wildcard(&of)?;
        let corrupt = fields.iter().position(|field| *field.name() == options.corrupt);
        if let Some(at) = corrupt
            && (*fields[at].data_type() != DataType::Utf8 || at + 1 < fields.len())
        {
            let name = &options.corrupt;
            return plan_err!("from_xml: {name} is for malformed texts: a STRING, and the last");
        }
        Ok(Self { options, fields, corrupt, given: data.data_type().clone() })
    }

    fn check(&self) -> Result<()> {
        expect_texts(Self::NAME, &self.given)
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Struct(self.fields.clone()), true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let Some(texts) = data.as_string_opt::<i32>() else {
            return internal_err!("from_xml was planned for {}", data.data_type());
        };
        let values = texts.iter().map(|text| text.map_or(Ok(Value::Null), |text| self.row(text)));
        let values = values.collect::<Result<Vec<Value>>>()?;
        let values: Vec<&Value> = values.iter().collect();
        rows(&self.fields, &values, texts.nulls().cloned())
    }
}

fn refuse_wildcard(of: &DataType) -> Result<()> {
    match of {
        DataType::Struct(fields) => fields.iter().try_for_each(|field| {
            if field.name() == WILDCARD {
                return plan_err!(
                    "from_xml: a field {WILDCARD}, which takes all elements, is not supported yet; \
                     name the elements"
                );
            }
            refuse_wildcard(field.data_type())
        }),
        DataType::List(item) | DataType::Map(item, _) => refuse_wildcard(item.data_type()),
        _ => Ok(()),
    }
}

impl FromXml {
    /// The row of a text; of one that is malformed, of what can be read.
    fn row(&self, text: &str) -> Result<Value> {
        let found = match events(text) {
            Ok(found) => found,
            Err(error) => return exec_err!("from_xml: {error}"),
        };
        let mut reader = Reader { events: &found, at: 0, options: &self.options };
        let (mut row, is_malformed) = match reader.document(&self.fields) {
            Ok(read) => read,
            Err(Fail::Unclear(what)) => {
                return exec_err!("from_xml: it is not certain {what}; read a STRING, and cast it");
            }
            Err(Fail::Bad | Fail::Malformed) => (vec![Value::Null; self.fields.len()], true),
        };
        if is_malformed && self.options.mode == Mode::FailFast {
            let shown: String = text.chars().take(80).collect();
            return exec_err!(
                "from_xml: '{shown}' is no record of {}; the mode PERMISSIVE makes nulls of what \
                 cannot be read",
                spark_type(&self.returns().0)
            );
        }
        if let Some(at) = self.corrupt {
            row[at] = if is_malformed { Value::Text(text.to_owned()) } else { Value::Null };
        }
        Ok(Value::Struct(row))
    }
}

/// Reads events one by one.
struct Reader<'a> {
    events: &'a [Event],
    at: usize,
    options: &'a XmlOptions,
}

impl<'a> Reader<'a> {
    /// The next event; none behind the last one.
    fn peek(&self) -> Result<Option<&'a Event>, Fail> {
        match self.events.get(self.at) {
            Some(Event::Malformed) => Err(Fail::Malformed),
            event => Ok(event),
        }
    }

    fn next(&mut self) -> Result<Option<&'a Event>, Fail> {
        let event = self.peek()?;
        self.at += usize::from(event.is_some());
        Ok(event)
    }

    /// The values of the outermost element, and whether one could not be read.
    fn document(&mut self, fields: &Fields) -> Result<(Vec<Value>, bool), Fail> {
        match self.next()? {
            Some(Event::Start { attributes, .. }) => self.object(fields, attributes),
            _ => Err(Fail::Malformed),
        }
    }

    /// The values of an element, up to its end.
    fn object(
        &mut self,
        fields: &Fields,
        attributes: &[Attribute],
    ) -> Result<(Vec<Value>, bool), Fail> {
        let mut row = vec![Value::Null; fields.len()];
        for (at, value) in self.attributes(fields, attributes)? {
            row[at] = value;
        }
        let mut is_bad = false;
        loop {
            match self.next()? {
                Some(Event::Start { name, attributes }) => {
                    match self.element(fields, &mut row, name, attributes) {
                        Err(Fail::Bad) => is_bad = true,
                        other => other?,
                    }
                }
                Some(Event::Text(text)) if !is_blank(text) => {
                    self.own_text(fields, &mut row, text)?;
                }
                Some(Event::Text(_)) => {}
                Some(Event::End(_)) | None => break,
                Some(Event::Malformed) => return Err(Fail::Malformed),
            }
        }
        Ok((row, is_bad))
    }

    /// The same within another element, which has nothing of it where a part cannot be read.
    fn inner_object(&mut self, fields: &Fields) -> Result<Value, Fail> {
        match self.object(fields, &[])? {
            (row, false) => Ok(Value::Struct(row)),
            (_, true) => Err(Fail::Bad),
        }
    }

    /// The fields that attributes become.
    fn attributes(
        &self,
        fields: &Fields,
        attributes: &[Attribute],
    ) -> Result<Vec<(usize, Value)>, Fail> {
        let mut found = Vec::new();
        for (name, value) in self.options.attributes(attributes) {
            if let Some(at) = place_of(fields, &name) {
                found.push((at, scalar(value, &fields[at], self.options)?));
            }
        }
        Ok(found)
    }

    /// The text beside the elements of an element.
    fn own_text(&self, fields: &Fields, row: &mut [Value], text: &str) -> Result<(), Fail> {
        let place = fields.iter().position(|field| *field.name() == self.options.value_tag);
        let Some(at) = place else { return Ok(()) };
        match fields[at].data_type() {
            DataType::List(item) => push(&mut row[at], scalar(text, item, self.options)?),
            _ => row[at] = scalar(text, &fields[at], self.options)?,
        }
        Ok(())
    }

    /// Reads an element, whose beginning is read, into the field of its name.
    fn element(
        &mut self,
        fields: &Fields,
        row: &mut [Value],
        name: &str,
        attributes: &[Attribute],
    ) -> Result<(), Fail> {
        let name = self.options.name(name);
        let Some(at) = place_of(fields, name) else { return self.skip() };
        match fields[at].data_type() {
            DataType::Struct(parts) => {
                row[at] = self.object_with_attributes(parts, name, attributes)?;
            }
            DataType::List(item) => {
                let value = match item.data_type() {
                    DataType::Struct(parts) => {
                        self.object_with_attributes(parts, name, attributes)?
                    }
                    _ => self.field(item, name, attributes)?,
                };
                push(&mut row[at], value);
            }
            _ => row[at] = self.field(&fields[at], name, attributes)?,
        }
        Ok(())
    }

    fn object_with_attributes(
        &mut self,
        fields: &Fields,
        name: &str,
        attributes: &[Attribute],
    ) -> Result<Value, Fail> {
        let found = self.attributes(fields, attributes)?;
        let of = Field::new(name, DataType::Struct(fields.clone()), true);
        let mut row = match self.field(&of, name, &[])? {
            Value::Struct(row) => row,
            _ => vec![Value::Null; fields.len()],
        };
        for (at, value) in found {
            row[at] = value;
        }
        Ok(Value::Struct(row))
    }

    /// The value of an element, whose beginning is read, up to its end.
    fn field(
        &mut self,
        field: &Field,
        name: &str,
        attributes: &[Attribute],
    ) -> Result<Value, Fail> {
        loop {
            match (self.peek()?, field.data_type()) {
                (Some(Event::Start { .. } | Event::Text(_)), DataType::Struct(fields)) => {
                    return self.inner_object(fields);
                }
                (Some(Event::Start { .. } | Event::Text(_)), DataType::Utf8) => {
                    let text = self.structure(name)?;
                    return scalar(&text, field, self.options);
                }
                (Some(Event::Start { .. }), DataType::Map(entries, _)) => {
                    return self.map(entries, attributes);
                }
                (Some(Event::End(_)), of) => {
                    self.end(name)?;
                    let is_text = *of == DataType::Utf8;
                    let is_null = self.options.null_value.as_deref() == Some("");
                    return Ok(match is_text && !is_null {
                        true => Value::Text(String::new()),
                        false => Value::Null,
                    });
                }
                (Some(Event::Text(text)), _) if is_blank(text) => self.at += 1,
                (Some(Event::Text(text)), _) => {
                    let value = scalar(text, field, self.options)?;
                    self.at += 1;
                    self.end(name)?;
                    return Ok(value);
                }
                _ => return Err(Fail::Bad),
            }
        }
    }

    /// An element as a MAP of its attributes, its elements and its text.
    fn map(&mut self, entries: &Field, attributes: &[Attribute]) -> Result<Value, Fail> {
        let DataType::Struct(parts) = entries.data_type() else { return Err(Fail::Bad) };
        let (mut pairs, of) = (Pairs::default(), &parts[1]);
        for (name, value) in attributes {
            let key = format!("{}{name}", self.options.attribute_prefix);
            pairs.put(key, scalar(value, of, self.options)?);
        }
        loop {
            match self.next()? {
                Some(Event::Start { name, .. }) => {
                    let key = self.options.name(name);
                    let value = self.field(of, key, &[])?;
                    pairs.put(key.to_owned(), value);
                }
                Some(Event::Text(text)) if !is_blank(text) => {
                    let value = scalar(text, of, self.options)?;
                    pairs.put(self.options.value_tag.clone(), value);
                }
                Some(Event::Text(_)) => {}
                Some(Event::End(_)) | None => return Ok(Value::Map(pairs.found)),
                Some(Event::Malformed) => return Err(Fail::Malformed),
            }
        }
    }

    /// What is within an element as text, with the elements as they are written.
    fn structure(&mut self, name: &str) -> Result<String, Fail> {
        let (mut text, mut depth) = (String::new(), 0_usize);
        loop {
            match self.next()? {
                Some(Event::Start { name, attributes }) => {
                    text.push_str(&format!("<{name}"));
                    for (name, value) in attributes {
                        text.push_str(&format!(" {name}=\"{value}\""));
                    }
                    text.push('>');
                    depth += 1;
                }
                Some(Event::End(name)) => {
                    text.push_str(&format!("</{name}>"));
                    depth = depth.saturating_sub(1);
                }
                Some(Event::Text(run)) => text.push_str(run),
                Some(Event::Malformed) | None => return Err(Fail::Malformed),
            }
            if depth == 0 && matches!(self.peek()?, Some(Event::End(_))) {
                self.end(name)?;
                return Ok(text);
            }
        }
    }

    /// Reads the end of the element `name`.
    fn end(&mut self, name: &str) -> Result<(), Fail> {
        loop {
            match self.next()? {
                Some(Event::Text(text)) if is_blank(text) => {}
                Some(Event::End(found)) if self.options.name(found) == name => return Ok(()),
                _ => return Err(Fail::Bad),
            }
        }
    }

    /// Reads over an element, whose beginning is read.
    fn skip(&mut self) -> Result<(), Fail> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next()? {
                Some(Event::Start { .. }) => depth += 1,
                Some(Event::End(_)) => depth -= 1,
                Some(_) => {}
                None => return Err(Fail::Bad),
            }
        }
        Ok(())
    }
}

/// The field with a name, whatever its case.
fn place_of(fields: &Fields, name: &str) -> Option<usize> {
    let exact = fields.iter().position(|field| field.name() == name);
    exact.or_else(|| {
        let name = name.to_lowercase();
        fields.iter().position(|field| field.name().to_lowercase() == name)
    })
}

/// Adds an element to an array, which begins with it if there is none yet.
fn push(list: &mut Value, value: Value) {
    match list {
        Value::List(items) => items.push(value),
        other => *other = Value::List(vec![value]),
    }
}

/// The entries of a map.
#[derive(Default)]
struct Pairs {
    found: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

impl Pairs {
    /// Adds an entry; of several with one key the last one stays.
    fn put(&mut self, key: String, value: Value) {
        match self.places.get(&key) {
            Some(at) => self.found[*at].1 = value,
            None => {
                self.places.insert(key.clone(), self.found.len());
                self.found.push((key, value));
            }
        }
    }
}
