//! Records to columns.
//!
//! Fields arrive in any order and repeatedly, but each row has one value in every column. Values of
//! fixed columns are appended as they come and taken away again when the field comes once more.
//! What has to be seen whole first, nested messages and maps, is noted with where it is and
//! appended at the end of its message. When something goes wrong, the columns are left in the
//! middle of a row, and whoever owns them cuts them back.

use super::fault::{Error, Fault};
use super::planned::{Absent, Field, Message, Op, Shape};
use super::state::{Part, State};
use super::value::{append_constant, append_scalar, append_timestamp};
use super::wire::{self, DELIMITED, MAX_DEPTH, START_GROUP, WireError};
use crate::columns::Column;

/// Adds the field to the path of an error in it.
#[inline]
fn within<T, E: Into<Error>>(field: &Field, result: Result<T, E>) -> Result<T, Error> {
    result.map_err(|error| outside(field, error.into()))
}

#[cold]
fn outside(field: &Field, mut error: Error) -> Error {
    error.path.insert(0, field.name.to_string());
    error
}

const NO_MEMBER: usize = usize::MAX;

/// A message in the middle of being decoded.
struct Frame<'a> {
    bytes: &'a [u8],
    /// The row that its values are appended to.
    row: usize,
    depth: usize,
    /// Where the members of its oneofs are.
    members: usize,
    seen: Seen,
}

/// The fields of a message that have occurred.
struct Seen {
    first: u64,
    others: Vec<u64>,
}

impl Seen {
    fn new(fields: usize) -> Self {
        Self { first: 0, others: vec![0; fields.saturating_sub(1) / 64] }
    }

    #[inline]
    fn word(&mut self, index: usize) -> &mut u64 {
        if index < 64 { &mut self.first } else { &mut self.others[index / 64 - 1] }
    }

    #[inline]
    fn has(&mut self, index: usize) -> bool {
        *self.word(index) >> (index % 64) & 1 == 1
    }

    /// Adds a field. True if it was in already.
    #[inline]
    fn add(&mut self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        let word = self.word(index);
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    /// Takes a field away. True if it was in.
    fn take(&mut self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        let word = self.word(index);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

impl State {
    /// Appends the fields of a message, one row to each of `columns`, which have `row` rows.
    pub(super) fn message(
        &mut self,
        plan: &Message,
        columns: &mut [Column],
        row: usize,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(WireError::Depth.into());
        }
        let (parts, members) = (self.parts.len(), self.members.len());
        if plan.oneofs > 0 {
            self.members.resize(members + plan.oneofs, NO_MEMBER);
        }
        let seen = Seen::new(plan.fields.len());
        let mut frame = Frame { bytes, row, depth, members, seen };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, wire) = wire::tag(&mut rest)?;
            let Some(index) = plan.find(number) else {
                wire::skip(number, wire, &mut rest)?;
                continue;
            };
            let field = &plan.fields[index];
            if !field.is_plain || wire != field.wire {
                let tag = (number, wire);
                within(field, self.occurrence(plan, index, tag, &mut frame, columns, &mut rest))?;
                continue;
            }
            let column = &mut columns[index];
            if frame.seen.add(index) {
                column.truncate(row);
            }
            let value = rest;
            within(field, append_scalar(self, &field.op, column, &mut rest))?;
            if field.is_implicit && is_default(value, rest) {
                column.truncate(row);
                frame.seen.take(index);
            }
        }
        self.complete(plan, &mut frame, columns, parts)
    }

    /// Takes a value of a field that needs more than to be appended.
    #[inline(never)]
    fn occurrence(
        &mut self,
        plan: &Message,
        index: usize,
        (number, wire): (u32, u8),
        frame: &mut Frame<'_>,
        columns: &mut [Column],
        rest: &mut &[u8],
    ) -> Result<(), Error> {
        let field = &plan.fields[index];
        if wire != field.wire && !(wire == DELIMITED && field.shape == Shape::List(true)) {
            return mismatch(field, number, wire, rest, frame.depth);
        }
        if field.is_special {
            if is_unknown_value(field, wire, rest, frame.depth)? {
                return Ok(wire::skip(number, wire, rest)?);
            }
            self.choose(plan, index, frame, columns);
        }
        match field.shape {
            Shape::Single => {
                let column = &mut columns[index];
                if frame.seen.add(index) {
                    column.truncate(frame.row);
                }
                append_scalar(self, &field.op, column, rest)
            }
            Shape::List(_) => {
                let Column::List(list) = &mut columns[index] else {
                    return Err(Fault::OtherColumns.into());
                };
                self.elements(field, (number, wire), &mut list.items, rest, frame.depth)
            }
            Shape::Nested | Shape::Map => {
                let payload = payload(number, wire, rest)?;
                let start = payload.as_ptr() as usize - frame.bytes.as_ptr() as usize;
                let (end, is_fresh) = (start + payload.len(), !frame.seen.add(index));
                self.parts.push(Part { field: index, start, end, is_fresh });
                Ok(())
            }
            Shape::Watched => {
                frame.seen.add(index);
                Ok(wire::skip(number, wire, rest)?)
            }
            Shape::Missing => Err(Fault::OtherColumns.into()),
        }
    }

    /// Ends a message: checks what must be there, and appends what is not plain or not there.
    #[inline(never)]
    fn complete(
        &mut self,
        plan: &Message,
        frame: &mut Frame<'_>,
        columns: &mut [Column],
        parts: usize,
    ) -> Result<(), Error> {
        for index in &plan.required {
            if !frame.seen.has(*index) {
                return within(&plan.fields[*index], Err(Fault::Required));
            }
        }
        if self.parts.len() > parts {
            self.append_parts(plan, frame, columns, parts)?;
        }
        self.members.truncate(frame.members);
        for (word, (columns_of_word, lists)) in plan.words.iter().enumerate() {
            let mut open = lists | columns_of_word & !*frame.seen.word(word * 64);
            while open != 0 {
                let index = word * 64 + open.trailing_zeros() as usize;
                open &= open - 1;
                let (field, column) = (&plan.fields[index], &mut columns[index]);
                match (field.shape, column) {
                    (Shape::List(_), Column::List(list)) => list.close(true),
                    (_, column) => within(field, self.absent(field, column, frame.depth))?,
                }
            }
        }
        Ok(())
    }

    /// Makes a field the member of its oneof, if it is in one: the value of another is gone.
    fn choose(
        &mut self,
        plan: &Message,
        index: usize,
        frame: &mut Frame<'_>,
        columns: &mut [Column],
    ) {
        let Some(oneof) = plan.fields[index].oneof else { return };
        let member = std::mem::replace(&mut self.members[frame.members + oneof], index);
        if member != index
            && member != NO_MEMBER
            && frame.seen.take(member)
            && plan.fields[member].shape == Shape::Single
        {
            columns[member].truncate(frame.row);
        }
    }

    /// Appends one element of a list, or those that are packed together.
    fn elements(
        &mut self,
        field: &Field,
        (number, wire): (u32, u8),
        items: &mut Column,
        rest: &mut &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        if wire != field.wire {
            let mut packed = wire::delimited(rest)?;
            while !packed.is_empty() {
                if is_unknown_value(field, field.wire, packed, depth)? {
                    wire::varint(&mut packed)?;
                    continue;
                }
                append_scalar(self, &field.op, items, &mut packed)?;
            }
            return Ok(());
        }
        if !matches!(field.op, Op::Message(_) | Op::Unwrap(_) | Op::Timestamp { .. }) {
            return append_scalar(self, &field.op, items, rest);
        }
        self.nested(field, items, payload(number, wire, rest)?, depth)
    }

    /// Appends one value of a field that is a message.
    pub(super) fn nested(
        &mut self,
        field: &Field,
        column: &mut Column,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        match &field.op {
            Op::Message(plan) => {
                let Column::Struct(structs) = column else {
                    return Err(Fault::OtherColumns.into());
                };
                self.grow(plan.width)?;
                let row = structs.len();
                self.message(plan, &mut structs.columns, row, bytes, depth + 1)?;
                structs.close();
                Ok(())
            }
            Op::Unwrap(plan) => {
                let row = column.len();
                self.message(plan, std::slice::from_mut(column), row, bytes, depth + 1)
            }
            Op::Timestamp { seconds, nanos } => append_timestamp(column, *seconds, *nanos, bytes),
            _ => Err(Fault::OtherColumns.into()),
        }
    }

    /// Appends the nested messages and maps whose parts were noted since `start`.
    fn append_parts(
        &mut self,
        plan: &Message,
        frame: &mut Frame<'_>,
        columns: &mut [Column],
        start: usize,
    ) -> Result<(), Error> {
        let (bytes, depth) = (frame.bytes, frame.depth);
        if !self.parts[start..].is_sorted_by_key(|part| part.field) {
            self.parts[start..].sort_by_key(|part| part.field);
        }
        let end = self.parts.len();
        let mut at = start;
        while at < end {
            let index = self.parts[at].field;
            let count = self.parts[at..end].iter().take_while(|part| part.field == index).count();
            let run = at..at + count;
            at += count;
            let (field, column) = (&plan.fields[index], &mut columns[index]);
            if field.shape == Shape::Map {
                within(field, self.map(field, column, bytes, run, depth))?;
            } else if frame.seen.has(index) {
                within(field, self.merged(field, column, bytes, run, depth))?;
            }
        }
        self.parts.truncate(start);
        Ok(())
    }

    /// Appends a nested message from its occurrences. Merging them is the same as decoding them
    /// one after the other (section "Last One Wins").
    fn merged(
        &mut self,
        field: &Field,
        column: &mut Column,
        bytes: &[u8],
        run: std::ops::Range<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        let parts = &self.parts[run];
        let from = parts.iter().rposition(|part| part.is_fresh).unwrap_or(0);
        if let [part] = parts[from..] {
            return self.nested(field, column, part.of(bytes), depth);
        }
        let all: Vec<&[u8]> = parts[from..].iter().map(|part| part.of(bytes)).collect();
        self.nested(field, column, &all.concat(), depth)
    }

    /// Appends what a field has that did not occur.
    fn absent(&mut self, field: &Field, column: &mut Column, depth: usize) -> Result<(), Error> {
        match (&field.absent, column) {
            (Absent::Null, _) if !field.nullable => Err(Fault::Null.into()),
            (Absent::Null, column) => {
                column.append_null();
                Ok(())
            }
            (Absent::Value(value), column) => append_constant(self, value, column),
            (Absent::Empty, Column::Map(map)) => {
                map.close(true);
                Ok(())
            }
            (Absent::Empty, column) => self.nested(field, column, &[], depth),
        }
    }
}

/// Takes the bytes of a message.
fn payload<'a>(number: u32, wire: u8, rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    match wire {
        START_GROUP => wire::group(number, rest),
        _ => wire::delimited(rest),
    }
}

/// True if the value between two rests is zero, false or empty.
#[inline]
fn is_default(value: &[u8], rest: &[u8]) -> bool {
    value[0] == 0 && value[..value.len() - rest.len()].iter().all(|byte| *byte == 0)
}

/// A known field with another wire type. Java's parser keeps it as an unknown field; Spark refuses
/// a record that has one, but does not look for them in nested messages.
fn mismatch(
    field: &Field,
    number: u32,
    wire: u8,
    rest: &mut &[u8],
    depth: usize,
) -> Result<(), Error> {
    wire::skip(number, wire, rest)?;
    match depth {
        0 => Err(Fault::WireType { expected: field.wire, found: wire }.into()),
        _ => Ok(()),
    }
}

/// True if the next value is one that a closed enum does not have, which makes it an unknown field
/// like one with another wire type.
fn is_unknown_value(field: &Field, wire: u8, mut rest: &[u8], depth: usize) -> Result<bool, Error> {
    let (Op::Enum(values) | Op::EnumNumber(values)) = &field.op else { return Ok(false) };
    if !values.is_closed || wire != field.wire {
        return Ok(false);
    }
    let number = wire::varint(&mut rest)? as i32;
    match (values.find(number), depth) {
        (Some(_), _) => Ok(false),
        (None, 0) => Err(Fault::Enum(number).into()),
        (None, _) => Ok(true),
    }
}
