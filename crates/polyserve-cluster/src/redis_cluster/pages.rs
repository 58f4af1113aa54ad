//! Pages of a scan: the keys in the order of their slots, and within a slot in the order of their bytes.
//!
//! The slot of a key follows from the key, and so does the place at which a page goes on. A page lists the keys of the slot of the key
//! that it begins after, and of the next slots, until it has its limit. So it has each key once, whatever else is put and removed.
//!
//! A master lists its own keys of a slot, also if it has lost the slot, or has only some of its keys. So the list is a script with a key of
//! the slot: the master refuses it, as any command, unless it serves the slot. While a slot moves, its keys are at two nodes.
//! Those that have left one of them are at the other, so the one that they leave is asked first.
//!
//! Cost: a command for each slot, and the names of all keys in these slots. A page of a store with few entities asks for all 16,384
//! slots, [`MAX_AT_ONCE`] at the same time. Then a command for each value.

use std::collections::HashMap;
use std::fmt::Write as _;

use polyserve_core::MAX_PAGE_BYTES;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr};
use redis::{Cmd, cmd};

use super::cluster::{AskedNode, Cluster, Nodes, missing};
use super::reply::{classify, read};
use crate::error::EngineFailure;
use crate::remote::{Engine as _, Held, StoredEntry, StoredPage, in_order};

/// Lists the keys of a slot.
const LIST: &str = "return redis.call('CLUSTER','GETKEYSINSLOT',ARGV[1],ARGV[2])";

/// The max number of keys of a slot that are listed: all.
const ALL: u32 = i32::MAX as u32;

/// The number of commands that a page has in flight.
const MAX_AT_ONCE: usize = 32;

/// If this number of keys that differ after the prefix are in one slot, all keys are: the prefix has a hash tag.
const SAMPLES: u32 = 64;

/// The slots that keys with a prefix can be in, each with a key.
pub(super) struct SlotProbes {
    /// The number of each slot.
    numbers: HashMap<Slot, u16>,
    /// For each slot, a key with the prefix that is in it. No entity is stored under it: no id has braces around a number, or else
    /// a slot that moves is asked as one that does not.
    keys: Vec<Option<String>>,
}

impl SlotProbes {
    pub(super) fn new(prefix: &str) -> Self {
        let numbers: HashMap<_, _> = (0..).map_while(|number| Some((Slot::new(number)?, number))).collect();
        let mut keys = vec![None; numbers.len()];
        let (mut found, mut key) = (0, String::new());
        for sample in 0.. {
            if found == keys.len() || (sample == SAMPLES && found == 1) {
                break;
            }
            key.clear();
            let _ = write!(key, "{prefix}{{{sample}}}"); // a write to a string cannot fail
            let of_slot = &mut keys[usize::from(numbers[&Slot::for_key(&key)])];
            if of_slot.is_none() {
                *of_slot = Some(key.clone());
                found += 1;
            }
        }
        Self { numbers, keys }
    }

    fn number_of(&self, key: &str) -> usize {
        usize::from(self.numbers[&Slot::for_key(key)])
    }
}

impl Cluster {
    /// Reads a page: see [`Engine::page`](crate::remote::Engine::page).
    pub(super) async fn read_page(
        &self,
        connection: &Held<Nodes>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StoredPage, EngineFailure> {
        let probes = self.probes.get_or_init(|| SlotProbes::new(prefix));
        let (mut page, mut bytes) = (StoredPage::default(), 0);
        let (mut next, mut at_once) = (after.map_or(0, |key| probes.number_of(key)), 1);
        while next < probes.keys.len() {
            let end = (next + at_once).min(probes.keys.len());
            let lists = (next..end).zip(&probes.keys[next..end]);
            let lists = lists.filter_map(|(slot, probe)| Some(self.keys_of_slot(connection, slot, probe.as_ref()?)));
            let mut keys: Vec<_> = in_order(lists).await?.into_iter().flatten().collect();
            keys.retain(|key| key.starts_with(prefix));
            if let Some(after) = after {
                let slot = probes.number_of(after);
                keys.retain(|key| key.as_str() > after || probes.number_of(key) != slot);
            }
            let mut keys = &keys[..];
            while !keys.is_empty() {
                let (group, others) = keys.split_at(keys.len().min(MAX_AT_ONCE).min(limit - page.entries.len()));
                let entries = in_order(group.iter().map(|key| self.entry(connection, key))).await?;
                for entry in entries.into_iter().flatten() {
                    let length = entry.value.as_ref().map_or(0, Vec::len);
                    if bytes + length > MAX_PAGE_BYTES && !page.entries.is_empty() {
                        return Ok(StoredPage { has_more: true, ..page });
                    }
                    bytes += length;
                    page.entries.push(entry);
                }
                keys = others;
                if page.entries.len() == limit {
                    let has_more = !keys.is_empty() || end < probes.keys.len();
                    return Ok(StoredPage { has_more, ..page });
                }
            }
            (next, at_once) = (end, (2 * at_once).min(MAX_AT_ONCE));
        }
        Ok(page)
    }

    /// Reads the entry of a key, unless it was removed meanwhile.
    async fn entry(&self, connection: &Held<Nodes>, key: &str) -> Result<Option<StoredEntry>, EngineFailure> {
        let value = match self.get(connection, key).await {
            Ok(None) => return Ok(None),
            Ok(Some(stored)) => Ok(stored.value),
            Err(EngineFailure::NoValue(why)) => Err(why),
            Err(failure) => return Err(failure),
        };
        Ok(Some(StoredEntry { key: key.to_owned(), value }))
    }

    /// Returns the keys of a slot in order. `probe` is a key of the slot.
    async fn keys_of_slot(
        &self,
        connection: &Held<Nodes>,
        slot: usize,
        probe: &str,
    ) -> Result<Vec<String>, EngineFailure> {
        let to_master = || SingleNodeRoutingInfo::SpecificNode(Route::with_key(probe, SlotAddr::Master));
        let mut script = cmd("EVAL");
        script.arg(LIST).arg(1).arg(probe).arg(slot).arg(ALL);
        let mut nodes = connection.connection.clone();
        let mut keys: Vec<Vec<u8>> = match nodes.route_command(script, RoutingInfo::SingleNode(to_master())).await {
            Ok(answer) => read(answer)?,
            Err(error) => {
                let node = AskedNode::of(&error).ok_or_else(|| classify(error))?;
                let listed = nodes.route_command(plain_list(slot), RoutingInfo::SingleNode(to_master())).await;
                let mut keys: Vec<Vec<u8>> = read(listed.map_err(classify)?)?;
                let listed = Box::pin(self.ask_other(nodes, &[plain_list(slot)], node)).await?.pop();
                keys.append(&mut read(listed.ok_or_else(missing)?)?);
                keys
            }
        };
        keys.sort_unstable();
        keys.dedup();
        // A key that is no text is not of this store.
        Ok(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect())
    }
}

/// Lists the keys that a node has of a slot, whether it serves the slot or not.
fn plain_list(slot: usize) -> Cmd {
    let mut list = cmd("CLUSTER");
    list.arg("GETKEYSINSLOT").arg(slot).arg(ALL);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_that_keys_can_be_in_has_a_key() {
        for prefix in ["", "polyserve:", "a{b", "a}{", "a{}b"] {
            let probes = SlotProbes::new(prefix);
            assert_eq!(probes.keys.len(), 16_384);
            for (slot, key) in probes.keys.iter().enumerate() {
                let key = key.as_ref().expect("each slot has one");
                assert!(key.starts_with(prefix) && probes.number_of(key) == slot, "{key} is not in {slot}");
            }
        }
    }

    /// All keys with such a prefix are in one slot.
    #[test]
    fn a_prefix_with_a_hash_tag_has_one_slot() {
        let probes = SlotProbes::new("{shop}:");
        let [slot] = probes
            .keys
            .iter()
            .enumerate()
            .filter(|(_, key)| key.is_some())
            .map(|(slot, _)| slot)
            .collect::<Vec<_>>()[..]
        else {
            panic!("it has other slots");
        };
        assert!((0..1000).all(|id| probes.number_of(&format!("{{shop}}:{id}")) == slot));
    }
}
