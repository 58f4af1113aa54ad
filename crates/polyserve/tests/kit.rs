//! The conformance kit on every strategy of the catalog. Each property of each strategy is a test with a name of its own:
//! `repo::two_level::linearizable`. A new entry of the catalog is tested without a change here. Pairs of a server and a store are
//! tested together where both take part: `pair::smol/sharded::no_update_is_lost`.
//!
//! The subject of a strategy follows from its promises. Only deviations from the contract are listed here.

use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Trial};
use polyserve::catalog::{Catalog, Entry, Promise, RepoEntry, RepoScheme, ServerEntry, repo_of};
use polyserve::{EntityRepo, ServerConfig, Shape};
use polyserve_conformance::NamedEntity;
use polyserve_conformance::executor::{self, ExecutorSubject};
use polyserve_conformance::history::EntityForm;
use polyserve_conformance::property::{self, DELIBERATE_PANIC, Outcome, Property};
use polyserve_conformance::repo::{self, RepoSubject};
use polyserve_conformance::server::{self, Deviations, ServerSubject};
use polyserve_core::panics::panic_text;

/// Declares the deviations of the server `name`.
fn declare_deviations(name: &str, declared: &mut Deviations) {
    if name == "tokio_hyper" {
        declared.urls_without_a_path_get_a_slash = true;
    }
}

fn main() {
    let mut args = Arguments::from_args();
    // As in the standard test harness.
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    args.test_threads = args.test_threads.or(threads);
    print_no_deliberate_panic();
    let catalog = Catalog::builtin();
    let mut trials = Vec::new();
    trials.extend(catalog.repos().iter().flat_map(|entry| kit("repo", entry, repo::PROPERTIES, repo_subject)));
    let named = |entry| kit("named_repo", entry, repo::PROPERTIES, named_repo_subject);
    trials.extend(catalog.repos().iter().flat_map(named));
    let located = located(&catalog);
    trials.extend(located.iter().flat_map(|entry| kit("repo", entry, repo::PROPERTIES, repo_subject)));
    trials.extend(located.iter().flat_map(named));
    trials.extend(catalog.servers().iter().flat_map(|entry| kit("server", entry, server::PROPERTIES, server_subject)));
    for (entry, why) in catalog.servers_not_allowed() {
        trials.extend(not_run("server", &entry.name, server::PROPERTIES, &why));
    }
    #[cfg(feature = "tls")]
    trials.extend(over_tls(&catalog));
    trials.extend(
        catalog.executors().iter().flat_map(|entry| kit("executor", entry, executor::PROPERTIES, executor_subject)),
    );
    let repos = || catalog.repos().iter().chain(&located);
    let paired = catalog.servers().iter().filter(|server| PAIRED_SERVERS.contains(&server.name.as_str()));
    trials.extend(paired.flat_map(|server| repos().map(|repo| pair(server, repo))));
    libtest_mimic::run(&args, trials).exit();
}

/// Keeps the panics that properties provoke out of the output: more than a thousand, each with its backtrace.
fn print_no_deliberate_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic_text(panic.payload()).contains(DELIBERATE_PANIC) {
            print(panic);
        }
    }));
}

/// Returns the repos that keep their entities in a directory, in the system's temporary one: over their usual repo, and over one that can
/// be scanned. Repos over an engine are tested by their own crate, which starts the engines.
fn located(catalog: &Catalog) -> Vec<RepoEntry> {
    let in_directories = catalog.repo_schemes().iter().filter(|scheme| scheme.location == "PATH");
    let names = |scheme: &RepoScheme| {
        let over = scheme.promises(Promise::ScansAsRepo).then(|| format!("{}/ordered", scheme.name));
        [Some(scheme.name.clone()), over].into_iter().flatten()
    };
    let entry = |name: String| {
        let result = catalog.repo(&format!("{name}:{}", std::env::temp_dir().display()));
        let mut entry = result.expect("the location is given");
        entry.name = name;
        entry
    };
    in_directories.flat_map(names).map(entry).collect()
}

/// Makes a test of each property for one strategy. A property that does not apply is ignored, with its reason.
fn kit<M: Clone + Send + 'static, S: 'static>(
    kind: &'static str,
    entry: &Entry<M>,
    properties: &'static [Property<S>],
    subject: fn(&Entry<M>) -> S,
) -> Vec<Trial> {
    let trial = |property: &'static Property<S>| {
        let (entry, path) = (entry.clone(), format!("{kind}::{}", entry.name));
        Trial::ignorable_test(format!("{path}::{}", property.name), move || {
            Ok(match property::test(&format!("kit::{path}"), property.name, &subject(&entry), property.run) {
                Outcome::Held => Completion::Completed,
                Outcome::NotRun(why) => Completion::ignored_with(why),
            })
        })
    };
    properties.iter().map(trial).collect()
}

/// Makes an ignored test of each property for a strategy that the system does not allow, with the reason.
fn not_run<'a, S: 'a>(
    kind: &str,
    name: &str,
    properties: impl IntoIterator<Item = &'a Property<S>>,
    why: &str,
) -> Vec<Trial> {
    let trial = |property: &Property<S>| {
        let why = why.to_owned();
        Trial::ignorable_test(format!("{kind}::{name}::{}", property.name), move || Ok(Completion::ignored_with(why)))
    };
    properties.into_iter().map(trial).collect()
}

/// The servers that are tested over TLS too, one of each kind: over a poller, over a runtime, with a thread for each connection, and
/// with a loop for each core.
/// All servers on the codec have the same TLS, in the state machine of a connection. `tokio_hyper` has a connection of its own.
#[cfg(feature = "tls")]
const OVER_TLS: [&str; 6] =
    ["pool_server/mpsc_pool", "tokio_tcp", "thread_per_connection", "tokio_hyper", "epoll", "io_uring"];

/// The modules of properties that TLS can change: how bytes come and go, what waits and for how long, and how a connection ends.
/// TLS stands between the socket and the session, so what a session answers to its bytes is tested over TCP alone: the wire corpus,
/// the answers of a service and of a store, and most panics.
#[cfg(feature = "tls")]
const MODULES_OVER_TLS: [&str; 15] = [
    "pipeline", "splits", "tcp", "timeouts", "queued", "limits", "eviction", "memory", "overload", "shape", "fairness",
    "turns", "drain", "counters", "ending",
];

/// Properties of other modules that TLS can change: a session that waits, one with output that no client reads, one that the server
/// ends after a refusal or a panic, and one with a client that waits for a 100.
#[cfg(feature = "tls")]
const ALSO_OVER_TLS: [&str; 16] = [
    "waiting_costs_no_time",
    "a_pipeline_that_is_not_read_is_not_buffered",
    "nothing_follows_a_doubtful_message",
    "length_with_chunked_is_refused",
    "broken_chunks_are_refused",
    "what_chunks_carry_is_bounded",
    "max_body_is_exact",
    "a_head_past_its_limit_is_too_large",
    "a_panic_in_call_is_a_500",
    "a_slow_head_times_out",
    "a_slow_body_times_out",
    "an_expected_continue_comes_before_the_body",
    "a_client_need_not_wait_for_continue",
    "a_refusal_comes_instead_of_continue",
    "a_refusal_by_the_head_needs_no_body",
    "too_large_a_body_is_not_asked_for",
];

/// Properties that say nothing over TLS, and why.
#[cfg(feature = "tls")]
const NOT_OVER_TLS: [(&str, &str); 6] = [
    ("a_request_that_has_arrived_is_not_evicted", OTHER_PROCESS),
    ("an_answer_says_close_if_others_wait", CONNECTS_TO_BUSY_SERVER),
    ("time_in_the_queue_counts_towards_the_head_timeout", CONNECTS_TO_BUSY_SERVER),
    ("requests_behind_busy_workers_are_served_by_the_drain", CONNECTS_TO_BUSY_SERVER),
    ("what_waits_for_a_stuck_thread_ends_too", CONNECTS_TO_BUSY_SERVER),
    ("silent_connections_do_not_stop_the_rest", MANY_HANDSHAKES),
];

#[cfg(feature = "tls")]
const OTHER_PROCESS: &str = "its server runs in another process, which has certificates of its own";

#[cfg(feature = "tls")]
const CONNECTS_TO_BUSY_SERVER: &str = "its clients connect while no worker is free, and a handshake waits for one";

#[cfg(feature = "tls")]
const MANY_HANDSHAKES: &str =
    "a client with a handshake is not silent; `stalled_handshakes_keep_to_the_limit` tests silent ones";

/// Makes a test of each property of servers that TLS can change, over TLS, and of each property of TLS. The properties of TLS take
/// one executor for each server: an executor runs the same connection.
#[cfg(feature = "tls")]
fn over_tls(catalog: &Catalog) -> Vec<Trial> {
    let names = ALSO_OVER_TLS.into_iter().chain(NOT_OVER_TLS.map(|(name, _)| name));
    names.for_each(|name| _ = property::named(server::PROPERTIES, name)); // panics if there is none
    let can_change = |property: &&Property<ServerSubject>| {
        MODULES_OVER_TLS.contains(&property.module) || ALSO_OVER_TLS.contains(&property.name)
    };
    let tested = catalog.servers().iter().filter(|entry| OVER_TLS.contains(&entry.name.as_str()));
    let over_tls = tested.flat_map(|entry| {
        server::PROPERTIES.iter().filter(can_change).flat_map(|property| one_over_tls(entry, property))
    });
    let takes_part = |entry: &&ServerEntry| entry.name.split_once('/').is_none_or(|(_, executor)| executor == EXECUTOR);
    let of_tls = catalog.servers().iter().filter(takes_part);
    let of_tls = of_tls.flat_map(|entry| kit("tls", entry, server::TLS_PROPERTIES, server_subject));
    let changed: Vec<_> = server::PROPERTIES.iter().filter(can_change).collect();
    let not_allowed = catalog.servers_not_allowed().flat_map(|(entry, why)| {
        let over_tls = not_run("server_over_tls", &entry.name, changed.iter().copied(), &why);
        over_tls.into_iter().chain(not_run("tls", &entry.name, server::TLS_PROPERTIES, &why))
    });
    over_tls.chain(of_tls).chain(not_allowed).collect()
}

/// The executor of the servers in tests in which the executor makes no difference.
#[cfg(feature = "tls")]
const EXECUTOR: &str = "mpsc_pool";

#[cfg(feature = "tls")]
fn one_over_tls(entry: &ServerEntry, property: &'static Property<ServerSubject>) -> Vec<Trial> {
    if let Some((name, why)) = NOT_OVER_TLS.iter().find(|(name, _)| *name == property.name) {
        let name = format!("server_over_tls::{}::{name}", entry.name);
        return vec![Trial::ignorable_test(name, || Ok(Completion::ignored_with(*why)))];
    }
    kit("server_over_tls", entry, std::slice::from_ref(property), |entry| server_subject(entry).over_tls())
}

/// The servers that are paired with every store: one of each kind. A store depends on its server only by how the server calls it, from
/// a pool of threads, or on a runtime. The kit of each server has the same properties, over a store that answers now and one that answers
/// later.
const PAIRED_SERVERS: [&str; 3] = ["pool_server/mpsc_pool", "thread_per_connection", "tokio_tcp"];

/// Makes a test of a server over a store: conditional writes and patches of concurrent clients, of both types of entities.
fn pair(server: &ServerEntry, repo: &RepoEntry) -> Trial {
    let (server, repo) = (server.clone(), repo.clone());
    Trial::test(format!("pair::{}/{}::no_update_is_lost", server.name, repo.name), move || {
        let subject = server_subject(&server);
        let store = || repo.build().expect("the repo can be made");
        let named = || named_repo(&repo.name);
        let outcomes = [
            server::conditional_writes_are_linearizable_over(&subject, EntityForm::Published, store),
            server::a_merge_patch_loses_no_update_over(&subject, store()),
            server::conditional_writes_are_linearizable_over(&subject, EntityForm::Named, named),
            server::a_merge_patch_loses_no_update_of_named_entities_over(&subject, named()),
        ];
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Held), "{outcomes:?}");
        Ok(())
    })
}

fn repo_subject(entry: &RepoEntry) -> RepoSubject {
    let made = entry.clone();
    with_promises(entry, RepoSubject::new(move || made.build().expect("the repo can be made")))
}

/// The same repo with entities of another type.
fn named_repo_subject(entry: &RepoEntry) -> RepoSubject {
    let name = entry.name.clone();
    with_promises(entry, RepoSubject::named(move || named_repo(&name)))
}

fn named_repo(name: &str) -> Arc<dyn EntityRepo<NamedEntity>> {
    #[cfg(feature = "durable")]
    if let Some(over) = name.strip_prefix("durable") {
        let over = over.strip_prefix('/').unwrap_or("sharded");
        let memory = repo_of::<NamedEntity>(over).expect("it is built in");
        let durable = polyserve::durable::Durable::temporary(std::env::temp_dir(), memory);
        return Arc::new(durable.expect("the repo can be made"));
    }
    repo_of(name).expect("the repo takes any entity")
}

fn with_promises(entry: &polyserve::catalog::RepoEntry, subject: RepoSubject) -> RepoSubject {
    match (entry.promises(Promise::AnswersNow), entry.promises(Promise::AnswersLater)) {
        (true, false) => subject.in_memory(),
        (false, true) => subject.answers_later(),
        _ => subject.answers_now_or_later(),
    }
}

fn server_subject(entry: &ServerEntry) -> ServerSubject {
    let made = entry.clone();
    let mut subject = ServerSubject::new(move |config: ServerConfig| made.build(&config));
    let has_shape = |shape| entry.promises(Promise::Shape(shape));
    subject.deviations.later_answers_hold_a_worker =
        has_shape(Shape::Multiplexed) && entry.promises(Promise::LaterHoldsWorker);
    subject.pooled = has_shape(Shape::OnePerThread) && entry.promises(Promise::BoundedQueue);
    subject.deviating(|declared| declare_deviations(&entry.name, declared))
}

fn executor_subject(entry: &polyserve::catalog::ExecutorEntry) -> ExecutorSubject {
    let made = entry.clone();
    let subject = ExecutorSubject::new(move |workers, queue| {
        let config = ServerConfig::default().workers(workers).queue(queue);
        Box::new(made.build(&config).expect("the executor can be made"))
    });
    if entry.promises(Promise::RunsInOrder) { subject.in_order() } else { subject }
}
