//! The rows of entities, and which request a thread asks next.
//!
//! Invariant: the sequence of a thread is a function of the traffic, its seed and the thread's number. Cost: the rows of
//! all keys lie one after the other in one buffer, those of a key as neighbours.

use std::fmt;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::data::{Data, Draw};
use crate::dist::Picker;
use crate::traffic::{Mix, Plan, Traffic};

/// The entities' rows, and how they are drawn.
#[derive(Debug)]
pub(crate) struct Entities {
    pub(crate) rows: Rows,
    pub(crate) picker: Picker,
    pub(crate) keys: u32,
    pub(crate) mix: Mix,
    pub(crate) seed: u64,
}

/// JSON rows, one after the other: those of a key are neighbours.
pub(crate) struct Rows {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    each: u32,
}

impl Rows {
    pub(crate) fn new(data: &Data, keys: u32, draws: &[Draw]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(keys as usize * draws.len() + 1));
        ends.push(0);
        for id in 0..i64::from(keys) {
            for draw in draws {
                let entity = data.row(id, *draw).entity;
                let parts = (serde_json::to_string(&entity.description), serde_json::to_string(&entity.value));
                let (description, value) = (parts.0.unwrap_or_default(), parts.1.unwrap_or_default());
                // The form in which a server shows it: it is both what is put and what is found.
                bytes.extend_from_slice(
                    format!(r#"{{"id":{id},"description":{description},"value":{value}}}"#).as_bytes(),
                );
                // Within bounds: `Traffic::entities` sees to it.
                ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
        }
        Self { bytes, ends, each: draws.len() as u32 }
    }

    /// How many rows a key has.
    pub(crate) fn each(&self) -> u32 {
        self.each
    }

    /// Row `draw` of `key`, from 0.
    pub(crate) fn get(&self, key: u32, draw: u32) -> Option<&[u8]> {
        let at = (key * self.each + draw) as usize;
        let (start, end) = (*self.ends.get(at)?, *self.ends.get(at + 1)?);
        if draw < self.each { self.bytes.get(start as usize..end as usize) } else { None }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("rows", &(self.ends.len() - 1)).finish_non_exhaustive()
    }
}

/// One request of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// GET of a key.
    Get(u32),
    /// GET of a key that has been updated for certain: it must not find the first row any more.
    GetUpdated(u32),
    /// PUT of a key's row.
    Put(u32, u32),
    /// An exchange of the list.
    Fixed(u32),
}

/// The order in which a thread asks.
#[derive(Debug)]
pub(crate) struct Draws {
    plan: Arc<Plan>,
    random: ChaCha8Rng,
    next: usize,
    is_filling: bool,
}

impl Draws {
    /// The next request.
    pub(crate) fn next(&mut self) -> Ask {
        match &*self.plan {
            Plan::Entities(_) if self.is_filling => {
                self.next += 1;
                Ask::Put((self.next - 1) as u32, 0)
            }
            Plan::Entities(entities) => {
                let key = entities.picker.pick(self.random.next_u64());
                let Mix { get, put } = entities.mix;
                if put == 0 {
                    return Ask::Get(key);
                }
                let wide = u128::from(self.random.next_u64()) * (u128::from(get) + u128::from(put));
                // The whole part decides between reading and writing, the bit after the point which update it is.
                match (wide >> 64) as u64 {
                    part if part < u64::from(get) => Ask::Get(key),
                    _ => Ask::Put(key, 1 + (wide >> 63 & 1) as u32),
                }
            }
            Plan::Exchanges(all) => {
                let at = self.next;
                self.next = if at + 1 == all.len() { 0 } else { at + 1 };
                Ask::Fixed(at as u32)
            }
            Plan::Unknown(_) => Ask::Fixed(0),
        }
    }
}

impl Traffic {
    /// The requests of thread `thread` of `threads`.
    pub(crate) fn draws(&self, thread: usize, threads: usize) -> Draws {
        let next = match &*self.plan {
            Plan::Exchanges(all) => all.len() * thread / threads.max(1),
            Plan::Entities(_) | Plan::Unknown(_) => 0,
        };
        let mut key = [0; 32];
        if let Plan::Entities(entities) = &*self.plan {
            key[..8].copy_from_slice(&entities.seed.to_le_bytes());
        }
        key[8] = 3; // the data's own streams have 0, 1 and 2 here
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(thread as u64);
        Draws { plan: Arc::clone(&self.plan), random, next, is_filling: self.is_filling }
    }
}
