//! The kit for repos: what every [`EntityRepo`] must do, wherever it keeps its entities.
//!
//! One line in a test file makes each property a test:
//!
//! ```
//! use polyserve_conformance::repo::{Reference, RepoSubject};
//!
//! // Replace the kit's own reference with your repo.
//! polyserve_conformance::repo_conformance!(my_repo, RepoSubject::new(Reference::default));
//! # fn main() {}
//! ```
//!
//! A repo declares its choices. A repo over a network answers later, takes longer, and is tested with fewer keys:
//!
//! ```
//! use std::time::Duration;
//! use polyserve_conformance::property;
//! use polyserve_conformance::repo::{self, LaterReference, RepoSubject};
//!
//! let subject = RepoSubject::new(LaterReference::default)
//!     .answers_later()
//!     .max_wait(Duration::from_secs(30))
//!     .many_keys(2_000);
//! // Without a test harness: from any `main`, with a report. Here the first ten properties only.
//! let report = property::check("my_repo", &subject, &repo::PROPERTIES[..10]);
//! assert!(report.conforms(), "{report}");
//! ```
//!
//! # How it tests
//!
//! * Each property has a new, empty repo. It runs on a thread that is given up after six times the max wait, so that a
//!   repo that hangs fails with the name of the operation.
//! * In the racing properties every entity has a number in its value and the same number in its description. So every read
//!   detects parts of two entities.
//! * Racing threads take their steps together: a step begins when all threads have ended the previous step. So they race at
//!   every step, even on two cores. Between two steps, the state of the store is checked exactly.
//! * The operations of racing threads are recorded as a [history](crate::history) and checked: there is an order in
//!   which every answer is right.
//! * A race ends after a number of steps or after a second. No result depends on the number of steps.
//!
//! A repo under test accepts at least 64 concurrent operations without
//! [`RepoError::Overloaded`](polyserve_core::RepoError::Overloaded).
//!
//! A repo over an engine or a disk also passes the kit of [`engine`](crate::engine): overload, and an engine that is slow,
//! paused, stopped or absent.

mod answers;
mod conditions;
mod linearizable;
mod named;
mod one_thread;
mod race;
mod racing;
mod reference;
mod scan;
mod store;

use std::sync::Arc;
use std::time::Duration;

use crate::NamedEntity;
use polyserve_core::EntityRepo;

pub use self::answers::*;
pub use self::conditions::*;
pub use self::linearizable::{conditional_writes_are_linearizable, linearizable};
pub(crate) use self::named::{id_of, name};
pub use self::one_thread::*;
pub(crate) use self::race::lockstep_within;
pub use self::racing::*;
pub(crate) use self::reference::{EntityMap, page_of, put_if, put_over, remove_if, removed_of};
pub use self::reference::{LaterReference, Reference};
pub use self::scan::*;
pub(crate) use self::store::outcome;
use self::store::{Answers, Store};
use crate::property::{Opaque, Outcome, kit, within};

kit!($ repo::repo_conformance for RepoSubject, from "[`RepoSubject`](crate::repo::RepoSubject)" {
    one_thread {
        absent_is_absent,
        get_after_put_shows_it,
        many_gets_show_what_is_stored,
        extreme_ids_are_ids,
        odd_descriptions_are_kept,
        values_keep_their_bits,
        agrees_with_a_map,
    }
    answers {
        visit_is_called_exactly_once,
        now_means_now,
        a_panicking_visit_costs_one_answer,
        many_answers_at_once,
        answers_can_be_awaited_from_any_thread,
        later_answers_survive_being_dropped,
        a_dropped_repo_still_answers,
    }
    racing {
        a_version_names_what_is_stored,
        many_gets_race_with_writes,
        a_growing_store_loses_nothing,
        many_keys,
    }
    linearizable {
        linearizable,
        conditional_writes_are_linearizable,
    }
    conditions {
        a_condition_decides_a_write,
        a_refused_write_changes_nothing,
        no_increment_is_lost,
    }
    scan {
        a_scan_shows_each_entity_once,
        a_page_is_bounded,
        a_scan_misses_nothing_that_stays,
    }
});

/// A repo under test: its constructor, and what it promises beyond the trait.
#[derive(Debug)]
pub struct RepoSubject {
    make: Opaque<dyn Fn() -> Arc<dyn EntityRepo> + Send + Sync>,
    answers: Answers,
    max_wait: Duration,
    keys: usize,
    json: bool,
}

impl RepoSubject {
    /// Creates a subject for the repos that `make` constructs. Each repo must be empty. Repos over a shared engine each need
    /// their own name space.
    ///
    /// By default a repo is in memory, has a max wait of 10 s, and is tested with 20 000 keys.
    pub fn new<R: EntityRepo>(make: impl Fn() -> R + Send + Sync + 'static) -> Self {
        let make = Box::new(move || -> Arc<dyn EntityRepo> { Arc::new(make()) });
        Self { make: Opaque(make), answers: Answers::Now, max_wait: Duration::from_secs(10), keys: 20_000, json: false }
    }

    /// Creates a subject for repos of [`NamedEntity`]s, with the defaults of [`RepoSubject::new`]. A repo that takes any
    /// entity passes the kit with both types.
    pub fn named<R: EntityRepo<NamedEntity>>(make: impl Fn() -> R + Send + Sync + 'static) -> Self {
        Self::new(move || named::Named(make()))
    }

    /// The repo promises to answer now, and to show entities in a visit. This is the default.
    #[must_use]
    pub fn in_memory(self) -> Self {
        Self { answers: Answers::Now, ..self }
    }

    /// The repo promises to defer every answer, and never to call a visit.
    #[must_use]
    pub fn answers_later(self) -> Self {
        Self { answers: Answers::Later, ..self }
    }

    /// The repo answers now or later, as a cache over a slow store does, or a store in memory with a log.
    #[must_use]
    pub fn answers_now_or_later(self) -> Self {
        Self { answers: Answers::Either, ..self }
    }

    /// Sets the max wait for one answer. A whole property may take six times as long.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Sets the number of keys that [`many_keys`] stores.
    #[must_use]
    pub fn many_keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// The repo stores the JSON of an entity. JSON has no NaN and no infinity, so the repo answers a put of one with an
    /// error and stores nothing.
    #[must_use]
    pub fn stores_json(self) -> Self {
        Self { json: true, ..self }
    }

    /// Runs `property` on a new repo, on a thread that is left behind if it hangs.
    fn run<T: Into<Outcome>>(&self, property: impl FnOnce(Store) -> T + Send + 'static) -> Outcome {
        let &Self { answers, max_wait, keys, json, .. } = self;
        let store = Store { repo: (self.make.0)(), answers, max_wait, keys, json };
        within(max_wait.saturating_mul(6), "the property", move || property(store).into())
    }
}
