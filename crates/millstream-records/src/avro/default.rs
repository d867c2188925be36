//! A field's default as the bytes that a writer would have written.
//!
//! So a default needs no way of its own into the columns: it is decoded like any value.

use serde_json::Value;

use super::error::PlanProblem;
use super::program::At;
use super::schema::{Kind, TypeId};

/// How long an encoded default may be: a record's defaults may contain records with defaults of
/// their own, twice each, and so on.
const MAX_BYTES: usize = 1 << 20;
/// And how deep they may go: a type may be its own default.
const MAX_DEPTH: usize = 64;
/// And how many values may be tried: a union's branches are tried one after the other.
const MAX_VALUES: usize = 1 << 20;

/// Encodes a default of a type (section "Complex Types", the table of defaults).
///
/// # Errors
/// A value that is none of the type.
pub(super) fn encode(at: At<'_>, value: &Value) -> Result<Vec<u8>, PlanProblem> {
    let mut writer = Writer { bytes: Vec::new(), values: MAX_VALUES };
    match writer.append(at, value, MAX_DEPTH) {
        Some(()) => Ok(writer.bytes),
        None => {
            let mut found = value.to_string();
            if let Some((cut, _)) = found.char_indices().nth(100) {
                found.truncate(cut);
                found.push_str("...");
            }
            Err(PlanProblem::Default { expected: at.describe(), found })
        }
    }
}

struct Writer {
    bytes: Vec<u8>,
    /// How many values may still be tried.
    values: usize,
}

impl Writer {
    /// `None` if the value is none of the type, or a limit is reached.
    fn append(&mut self, at: At<'_>, value: &Value, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.values = self.values.checked_sub(1)?;
        if self.bytes.len() > MAX_BYTES {
            return None;
        }
        match at.kind() {
            Kind::Null if value.is_null() => {}
            Kind::Null => return None,
            Kind::Boolean => self.bytes.push(value.as_bool()?.into()),
            Kind::Int => self.long(i32::try_from(value.as_i64()?).ok()?.into()),
            Kind::Long => self.long(value.as_i64()?),
            Kind::Float => self.bytes.extend((number(value)? as f32).to_le_bytes()),
            Kind::Double => self.bytes.extend(number(value)?.to_le_bytes()),
            Kind::Bytes => counted(&latin1(value)?, &mut self.bytes),
            Kind::String => counted(value.as_str()?.as_bytes(), &mut self.bytes),
            Kind::Fixed(_, size) => {
                let fixed = latin1(value).filter(|fixed| fixed.len() == *size)?;
                self.bytes.extend(fixed);
            }
            Kind::Enum(of) => {
                let symbol = value.as_str()?;
                self.long(of.symbols.iter().position(|known| known == symbol)? as i64);
            }
            Kind::Array(item) => {
                let items = value.as_array()?;
                if !items.is_empty() {
                    self.long(items.len() as i64);
                }
                items.iter().try_for_each(|value| self.append(at.part(*item), value, depth))?;
                self.long(0);
            }
            Kind::Map(of) => {
                let entries = value.as_object()?;
                if !entries.is_empty() {
                    self.long(entries.len() as i64);
                }
                for (key, value) in entries {
                    counted(key.as_bytes(), &mut self.bytes);
                    self.append(at.part(*of), value, depth)?;
                }
                self.long(0);
            }
            Kind::Record(of) => {
                let given = value.as_object()?;
                for field in &of.fields {
                    let value = given.get(&field.name).or(field.default.as_ref())?;
                    self.append(at.part(field.id), value, depth)?;
                }
            }
            Kind::Union(branches) => self.union(at, branches, value, depth)?,
        }
        Some(())
    }

    /// By the specification 1.11 a default is one of the first branch, by 1.12 one of any.
    fn union(
        &mut self,
        at: At<'_>,
        branches: &[TypeId],
        value: &Value,
        depth: usize,
    ) -> Option<()> {
        let start = self.bytes.len();
        for (index, id) in branches.iter().enumerate() {
            self.long(index as i64);
            if self.append(at.part(*id), value, depth).is_some() {
                return Some(());
            }
            self.bytes.truncate(start);
        }
        None
    }

    fn long(&mut self, value: i64) {
        long(value, &mut self.bytes);
    }
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        // JSON has no such numbers; Java's parser takes them as strings.
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// Bytes are written as a string whose code points 0 to 255 are they.
fn latin1(value: &Value) -> Option<Vec<u8>> {
    value.as_str()?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// A long: seven bits a byte, the lowest first, zigzag.
#[inline]
pub(super) fn long(value: i64, bytes: &mut Vec<u8>) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        bytes.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    bytes.push(raw as u8);
}

pub(super) fn counted(value: &[u8], bytes: &mut Vec<u8>) {
    long(value.len() as i64, bytes);
    bytes.extend_from_slice(value);
}
