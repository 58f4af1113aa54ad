//! The order of cells: all contestants are measured in a cell before the next cell begins.
//!
//! Invariant: every contestant has each of its cells once a round. A cell's neighbours in time are the same cell of other
//! contestants, then the same cell with the other method. Pool sizes go up and down in turn, so that a steady drift makes no
//! trend. Cost: a list of a few hundred keys.

use crate::experiment::interleaved;

use super::{CellMethod, Entrant, Key};

/// The cells of every contestant.
#[derive(Clone, Debug)]
pub struct MatrixAxes {
    /// Pool sizes.
    pub pools: Vec<usize>,
    /// Numbers of concurrent connections.
    pub connections: Vec<usize>,
    /// Methods.
    pub methods: Vec<CellMethod>,
    /// The number of rounds.
    pub rounds: u32,
}

/// All cells in their order. A contestant without a choice of pool sizes has its cell at the first of the sizes.
pub fn keys(axes: &MatrixAxes, entrants: &[Entrant]) -> Vec<Key> {
    let (mut keys, mut series, mut pass) = (Vec::new(), 0_usize, 0);
    for round in 1..=axes.rounds {
        for connections in &axes.connections {
            let mut pools: Vec<(usize, usize)> = axes.pools.iter().copied().enumerate().collect();
            if series % 2 == 1 {
                pools.reverse();
            }
            series += 1;
            for (place, size) in pools {
                for method in &axes.methods {
                    let has = |chosen: &Option<usize>| chosen.map_or(place == 0, |chosen| chosen == size);
                    let key = |entrant: &Entrant| {
                        let pool_size = entrant.pools.iter().map(|(chosen, _)| *chosen).find(has)?;
                        let (contestant, control) = (entrant.name.clone(), entrant.control);
                        Some(Key { contestant, control, method: *method, pool_size, connections: *connections, round })
                    };
                    keys.extend(interleaved(pass, &entrants.iter().filter_map(key).collect::<Vec<_>>()));
                    pass += 1;
                }
            }
        }
    }
    keys
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::fixtures;
    use crate::matrix::Origin;

    /// A contestant that no test starts.
    pub(in crate::matrix) fn entrant(name: &str, pools: &[Option<usize>]) -> Entrant {
        let text = String::new;
        let origin = Origin { lang: text(), server: text(), executor: text(), repo: text(), variant: text() };
        let pools = pools.iter().map(|pool| (*pool, fixtures::launch())).collect();
        Entrant { name: name.into(), control: false, origin, pools }
    }

    fn axes() -> MatrixAxes {
        MatrixAxes {
            pools: vec![2, 4, 8],
            connections: vec![10, 100],
            methods: vec![CellMethod::Get, CellMethod::Put],
            rounds: 2,
        }
    }

    #[test]
    fn every_contestant_has_every_cell_once() {
        let sized = [Some(2), Some(4), Some(8)];
        let entrants = [entrant("a", &sized), entrant("b", &sized), entrant("alone", &[None])];
        let keys = keys(&axes(), &entrants);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let of = |name: &str| keys.iter().filter(|key| key.contestant == name).count();
        assert_eq!((of("a"), of("b"), of("alone")), (24, 24, 8));
        assert!(keys.iter().all(|key| key.pool_size.is_none() == (key.contestant == "alone")));
    }

    /// A cell's contestants are neighbours in time: a change of the machine's speed concerns all of them.
    #[test]
    fn contestants_take_a_cell_in_turn() {
        let sized = [Some(2), Some(4), Some(8)];
        let entrants = [entrant("a", &sized), entrant("b", &sized), entrant("c", &sized)];
        let keys = keys(&axes(), &entrants);
        let mut first = HashSet::new();
        for keys in keys.chunks(3) {
            let names: HashSet<&str> = keys.iter().map(|key| key.contestant.as_str()).collect();
            assert_eq!(names.len(), 3, "{keys:?}");
            let same = |key: &Key| (key.method, key.connections, key.pool_size, key.round);
            assert!(keys.iter().all(|key| same(key) == same(&keys[0])), "{keys:?}");
            first.insert(keys[0].contestant.clone());
        }
        assert_eq!(first.len(), 3, "each contestant is first at times");
        let sizes: Vec<usize> = keys.chunks(6).map(|turns| turns[0].pool_size.unwrap()).collect();
        assert_eq!(sizes, [2, 4, 8, 8, 4, 2, 2, 4, 8, 8, 4, 2]);
    }
}
