//! What a plan consists of: messages, their fields, and what their values become.
//!
//! All of it is laid out for decoding: a field is found by its number, the name of an enum's value
//! by its number, without a look into a descriptor.

use prost_reflect::{FieldDescriptor, Kind};

/// A message type and where its fields go.
pub(super) struct Message {
    /// The wanted fields, in the order of the columns, then those that are only watched.
    pub(super) fields: Vec<Field>,
    /// How many oneofs have wanted members.
    pub(super) oneofs: usize,
    /// The fields that must be there.
    pub(super) required: Vec<usize>,
    /// Bytes that a row takes at the least, with those of nested columns.
    pub(super) width: usize,
    /// For every 64 fields, the bits of those that are wanted, and of those among them that are
    /// lists.
    pub(super) words: Vec<(u64, u64)>,
    numbers: Numbers,
}

/// A field of a message.
pub(super) struct Field {
    /// Its name, or that of the column if the message lacks it.
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    pub(super) op: Op,
    /// The wire type of one value.
    pub(super) wire: u8,
    pub(super) oneof: Option<usize>,
    /// Whether the column may be null.
    pub(super) nullable: bool,
    /// What the column gets when the field is absent.
    pub(super) absent: Absent,
    /// True for a field without presence (proto3), which is absent when it has its default value.
    pub(super) is_implicit: bool,
    /// True when a value is appended as it comes, without any of what follows.
    pub(super) is_plain: bool,
    /// True when a look at the value comes before anything else: members of oneofs, and closed
    /// enums.
    pub(super) is_special: bool,
}

/// How values make up a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value, the last one.
    Single,
    /// One message, whose occurrences are merged.
    Nested,
    /// All of them. True if they can be packed.
    List(bool),
    /// All entries.
    Map,
    /// The message has no such field.
    Missing,
    /// No column wants the field, but its presence means something.
    Watched,
}

/// What a field has when it is absent.
pub(super) enum Absent {
    /// Null.
    Null,
    /// The default value.
    Value(Constant),
    /// A message without fields, which is in the entry of a map.
    Empty,
}

/// A default value.
pub(super) enum Constant {
    Number(i128),
    Float(f64),
    Bool(bool),
    Text(Box<[u8]>),
}

/// What a value is on the wire and what it becomes.
pub(super) enum Op {
    Number(Number),
    Float,
    Double,
    Bool,
    /// True if invalid UTF-8 is an error.
    Text(bool),
    Bytes,
    /// By name.
    Enum(Box<EnumValues>),
    /// By number.
    EnumNumber(Box<EnumValues>),
    Message(Box<Message>),
    /// The only field of the message, as if it stood for it.
    Unwrap(Box<Message>),
    Timestamp {
        seconds: u32,
        nanos: u32,
    },
    Nothing,
}

/// Integers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Int32,
    Uint32,
    Sint32,
    Fixed32,
    Sfixed32,
    Int64,
    Uint64,
    Sint64,
    Fixed64,
    Sfixed64,
}

impl Number {
    pub(super) fn of(kind: &Kind) -> Option<Self> {
        Some(match kind {
            Kind::Int32 => Self::Int32,
            Kind::Uint32 => Self::Uint32,
            Kind::Sint32 => Self::Sint32,
            Kind::Fixed32 => Self::Fixed32,
            Kind::Sfixed32 => Self::Sfixed32,
            Kind::Int64 => Self::Int64,
            Kind::Uint64 => Self::Uint64,
            Kind::Sint64 => Self::Sint64,
            Kind::Fixed64 => Self::Fixed64,
            Kind::Sfixed64 => Self::Sfixed64,
            _ => return None,
        })
    }

    /// True for numbers of 64 bits.
    pub(super) fn is_long(self) -> bool {
        use Number::{Fixed64, Int64, Sfixed64, Sint64, Uint64};
        matches!(self, Int64 | Uint64 | Sint64 | Fixed64 | Sfixed64)
    }

    /// True for numbers that are never negative.
    pub(super) fn is_unsigned(self) -> bool {
        matches!(self, Self::Uint32 | Self::Fixed32 | Self::Uint64 | Self::Fixed64)
    }
}

/// The values of an enum.
pub(super) struct EnumValues {
    /// By number. Of several names for a number the first declared one counts.
    values: Vec<(i32, Box<str>)>,
    /// True if no other number is a value (proto2).
    pub(super) is_closed: bool,
    name: Box<str>,
}

impl EnumValues {
    /// The values of the enum that `field` has.
    pub(super) fn new(field: &FieldDescriptor) -> Option<Self> {
        let Kind::Enum(item) = field.kind() else { return None };
        let proto = item.enum_descriptor_proto();
        let mut values: Vec<(i32, Box<str>)> =
            proto.value.iter().map(|value| (value.number(), value.name().into())).collect();
        values.sort_by_key(|value| value.0);
        values.dedup_by_key(|value| value.0);
        let is_proto2 = |syntax| syntax == prost_reflect::Syntax::Proto2;
        Some(Self {
            values,
            is_closed: is_proto2(field.parent_file().syntax())
                || is_proto2(item.parent_file().syntax()),
            name: item.name().into(),
        })
    }

    /// The name of a number.
    #[inline]
    pub(super) fn find(&self, number: i32) -> Option<&str> {
        // Most enums count from 0 without gaps.
        let values = &self.values;
        if let Some((at, name)) = values.get(number as usize)
            && *at == number
        {
            return Some(name);
        }
        values.binary_search_by_key(&number, |value| value.0).ok().map(|at| &*values[at].1)
    }

    /// The name that the official Java library makes up for a number without one.
    pub(super) fn unknown(&self, number: i32) -> String {
        format!("UNKNOWN_ENUM_VALUE_{}_{number}", self.name)
    }
}

/// From field numbers to fields.
#[derive(Default)]
struct Numbers {
    /// For small numbers: the index of the field plus one.
    dense: Vec<u32>,
    sparse: Vec<(u32, u32)>,
}

impl Numbers {
    const DENSE: u32 = 256;

    fn new(numbers: impl Iterator<Item = (u32, usize)>) -> Self {
        let mut result = Self::default();
        for (number, index) in numbers {
            if number < Self::DENSE {
                let length = result.dense.len().max(number as usize + 1);
                result.dense.resize(length, 0);
                result.dense[number as usize] = index as u32 + 1;
            } else {
                result.sparse.push((number, index as u32));
            }
        }
        result.sparse.sort_unstable();
        result
    }
}

impl Message {
    /// From the wanted fields and those that are watched, each with its number if it has one.
    pub(super) fn new(fields: Vec<(Option<u32>, Field)>, columns: usize, oneofs: usize) -> Self {
        let numbers = fields.iter().enumerate();
        let numbers = numbers.filter_map(|(index, (number, _))| number.map(|n| (n, index)));
        let numbers = Numbers::new(numbers);
        let mut fields: Vec<Field> = fields.into_iter().map(|(_, field)| field).collect();
        for field in &mut fields {
            field.is_plain = field.shape == Shape::Single && !field.is_special;
        }
        let bits = |is_in: fn(&Field) -> bool, fields: &[Field]| {
            fields.iter().rev().fold(0, |bits, field| bits << 1 | u64::from(is_in(field)))
        };
        let is_list = |field: &Field| matches!(field.shape, Shape::List(_));
        let words = fields[..columns].chunks(64);
        let words = words.map(|word| (bits(|_| true, word), bits(is_list, word))).collect();
        let width = fields[..columns].iter().map(Field::width).sum();
        Self { fields, oneofs, required: Vec::new(), width, words, numbers }
    }

    /// The index of the field with a number, if it is wanted or watched.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<usize> {
        if let Some(index) = self.numbers.dense.get(number as usize) {
            return (*index as usize).checked_sub(1);
        }
        let sparse = &self.numbers.sparse;
        let at = sparse.binary_search_by_key(&number, |entry| entry.0).ok()?;
        Some(sparse[at].1 as usize)
    }
}

impl Field {
    fn width(&self) -> usize {
        match (&self.op, self.shape) {
            (Op::Message(message), Shape::Nested) => message.width,
            _ => 8,
        }
    }
}
