//! Servers of entities with a text as their id, at a prefix.

use serde_json::Value;

use super::prelude::*;

/// A server of this store; its entities are at `/named/{id}`, and have tags.
#[track_caller]
pub(super) fn named_over(subject: &ServerSubject, repo: impl EntityRepo<NamedEntity>) -> Live {
    subject.live(named_service(repo), defaults())
}

/// The service of this store.
pub(crate) fn named_service(repo: impl EntityRepo<NamedEntity>) -> Arc<dyn Service> {
    let service = EntityService::new(repo).at("/named").expect("it is a prefix");
    Arc::new(service.etags(true))
}

/// The JSON of an entity with this name, byte for byte as a GET shows it.
pub(crate) fn of_name(name: &str) -> String {
    serde_json::to_string(&NamedEntity::new(name, "d", 1.5)).expect("it has a JSON form")
}

/// The name in an answer.
#[track_caller]
pub(crate) fn name_in(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    body["name"].as_str().unwrap_or_default().to_owned()
}
