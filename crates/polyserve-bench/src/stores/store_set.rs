//! Stores that take turns at the same gets, in one process: the same ids in the same order, the same entities, the same
//! visible work. A bare map is called as its users call it. A repo is called as a service calls it: with a visit, through
//! `Arc<dyn EntityRepo>` or as its own type. Both show a borrowed entity to the same closure, which reads the id, the value
//! and the length of the description.
//!
//! Invariant: all stores of a set are filled together, entity by entity, so that no store has a better part of the heap. A get
//! that shows a wrong entity ends the run. Cost: the entities of all stores at once; one dynamic call for each turn.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::catalog::Catalog;
use polyserve_load::{Dist, Picker};
use serde::{Deserialize, Serialize};

use super::bare::maker;
use super::entities::{Check, entity, mixed, spread};
use super::erased::{ErasedStore, Gets};
use crate::experiment::order;

pub use super::erased::Lookups;

/// Stores with the same content.
pub struct StoreSet {
    stores: Vec<Box<dyn ErasedStore>>,
    ids: Vec<Arc<[u32]>>,
    check: Check,
}

impl fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSet").field("stores", &self.stores.len()).finish_non_exhaustive()
    }
}

/// The settings of a [`StoreSet`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StoreSetSettings {
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Gets of each thread in a turn.
    pub gets: u64,
    /// The seed of the ids.
    pub seed: u64,
}

impl StoreSet {
    /// Makes and fills the stores of these names together. The order of filling and the ids of the gets depend on `filling`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such store, or if a store fails.
    pub fn new(catalog: &Catalog, names: &[&str], settings: &StoreSetSettings, filling: usize) -> anyhow::Result<Self> {
        let turns = order(filling, names.len());
        let mut numbered_stores = Vec::new();
        for number in &turns {
            let name = names[*number];
            numbered_stores.push((*number, maker(catalog, name)?().with_context(|| format!("the store {name}"))?));
        }
        numbered_stores.sort_by_key(|(number, _)| *number);
        let stores: Vec<_> = numbered_stores.into_iter().map(|(_, store)| store).collect();
        for place in 0..settings.keys {
            let id = spread(place, settings.keys);
            for number in &turns {
                let put = stores[*number].create(entity(id, 0, settings.payload_bytes));
                put.with_context(|| format!("{} cannot be filled", names[*number]))?;
            }
        }
        let picker = Picker::new(u32::try_from(settings.keys)?, Dist::Uniform);
        let ids = (0..settings.threads).map(|thread| {
            let stream = mixed(settings.seed ^ mixed((filling * settings.threads + thread) as u64));
            (0..settings.gets).map(|number| picker.pick(mixed(stream.wrapping_add(number)))).collect()
        });
        let check = Check::new(0, settings.payload_bytes, true);
        let set = Self { stores, ids: ids.collect(), check };
        // Read the memory of each store once, and check every entity whole.
        for (store, name) in set.stores.iter().zip(names) {
            store.turn(&set.ids, &check, Gets::Whole).with_context(|| (*name).to_owned())?;
        }
        Ok(set)
    }

    /// One turn of the store with this index. Returns the time from the first thread's start to the last thread's end.
    ///
    /// # Errors
    ///
    /// Returns an error if a get fails, or shows a wrong entity.
    pub fn turn(&self, place: usize, lookups: Lookups) -> anyhow::Result<Duration> {
        self.stores.get(place).context("there is no such store")?.turn(&self.ids, &self.check, Gets::Each(lookups))
    }
}
