//! In what order cells are measured: all contestants take one in turn before the next begins.
//!
//! Invariant: every contestant has every cell that it takes part in once a round. A cell's neighbours in time are the same
//! cell of others, then the same one with the other method; sizes of pools go up and down in turn, so that a steady drift
//! makes no trend. Cost: a list of a few hundred.

use polyserve_lab::experiment::order;

use super::{Entrant, Key, Method, Point};

/// One cell of one entrant.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Which entrant.
    pub entrant: usize,
    /// Which of its pools.
    pub pool: usize,
    /// What is asked.
    pub point: Point,
}

/// What is measured of everybody.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Sizes of pools.
    pub pools: Vec<usize>,
    /// Connections at a time.
    pub connections: Vec<usize>,
    /// What is asked.
    pub methods: Vec<Method>,
    /// Repetitions.
    pub rounds: u32,
}

impl Step {
    /// Which cell it is.
    pub fn key(&self, entrants: &[Entrant]) -> Option<Key> {
        let entrant = entrants.get(self.entrant)?;
        Some(Key {
            contestant: entrant.contestant.contestant.clone(),
            control: entrant.contestant.control,
            method: self.point.method,
            connections: self.point.connections,
            pool_size: entrant.pools.get(self.pool)?.0,
            round: self.point.round,
        })
    }
}

/// All steps, in their order. One whose pool has no size to choose has its cell with the first of the sizes.
pub fn steps(grid: &Grid, entrants: &[Entrant]) -> Vec<Step> {
    let (mut steps, mut series, mut pass) = (Vec::new(), 0_usize, 0);
    for round in 1..=grid.rounds {
        for connections in &grid.connections {
            let mut pools: Vec<(usize, usize)> = grid.pools.iter().copied().enumerate().collect();
            if series % 2 == 1 {
                pools.reverse();
            }
            series += 1;
            for (place, size) in pools {
                for method in &grid.methods {
                    let point = Point { method: *method, connections: *connections, round };
                    let mut taking = Vec::new();
                    for (entrant, of) in entrants.iter().enumerate() {
                        let has = |(chosen, _): &(Option<usize>, _)| chosen.map_or(place == 0, |chosen| chosen == size);
                        taking.extend(of.pools.iter().position(has).map(|pool| Step { entrant, pool, point }));
                    }
                    steps.extend(order(pass, taking.len()).into_iter().filter_map(|turn| taking.get(turn).copied()));
                    pass += 1;
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::matrix::Contestant;
    use polyserve_lab::launch::{AddressFrom, Launch};

    fn entrant(name: &str, pools: &[Option<usize>]) -> Entrant {
        let launch = Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json };
        let text = String::new;
        let contestant = Contestant {
            contestant: name.into(),
            lang: text(),
            server: text(),
            executor: text(),
            repo: text(),
            variant: text(),
            control: false,
        };
        Entrant { contestant, pools: pools.iter().map(|pool| (*pool, launch.clone())).collect() }
    }

    fn grid() -> Grid {
        Grid { pools: vec![2, 4, 8], connections: vec![10, 100], methods: vec![Method::Get, Method::Put], rounds: 2 }
    }

    #[test]
    fn everybody_has_every_cell_once() {
        let sized = [Some(2), Some(4), Some(8)];
        let entrants = [entrant("a", &sized), entrant("b", &sized), entrant("alone", &[None])];
        let keys: Vec<Key> = steps(&grid(), &entrants).iter().map(|step| step.key(&entrants).unwrap()).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let of = |name: &str| keys.iter().filter(|key| key.contestant == name).count();
        assert_eq!((of("a"), of("b"), of("alone")), (24, 24, 8));
        assert!(keys.iter().all(|key| key.pool_size.is_none() == (key.contestant == "alone")));
    }

    /// A cell's turns are neighbours: whatever the machine does meanwhile, it does to all.
    #[test]
    fn contestants_take_a_cell_in_turn() {
        let sized = [Some(2), Some(4), Some(8)];
        let entrants = [entrant("a", &sized), entrant("b", &sized), entrant("c", &sized)];
        let steps = steps(&grid(), &entrants);
        let mut first = HashSet::new();
        for turns in steps.chunks(3) {
            let keys: Vec<Key> = turns.iter().map(|step| step.key(&entrants).unwrap()).collect();
            let who: HashSet<&str> = keys.iter().map(|key| key.contestant.as_str()).collect();
            assert_eq!(who.len(), 3, "{keys:?}");
            let same = |key: &Key| (key.method, key.connections, key.pool_size, key.round);
            assert!(keys.iter().all(|key| same(key) == same(&keys[0])), "{keys:?}");
            first.insert(keys[0].contestant.clone());
        }
        assert_eq!(first.len(), 3, "everybody is first at times");
        let sizes: Vec<usize> = steps.chunks(6).map(|turns| [2, 4, 8][turns[0].pool]).collect();
        assert_eq!(sizes, [2, 4, 8, 8, 4, 2, 2, 4, 8, 8, 4, 2]);
    }
}
