//! The cells of an experiment and their order.
//!
//! Contestants take turns within a round (A B C, A B C, ...), in an order that changes from round to round, so that a
//! machine that slows down does so for all of them. Cost: one key a cell in memory.

use super::Absence;
use crate::bench::Key;
use crate::turn::Role;

/// A planned cell that cannot be measured here. A key without a cell stands for all cells of its contestant.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The cell.
    pub key: Key,
    /// Why.
    pub absence: Absence,
    /// Whether the command succeeds without it: the contestant was not asked for by name.
    pub excused: bool,
}

/// The order of contestants in a pass: a Williams design, every other row backwards.
///
/// A slice affects the next slice (scheduler debts, warm caches), so each contestant follows each other contestant equally
/// often over `2 * count` passes. Over any two passes all contestants have the same mean place, so a steady drift has the
/// same effect on all contestants.
pub fn order(pass: usize, count: usize) -> Vec<usize> {
    let first = if count == 0 { 0 } else { pass / 2 % count };
    // 0, 1, -1, 2, -2 ...: all steps between neighbours differ.
    let zigzag = (0..count).map(|place| if place % 2 == 1 { place / 2 + 1 } else { count - place / 2 });
    let rotated = zigzag.map(|step| (first + step) % count);
    if pass.is_multiple_of(2) { rotated.collect() } else { rotated.rev().collect() }
}

/// The cells of one pass in their order: the contestants take turns in the order of [`order`].
pub(crate) fn interleaved<K: Clone>(pass: usize, keys: &[K]) -> Vec<K> {
    order(pass, keys.len()).into_iter().filter_map(|place| keys.get(place).cloned()).collect()
}

/// Returns each item once, in the order in which they occur first.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

const SECOND: &str = " (again)";

/// The name of a baseline's second entry, the A/A control: what differs between the two entries is noise.
pub fn again(name: &str) -> String {
    format!("{name}{SECOND}")
}

/// The entries of contestants, the baseline in front. The second entry of the baseline, and of each contestant in `controls`,
/// stands behind the first one. `parts` returns the name and the role of a contestant.
pub fn with_second_entries<E: Clone>(
    all: Vec<E>,
    baseline: &str,
    controls: &[String],
    parts: fn(&mut E) -> (&mut String, &mut Role),
) -> Vec<E> {
    let mut entries: Vec<E> = Vec::new();
    for mut one in all {
        let (name, role) = parts(&mut one);
        let is_baseline = name == baseline;
        let second = (is_baseline || controls.contains(name)).then(|| again(name));
        if is_baseline {
            *role = Role::Baseline;
        }
        let same = second.map(|second| {
            let mut same = one.clone();
            let (name, role) = parts(&mut same);
            (*name, *role) = (second, Role::Same);
            same
        });
        let place = if is_baseline { 0 } else { entries.len() };
        entries.splice(place..place, [Some(one), same].into_iter().flatten());
    }
    entries
}

/// The name of the first entry, if `name` is a second one.
pub(crate) fn first_of(name: &str) -> Option<&str> {
    name.strip_suffix(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_go_back_and_forth_from_every_place() {
        assert_eq!(order(0, 4), [0, 1, 3, 2]);
        assert_eq!(order(1, 4), [2, 3, 1, 0]);
        assert_eq!(order(2, 4), [1, 2, 0, 3]);
        assert_eq!(order(8, 4), order(0, 4));
        assert_eq!((order(5, 0), order(9, 1)), (vec![], vec![0]));
    }

    #[test]
    fn second_entries_follow_the_first_ones() {
        let all = ["a", "b", "c"].map(|name| (name.to_owned(), Role::Ranked)).to_vec();
        let entries = with_second_entries(all, "b", &["c".into()], |(name, role)| (name, role));
        let entries: Vec<(&str, Role)> = entries.iter().map(|(name, role)| (name.as_str(), *role)).collect();
        let expected = [
            ("b", Role::Baseline),
            ("b (again)", Role::Same),
            ("a", Role::Ranked),
            ("c", Role::Ranked),
            ("c (again)", Role::Same),
        ];
        assert_eq!(entries, expected);
        assert_eq!((first_of("c (again)"), first_of("c")), (Some("c"), None));
    }

    #[test]
    fn all_contestants_follow_each_other_equally_often() {
        for count in 2..9 {
            let mut follows = vec![vec![0; count]; count];
            for pass in 0..2 * count {
                order(pass, count).windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
            }
            for (a, row) in follows.iter().enumerate() {
                let others = row.iter().enumerate().filter(|(b, _)| *b != a);
                assert!(others.clone().all(|(_, times)| *times == 2) && row[a] == 0, "{count}: {follows:?}");
            }
        }
    }

    /// All contestants have the same mean place over any two passes, so a machine that slows down steadily affects all alike.
    #[test]
    fn a_steady_drift_favours_no_contestant() {
        for count in 1..8 {
            for pair in 0..10 {
                let passes = [order(pair * 2, count), order(pair * 2 + 1, count)];
                for contestant in 0..count {
                    let places = passes.iter().map(|pass| pass.iter().position(|turn| *turn == contestant).unwrap());
                    assert_eq!(places.sum::<usize>(), count - 1);
                }
            }
        }
    }
}
