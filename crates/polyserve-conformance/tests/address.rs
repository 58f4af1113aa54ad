//! Properties of a server at an address: the plain server has all of them, and each flaw fails the named ones.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use polyserve_conformance::address::{self, AddressReport, Group, PROPERTIES};
use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::repo::Reference;
use polyserve_core::{EntityService, Running, ServerConfig, ServerExt as _};

/// The longest wait of a sound server.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The longest check. A busy machine does not reach it.
const TOTAL: Duration = Duration::from_secs(600);

fn serve(flaw: Option<Flaw>) -> Running {
    let server = PlainServer::flawed(ServerConfig::default(), flaw);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let service = EntityService::<_>::new(Reference::default());
    server.expect("the defaults are sound").serve(local, service).expect("a port is free")
}

fn report(flaw: Flaw, max_wait: Duration) -> AddressReport {
    address::check_within(serve(Some(flaw)).local_addr(), max_wait, TOTAL)
}

#[test]
fn the_plain_server_holds_all_again_and_again() {
    let running = serve(None);
    for _ in 0..2 {
        let report = address::check_within(running.local_addr(), MAX_WAIT, TOTAL);
        assert!(report.failed.is_empty() && report.not_run.is_empty(), "{:#?}", report.failed);
        assert_eq!(report.held.len(), PROPERTIES.len());
        assert!(report.keeps_framing());
        assert_eq!(report.to_string(), format!("holds all {}", PROPERTIES.len()));
    }
}

#[test]
fn every_property_has_a_name_of_its_own() {
    let names: BTreeSet<_> = PROPERTIES.iter().map(|property| property.name).collect();
    assert_eq!(names.len(), PROPERTIES.len());
}

/// A short wait, because the flaws leave requests without an answer. A busy machine only fails more properties.
const SHORT: Duration = Duration::from_millis(500);

/// The flaw fails this property. `keeps_framing` is false exactly if the property is in that group.
fn fails(flaw: Flaw, property: &str, group: Group) {
    let report = report(flaw, SHORT);
    let failed = report.failed.iter().find(|failed| failed.property == property);
    let failed = failed.unwrap_or_else(|| panic!("{flaw:?} does not fail {property}: {report}"));
    assert_eq!(failed.group, group);
    assert!(!failed.why.is_empty() && !failed.why.contains('\n'), "{:?}", failed.why);
    let of = report.failed.iter().filter(|failed| failed.group == group).map(|failed| &*failed.property);
    let listed = format!("{}: {}", group.name(), of.collect::<Vec<_>>().join(", "));
    assert!(report.to_string().contains(&listed), "{report}");
    if group == Group::Framing {
        assert!(!report.keeps_framing());
    }
}

macro_rules! fails {
    ($($test:ident: $flaw:ident fails $property:ident, of $group:ident;)*) => {
        $(
            #[test]
            fn $test() {
                fails(Flaw::$flaw, stringify!($property), Group::$group);
            }
        )*
    };
}

fails! {
    two_hosts: AnswersAnotherStatus fails two_hosts_are_refused, of Head;
    bare_lf: GoesOnAfterABareLf fails a_bare_lf_ends_no_line, of FramingLenient;
    space_before_the_colon: AnswersAnotherStatus fails a_space_before_the_colon_is_refused, of Framing;
    going_on: GoesOnAfterARefusal fails lengths_that_differ_are_refused, of Framing;
    no_continue: NeverSends100 fails an_expected_continue_comes_before_the_body, of Connection;
    head_with_a_body: AnswersHeadWithABody fails head_is_get_without_the_body, of Entity;
    reordered: ReorderedPipeline fails pipelined_requests_are_answered_in_order, of Connection;
    no_close: IgnoresConnectionClose fails a_client_may_ask_to_close, of Connection;
    no_keep_alive: ClosesAfterEveryAnswer fails a_connection_is_kept_by_default, of Connection;
    whole_reads: NeedsHeadAndBodyInOneRead fails an_expected_continue_comes_before_the_body, of Connection;
    half_close: ClosesOnHalfClose fails a_half_closed_client_gets_its_answer, of Connection;
}

/// What RFC 9112 leaves to a server does not count as broken framing.
#[test]
fn a_choice_that_the_rfc_leaves_is_no_broken_framing() {
    // One property waits as long as this, because the flaw leaves its request without an answer.
    let lenient = report(Flaw::GoesOnAfterABareLf, Duration::from_secs(10));
    assert!(lenient.keeps_framing(), "{:#?}", lenient.failed);
}

/// A peer that accepts connections and never sends a byte.
#[test]
fn silence_is_bounded_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {});
        }
    });
    let report = address::check(addr, Duration::from_secs(60));
    assert!(report.held.is_empty(), "{:?}", report.held);
    assert!(!report.keeps_framing() && !report.not_run.is_empty());
    assert_eq!(report.failed.len() + report.not_run.len(), PROPERTIES.len());
    assert!(report.to_string().contains("more were not run"), "{report}");
}

#[test]
fn a_closed_address_fails_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    drop(listener);
    let report = address::check(addr, SHORT);
    assert!(report.held.is_empty() && !report.keeps_framing());
    assert!(report.failed[0].why.contains("it takes no client"), "{:?}", report.failed[0]);
}
