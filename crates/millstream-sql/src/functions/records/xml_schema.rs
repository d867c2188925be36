//! `schema_of_xml`: the types that the values of a record could have.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};

use super::csv_values::number;
use super::options::Mode;
use super::prepared::{Literals, Prepared, plain};
use super::xml_options::XmlOptions;
use super::xml_values::{date, timestamp};
use crate::types::{list_of, spark_type, timestamp as timestamp_type};
use crate::values::calendar::parse_timestamp;
use crate::xml::{Attribute, Event, events, is_blank};

/// `schema_of_xml(text [, options])`.
pub(super) struct SchemaOfXml {
    pub ddl: String,
}

impl Prepared for SchemaOfXml {
    const NAME: &'static str = "schema_of_xml";
    const USAGE: &'static str = "schema_of_xml(text [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(_: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let text = literals.text(0, "a record")?;
        let options = XmlOptions::of(Self::NAME, literals, 1)?;
        let found = match events(text) {
            Ok(found) => found,
            Err(error) => return plan_err!("schema_of_xml: {error}"),
        };
        let mut reader = Reader { events: &found, at: 0, options: &options, unclear: None };
        let kind = reader.document();
        if let Some(unclear) = reader.unclear {
            return plan_err!("schema_of_xml: whether '{unclear}' is a number is not clear");
        }
        let kind = match kind {
            Some(kind) => kind,
            None if options.mode == Mode::FailFast => {
                return plan_err!("schema_of_xml: the text is no XML");
            }
            None => Kind::Struct(vec![(options.corrupt.clone(), Kind::Text)]),
        };
        let of = kind.settled().unwrap_or_else(|| DataType::Struct(Vec::<Field>::new().into()));
        Ok(Self { ddl: spark_type(&of) })
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, false)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let texts = std::iter::repeat_n(Some(self.ddl.as_str()), data.len());
        Ok(Arc::new(texts.collect::<StringArray>()))
    }
}

/// A type that is not final yet.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// There was no value.
    Nothing,
    Long,
    Double,
    Boolean,
    Date,
    Time,
    Text,
    Array(Box<Kind>),
    Struct(Vec<(String, Kind)>),
}

impl Kind {
    /// The type that both have.
    fn merged(self, other: Self, value_tag: &str) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Long | Self::Double, Self::Long | Self::Double) => Self::Double,
            (Self::Date | Self::Time, Self::Date | Self::Time) => Self::Time,
            (Self::Struct(one), Self::Struct(other)) => {
                let mut all = Named::default();
                for (name, kind) in one.into_iter().chain(other) {
                    all.add(name, kind, |known, kind| known.merged(kind, value_tag));
                }
                all.sorted()
            }
            (Self::Array(one), Self::Array(other)) => {
                Self::Array(Box::new(one.merged(*other, value_tag)))
            }
            (Self::Array(one), other) | (other, Self::Array(one)) => {
                Self::Array(Box::new(one.merged(other, value_tag)))
            }
            (Self::Struct(mut fields), other) | (other, Self::Struct(mut fields)) => {
                let own = fields.iter_mut().find(|(name, _)| name == value_tag);
                let Some((_, own)) = own else { return Self::Text };
                let before = std::mem::replace(own, Self::Nothing);
                *own = before.merged(other, value_tag);
                Self::Struct(fields)
            }
            _ => Self::Text,
        }
    }

    /// The final type; none for a STRUCT without fields.
    fn settled(self) -> Option<DataType> {
        Some(match self {
            Self::Nothing | Self::Text => DataType::Utf8,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Date => DataType::Date32,
            Self::Time => timestamp_type(),
            Self::Array(element) => list_of(element.settled()?),
            Self::Struct(fields) => {
                let fields = fields.into_iter();
                let fields = fields.filter_map(|(name, kind)| {
                    kind.settled().map(|data_type| Field::new(name, data_type, true))
                });
                let fields: Vec<Field> = fields.collect();
                if fields.is_empty() {
                    return None;
                }
                DataType::Struct(fields.into())
            }
        })
    }
}

/// Fields, of which those whose names differ only in case are one.
#[derive(Default)]
struct Named {
    fields: Vec<(String, Kind)>,
    /// Where each is, by its name in lower case.
    places: HashMap<String, usize>,
}

impl Named {
    /// Adds a field, or to the one of that name.
    fn add(&mut self, name: String, kind: Kind, merge: impl FnOnce(Kind, Kind) -> Kind) {
        let lower = name.to_lowercase();
        match self.places.get(&lower) {
            Some(at) => {
                let known = &mut self.fields[*at].1;
                let before = std::mem::replace(known, Kind::Nothing);
                *known = merge(before, kind);
            }
            None => {
                self.places.insert(lower, self.fields.len());
                self.fields.push((name, kind));
            }
        }
    }

    /// A STRUCT of them.
    fn sorted(mut self) -> Kind {
        sort(&mut self.fields);
        Kind::Struct(self.fields)
    }
}

fn sort(fields: &mut [(String, Kind)]) {
    fields.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
}

/// Reads events one by one.
struct Reader<'a> {
    events: &'a [Event],
    at: usize,
    options: &'a XmlOptions,
    /// A value of which Spark may make another type.
    unclear: Option<String>,
}

impl<'a> Reader<'a> {
    /// The next event; `None` where the text stops being XML.
    fn next(&mut self) -> Option<&'a Event> {
        let event = self.events.get(self.at)?;
        self.at += 1;
        if *event == Event::Malformed { None } else { Some(event) }
    }

    fn document(&mut self) -> Option<Kind> {
        match self.next()? {
            Event::Start { attributes, .. } => self.object(attributes),
            _ => None,
        }
    }

    /// The fields of an element, up to its end.
    fn object(&mut self, attributes: &[Attribute]) -> Option<Kind> {
        let tag = self.options.value_tag.as_str();
        let mut fields = Named::default();
        // What is there twice is an array.
        let found = |fields: &mut Named, name: String, kind: Kind| {
            fields.add(name, kind, |known, kind| match known {
                Kind::Array(_) => known.merged(kind, tag),
                known => Kind::Array(Box::new(known.merged(kind, tag))),
            });
        };
        for (name, value) in self.options.attributes(attributes) {
            let kind = self.kind(value);
            found(&mut fields, name, kind);
        }
        loop {
            match self.next()? {
                Event::Start { name, attributes } => {
                    let kind = self.element()?;
                    let kind = self.with_attributes(kind, attributes);
                    found(&mut fields, self.options.name(name).to_owned(), kind);
                }
                Event::Text(text) if !is_blank(text) => {
                    let kind = self.kind(text);
                    found(&mut fields, tag.to_owned(), kind);
                }
                Event::Text(_) => {}
                Event::End(_) => break,
                Event::Malformed => return None,
            }
        }
        Some(fields.sorted())
    }

    /// The type of an element, whose beginning is read.
    fn element(&mut self) -> Option<Kind> {
        match self.events.get(self.at)? {
            Event::End(_) => {
                self.at += 1;
                Some(Kind::Nothing)
            }
            Event::Start { .. } => self.object(&[]),
            Event::Text(_) => match self.object(&[])? {
                Kind::Struct(fields) if fields.is_empty() => Some(Kind::Nothing),
                Kind::Struct(mut fields) if self.is_value(&fields) => {
                    fields.pop().map(|(_, kind)| kind)
                }
                other => Some(other),
            },
            Event::Malformed => None,
        }
    }

    /// Whether there is nothing but one text.
    fn is_value(&self, fields: &[(String, Kind)]) -> bool {
        let tag = self.options.value_tag.to_lowercase();
        matches!(fields, [(name, kind)] if name.to_lowercase() == tag
            && !matches!(kind, Kind::Array(_) | Kind::Struct(_)))
    }

    fn with_attributes(&mut self, kind: Kind, attributes: &[Attribute]) -> Kind {
        let attributes: Vec<(String, &str)> = self.options.attributes(attributes).collect();
        if attributes.is_empty() {
            return kind;
        }
        let mut fields = match kind {
            Kind::Struct(fields) => fields,
            Kind::Nothing => Vec::new(),
            other => vec![(self.options.value_tag.clone(), other)],
        };
        for (name, value) in attributes {
            fields.push((name, self.kind(value)));
        }
        sort(&mut fields);
        Kind::Struct(fields)
    }

    /// The first type, in Spark's order, that a text can be read as.
    fn kind(&mut self, text: &str) -> Kind {
        let text = self.options.trimmed(text);
        if text.is_empty() || self.options.null_value.as_deref() == Some(text) {
            return Kind::Nothing;
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_number = unsigned.starts_with(|char: char| char.is_ascii_digit() || char == '.')
            && !unsigned.ends_with(['d', 'D', 'f', 'F']);
        // To Java such a text may be a number in hexadecimal digits.
        if is_number && (unsigned.starts_with("0x") || unsigned.starts_with("0X")) {
            self.unclear = Some(text.to_owned());
        }
        if is_number && unsigned.starts_with(|char: char| char != '.') && is_long(unsigned) {
            return Kind::Long;
        }
        if is_number && number::<f64>(unsigned).is_some() {
            return Kind::Double;
        }
        if date(text, self.options).is_some() {
            return Kind::Date;
        }
        if is_time(text, self.options) {
            return Kind::Time;
        }
        match text.to_lowercase().as_str() {
            "true" | "false" => Kind::Boolean,
            _ => Kind::Text,
        }
    }
}

fn is_long(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

/// Whether a text is a time: as the option says, or as a cast reads it, which in Spark also reads
/// the time of a day alone.
fn is_time(text: &str, options: &XmlOptions) -> bool {
    let time = text.strip_prefix('T').unwrap_or(text);
    let is_of_day = time.contains(':') && parse_timestamp(&format!("1970-01-01T{time}")).is_some();
    timestamp(text, options).is_some() || (options.timestamps.is_none() && is_of_day)
}
