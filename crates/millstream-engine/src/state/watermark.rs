//! The watermark: the event time up to which a query takes its input to be complete.
//!
//! Each source with a `WATERMARK` clause has one of its own, its newest event time less the delay.
//! The query's is the least of them (`multipleWatermarkPolicy` = `max`: the greatest), as in
//! Spark: it is computed at the end of a micro-batch for the next one, and never goes back; a
//! source that has given no row yet holds it at 0.
//!
//! Micro-batch N closes windows with its watermark W(N), but a row is late by W(N-1): windows that
//! the micro-batch before did not close still take rows.
//!
//! A source's partitions may be read unevenly: after a restart, one Kafka partition's backlog may
//! come before another's. Spark plans each micro-batch up to the end of all partitions, here it has
//! what has arrived. So while a partition is known to have more, the source's watermark goes no
//! further than that partition's own newest time: no row is late because it was read late.
//!
//! Beyond Spark, a source may be left out after it was idle for a while, and an idle query's last
//! windows may be closed by the clock; see [`Idling`].

use std::time::Duration;

use millstream_store::state_log::Facts;

use super::event_times::NewestTimes;
use crate::api::settings::{Idling, Policy};
use crate::api::source::SourcePartition;

/// The watermarks of one micro-batch, milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// What ends at or before this is closed.
    pub evict_ms: i64,
    /// Rows whose time, or window's end, is at or before this are late.
    pub late_ms: i64,
}

impl Watermark {
    /// The watermarks of a micro-batch in the state log.
    pub fn from_entry(facts: &Facts) -> Self {
        Self { evict_ms: facts.watermark_ms, late_ms: facts.late_ms }
    }

    /// Both watermarks `us` microseconds earlier, rounded down to a millisecond.
    pub fn before(self, us: i64) -> Self {
        let before = |ms: i64| ms.saturating_sub((us + 999).div_euclid(1_000));
        Self { evict_ms: before(self.evict_ms), late_ms: before(self.late_ms) }
    }

    /// The watermark with which the micro-batch before closed: nothing new closes, and the same
    /// rows are late.
    pub fn closing_nothing(self) -> Self {
        Self { evict_ms: self.late_ms, late_ms: self.late_ms }
    }

    /// As [`Self::evict_ms`], microseconds.
    pub fn evict_us(self) -> i64 {
        self.evict_ms.saturating_mul(1_000)
    }

    /// As [`Self::late_ms`], microseconds.
    pub fn late_us(self) -> i64 {
        self.late_ms.saturating_mul(1_000)
    }
}

/// The watermarks of a query's sources over its micro-batches.
#[derive(Clone, Debug)]
pub struct Watermarks {
    /// By source; `None` for one without a watermark.
    delays_ms: Vec<Option<i64>>,
    policy: Policy,
    idling: Idling,
    /// By source, its own watermark; `None` before its first row.
    seen_ms: Vec<Option<i64>>,
    /// By source, the newest event times of this run.
    newest_us: Vec<NewestTimes>,
    /// By source, when it gave its last row, on the monotonic clock.
    last_rows: Vec<Option<Duration>>,
    /// The watermarks of the next micro-batch.
    next: Watermark,
}

impl Watermarks {
    /// Watermarks of sources with these delays, by source; `None` for one without.
    pub fn new(delays: &[Option<Duration>], policy: Policy, idling: Idling) -> Self {
        let in_ms = |delay: &Duration| i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        Self {
            delays_ms: delays.iter().map(|delay| delay.as_ref().map(in_ms)).collect(),
            policy,
            idling,
            seen_ms: vec![None; delays.len()],
            newest_us: vec![NewestTimes::default(); delays.len()],
            last_rows: vec![None; delays.len()],
            next: Watermark::default(),
        }
    }

    /// Begins a run: a source is idle from now on until it gives a row.
    pub fn begin(&mut self, now: Duration) {
        for (last, delay) in self.last_rows.iter_mut().zip(&self.delays_ms) {
            *last = delay.map(|_| now);
        }
    }

    /// Continues where an earlier run ended.
    pub fn restore(&mut self, next: Watermark, seen_ms: &[Option<i64>]) {
        self.next = next;
        for (seen, known) in self.seen_ms.iter_mut().zip(seen_ms) {
            *seen = *known;
        }
    }

    /// What the next micro-batch runs with.
    pub fn next(&self) -> Watermark {
        self.next
    }

    /// By source, its own watermark; `None` before its first row.
    pub fn seen_ms(&self) -> &[Option<i64>] {
        &self.seen_ms
    }

    /// Whether any source has one.
    pub fn exist(&self) -> bool {
        self.delays_ms.iter().any(Option::is_some)
    }

    /// Ends a micro-batch that ran with [`Self::next`]. `newest` has, by source, the newest event
    /// times among its rows; `behind` the partitions that have more rows; `now` is on the monotonic
    /// clock.
    pub fn advance(
        &mut self,
        newest: &[NewestTimes],
        behind: &[Vec<SourcePartition>],
        now: Duration,
    ) {
        for (source, newest) in newest.iter().enumerate() {
            if newest.is_empty() || self.delays_ms[source].is_none() {
                continue;
            }
            for (partition, us) in newest {
                let known = self.newest_us[source].entry(*partition).or_insert(*us);
                *known = (*known).max(*us);
            }
            self.last_rows[source] = Some(now);
            self.reach(source, behind);
        }
        self.next.late_ms = self.next.evict_ms;
        self.next.evict_ms = self.next.evict_ms.max(self.query_watermark_ms(now));
    }

    /// Brings a source's own watermark to where its partitions are read to.
    fn reach(&mut self, source: usize, behind: &[Vec<SourcePartition>]) {
        let Some(delay_ms) = self.delays_ms[source] else { return };
        let behind = behind.get(source).map_or(&[][..], Vec::as_slice);
        if let Some(reached_us) = reached_us(&self.newest_us[source], behind) {
            let own_ms = reached_us.div_euclid(1_000).saturating_sub(delay_ms);
            let seen = &mut self.seen_ms[source];
            *seen = Some(seen.map_or(own_ms, |seen| seen.max(own_ms)));
        }
    }

    fn query_watermark_ms(&self, now: Duration) -> i64 {
        let with_watermark =
            (0..self.delays_ms.len()).filter(|source| self.delays_ms[*source].is_some());
        let counts = with_watermark.filter(|source| !self.is_left_out(*source, now));
        // A source that has given no row yet counts as 0, as in Spark: its rows may be of any time.
        let own = counts.map(|source| self.seen_ms[source].unwrap_or(0));
        let combined = match self.policy {
            Policy::Min => own.min(),
            Policy::Max => own.max(),
        };
        combined.unwrap_or(0)
    }

    fn is_left_out(&self, source: usize, now: Duration) -> bool {
        match (self.idling.left_out_after, self.last_rows[source]) {
            (Some(after), Some(last)) => now.saturating_sub(last) >= after,
            _ => false,
        }
    }

    /// Moves the watermark where sources have been idle, or partitions have turned out to have no
    /// more rows; whether it moved.
    pub fn idle(&mut self, behind: &[Vec<SourcePartition>], now: Duration) -> bool {
        for source in 0..self.delays_ms.len() {
            self.reach(source, behind);
        }
        let before = self.next.evict_ms;
        let mut moved = self.query_watermark_ms(now);
        if let (Some(after), Some(last)) =
            (self.idling.closes_after, self.last_rows.iter().flatten().max())
        {
            let idle = now.saturating_sub(*last);
            if idle >= after {
                let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
                // The watermark moves on with the clock, by as much as has passed since the last
                // row.
                if let Some(newest) = self.seen_ms.iter().flatten().max() {
                    moved = moved.max(newest.saturating_add(idle_ms));
                }
            }
        }
        self.next.evict_ms = before.max(moved);
        self.next.evict_ms > before
    }

    /// When [`Self::idle`] may next move it, on the monotonic clock.
    pub fn idles_at(&self) -> Option<Duration> {
        let left_out = self
            .idling
            .left_out_after
            .and_then(|after| self.last_rows.iter().flatten().map(|last| *last + after).min());
        let closes = self
            .idling
            .closes_after
            .and_then(|after| self.last_rows.iter().flatten().max().map(|last| *last + after));
        left_out.into_iter().chain(closes).min()
    }
}

/// Up to which event time a source has been read; `None` where a partition with more rows has given
/// none yet.
fn reached_us(newest: &NewestTimes, behind: &[SourcePartition]) -> Option<i64> {
    let mut reached = newest.values().copied().max()?;
    for partition in behind {
        reached = reached.min(*newest.get(&Some(*partition))?);
    }
    Some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    fn watermarks(delays_s: &[Option<u64>], policy: Policy) -> Watermarks {
        let delays: Vec<_> = delays_s.iter().map(|delay| delay.map(Duration::from_secs)).collect();
        Watermarks::new(&delays, policy, Idling::default())
    }

    fn newest(newest_s: &[Option<i64>]) -> Vec<NewestTimes> {
        let of = |newest: &Option<i64>| newest.iter().map(|s| (None, s * SECOND_US)).collect();
        newest_s.iter().map(of).collect()
    }

    /// The newest event times in seconds, and the watermark in seconds that follows.
    fn advance(watermarks: &mut Watermarks, newest_s: &[Option<i64>]) -> (i64, i64) {
        watermarks.advance(&newest(newest_s), &[], Duration::ZERO);
        let next = watermarks.next();
        (next.evict_ms / 1_000, next.late_ms / 1_000)
    }

    #[test]
    fn it_stays_behind_the_newest_row_and_never_goes_back() {
        let mut one = watermarks(&[Some(5)], Policy::Min);
        assert_eq!(one.next(), Watermark::default());
        assert_eq!(advance(&mut one, &[Some(12)]), (7, 0));
        assert_eq!(advance(&mut one, &[Some(18)]), (13, 7));
        assert_eq!(advance(&mut one, &[Some(3)]), (13, 13));
        assert_eq!(advance(&mut one, &[None]), (13, 13));
    }

    #[test]
    fn of_several_the_least_counts_and_a_silent_one_holds_it() {
        let mut min = watermarks(&[Some(0), None, Some(10)], Policy::Min);
        assert_eq!(advance(&mut min, &[Some(100), None, None]), (0, 0));
        assert_eq!(advance(&mut min, &[None, Some(900), Some(50)]), (40, 0));
        assert_eq!(advance(&mut min, &[None, None, Some(300)]), (100, 40));
        let mut max = watermarks(&[Some(0), None, Some(10)], Policy::Max);
        assert_eq!(advance(&mut max, &[Some(100), None, None]), (100, 0));
    }

    #[test]
    fn an_idle_source_is_left_out_and_the_clock_closes_the_last_windows() {
        let second = Duration::from_secs(1);
        let idling = Idling { left_out_after: Some(10 * second), closes_after: Some(30 * second) };
        let delays = [Some(Duration::ZERO), Some(Duration::ZERO)];
        let mut two = Watermarks::new(&delays, Policy::Min, idling);
        two.advance(&newest(&[Some(100), Some(50)]), &[], Duration::ZERO);
        assert_eq!(two.next().evict_ms, 50_000);
        two.advance(&newest(&[Some(108), None]), &[], 8 * second);
        assert_eq!((two.next().evict_ms, two.idles_at()), (50_000, Some(10 * second)));
        assert!(!two.idle(&[], 9 * second) && two.idle(&[], 10 * second));
        assert_eq!(two.next().evict_ms, 108_000);
        assert!(!two.idle(&[], 37 * second) && two.idle(&[], 38 * second));
        assert_eq!(two.next().evict_ms, 138_000);
    }

    #[test]
    fn a_partition_with_more_rows_holds_the_source_back() {
        let mut one = watermarks(&[Some(0)], Policy::Min);
        let mut advance = |partitions: &[(u64, i64)], behind: &[u64]| {
            let newest =
                partitions.iter().map(|(partition, s)| (Some(*partition), s * SECOND_US)).collect();
            one.advance(&[newest], &[behind.to_vec()], Duration::ZERO);
            one.next().evict_ms / 1_000
        };
        assert_eq!(
            advance(&[(1, 100)], &[2]),
            0,
            "nothing is known of partition 2 but that it has rows"
        );
        assert_eq!(advance(&[(1, 200), (2, 30)], &[2]), 30);
        assert_eq!(advance(&[(2, 60)], &[1, 2]), 60);
        assert_eq!(advance(&[(2, 70)], &[]), 200, "all partitions are at their end");
        assert_eq!(advance(&[(2, 80)], &[2]), 200, "it never goes back");
        assert_eq!(one.seen_ms(), [Some(200_000)]);
    }

    #[test]
    fn an_old_row_takes_no_partition_back() {
        let mut one = watermarks(&[Some(0)], Policy::Min);
        let mut advance = |newest: [(u64, i64); 2], behind: &[u64]| {
            let newest = newest.map(|(partition, s)| (Some(partition), s * SECOND_US)).into();
            one.advance(&[newest], &[behind.to_vec()], Duration::ZERO);
            one.next().evict_ms / 1_000
        };
        assert_eq!(advance([(1, 100), (2, 50)], &[2]), 50);
        assert_eq!(advance([(1, 10), (2, 80)], &[1, 2]), 80, "partition 1 has been read to 100");
    }

    #[test]
    fn a_source_that_comes_back_with_old_rows_takes_no_idle_watermark_back() {
        let second = Duration::from_secs(1);
        let idling = Idling { left_out_after: Some(10 * second), ..Idling::default() };
        let delays = [Some(Duration::ZERO), Some(Duration::ZERO)];
        let mut two = Watermarks::new(&delays, Policy::Min, idling);
        two.advance(&newest(&[Some(100), Some(50)]), &[], Duration::ZERO);
        two.advance(&newest(&[Some(108), None]), &[], 8 * second);
        assert!(two.idle(&[], 10 * second));
        two.advance(&newest(&[None, Some(60)]), &[], 11 * second);
        assert!(!two.idle(&[], 12 * second));
        assert_eq!(two.next().evict_ms, 108_000);
    }

    #[test]
    fn a_source_that_gave_no_row_since_the_start_is_left_out_too() {
        let second = Duration::from_secs(1);
        let idling = Idling { left_out_after: Some(10 * second), ..Idling::default() };
        let delays = [Some(Duration::ZERO), Some(Duration::ZERO), None];
        let mut two = Watermarks::new(&delays, Policy::Min, idling);
        assert!(two.exist(), "one source without a watermark does not take the others'");
        two.begin(100 * second);
        two.advance(&newest(&[Some(50), None, Some(70)]), &[], 105 * second);
        assert_eq!(two.seen_ms(), [Some(50_000), None, None]);
        assert_eq!((two.next().evict_ms, two.idles_at()), (0, Some(110 * second)));
        assert!(two.idle(&[], 110 * second));
        assert_eq!(two.next().evict_ms, 50_000);
    }

    #[test]
    fn a_partition_that_has_caught_up_moves_an_idle_watermark() {
        let mut one = watermarks(&[Some(0)], Policy::Min);
        let newest = [(Some(1), 100 * SECOND_US), (Some(2), 30 * SECOND_US)].into();
        one.advance(&[newest], &[vec![2]], Duration::ZERO);
        assert_eq!(one.next().evict_ms, 30_000);
        assert!(!one.idle(&[vec![2]], Duration::ZERO), "it still has rows");
        assert!(one.idle(&[vec![]], Duration::ZERO));
        assert_eq!(one.next().evict_ms, 100_000);
    }

    #[test]
    fn rows_of_a_source_without_a_watermark_do_not_keep_windows_open() {
        let second = Duration::from_secs(1);
        let idling = Idling { closes_after: Some(30 * second), ..Idling::default() };
        let mut two = Watermarks::new(&[Some(Duration::ZERO), None], Policy::Min, idling);
        two.begin(100 * second);
        two.advance(&newest(&[Some(50), None]), &[], 105 * second);
        two.advance(&newest(&[None, Some(70)]), &[], 120 * second);
        assert_eq!(two.idles_at(), Some(135 * second));
    }

    #[test]
    fn it_goes_on_where_an_earlier_run_stopped() {
        let mut two = watermarks(&[Some(0), Some(0)], Policy::Min);
        two.restore(Watermark { evict_ms: 30_000, late_ms: 20_000 }, &[Some(40_000), None]);
        assert_eq!(two.next(), Watermark { evict_ms: 30_000, late_ms: 20_000 });
        assert_eq!(two.seen_ms(), [Some(40_000), None]);
        assert_eq!(advance(&mut two, &[None, Some(35)]), (35, 30));
    }

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        let watermark = Watermark { evict_ms: 10, late_ms: 5 };
        assert_eq!(watermark.before(1_000), Watermark { evict_ms: 9, late_ms: 4 });
        assert_eq!(watermark.before(1_001), Watermark { evict_ms: 8, late_ms: 3 });
        assert_eq!(watermark.closing_nothing(), Watermark { evict_ms: 5, late_ms: 5 });
    }
}
