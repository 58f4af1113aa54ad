//! The server kit, tested: the plain server has every property. The test `flaws` has its flaws.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use polyserve_conformance::broken::repos::RepoFlaw;
use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::property::{self, Outcome, Property, PropertyVerdict};
use polyserve_conformance::server::{
    Deviations, PROPERTIES, ServerSubject, a_merge_patch_loses_no_update_over, no_increment_is_lost_over,
};

use polyserve_core::{ListenOn, Running, Server, Service, Shape};

polyserve_conformance::server_conformance!(plain_server, ServerSubject::new(PlainServer::new));

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole patience.
const PATIENCE: Duration = Duration::from_secs(4);

fn named(name: &str) -> &'static Property<ServerSubject> {
    property::named(PROPERTIES, name)
}

/// The increments of a server over a store show a store that checks a condition and then writes.
#[test]
fn a_store_that_checks_then_writes_loses_increments() {
    let subject = ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    let is_lost = || {
        let run = || no_increment_is_lost_over(&subject, RepoFlaw::ChecksThenWrites.repo());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    assert!((0..20).any(|_| is_lost()), "20 races lost no increment");
}

/// Its patches are lost too.
#[test]
fn a_store_that_checks_then_writes_loses_patches() {
    let subject = ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    let is_lost = || {
        let run = || a_merge_patch_loses_no_update_over(&subject, RepoFlaw::ChecksThenWrites.repo());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    assert!((0..50).any(|_| is_lost()), "50 races lost no patch");
}

/// The kit expects what a server declares: a declared flaw passes, and a server that does not deviate fails.
#[test]
fn what_is_declared_is_expected() {
    type Declare = fn(&mut Deviations);
    let declared: [(Flaw, Declare, &str); 10] = [
        (Flaw::TakesBareLf, |d| d.bare_lf_ends_a_line = true, "a_bare_lf_ends_no_line"),
        (Flaw::TakesLengthWithChunked, |d| d.chunked_overrides_length = true, "length_with_chunked_is_refused"),
        (Flaw::Answers400ToAllUnsupported, |d| d.unknown_coding_is_400 = true, "chunked_is_the_only_coding"),
        (Flaw::Answers400ToAllUnsupported, |d| d.unknown_method_is_400 = true, "unknown_methods_are_not_implemented"),
        (Flaw::Answers400ToAllUnsupported, |d| d.later_version_is_400 = true, "later_versions_are_not_supported"),
        (Flaw::AddsASlashToUrls, |d| d.urls_without_a_path_get_a_slash = true, "other_forms_of_target_are_taken"),
        (Flaw::CutsFragments, |d| d.fragments_are_dropped = true, "a_target_holds_only_uri_bytes"),
        (Flaw::ClosesAfterChunks, |d| d.chunked_bodies_are_last = true, "chunks_may_carry_more_than_data"),
        (Flaw::ClosesSilentlyOnTimeouts, |d| d.timeouts_close_silently = true, "a_slow_body_times_out"),
        (Flaw::SendsEmptyErrors, |d| d.early_errors_are_empty = true, "garbage_is_refused"),
    ];
    for (flaw, declare, name) in declared {
        let property = named(name);
        // With the default patience, which a busy machine does not reach.
        let sound = || ServerSubject::new(PlainServer::new);
        let verdict = |subject: ServerSubject| {
            property::check("declared", &subject, slice::from_ref(property)).verdicts.pop().map(|(_, verdict)| verdict)
        };
        let flawed = || flaw.subject();
        assert_eq!(verdict(flawed().deviating(declare)), Some(PropertyVerdict::Held), "{flaw:?}, declared");
        assert_eq!(verdict(sound()), Some(PropertyVerdict::Held), "{name} of a sound server");
        for subject in [flawed(), sound().deviating(declare)] {
            let broken = verdict(subject.with_patience(PATIENCE));
            assert!(matches!(broken, Some(PropertyVerdict::Broken(_))), "{flaw:?}, {name}: {broken:?}");
        }
    }
}

/// A server that declares that it takes a bare LF must close the connection: another peer may see another request there.
#[test]
fn a_declared_bare_lf_is_the_last() {
    let property = named("a_bare_lf_ends_no_line");
    let subject = Flaw::GoesOnAfterABareLf.subject().deviating(|declared| declared.bare_lf_ends_a_line = true);
    let run = || (property.run)(&subject.with_patience(PATIENCE));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
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
    let sound = || ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    for (subject, holds) in [(sound(), true), (sound().pooled(), false)] {
        let verdict = property::check("pooled", &subject, slice::from_ref(property)).verdicts.pop().map(|(_, verdict)| verdict);
        assert_eq!(verdict == Some(PropertyVerdict::Held), holds, "{verdict:?}");
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
