//! An entity and a store of one's own, as a user of polyserve would write them.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use polyserve::prelude::*;

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Account {
    pub name: String,
    pub balance: u64,
}

#[rustfmt::skip]
impl Identifiable for Account {
    type Id = String;
    type View<'a> = &'a Self;
    fn id(&self) -> &String { &self.name }
    fn view(&self) -> &Self { self }
    fn from_view(view: &Self) -> Self { view.clone() }
}

#[derive(Debug, Default)]
pub struct Tree<E: Identifiable>(Mutex<BTreeMap<E::Id, E>>);

impl<E: Identifiable> EntityRepo<E> for Tree<E> {
    fn get(&self, id: &E::Id, visit: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>> {
        let visited = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).map(|e| visit(e.view()));
        Answer::Now(Ok(visited.map_or(Lookup::Absent, |()| Lookup::Visited)))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>> {
        let mut entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !condition.allows(entities.get(entity.id())) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let replaced = entities.insert(entity.id().clone(), entity);
        Answer::Now(Ok(Conditional::Done(if replaced.is_some() { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> Answer<Result<Conditional<Removed>, RepoError>> {
        let mut entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entities.get(id).is_some_and(|stored| !condition.allows(Some(stored))) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        Answer::Now(Ok(Conditional::Done(entities.remove(id).map_or(Removed::Absent, |_| Removed::Removed))))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64))
    }
}
