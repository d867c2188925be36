//! The options of `from_xml`, `to_xml` and `schema_of_xml`.

use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};

use super::super::time_pattern::TimePattern;
use super::options::{Mode, boolean, options, unknown};
use super::prepared::Literals;
use crate::xml::is_name;

const KNOWN: &str = "rowTag, attributePrefix, valueTag, dateFormat, timestampFormat, \
                     timestampNTZFormat, timeFormat; of reading mode, columnNameOfCorruptRecord, \
                     nullValue, excludeAttribute, ignoreNamespace and ignoreSurroundingSpaces; and \
                     of writing indent and arrayElementName";

/// What the options of a call say. As in Spark, those of reading are no mistake where something is
/// written, and the other way round.
pub(super) struct XmlOptions {
    pub mode: Mode,
    /// The field for texts that are malformed.
    pub corrupt: String,
    /// The element of a row.
    pub row_tag: String,
    /// Begins the names of fields that are attributes.
    pub attribute_prefix: String,
    /// The field for the text of an element that has attributes or elements, too.
    pub value_tag: String,
    /// The text that is NULL.
    pub null_value: Option<String>,
    pub has_no_attributes: bool,
    pub has_no_prefixes: bool,
    pub is_trimmed: bool,
    /// What lines are indented by; there are none if it is empty.
    pub indent: String,
    /// The elements of an array within an array.
    pub element_tag: String,
    /// The forms of dates and times; `None` for those that are usual.
    pub dates: Option<TimePattern>,
    pub timestamps: Option<TimePattern>,
    pub local_times: Option<TimePattern>,
    pub times: Option<TimePattern>,
}

impl XmlOptions {
    /// The options in argument `at`.
    ///
    /// # Errors
    /// An option that there is not, or a value that it cannot have.
    pub fn of(function: &str, literals: &Literals<'_>, at: usize) -> Result<Self> {
        let mut parsed = Self {
            mode: Mode::Permissive,
            corrupt: "_corrupt_record".to_owned(),
            row_tag: "ROW".to_owned(),
            attribute_prefix: "_".to_owned(),
            value_tag: "_VALUE".to_owned(),
            null_value: None,
            has_no_attributes: false,
            has_no_prefixes: false,
            is_trimmed: true,
            indent: "    ".to_owned(),
            element_tag: "item".to_owned(),
            dates: None,
            timestamps: None,
            local_times: None,
            times: None,
        };
        for (name, value) in options(function, literals, at)? {
            if !parsed.set_form(function, &name, &value)? {
                parsed.set(function, &name, value)?;
            }
        }
        if parsed.attribute_prefix.is_empty() || parsed.value_tag == parsed.attribute_prefix {
            return plan_err!(
                "{function}: attributePrefix is a text that is neither empty nor the valueTag"
            );
        }
        Ok(parsed)
    }

    /// Sets the form of a date or a time; false if `name` is none.
    fn set_form(&mut self, function: &str, name: &str, value: &str) -> Result<bool> {
        let form = match name {
            "dateformat" => &mut self.dates,
            "timestampformat" => &mut self.timestamps,
            "timestampntzformat" => &mut self.local_times,
            "timeformat" => &mut self.times,
            _ => return Ok(false),
        };
        let wrong = |error: DataFusionError| plan_datafusion_err!("{function}: {name}: {error}");
        let pattern = TimePattern::parse(value).map_err(wrong)?;
        if !function.starts_with("to_") {
            pattern.to_read().map_err(wrong)?;
        }
        *form = Some(pattern);
        Ok(true)
    }

    fn set(&mut self, function: &str, name: &str, value: String) -> Result<()> {
        match name {
            "mode" => self.mode = Mode::named(function, &value)?,
            "columnnameofcorruptrecord" => self.corrupt = value,
            "rowtag" => self.row_tag = tag(function, name, value)?,
            "arrayelementname" => self.element_tag = tag(function, name, value)?,
            "attributeprefix" => self.attribute_prefix = value,
            "valuetag" => self.value_tag = tag(function, name, value)?,
            "nullvalue" => self.null_value = Some(value),
            "excludeattribute" => self.has_no_attributes = boolean(function, name, &value)?,
            "ignorenamespace" => self.has_no_prefixes = boolean(function, name, &value)?,
            "ignoresurroundingspaces" => self.is_trimmed = boolean(function, name, &value)?,
            "indent" if value.bytes().all(|byte| matches!(byte, b' ' | b'\t')) => {
                self.indent = value;
            }
            _ => return unknown(function, name, KNOWN),
        }
        Ok(())
    }

    /// The name of an element or an attribute, without the prefix of a namespace where that does
    /// not count.
    pub fn name<'a>(&self, name: &'a str) -> &'a str {
        match name.rsplit_once(':') {
            Some((_, local)) if self.has_no_prefixes => local,
            _ => name,
        }
    }

    /// A text without the spaces around it, where these do not count.
    pub fn trimmed<'a>(&self, text: &'a str) -> &'a str {
        if self.is_trimmed { text.trim_matches(|char: char| char <= ' ') } else { text }
    }

    /// The attributes of an element as fields.
    pub fn attributes<'a>(
        &'a self,
        attributes: &'a [(String, String)],
    ) -> impl Iterator<Item = (String, &'a str)> {
        let kept = if self.has_no_attributes { &[][..] } else { attributes };
        kept.iter().map(move |(name, value)| {
            (format!("{}{}", self.attribute_prefix, self.name(name)), self.trimmed(value))
        })
    }
}

fn tag(function: &str, name: &str, value: String) -> Result<String> {
    match is_name(&value) {
        true => Ok(value),
        false => plan_err!("{function}: {name} is the name of an element, and '{value}' is none"),
    }
}
