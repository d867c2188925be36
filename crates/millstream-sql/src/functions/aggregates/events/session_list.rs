//! `sessions`: the sessions of a group as an array, each with its start, its end and its events.
//!
//! A session goes on while the next event comes no later than a gap after the one before, and ends
//! a gap after its last event, as sessions of `session_window` do. Sessions are joined as rows
//! arrive, so a group takes memory in proportion to its sessions, not to its rows.

use std::sync::Arc;

use arrow::array::builder::{Int64Builder, ListBuilder};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::super::define::{Aggregate, Make, counted, input};
use super::super::grouped::{states_of_rows, try_for_each};
use super::{length, length_type, time_column, time_type, times};

const NAME: &str = "sessions";

pub(super) const AGGREGATES: &[Aggregate] = &[Aggregate {
    name: NAME,
    aliases: &[],
    coerce: |given| {
        counted(NAME, given, 2, 2)?;
        Ok(vec![time_type(NAME, &given[0])?, length_type(NAME, &given[1])?])
    },
    returns: |args| Ok(DataType::new_list(session_type(&args[0]), true)),
    // Starts, times of the last events, and counts.
    state: |_| vec![DataType::new_list(DataType::Int64, true); 3],
    never_null: true,
    make: Make::Groups(made),
    moving: None,
}];

fn session_type(time: &DataType) -> DataType {
    DataType::Struct(Fields::from(vec![
        Field::new("start", time.clone(), true),
        Field::new("end", time.clone(), true),
        Field::new("events", DataType::Int64, true),
    ]))
}

fn made(args: &AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
    let time = input(args, 0);
    let gap = length(NAME, args, 1, &time)?;
    Ok(Box::new(SessionLists { groups: Vec::new(), room: 0, gap, time }))
}

/// Events that follow each other within the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    start: i64,
    last: i64,
    events: i64,
}

/// The sessions of a group.
#[derive(Clone, Debug, Default)]
struct Sessions {
    /// In order and apart up to `joined`; behind it as they came.
    sessions: Vec<Session>,
    joined: usize,
}

impl Sessions {
    fn add(&mut self, session: Session, gap: i64) {
        // Rows mostly come in the order of their times.
        let is_joined = self.joined == self.sessions.len();
        match self.sessions.last_mut() {
            Some(last) if is_joined && session.start >= last.start => {
                if session.start.saturating_sub(last.last) <= gap {
                    last.last = last.last.max(session.last);
                    last.events = last.events.saturating_add(session.events);
                    return;
                }
                self.joined += 1;
            }
            None => self.joined = 1,
            Some(_) => {}
        }
        self.sessions.push(session);
        if self.sessions.len() >= 16 + 2 * self.joined {
            self.join(gap);
        }
    }

    /// Brings all into order, and joins those that are not a gap apart.
    fn join(&mut self, gap: i64) {
        self.sessions.sort_unstable();
        self.sessions.dedup_by(|next, session| {
            let is_one = next.start.saturating_sub(session.last) <= gap;
            if is_one {
                session.last = session.last.max(next.last);
                session.events = session.events.saturating_add(next.events);
            }
            is_one
        });
        self.joined = self.sessions.len();
    }
}

struct SessionLists {
    groups: Vec<Sessions>,
    /// How many sessions there is room for in all groups.
    room: usize,
    gap: i64,
    time: DataType,
}

impl SessionLists {
    fn add(&mut self, group: usize, session: Session) {
        let sessions = &mut self.groups[group];
        let before = sessions.sessions.capacity();
        sessions.add(session, self.gap);
        self.room = (self.room + sessions.sessions.capacity()).saturating_sub(before);
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Sessions> {
        let mut taken = emit_to.take_needed(&mut self.groups);
        let room: usize = taken.iter().map(|sessions| sessions.sessions.capacity()).sum();
        self.room = self.room.saturating_sub(room);
        taken.iter_mut().for_each(|sessions| sessions.join(self.gap));
        taken
    }
}

impl GroupsAccumulator for SessionLists {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize_with(count, Sessions::default);
        let times = Int64Array::new(times(&values[0]), values[0].nulls().cloned());
        try_for_each(&times, groups, filter, |group, time| {
            self.add(group, Session { start: time, last: time, events: 1 });
            Ok(())
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.groups.resize_with(count, Sessions::default);
        let lists = states[0].as_list::<i32>();
        let column = |at: usize| {
            states[at].as_list::<i32>().values().as_primitive::<Int64Type>().values().clone()
        };
        let (starts, lasts, events) = (column(0), column(1), column(2));
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| lists.is_valid(*row)) {
            let range =
                lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
            for at in range {
                let session = Session { start: starts[at], last: lasts[at], events: events[at] };
                self.add(*group, session);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit_to);
        let all = || groups.iter().flat_map(|sessions| &sessions.sessions);
        let starts = time_column(all().map(|session| session.start).collect(), &self.time)?;
        let Some(ends) = all().map(|session| session.last.checked_add(self.gap)).collect() else {
            return exec_err!("the end of a session is beyond what a time can be");
        };
        let ends = time_column(ends, &self.time)?;
        let events: ArrayRef =
            Arc::new(Int64Array::from_iter_values(all().map(|session| session.events)));
        let DataType::Struct(fields) = session_type(&self.time) else {
            return exec_err!("a session is a STRUCT");
        };
        let sessions = StructArray::try_new(fields, vec![starts, ends, events], None)?;
        let offsets = OffsetBuffer::from_lengths(groups.iter().map(|group| group.sessions.len()));
        let item = Arc::new(Field::new_list_field(session_type(&self.time), true));
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(sessions), None)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let column = |number: fn(&Session) -> i64| -> ArrayRef {
            let mut lists = ListBuilder::new(Int64Builder::new());
            for group in &groups {
                group.sessions.iter().for_each(|found| lists.values().append_value(number(found)));
                lists.append(true);
            }
            Arc::new(lists.finish())
        };
        let state = [
            column(|session| session.start),
            column(|session| session.last),
            column(|session| session.events),
        ];
        Ok(state.into())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let (gap, time) = (self.gap, self.time.clone());
        states_of_rows(Self { groups: Vec::new(), room: 0, gap, time }, values, filter)
    }

    fn size(&self) -> usize {
        self.room * size_of::<Session>() + self.groups.capacity() * size_of::<Sessions>()
    }
}
