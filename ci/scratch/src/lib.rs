//! A custom entity and a custom store, as a user of polyserve would write them.
use std::collections::BTreeMap;

use parking_lot::Mutex;
use polyserve::prelude::*;

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Account {
    pub name: String,
    pub balance: u64,
}
identifiable!(Account, name: String);

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Board {
    pub name: String,
    pub scores: BTreeMap<String, u64>,
}
identifiable!(Board, name: String);

#[derive(Debug, Default)]
pub struct Tree<E: Identifiable>(Mutex<BTreeMap<E::Id, E>>);

impl<E: Identifiable> EntityRepo<E> for Tree<E> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        Answer::Now(Ok(self.0.lock().get(id).map_or(Lookup::Absent, |entity| visit.show(entity))))
    }
    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let mut entities = self.0.lock();
        let is_allowed = condition.allows(entities.get(entity.id()));
        let insert = || entities.insert(entity.id().clone(), entity).map_or(Put::Created, |_| Put::Replaced);
        Answer::Now(Ok(is_allowed.then(insert).map_or(Conditional::Refused, Conditional::Done)))
    }
    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let mut entities = self.0.lock();
        let is_allowed = entities.get(id).is_none_or(|stored| condition.allows(Some(stored)));
        let remove = || entities.remove(id).map_or(Removed::Absent, |_| Removed::Removed);
        Answer::Now(Ok(is_allowed.then(remove).map_or(Conditional::Refused, Conditional::Done)))
    }
    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.0.lock().len() as u64))
    }
}
