//! The letters of an hour in a pattern, when it is read: `H` and `k` of the day, `K` and `h` of the
//! half of a day that `a` says.

use std::ops::RangeInclusive;

/// What was read of an hour.
#[derive(Clone, Default)]
pub(super) struct HoursRead {
    of_day: Option<u32>,
    /// From 1 to 24.
    clock: Option<u32>,
    of_half: Option<u32>,
    /// From 1 to 12.
    clock_of_half: Option<u32>,
    pub afternoon: Option<bool>,
}

impl HoursRead {
    /// Takes what stands for one of the letters `H`, `k`, `K` and `h`.
    pub fn set(&mut self, letter: char, value: u32) {
        let place = match letter {
            'H' => &mut self.of_day,
            'k' => &mut self.clock,
            'K' => &mut self.of_half,
            _ => &mut self.clock_of_half,
        };
        *place = Some(value);
    }

    /// The hour of the day; `None` if there is no such hour, or several are meant. Without an hour
    /// a day begins at midnight, and its afternoon at noon.
    pub fn of_day(&self) -> Option<u32> {
        let day = same(within(self.of_day, 0..=23)?, within(self.clock, 1..=24)?, 24)?;
        let half = same(within(self.of_half, 0..=11)?, within(self.clock_of_half, 1..=12)?, 12)?;
        match day {
            Some(hour) => {
                let agrees = half.is_none_or(|half| half == hour % 12)
                    && self.afternoon.is_none_or(|afternoon| afternoon == (hour >= 12));
                agrees.then_some(hour)
            }
            None => Some(half.unwrap_or(0) + if self.afternoon == Some(true) { 12 } else { 0 }),
        }
    }
}

/// An hour, if one was read; `None` if there is no such hour.
fn within(hour: Option<u32>, range: RangeInclusive<u32>) -> Option<Option<u32>> {
    hour.is_none_or(|hour| range.contains(&hour)).then_some(hour)
}

/// The one hour of two, of which the second counts its `count` hours from 1.
fn same(hour: Option<u32>, clock: Option<u32>, count: u32) -> Option<Option<u32>> {
    let clock = clock.map(|clock| clock % count);
    match (hour, clock) {
        (Some(hour), Some(clock)) if hour != clock => None,
        _ => Some(hour.or(clock)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(letters: &[(char, u32)], afternoon: Option<bool>) -> Option<u32> {
        let mut read = HoursRead { afternoon, ..HoursRead::default() };
        letters.iter().for_each(|(letter, value)| read.set(*letter, *value));
        read.of_day()
    }

    #[test]
    fn hours_are_those_that_their_letters_count() {
        assert_eq!(hour(&[('h', 12)], Some(false)), Some(0));
        assert_eq!(hour(&[('h', 12)], Some(true)), Some(12));
        assert_eq!(hour(&[('K', 3)], Some(true)), Some(15));
        assert_eq!(hour(&[('k', 24)], None), Some(0));
        assert_eq!(hour(&[], Some(true)), Some(12));
        for wrong in [('h', 0), ('h', 13), ('K', 12), ('k', 0), ('H', 24)] {
            assert_eq!(hour(&[wrong], Some(false)), None, "{wrong:?}");
        }
    }

    #[test]
    fn hours_that_disagree_are_none() {
        assert_eq!(hour(&[('H', 15)], Some(true)), Some(15));
        assert_eq!(hour(&[('H', 15)], Some(false)), None);
        assert_eq!(hour(&[('H', 15), ('h', 3)], None), Some(15));
        assert_eq!(hour(&[('H', 15), ('h', 4)], None), None);
        assert_eq!(hour(&[('H', 15), ('k', 16)], None), None);
    }
}
