//! The numbers of a log that is compacted: which entries count, and which comes next.
//!
//! Entry N of such a log is the file `N`, or `N.compact` where it repeats all before it. A reader
//! lists the names and takes the last compact entry and all that follow it. Spark does not look for
//! that entry, it computes its number: with an interval I, those numbers N are compact for which
//! N+1 is divisible by I. And I is, of the names it sees,
//! - the difference of the last two compact entries;
//! - with one compact entry C, the least divisor of C+1 from its setting (10) on;
//! - without any, its setting.
//!
//! Spark's own interval is always the same, so a log of n entries costs n²/20 lines to write, and
//! what it keeps of them for ten minutes grows without bound. Here the interval doubles while what
//! is repeated is much more than what is new ([`Numbers::next`]): from a compact entry C whose C+1
//! is divisible by 2I, the next is not C+I but C+2I, and the numbers between are left out. From the
//! moment it is there, the last two compact entries are 2I apart, both divisible as they must be; a
//! reader that still counts in I comes to the same entry. For this the last two compact entries
//! must be kept; everything else before the last is superseded.
//!
//! Origin: Spark's `CompactibleFileStreamLog`, with the names of its file source and sink.

/// Spark's default for both settings `compactInterval`; without any compact entry a reader
/// that is not configured otherwise counts in it.
pub(super) const COMPACT_INTERVAL: u64 = 10;
/// Far above what a log can reach, a thousand entries a second for thirty years, and small enough
/// for the divisors of a number to be found in no time.
const NUMBER_MAX: u64 = 1 << 40;

/// An entry's number and whether it repeats all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) is_compact: bool,
}

impl Entry {
    /// Its file's name.
    pub(super) fn name(self) -> String {
        if self.is_compact { format!("{}.compact", self.number) } else { self.number.to_string() }
    }

    /// The entry with the file name `name`; `None` for other files.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (number, is_compact) = match name.strip_suffix(".compact") {
            Some(number) => (number, true),
            None => (name, false),
        };
        let number = number.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok())?;
        // Other spellings of a number, `+7` or `007`, are nobody's entries.
        let entry = Self { number, is_compact };
        (entry.name() == name).then_some(entry)
    }
}

/// Which entries a log has, as far as that decides what is read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    last: Option<u64>,
    /// The last compact entry.
    compact: Option<u64>,
    /// The compact entry before that.
    previous: Option<u64>,
    interval: u64,
}

impl Numbers {
    /// Those of a log with `entries`; `setting` is the interval that its writer is configured with.
    ///
    /// Errors: in words, if a reader would not find what it looks for.
    pub(super) fn of(entries: &[Entry], setting: u64) -> Result<Self, String> {
        let last = entries.iter().map(|entry| entry.number).max();
        let compact = entries.iter().filter(|entry| entry.is_compact).map(|entry| entry.number);
        let mut compact: Vec<u64> = compact.collect();
        compact.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(last) = last.filter(|last| *last > NUMBER_MAX) {
            return Err(format!("{last} is no number that a log comes to: remove that file"));
        }
        let (latest, previous) = (compact.first().copied(), compact.get(1).copied());
        let interval = match (latest, previous) {
            (Some(latest), Some(previous)) => latest - previous,
            (Some(latest), None) => derived(setting, latest),
            (None, _) => setting.clamp(1, COMPACT_INTERVAL),
        };
        let numbers = Self { last, compact: latest, previous, interval };
        numbers.check(entries)?;
        Ok(numbers)
    }

    fn check(&self, entries: &[Entry]) -> Result<(), String> {
        let Some(last) = self.last else { return Ok(()) };
        let first = self.compact.unwrap_or(0);
        let is_spaced = self.compact.is_none_or(|compact| (compact + 1) % self.interval == 0);
        let end = self.compact.map_or(self.interval - 1, |compact| compact + self.interval);
        if !is_spaced || last >= end {
            return Err(format!(
                "from entry {first} on one in {} should be compact, and {last} is the last; if \
                 Spark wrote it with another compactInterval, set that",
                self.interval
            ));
        }
        let mut numbers: Vec<Entry> = entries.to_vec();
        numbers.sort_unstable();
        match self.current().into_iter().find(|entry| numbers.binary_search(entry).is_err()) {
            None => Ok(()),
            Some(missing) => Err(format!("{} is missing", missing.name())),
        }
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// The compact entry before the last one.
    pub(super) fn previous(&self) -> Option<u64> {
        self.previous
    }

    /// The entries that together say everything, in order.
    pub(super) fn current(&self) -> Vec<Entry> {
        let Some(last) = self.last else { return Vec::new() };
        let of = |number| Entry { number, is_compact: self.compact == Some(number) };
        (self.compact.unwrap_or(0)..=last).map(of).collect()
    }

    /// The entry to write next. If it is compact, `repeats_much` says whether what is new in it is
    /// little beside what it repeats: then the next one may be further away.
    pub(super) fn next(&self, repeats_much: bool) -> Entry {
        let number = self.last.map_or(0, |last| last + 1);
        let Some(compact) = self.compact else {
            return Entry { number, is_compact: number + 1 >= self.interval };
        };
        if number < compact + self.interval {
            return Entry { number, is_compact: false };
        }
        let doubles = repeats_much && (compact + 1) % (2 * self.interval) == 0;
        let distance = if doubles { 2 * self.interval } else { self.interval };
        Entry { number: compact + distance, is_compact: true }
    }

    /// Entry `entry`, which [`Self::next`] gave, is there now.
    pub(super) fn wrote(&mut self, entry: Entry) {
        self.last = Some(entry.number);
        if entry.is_compact {
            if let Some(compact) = self.compact {
                self.interval = entry.number - compact;
            }
            (self.previous, self.compact) = (self.compact, Some(entry.number));
        }
    }

    /// Whether entry `number` is needed neither for what it says nor to find the others.
    pub(super) fn is_superseded(&self, number: u64) -> bool {
        self.compact.is_some_and(|compact| number < compact) && self.previous != Some(number)
    }
}

/// What Spark makes of a log whose only compact entry is `compact`.
fn derived(setting: u64, compact: u64) -> u64 {
    let count = compact + 1;
    if count <= setting || setting >= count / 2 {
        return count;
    }
    let setting = setting.max(1);
    let small = (1..=count.isqrt()).filter(|divisor| count.is_multiple_of(*divisor));
    let divisors = small.flat_map(|divisor| [divisor, count / divisor]);
    // The number itself is one, too, and no other is above its half.
    divisors.filter(|divisor| *divisor >= setting).min().unwrap_or(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &[&str]) -> Vec<Entry> {
        names.iter().map(|name| Entry::parse(name).unwrap()).collect()
    }

    /// What Spark reads of a log with `entries` and its setting of 10, word for word.
    fn read_by_spark(entries: &[Entry]) -> Result<Vec<Entry>, String> {
        let mut compact: Vec<u64> =
            entries.iter().filter(|entry| entry.is_compact).map(|entry| entry.number).collect();
        compact.sort_unstable_by(|one, other| other.cmp(one));
        let interval = match compact[..] {
            [] => 10,
            [only] => derived(10, only),
            [latest, previous, ..] => latest - previous,
        };
        let latest = entries.iter().map(|entry| entry.number).max().unwrap();
        let start = ((latest + 1) / interval * interval).saturating_sub(1);
        let expected = (start..=latest)
            .map(|number| Entry { number, is_compact: (number + 1) % interval == 0 });
        expected
            .map(|entry| {
                if entries.contains(&entry) {
                    Ok(entry)
                } else {
                    Err(format!("{} of {latest} by {interval}", entry.name()))
                }
            })
            .collect()
    }

    #[test]
    fn names_are_numbers() {
        assert_eq!(Entry::parse("7"), Some(Entry { number: 7, is_compact: false }));
        assert_eq!(Entry::parse("19.compact"), Some(Entry { number: 19, is_compact: true }));
        for name in ["", "x", "-1", "+7", "007", "7.tmp", ".7", "9223372036854775808"] {
            assert_eq!(Entry::parse(name), None, "{name}");
        }
    }

    /// A log of many entries, of which all that is superseded is deleted at once, or after a while.
    #[test]
    fn spark_finds_everything_after_each_entry() {
        for (setting, kept) in [(10, 0), (10, 25), (10, 100_000), (1, 0), (3, 7), (7, 0), (64, 50)]
        {
            let mut numbers = Numbers::of(&[], setting).unwrap();
            let (mut there, mut old): (Vec<Entry>, Vec<Entry>) = (Vec::new(), Vec::new());
            let (mut all, mut in_compact, mut repeated) = (0_u64, 0_u64, 0_u64);
            for _ in 0..5_000 {
                let entry = numbers.next((all - in_compact) * 4 < in_compact);
                all += 1;
                if entry.is_compact {
                    (repeated, in_compact) = (repeated + all, all);
                }
                numbers.wrote(entry);
                there.push(entry);
                let current = read_by_spark(&there);
                assert_eq!(current, Ok(numbers.current()), "setting {setting}, kept {kept}");
                assert_eq!(Numbers::of(&there, setting).as_ref(), Ok(&numbers));
                let (gone, stays) = there.iter().partition(|e| numbers.is_superseded(e.number));
                old.extend::<Vec<Entry>>(gone);
                there = stays;
                let excess = old.len().saturating_sub(kept);
                old.drain(..excess);
                let with_old: Vec<Entry> = there.iter().chain(&old).copied().collect();
                assert_eq!(read_by_spark(&with_old).as_ref(), current.as_ref());
            }
            assert!(repeated < 12 * all, "setting {setting}: {repeated} lines for {all}");
            assert!(there.len() < 1_500, "setting {setting}: {} files", there.len());
        }
    }

    #[test]
    fn a_log_of_spark_goes_on_in_its_interval() {
        let names = ["9.compact", "19.compact", "20", "21"];
        let numbers = Numbers::of(&entries(&names), 10).unwrap();
        assert_eq!(numbers.current(), entries(&["19.compact", "20", "21"]));
        assert_eq!(numbers.next(true).name(), "22");
        let numbers = Numbers::of(&entries(&["11.compact", "12", "13"]), 5).unwrap();
        assert_eq!(numbers.interval, 6);
        let numbers = Numbers::of(&entries(&["4.compact"]), 10).unwrap();
        assert_eq!(numbers.interval, 5);
    }

    #[test]
    fn an_interval_is_the_least_divisor_from_the_setting_on() {
        for setting in [0, 1, 3, 10, 64] {
            for compact in 0..500_u64 {
                let count = compact + 1;
                let is_short = count <= setting || setting >= count / 2;
                let mut all = setting.max(1)..=count / 2;
                let least = all.find(|divisor| count.is_multiple_of(*divisor));
                let expected = if is_short { count } else { least.unwrap_or(count) };
                assert_eq!(derived(setting, compact), expected, "{setting} {compact}");
            }
        }
        // A prime number.
        assert_eq!(derived(10, 1_099_511_627_688), 1_099_511_627_689);
    }

    #[test]
    fn what_a_reader_would_not_find_is_told() {
        let problem = |names: &[&str]| Numbers::of(&entries(names), 10).unwrap_err();
        assert_eq!(problem(&["0", "2"]), "1 is missing");
        assert_eq!(problem(&["9.compact", "11"]), "10 is missing");
        assert!(
            problem(&["9.compact", "19.compact", "29"]).contains("one in 10 should be compact")
        );
        assert!(problem(&["2.compact", "9.compact"]).contains("one in 7 should be compact"));
        assert!(problem(&["0", "9223372036854775807"]).contains("remove that file"));
        assert!(problem(&["15"]).contains("one in 10 should be compact"));
    }
}
