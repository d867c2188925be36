//! Constraints of a flow: conditions that its rows should meet, and what happens to those that
//! do not.
//!
//! The plan has a column for each condition, behind those of the sink, and one with the row as
//! JSON where a row is to be told of; nothing is computed row by row here. What is left after the
//! plan has run is to count, to filter, and to take these columns off again.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{and, filter_record_batch};
use thiserror::Error;

use crate::api::dead_letter::{Group, Letter};
use crate::api::progress::ConstraintProgress;
use crate::api::source::{Classified, Failure, Kind};

/// What happens to a row that breaks a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is counted and goes on.
    Keep,
    /// It is counted and left out.
    Drop,
    /// The query fails.
    Fail,
    /// It is left out, and goes to a table of dead letters: the flow's table of this index.
    DeadLetter(usize),
}

impl Action {
    /// Whether somebody is told what the row was.
    pub fn shows_row(self) -> bool {
        matches!(self, Self::Fail | Self::DeadLetter(_))
    }
}

/// A condition with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The name.
    pub name: Arc<str>,
    /// The condition, as written.
    pub condition: String,
    /// What happens to a row for which it is false or null.
    pub action: Action,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constraint {} does not hold: {}", self.name, self.condition)
    }
}

/// What can be done about a row that breaks a constraint with FAIL UPDATE. A restart finds the
/// same row again, so it depends on where that takes it from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// The row comes from the source alone.
    #[default]
    OfInput,
    /// The row comes from a table at rest.
    OfTablesAtRest,
    /// The row follows from what the query's state has kept.
    OfState,
    /// The row is that of a dead letter, of which nothing is recorded yet.
    OfLetter,
    /// The row is that of a dead letter whose replay is recorded.
    OfRecordedLetter,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfInput => {
                "Nothing of its micro-batch was written. Repair the data, or change what happens ON \
                 VIOLATION"
            }
            Self::OfTablesAtRest => {
                "Nothing of the result was written, unless the sink is at-least-once: then rows \
                 before this one may be there. Repair the data, or change what happens ON VIOLATION"
            }
            Self::OfState => {
                "Nothing of its micro-batch was written, but the query's state has what the row \
                 follows from: a restart finds it again, also when the source's data is repaired. \
                 Change what happens ON VIOLATION to DROP ROW or DEAD LETTER; the state stays good"
            }
            Self::OfLetter => {
                "Nothing was replayed. Change what happens ON VIOLATION, or leave the letter out \
                 with --where"
            }
            Self::OfRecordedLetter => {
                "Nothing of the letters was written, but they are recorded: the next replay feeds \
                 them first. Change what happens ON VIOLATION to DROP ROW or DEAD LETTER, and start \
                 it again"
            }
        })
    }
}

/// A row that breaks a constraint with FAIL UPDATE.
#[derive(Debug, Error)]
#[error("{constraint}. The row: {row}. {remedy}")]
pub struct BrokenConstraint {
    /// The constraint.
    pub constraint: Constraint,
    /// The row's columns as JSON.
    pub row: String,
    /// What can be done.
    pub remedy: Remedy,
}

impl Classified for BrokenConstraint {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// What is checked of the rows of one plan.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    constraints: Vec<Constraint>,
    remedy: Remedy,
}

/// What came of checking a micro-batch.
#[derive(Debug, Default)]
pub struct Checked {
    /// The rows that go on, by partition, with the sink's columns only.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// Dead letters, with the table that gets them.
    pub letters: Vec<(usize, Group)>,
    /// How many rows met each constraint.
    pub progress: Vec<ConstraintProgress>,
}

impl Checks {
    /// Checks for a plan whose last columns are those of `constraints`.
    pub fn new(constraints: Vec<Constraint>) -> Self {
        Self { constraints, remedy: Remedy::default() }
    }

    /// The same, for rows that come from elsewhere than the source alone.
    pub fn with_remedy(self, remedy: Remedy) -> Self {
        Self { remedy, ..self }
    }

    /// The same, with the tables of dead letters numbered anew.
    pub fn with_tables(mut self, place: impl Fn(usize) -> usize) -> Self {
        for constraint in &mut self.constraints {
            if let Action::DeadLetter(table) = &mut constraint.action {
                *table = place(*table);
            }
        }
        self
    }

    /// The tables that get letters of a constraint.
    pub fn tables(&self) -> impl Iterator<Item = usize> {
        self.constraints.iter().filter_map(|constraint| match constraint.action {
            Action::DeadLetter(table) => Some(table),
            _ => None,
        })
    }

    /// How many columns the plan has for them, behind those of the sink.
    pub fn columns(&self) -> usize {
        self.constraints.len() + usize::from(self.show_rows())
    }

    fn show_rows(&self) -> bool {
        self.constraints.iter().any(|constraint| constraint.action.shows_row())
    }

    /// Checks a micro-batch's rows.
    ///
    /// Errors: the first row that breaks a constraint with FAIL UPDATE.
    pub fn apply(&self, partitions: Vec<Vec<RecordBatch>>) -> Result<Checked, Failure> {
        let progress = |constraint: &Constraint| ConstraintProgress {
            name: constraint.name.to_string(),
            passed: 0,
            failed: 0,
        };
        let progress = self.constraints.iter().map(progress).collect();
        let mut checked = Checked { progress, ..Checked::default() };
        for rows in partitions {
            let mut kept = Vec::with_capacity(rows.len());
            for rows in rows {
                kept.extend(self.check(&rows, &mut checked)?);
            }
            checked.partitions.push(kept);
        }
        Ok(checked)
    }

    /// The rows that go on, unless there are none.
    fn check(
        &self,
        rows: &RecordBatch,
        checked: &mut Checked,
    ) -> Result<Option<RecordBatch>, Failure> {
        let of_sink: Vec<usize> = (0..rows.num_columns() - self.columns()).collect();
        let shown = rows.columns().last().filter(|_| self.show_rows());
        let shown = shown.map(|shown| shown.as_string::<i32>());
        let mut kept: Option<BooleanArray> = None;
        for (index, constraint) in self.constraints.iter().enumerate() {
            let holds = rows.column(of_sink.len() + index).as_boolean();
            let passed = holds.true_count();
            let failed = holds.len() - passed;
            checked.progress[index].passed += passed as u64;
            checked.progress[index].failed += failed as u64;
            if failed == 0 || constraint.action == Action::Keep {
                continue;
            }
            if constraint.action == Action::Fail {
                return Err(self.broken(constraint, holds, shown));
            }
            if let Action::DeadLetter(table) = constraint.action {
                let letters = letters(constraint, holds, kept.as_ref(), shown);
                checked.letters.push((table, letters));
            }
            kept = Some(match kept {
                Some(kept) => and(&kept, holds).expect("a flag for each row"),
                None => holds.clone(),
            });
        }
        let rows = rows.project(&of_sink).expect("the sink's columns come first");
        let rows = match kept {
            Some(kept) => filter_record_batch(&rows, &kept).expect("a flag for each row"),
            None => rows,
        };
        Ok((rows.num_rows() > 0).then_some(rows))
    }

    fn broken(
        &self,
        constraint: &Constraint,
        holds: &BooleanArray,
        shown: Option<&StringArray>,
    ) -> Failure {
        let row = (0..holds.len()).find(|row| !holds.value(*row)).unwrap_or_default();
        let row = shown.map(|shown| shown.value(row).to_owned()).unwrap_or_default();
        BrokenConstraint { constraint: constraint.clone(), row, remedy: self.remedy }.into()
    }
}

/// The rows that `constraint` rejects and none before it has.
fn letters(
    constraint: &Constraint,
    holds: &BooleanArray,
    kept: Option<&BooleanArray>,
    shown: Option<&StringArray>,
) -> Group {
    let is_new = |row: &usize| !holds.value(*row) && kept.is_none_or(|kept| kept.value(*row));
    let letter = |row| Letter {
        payload: shown.map(|shown| shown.value(row).as_bytes().to_vec()),
        error: constraint.to_string(),
        ..Letter::default()
    };
    Group {
        source_table: None,
        constraint: Some(Arc::clone(&constraint.name)),
        letters: (0..holds.len()).filter(is_new).map(letter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    /// Rows `0..4` with the columns of two constraints and the rows as JSON.
    fn rows(first: [bool; 4], second: [bool; 4]) -> Vec<Vec<RecordBatch>> {
        let flags = |flags: [bool; 4]| -> ArrayRef { Arc::new(BooleanArray::from(flags.to_vec())) };
        let shown: StringArray = (0..4).map(|row| Some(format!("{{\"n\":{row}}}"))).collect();
        let columns: [(&str, ArrayRef); 4] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..4))),
            ("a", flags(first)),
            ("b", flags(second)),
            ("row", Arc::new(shown)),
        ];
        vec![Vec::new(), vec![RecordBatch::try_from_iter(columns).unwrap()]]
    }

    fn checks(first: Action, second: Action) -> Checks {
        let constraint = |name: &str, action| Constraint {
            name: name.into(),
            condition: format!("{name} > 0"),
            action,
        };
        Checks::new(vec![constraint("a", first), constraint("b", second)])
    }

    fn numbers(checked: &Checked) -> Vec<i64> {
        let rows = checked.partitions.iter().flatten();
        let of = |rows: &RecordBatch| rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        rows.flat_map(of).collect()
    }

    const TTFF: [bool; 4] = [true, true, false, false];
    const TFTF: [bool; 4] = [true, false, true, false];

    #[test]
    fn rows_are_counted_kept_and_dropped() {
        let checked = checks(Action::Drop, Action::Fail).apply(rows(TTFF, [true; 4])).unwrap();
        assert_eq!(numbers(&checked), [0, 1]);
        assert_eq!(checked.partitions[1][0].num_columns(), 1);
        let counts = |of: &ConstraintProgress| (of.passed, of.failed);
        let counts: Vec<_> = checked.progress.iter().map(counts).collect();
        assert_eq!(counts, [(2, 2), (4, 0)]);
        let kept = checks(Action::Keep, Action::DeadLetter(0)).apply(rows(TTFF, [true; 4]));
        assert_eq!(numbers(&kept.unwrap()), [0, 1, 2, 3]);
    }

    #[test]
    fn a_row_is_one_letter_for_the_first_constraint_it_breaks() {
        let checks = checks(Action::DeadLetter(1), Action::DeadLetter(0));
        let checked = checks.apply(rows(TTFF, TFTF)).unwrap();
        assert_eq!(numbers(&checked), [0]);
        let letters = checked.letters.iter().map(|(table, group)| {
            let payloads = group.letters.iter().map(|letter| letter.payload.clone().unwrap());
            (*table, group.constraint.clone().unwrap(), payloads.collect::<Vec<_>>().concat())
        });
        let letters: Vec<_> = letters.collect();
        assert_eq!(letters[0], (1, "a".into(), b"{\"n\":2}{\"n\":3}".to_vec()));
        assert_eq!(letters[1], (0, "b".into(), b"{\"n\":1}".to_vec()));
    }

    #[test]
    fn a_broken_constraint_names_itself_and_the_row() {
        let failed = checks(Action::Keep, Action::Fail).apply(rows(TTFF, TFTF)).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("constraint b does not hold: b > 0"), "{text}");
        assert!(text.contains("{\"n\":1}"), "{text}");
        assert_eq!(failed.kind(), Kind::Data);
    }

    #[test]
    fn the_remedy_is_one_that_helps_where_the_row_comes_from() {
        let text = |remedy| {
            let checks = checks(Action::Keep, Action::Fail).with_remedy(remedy);
            checks.apply(rows(TTFF, TFTF)).unwrap_err().to_string()
        };
        assert!(text(Remedy::OfInput).contains("Repair the data"));
        for remedy in [Remedy::OfState, Remedy::OfRecordedLetter] {
            assert!(text(remedy).contains("to DROP ROW or DEAD LETTER"), "{}", text(remedy));
        }
        assert!(text(Remedy::OfLetter).contains("--where"));
    }
}
