//! The server kit, tested: the plain server has every property. The test `flaws` has its flaws.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polyserve_conformance::broken::repos::RepoFlaw;
use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::property::{self, Outcome, Property, PropertyVerdict};
use polyserve_conformance::server::{PROPERTIES, ServerSubject, a_merge_patch_loses_no_update_over};

use polyserve_core::{ListenOn, Running, Server, Service, Shape};

polyserve_conformance::server_conformance!(plain_server, ServerSubject::new(PlainServer::new));

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole max wait.
const MAX_WAIT: Duration = Duration::from_secs(4);

fn named(name: &str) -> &'static Property<ServerSubject> {
    property::named(PROPERTIES, name)
}

/// A store that checks a condition and then writes loses patches.
#[test]
fn a_store_that_checks_then_writes_loses_patches() {
    let subject = ServerSubject::new(PlainServer::new).with_max_wait(MAX_WAIT);
    let is_lost = || {
        let run = || a_merge_patch_loses_no_update_over(&subject, RepoFlaw::ChecksThenWrites.repo());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    assert!((0..50).any(|_| is_lost()), "50 races lost no patch");
}

/// The kit expects what a server declares: a declared flaw passes, and a server that does not deviate fails.
#[test]
fn what_is_declared_is_expected() {
    let property = named("other_forms_of_target_are_taken");
    // With the default max wait, which a busy machine does not reach.
    let (flawed, sound) = (|| Flaw::AddsASlashToUrls.subject(), || ServerSubject::new(PlainServer::new));
    let declared = |subject: ServerSubject| subject.deviating(|d| d.urls_without_a_path_get_a_slash = true);
    assert_eq!(property.verdict(&declared(flawed())), PropertyVerdict::Held, "declared");
    assert_eq!(property.verdict(&sound()), PropertyVerdict::Held, "a sound server");
    for subject in [flawed(), declared(sound())] {
        let broken = property.verdict(&subject.with_max_wait(MAX_WAIT));
        assert!(matches!(broken, PropertyVerdict::Broken(_)), "{broken:?}");
    }
}

/// Each of the two flaws of evictions breaks its own property, and not that of the other flaw.
#[test]
fn a_flaw_of_evictions_breaks_one_property() {
    use Flaw::{EvictsWithoutConnectionClose, ResetsEvictedConnections};
    for (flaw, other) in [
        (EvictsWithoutConnectionClose, ResetsEvictedConnections),
        (ResetsEvictedConnections, EvictsWithoutConnectionClose),
    ] {
        let property = named(other.caught_by()[0]);
        assert_eq!((property.run)(&flaw.subject()), Outcome::Held, "{flaw:?}, {}", property.name);
    }
}

/// A server that is declared to have a pool, and refuses a worker count, fails.
#[test]
fn a_declared_pool_has_a_size() {
    let property = named("a_worker_count_is_honoured_or_refused");
    let sound = || ServerSubject::new(PlainServer::new).with_max_wait(MAX_WAIT);
    for (subject, holds) in [(sound(), true), (sound().pooled(), false)] {
        let verdict = property.verdict(&subject);
        assert_eq!(verdict == PropertyVerdict::Held, holds, "{verdict:?}");
    }
}

/// A server that takes any configuration and never listens.
#[derive(Debug)]
struct NeverListens(Shape);

impl Server for NeverListens {
    fn shape(&self) -> Shape {
        self.0
    }

    fn start(&self, _: ListenOn, _: Arc<dyn Service>) -> io::Result<Running> {
        Err(io::Error::other("it never listens"))
    }
}

/// A property holds only if the server was asked something: nothing holds of a server that never serves, whatever its shape.
#[test]
fn nothing_holds_of_a_server_that_never_listens() {
    let mut held = Vec::new();
    for (shape, pooled) in
        [(Shape::Multiplexed, false), (Shape::OnePerThread, false), (Shape::OnePerThread, true), (Shape::One, false)]
    {
        let mut subject = ServerSubject::new(move |_| Ok(NeverListens(shape)));
        subject.pooled = pooled;
        for property in PROPERTIES {
            let name = "nothing_holds_of_a_server_that_never_listens";
            let run = || property::test(module_path!(), name, &subject, property.run);
            if property::is_in_child() {
                let _ = run();
                return;
            }
            if matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Outcome::Held)) {
                held.push((shape, property.name));
            }
        }
    }
    assert_eq!(held, []);
}
