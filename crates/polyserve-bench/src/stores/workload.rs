//! The operations on a store, in chunks that are made before the clock starts.
//!
//! | operation | calls | right answers |
//! |---|---|---|
//! | `read` | gets of stored ids | the entity |
//! | `95/5`, `50/50` | gets and puts of stored ids, at random | the entity; replaced |
//! | `insert` | puts of new ids, until an empty store has all keys | created |
//! | `churn` | in turn: the removal of an id, the put of a new id | removed; created |
//! | `dependent_gets` | gets that each depend on the entity of the previous one, as requests do: each writes its answer first | the entity |
//! | `independent_gets` | gets of known ids in a loop: a core begins the next ones while it waits for memory | the entity |
//! | `many_gets` | the same gets, sixteen in each call of `get_many` | the entity |
//! | `memory` | none: the memory with all entities, and after their removal | |
//!
//! The gets, `read`, `95/5` and `50/50` draw their ids: uniformly, by Zipf's law, or always the same one. The others use every
//! id once. The loops of these kinds of gets do nothing else, so that they show the cost of the trait.
//!
//! Invariant: the operations of a lane are a function of the seed and its number. Two lanes never insert or remove the
//! same id. Cost: 8 bytes an operation and the entities of the puts, at most `CHUNK_BYTES` a chunk.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyserve::{Entity, Put};
use polyserve_load::{Dist, Picker};
use serde::{Deserialize, Serialize};

use super::entities::{entity, mixed, spread};

/// What is measured on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreOperation {
    /// Gets.
    Read,
    /// 95 gets to 5 puts.
    #[serde(rename = "95/5")]
    MostlyRead,
    /// Half gets, half puts.
    #[serde(rename = "50/50")]
    Half,
    /// Puts of new ids.
    Insert,
    /// Removes, and puts of new ids.
    Churn,
    /// Gets that wait for each other.
    DependentGets,
    /// Gets that do not wait for each other.
    IndependentGets,
    /// Gets of sixteen ids in one call.
    ManyGets,
    /// Memory alone.
    Memory,
}

impl StoreOperation {
    /// All operations.
    pub(crate) const ALL: [Self; 9] = [
        Self::Read,
        Self::MostlyRead,
        Self::Half,
        Self::Insert,
        Self::Churn,
        Self::DependentGets,
        Self::IndependentGets,
        Self::ManyGets,
        Self::Memory,
    ];

    /// Whether its ids are drawn, so that a distribution applies.
    pub fn draws_ids(self) -> bool {
        !matches!(self, Self::Insert | Self::Churn | Self::Memory)
    }

    /// Whether it is a loop of gets that shows the cost of the trait.
    pub(super) fn is_loop_of_gets(self) -> bool {
        matches!(self, Self::DependentGets | Self::IndependentGets | Self::ManyGets)
    }

    /// The percentage of puts.
    fn put_percentage(self) -> u64 {
        match self {
            Self::Read | Self::DependentGets | Self::IndependentGets | Self::ManyGets | Self::Memory => 0,
            Self::MostlyRead => 5,
            Self::Half | Self::Churn => 50,
            Self::Insert => 100,
        }
    }
}

impl FromStr for StoreOperation {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|operation| operation.to_string() == word).ok_or_else(|| {
            let names = Self::ALL.map(|operation| operation.to_string()).join(", ");
            format!("there is no operation {word:?}; there are {names}")
        })
    }
}

/// Its name in definitions and records.
impl fmt::Display for StoreOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A get of a stored id.
    Get,
    /// A put of a stored id.
    Replace,
    /// A put of a new id.
    Create,
    /// A remove of a stored id.
    Remove,
}

impl OperationKind {
    /// The right answer to a put of this kind.
    #[inline]
    pub(super) fn put(self) -> Put {
        if self == Self::Create { Put::Created } else { Put::Replaced }
    }
}

/// An operation without the entity of a put: its kind in two bits, and a non-negative id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationCode(u64);

impl OperationCode {
    /// This operation on this id.
    pub(crate) fn new(kind: OperationKind, id: i64) -> Self {
        Self(id.cast_unsigned() << 2 | kind as u64)
    }

    /// The kind of the operation.
    #[inline]
    pub(crate) fn kind(self) -> OperationKind {
        match self.0 & 3 {
            0 => OperationKind::Get,
            1 => OperationKind::Replace,
            2 => OperationKind::Create,
            _ => OperationKind::Remove,
        }
    }

    /// The id.
    #[inline]
    pub(crate) fn id(self) -> i64 {
        (self.0 >> 2).cast_signed()
    }
}

/// Operations that are made together.
#[derive(Debug, Default)]
pub(crate) struct OperationChunk {
    pub(super) codes: std::vec::IntoIter<OperationCode>,
    pub(super) entities: std::vec::IntoIter<Entity>,
}

/// The approximate number of bytes of the entities in a chunk.
pub(crate) const CHUNK_BYTES: usize = 8 << 20;
/// The number of operations in a lane's first chunk. Each chunk is twice as large as the previous one, up to [`MAX_CHUNK`],
/// so that a short phase makes few operations.
const FIRST_CHUNK: u64 = 1 << 10;
/// The max number of operations of a chunk. It is even, so that a chunk has whole pairs of churn.
const MAX_CHUNK: u64 = 1 << 18;
/// The min number of puts of a chunk, for any size of entities.
const MIN_PUTS: u64 = 256;

/// The settings from which operations are made.
#[derive(Clone, Debug)]
pub struct OperationPlan {
    /// The operation.
    pub operation: StoreOperation,
    /// Draws ids; shared by the lanes.
    pub picker: Arc<Picker>,
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// The seed of the ids.
    pub seed: u64,
}

impl OperationPlan {
    /// The plan of an operation.
    pub fn new(
        operation: StoreOperation,
        dist: Dist,
        keys: u64,
        payload_bytes: usize,
        threads: usize,
        seed: u64,
    ) -> Self {
        let picker = Arc::new(Picker::new(u32::try_from(keys).unwrap_or(u32::MAX).max(1), dist));
        Self { operation, picker, keys, payload_bytes, threads, seed }
    }

    /// The max number of operations of a chunk.
    fn chunk(&self) -> u64 {
        let entity_bytes = self.payload_bytes + 100;
        let puts = ((CHUNK_BYTES / entity_bytes) as u64).clamp(MIN_PUTS, MAX_CHUNK);
        (puts * 100).checked_div(self.operation.put_percentage()).unwrap_or(MAX_CHUNK).min(MAX_CHUNK) & !1
    }
}

/// Makes the operations of one lane.
#[derive(Debug)]
pub(crate) struct Maker {
    plan: OperationPlan,
    lane: u64,
    random: u64,
    /// Ids that were inserted or removed so far.
    used: u64,
    /// Operations of the next chunk, at most.
    size: u64,
}

impl Maker {
    /// The maker of this lane.
    pub(crate) fn new(plan: &OperationPlan, lane: usize) -> Self {
        let random = mixed(plan.seed ^ mixed(lane as u64 + 1));
        Self { plan: plan.clone(), lane: lane as u64, random, used: 0, size: FIRST_CHUNK }
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.random)
    }

    /// The number of ids that only this lane uses.
    fn own_ids(&self) -> u64 {
        let threads = self.plan.threads as u64;
        (self.plan.keys + threads - 1 - self.lane) / threads
    }

    /// Returns the next operations; no operations if all keys are inserted. `versions` counts the puts of all lanes.
    pub(crate) fn chunk(&mut self, versions: &AtomicU64) -> OperationChunk {
        let count = self.plan.chunk().min(self.size);
        self.size = (self.size * 2).min(MAX_CHUNK);
        let (mut codes, mut entities) = (Vec::with_capacity(count as usize), Vec::new());
        match self.plan.operation {
            StoreOperation::Insert => {
                for _ in 0..count.min(self.own_ids() - self.used) {
                    self.insert(&mut codes, &mut entities);
                }
            }
            StoreOperation::Churn if self.own_ids() > 0 => {
                for _ in 0..count / 2 {
                    self.churn(&mut codes, &mut entities);
                }
            }
            StoreOperation::Churn => {}
            _ => {
                for _ in 0..count {
                    self.push_drawn(&mut codes, &mut entities);
                }
            }
        }
        // Counted before the first put: a reader accepts every version that is counted.
        let first = versions.fetch_add(entities.len() as u64, Ordering::AcqRel) + 1;
        let entities: Vec<Entity> =
            (first..).zip(entities).map(|(version, id)| entity(id, version, self.plan.payload_bytes)).collect();
        OperationChunk { codes: codes.into_iter(), entities: entities.into_iter() }
    }

    fn push_drawn(&mut self, codes: &mut Vec<OperationCode>, entities: &mut Vec<i64>) {
        let random = self.next();
        let id = i64::from(self.plan.picker.pick(random));
        let puts = self.plan.operation.put_percentage();
        // The high half of a product: uneven by next to nothing.
        let is_put = puts > 0 && ((u128::from(self.next()) * 100) >> 64) as u64 >= 100 - puts;
        if is_put {
            entities.push(id);
        }
        codes.push(OperationCode::new(if is_put { OperationKind::Replace } else { OperationKind::Get }, id));
    }

    fn insert(&mut self, codes: &mut Vec<OperationCode>, entities: &mut Vec<i64>) {
        let id = spread(self.lane + self.used * self.plan.threads as u64, self.plan.keys);
        self.used += 1;
        codes.push(OperationCode::new(OperationKind::Create, id));
        entities.push(id);
    }

    /// Makes a removal and a put. After all its ids, a lane continues with the ids that it has put.
    fn churn(&mut self, codes: &mut Vec<OperationCode>, entities: &mut Vec<i64>) {
        let (own, keys) = (self.own_ids(), self.plan.keys.cast_signed());
        let (place, generation) = (self.used % own, (self.used / own).cast_signed());
        let id = spread(self.lane + place * self.plan.threads as u64, self.plan.keys) + keys * generation;
        self.used += 1;
        codes.extend([
            OperationCode::new(OperationKind::Remove, id),
            OperationCode::new(OperationKind::Create, id + keys),
        ]);
        entities.push(id + keys);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn plan(operation: StoreOperation, dist: &str, keys: u64, threads: usize) -> OperationPlan {
        OperationPlan::new(operation, dist.parse().unwrap(), keys, 15, threads, 7)
    }

    #[test]
    fn codes_are_what_they_were_made_of() {
        for kind in [OperationKind::Get, OperationKind::Replace, OperationKind::Create, OperationKind::Remove] {
            for id in [0, 1, 12_345_678_901] {
                assert_eq!((OperationCode::new(kind, id).kind(), OperationCode::new(kind, id).id()), (kind, id));
            }
        }
    }

    #[test]
    fn shares_are_as_named_and_a_hot_key_is_alone() {
        for (operation, low, high) in [
            (StoreOperation::Read, 0.0, 0.0),
            (StoreOperation::MostlyRead, 0.045, 0.055),
            (StoreOperation::Half, 0.49, 0.51),
        ] {
            let versions = AtomicU64::new(0);
            let mut maker = Maker { size: MAX_CHUNK, ..Maker::new(&plan(operation, "zipf:0.99", 1000, 2), 1) };
            let chunk = maker.chunk(&versions);
            let (all, puts) = (chunk.codes.len() as f64, chunk.entities.len());
            assert!((low..=high).contains(&(puts as f64 / all)), "{operation}: {puts} of {all}");
            assert_eq!(versions.into_inner(), puts as u64);
            let ids: HashSet<i64> = chunk.codes.map(OperationCode::id).collect();
            assert!(ids.len() > 900 && ids.iter().all(|id| (0..1000).contains(id)), "{}", ids.len());
            let mut hot = Maker::new(&plan(operation, "hot", 1000, 2), 0).chunk(&AtomicU64::new(0));
            assert!(hot.codes.all(|code| code.id() == 0));
        }
    }

    /// The lanes of an insertion put every key once, and then there is nothing left.
    #[test]
    fn every_key_is_inserted_once() {
        let (keys, plan) = (1001, plan(StoreOperation::Insert, "uniform", 1001, 3));
        let versions = AtomicU64::new(0);
        let mut makers: Vec<Maker> = (0..3).map(|lane| Maker::new(&plan, lane)).collect();
        let mut ids: Vec<i64> =
            makers.iter_mut().flat_map(|maker| maker.chunk(&versions).codes.map(OperationCode::id)).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..keys).collect::<Vec<_>>());
        assert!(makers.iter_mut().all(|maker| maker.chunk(&versions).codes.len() == 0));
    }

    /// Each removed id was stored, each put id was not, and no two lanes use the same id.
    #[test]
    fn churn_keeps_the_number_of_entities() {
        let plan = plan(StoreOperation::Churn, "uniform", 1001, 2);
        let versions = AtomicU64::new(0);
        let mut there: HashSet<i64> = (0..1001).collect();
        let mut ids_by_lane: [HashSet<i64>; 2] = Default::default();
        for (lane, lane_ids) in ids_by_lane.iter_mut().enumerate() {
            let mut chunk = Maker::new(&plan, lane).chunk(&versions);
            for code in chunk.codes {
                lane_ids.insert(code.id());
                match code.kind() {
                    OperationKind::Remove => assert!(there.remove(&code.id())),
                    OperationKind::Create => {
                        assert!(there.insert(code.id()));
                        assert_eq!(chunk.entities.next().unwrap().id, code.id());
                    }
                    kind => panic!("{kind:?}"),
                }
            }
        }
        assert_eq!((there.len(), ids_by_lane[0].intersection(&ids_by_lane[1]).count()), (1001, 0));
    }

    #[test]
    fn large_entities_come_in_small_chunks() {
        let of =
            |payload_bytes| OperationPlan { payload_bytes, ..plan(StoreOperation::Half, "uniform", 10, 1) }.chunk();
        assert!(of(15) > 100_000 && of(16_384) <= 1100 && of(1_000_000) == 512, "{} {}", of(15), of(16_384));
    }
}
