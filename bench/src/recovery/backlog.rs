//! What a reader of the output sees around a kill: arithmetic without a broker.

/// What is due and has not come, from a kill on.
pub struct Backlog {
    supply: Supply,
    /// How old what is missing may be where all is said to be there.
    behind_us: i64,
    /// What had come before the restart.
    before: u64,
    seen: Seen,
}

/// What is sent, and when.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// When the first record is due at the earliest, microseconds since the epoch.
    pub start_us: i64,
    /// Records a second.
    pub rate: u64,
    /// How many there are in all.
    pub records: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When the first record had come that had not come before, microseconds since the epoch.
    pub first_us: Option<i64>,
    /// When nothing was missing any more but the newest.
    pub caught_up_us: Option<i64>,
    /// The most records that were due and had not come.
    pub rows_max: u64,
}

impl Supply {
    /// How many records are due at a moment, or a little earlier: each has a slot of time, and
    /// counts when that is over.
    fn due_by(&self, at_us: i64) -> u64 {
        let elapsed_us = u128::try_from(at_us - self.start_us).unwrap_or(0);
        let due = elapsed_us * u128::from(self.rate) / 1_000_000;
        u64::try_from(due).map_or(self.records, |due| due.min(self.records))
    }
}

impl Backlog {
    /// Of a process that was killed after `before` records had come.
    pub fn new(supply: Supply, behind_us: i64, before: u64) -> Self {
        Self { supply, behind_us, before, seen: Seen::default() }
    }

    /// Takes in that `received` different records have come by now.
    pub fn see(&mut self, received: u64, now_us: i64) {
        let seen = &mut self.seen;
        seen.rows_max = seen.rows_max.max(self.supply.due_by(now_us).saturating_sub(received));
        // Before the first new one nothing is restored, however little is missing.
        if received <= self.before {
            return;
        }
        seen.first_us.get_or_insert(now_us);
        if received >= self.supply.due_by(now_us - self.behind_us) {
            seen.caught_up_us.get_or_insert(now_us);
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000;
    /// One record each millisecond.
    const SUPPLY: Supply = Supply { start_us: 5_000 * MS, rate: 1_000, records: 10_000 };

    #[test]
    fn a_record_is_due_when_its_slot_is_over() {
        let due = |ms: i64| SUPPLY.due_by(SUPPLY.start_us + ms * MS);
        assert_eq!([due(-1), due(0), due(1), due(250)], [0, 0, 1, 250]);
        assert_eq!((due(10_000), due(90_000)), (10_000, 10_000));
    }

    #[test]
    fn it_is_caught_up_when_only_the_newest_are_missing() {
        let mut backlog = Backlog::new(SUPPLY, 100 * MS, 1_000);
        let at = |ms: i64| SUPPLY.start_us + ms * MS;
        // Killed at 1,000; nothing comes for half a second, then old records.
        backlog.see(1_000, at(1_050));
        backlog.see(1_000, at(1_500));
        assert_eq!(backlog.seen(), Seen { rows_max: 500, ..Seen::default() });
        backlog.see(1_200, at(1_600));
        backlog.see(1_599, at(1_700));
        let seen = backlog.seen();
        assert_eq!((seen.first_us, seen.caught_up_us), (Some(at(1_600)), None));
        backlog.see(1_650, at(1_750));
        backlog.see(2_000, at(2_000));
        let seen = backlog.seen();
        assert_eq!((seen.first_us, seen.caught_up_us), (Some(at(1_600)), Some(at(1_750))));
        assert_eq!(seen.rows_max, 500);
    }

    #[test]
    fn nothing_new_is_not_caught_up_even_if_little_is_missing() {
        let mut backlog = Backlog::new(SUPPLY, 100 * MS, 1_000);
        backlog.see(1_000, SUPPLY.start_us + 1_010 * MS);
        assert_eq!(backlog.seen(), Seen { rows_max: 10, ..Seen::default() });
    }
}
