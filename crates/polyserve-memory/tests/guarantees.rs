//! What the repos of this crate guarantee beyond the conformance kit. The crate `polyserve` runs the kit on them.

use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Lookup, Visit};
#[cfg(feature = "copy-on-write")]
use polyserve_memory::CopyOnWrite;
#[cfg(feature = "dashmap")]
use polyserve_memory::Dashmap;
#[cfg(feature = "packed")]
use polyserve_memory::Packed;
#[cfg(feature = "papaya")]
use polyserve_memory::Papaya;
#[cfg(feature = "scc")]
use polyserve_memory::Scc;
#[cfg(feature = "seqlock")]
use polyserve_memory::Seqlock;
use polyserve_memory::{Actor, Sharded, StdMutex, StdRwlock, TwoLevel};

/// Returns the repos that answer now.
fn all() -> Vec<Box<dyn EntityRepo>> {
    vec![
        Box::new(StdMutex::new()),
        Box::new(StdRwlock::new()),
        Box::new(TwoLevel::new()),
        Box::new(Sharded::new()),
        #[cfg(feature = "packed")]
        Box::new(Packed::new()),
        #[cfg(feature = "dashmap")]
        Box::new(Dashmap::new()),
        #[cfg(feature = "papaya")]
        Box::new(Papaya::new()),
        #[cfg(feature = "scc")]
        Box::new(Scc::new()),
        #[cfg(feature = "seqlock")]
        Box::new(Seqlock::new()),
        #[cfg(feature = "copy-on-write")]
        Box::new(CopyOnWrite::new()),
    ]
}

/// Returns the address of a description while it is visited.
fn shown_at(repo: &dyn EntityRepo, id: i64) -> *const u8 {
    let mut address = std::ptr::null();
    let found = repo
        .get(&id, Visit::new(&mut |shown| address = shown.fields().expect("all have them").description.as_ptr()))
        .wait()
        .expect("it answers");
    assert!(matches!(found, Lookup::Visited(_)), "{repo:?}");
    address
}

/// Declared differences: the `Debug` text of a repo, and the maximum length of a description that it copies.
const COPYING: &[(&str, usize)] = &[
    #[cfg(feature = "packed")]
    ("Packed { .. }", Packed::LONGEST_COPIED),
    #[cfg(feature = "seqlock")]
    ("Seqlock { .. }", Seqlock::LONGEST_COPIED),
];

#[test]
fn no_description_is_copied() {
    for repo in all() {
        let name = format!("{repo:?}");
        let copied = COPYING.iter().find(|(copying, _)| *copying == name).map(|&(_, longest)| longest);
        for length in [40, 512, 513, 10_000] {
            // The first put is of a new id, the second of a known id.
            for value in [1.0, 2.0] {
                let description = "d".repeat(length);
                let address = description.as_ptr();
                repo.put(Entity::new(length as i64, description, value)).wait().expect("it answers");
                let visited = shown_at(&repo, length as i64);
                let moved = copied.is_none_or(|longest| length > longest);
                assert_eq!(visited == address, moved, "{repo:?} moves a description of {length} bytes in: {moved}");
                assert_eq!(shown_at(&repo, length as i64), visited, "{repo:?} shows it at the same address every time");
            }
        }
    }
}

#[test]
fn debug_names_the_repo_and_shows_no_entity() {
    let later: Box<dyn EntityRepo> = Box::new(Actor::new());
    for repo in all().into_iter().chain([later]) {
        repo.put(Entity::new(7, "secret", 1.0)).wait().expect("it answers");
        let text = format!("{repo:?}");
        assert!(text.ends_with(" { .. }") && !text.contains("secret"), "{text}");
    }
}

/// If `Debug` took a lock, the thread would take it twice.
#[test]
fn a_repo_can_be_printed_from_its_own_visit() {
    for repo in all() {
        repo.put(Entity::new(7, "seven", 1.0)).wait().expect("it answers");
        let mut text = String::new();
        let found = repo.get(&7, Visit::new(&mut |_| text = format!("{repo:?}"))).wait().expect("it answers");
        assert!(matches!(found, Lookup::Visited(_)));
        assert!(!text.is_empty());
        assert!(repo.fetch(&7).wait().expect("it answers").is_some());
    }
}
