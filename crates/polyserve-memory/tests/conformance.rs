//! Every repo of this crate, held to the kit, and to what this crate promises beyond it.

use polyserve_conformance::repo::RepoSubject;
use polyserve_conformance::repo_conformance;
use polyserve_core::repo::EntityRepoExt;
use polyserve_core::{Entity, EntityRepo, Lookup};
#[cfg(feature = "dashmap")]
use polyserve_memory::Dashmap;
use polyserve_memory::{Sharded, StdMutex, StdRwlock, TwoLevel};

repo_conformance!(std_mutex, RepoSubject::new(StdMutex::new));
repo_conformance!(std_rwlock, RepoSubject::new(StdRwlock::new));
repo_conformance!(two_level, RepoSubject::new(TwoLevel::new));
repo_conformance!(sharded, RepoSubject::new(Sharded::new));
#[cfg(feature = "dashmap")]
repo_conformance!(dashmap, RepoSubject::new(Dashmap::new));

fn all() -> Vec<Box<dyn EntityRepo>> {
    vec![
        Box::new(StdMutex::default()),
        Box::new(StdRwlock::default()),
        Box::new(TwoLevel::default()),
        Box::new(Sharded::default()),
        #[cfg(feature = "dashmap")]
        Box::new(Dashmap::default()),
    ]
}

/// Where a description lies while it is visited.
fn shown_at(repo: &dyn EntityRepo, id: i64) -> *const u8 {
    let mut at = std::ptr::null();
    let found = repo.get(id, &mut |entity| at = entity.description.as_ptr()).wait().expect("it answers");
    assert_eq!(found, Lookup::Visited, "{repo:?}");
    at
}

#[test]
fn no_description_is_copied() {
    for repo in all() {
        // The first is a put of a new id, the second one of a known id.
        for value in [1.0, 2.0] {
            let description = String::from("a description that lies on the heap");
            let at = description.as_ptr();
            repo.put(Entity::new(7, description, value)).wait().expect("it answers");
            assert_eq!(shown_at(&repo, 7), at, "{repo:?} moves a description in, and shows it where it lies");
            assert_eq!(shown_at(&repo, 7), at, "{repo:?} shows it there every time");
        }
    }
}

#[test]
fn debug_names_the_repo_and_shows_no_entity() {
    for repo in all() {
        repo.put(Entity::new(7, "secret", 1.0)).wait().expect("it answers");
        let shown = format!("{repo:?}");
        assert!(shown.ends_with(" { .. }") && !shown.contains("secret"), "{shown}");
    }
}

/// A lock would be taken twice on one thread.
#[test]
fn a_repo_can_be_printed_from_its_own_visit() {
    for repo in all() {
        repo.put(Entity::new(7, "seven", 1.0)).wait().expect("it answers");
        let mut shown = String::new();
        let found = repo.get(7, &mut |_| shown = format!("{repo:?}")).wait().expect("it answers");
        assert_eq!(found, Lookup::Visited);
        assert!(!shown.is_empty());
        assert!(repo.fetch(7).expect("it answers").is_some());
    }
}
