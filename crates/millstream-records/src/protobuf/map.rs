//! Maps, which are lists of entries on the wire.

use std::collections::HashSet;
use std::ops::Range;

use super::fault::{Error, Fault};
use super::planned::{Field, Number, Op};
use super::state::State;
use super::wire::{self, DELIMITED, WireError};
use crate::columns::Column;

/// Entries up to which each is compared with each.
const FEW: usize = 16;

/// A key, for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl State {
    /// Appends a map. Of entries with the same key the last one counts (proto3 language guide,
    /// section "Maps: Wire Format").
    pub(super) fn map(
        &mut self,
        field: &Field,
        column: &mut Column,
        bytes: &[u8],
        run: Range<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        let (Column::Map(map), Op::Message(plan)) = (column, &field.op) else {
            return Err(Fault::OtherColumns.into());
        };
        let stays = last_of_each(self, &plan.fields[0], bytes, &run)?;
        // An entry is a message of two fields, whose columns are no neighbours in memory: they
        // change places with those of a pair.
        let mut pair = [take(&mut map.keys), take(&mut map.values)];
        let append = || {
            let mut row = pair[0].len();
            for (at, index) in run.enumerate() {
                if stays.as_ref().is_none_or(|stays| stays[at]) {
                    self.grow(plan.width)?;
                    let entry = self.parts[index].of(bytes);
                    self.message(plan, &mut pair, row, entry, depth + 1)?;
                    row += 1;
                }
            }
            Ok(())
        };
        let result = append();
        [map.keys, map.values] = pair;
        map.close(true);
        result
    }
}

fn take(column: &mut Column) -> Column {
    std::mem::replace(column, Column::Boolean(Default::default()))
}

/// For each entry whether it is the last one with its key. None if all are.
fn last_of_each(
    state: &State,
    key: &Field,
    bytes: &[u8],
    run: &Range<usize>,
) -> Result<Option<Vec<bool>>, Error> {
    if run.len() < 2 {
        return Ok(None);
    }
    let parts = &state.parts[run.clone()];
    let keys = parts.iter().map(|part| key_of(key, part.of(bytes)));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.len() <= FEW {
        let is_last = |at: usize| !keys[at + 1..].contains(&keys[at]);
        return Ok(Some((0..keys.len()).map(is_last).collect()));
    }
    let mut later = HashSet::with_capacity(keys.len());
    let mut stays: Vec<bool> = keys.iter().rev().map(|key| later.insert(*key)).collect();
    stays.reverse();
    Ok(Some(stays))
}

fn key_of<'a>(field: &Field, mut entry: &'a [u8]) -> Result<Key<'a>, WireError> {
    let mut key = match field.op {
        Op::Text(_) => Key::Text(&[]),
        _ => Key::Number(0),
    };
    while !entry.is_empty() {
        match wire::tag(&mut entry)? {
            (1, wire) if wire == field.wire => key = take_key(&field.op, wire, &mut entry)?,
            (number, wire) => wire::skip(number, wire, &mut entry)?,
        }
    }
    Ok(key)
}

/// Takes a key as the value that it stands for: varints can be written in several ways.
fn take_key<'a>(op: &Op, wire: u8, entry: &mut &'a [u8]) -> Result<Key<'a>, WireError> {
    Ok(match (wire, op) {
        (DELIMITED, _) => Key::Text(wire::delimited(entry)?),
        (wire::FIXED32, _) => Key::Number(u64::from(wire::fixed32(entry)?)),
        (wire::FIXED64, _) => Key::Number(wire::fixed64(entry)?),
        (_, Op::Bool) => Key::Number(u64::from(wire::varint(entry)? != 0)),
        (_, Op::Number(number)) if !Number::is_long(*number) => {
            Key::Number(u64::from(wire::varint(entry)? as u32))
        }
        _ => Key::Number(wire::varint(entry)?),
    })
}
