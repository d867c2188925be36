//! Whose turn it is in a round.

/// All of `all`, in the order of the round numbered `round` from 1: each round begins with the next
/// one, so that none always runs behind the same other one, on what that has left of the machine.
pub fn of_round<T: Clone>(all: &[T], round: u32) -> Vec<T> {
    let mut turns = all.to_vec();
    if let Ok(count @ 1..) = u32::try_from(turns.len()) {
        turns.rotate_left((round.saturating_sub(1) % count) as usize);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_the_next_one() {
        let rounds = [1, 2, 3, 4].map(|round| of_round(&['a', 'b', 'c'], round));
        assert_eq!(rounds[0], ['a', 'b', 'c']);
        assert_eq!(rounds[1], ['b', 'c', 'a']);
        assert_eq!(rounds[2], ['c', 'a', 'b']);
        assert_eq!(rounds[3], rounds[0]);
        assert!(of_round::<char>(&[], 2).is_empty());
    }
}
