//! Every mode on a correct server: the client's counts equal the server's counts.

use std::time::{Duration, Instant};

use polyserve_core::{ServerConfig, ServerExt as _};
use polyserve_load::data::Data;
use polyserve_load::{
    AnswerCheck, CpuSource, Dist, Exchange, Load, LoadError, Mix, Pace, RunLength, Traffic, Usage, discover, prefill,
    run,
};

use super::{assert_clean, entities, repeated, report, requests, serve};

const KEYS: u64 = 50;

/// Runs a load of 2 000 requests, with the settings of `change`, on a new server, and compares the counts.
fn counted(config: ServerConfig, mix: &str, change: impl FnOnce(&mut Load)) {
    let running = serve(config);
    let traffic = entities(KEYS, mix);
    let target = running.local_addr();
    assert_eq!(prefill(target, "host", &traffic).unwrap(), KEYS);
    let load = requests(target, &traffic, 2_000).with(change);
    // On a busy machine a run of a short time may be over before its first request.
    let report = repeated(|| report(&load), |report| report.bytes_sent > 0);
    assert_clean(&report);
    let drain = running.shutdown().unwrap();
    assert_eq!(drain.answered, KEYS + report.answered + report.answered_late, "{report:?}");
    assert_eq!(report.latency.len(), report.answered + report.answered_late);
    assert_eq!(report.phases.is_some(), load.usage == Usage::Close);
    if let Some(phases) = &report.phases {
        for phase in [&phases.connect, &phases.waiting, &phases.processing] {
            assert_eq!(phase.len(), report.latency.len());
        }
        // The first byte comes no later than the last.
        assert!(phases.waiting.max() <= phases.processing.max(), "{phases:?}");
        assert!(phases.waiting.mean() <= phases.processing.mean(), "{phases:?}");
        // The connect starts after the request starts, and both end with the same read.
        let whole = report.latency.mean() * 1.01;
        assert!(phases.connect.mean() + phases.processing.mean() <= whole, "{phases:?} {whole}");
    }
    if let RunLength::Requests(count) = load.length {
        assert_eq!((report.answered, report.unsent, report.unfinished), (count, 0, 0));
    }
    assert!(report.bytes_sent > 0 && report.bytes_received > 0 && report.client_cpu > Duration::ZERO);
}

#[test]
fn closed_loop_over_kept_connections() {
    counted(ServerConfig::default(), "get=1", |_| {});
}

#[test]
fn reading_and_writing_by_several_threads() {
    counted(ServerConfig::default(), "get=1,put=1", |load| load.threads = 3);
}

#[test]
fn pipelined() {
    counted(ServerConfig::default(), "get=3,put=1", |load| load.usage = Usage::KeepAlive { pipeline: 16 });
}

#[test]
fn a_connection_for_every_request() {
    counted(ServerConfig::default(), "get=9,put=1", |load| load.usage = Usage::Close);
}

#[test]
fn open_loop_over_kept_connections_and_new_ones() {
    counted(ServerConfig::default(), "get=1", |load| load.pace = Pace::Rate(20_000.0));
    counted(ServerConfig::default(), "get=1", |load| {
        (load.pace, load.usage, load.threads) = (Pace::Rate(10_000.0), Usage::Close, 2);
    });
}

#[test]
fn a_span_of_time() {
    let time = RunLength::Time(Duration::from_millis(200));
    counted(ServerConfig::default(), "get=1", |load| load.length = time);
    counted(ServerConfig::default(), "put=1", |load| {
        (load.length, load.usage) = (time, Usage::KeepAlive { pipeline: 4 });
    });
    counted(ServerConfig::default(), "get=1", |load| (load.length, load.pace) = (time, Pace::Rate(5_000.0)));
}

/// A server that closes every connection after seven requests: the pipelined requests after them are sent again.
#[test]
fn connections_that_the_server_ends_are_replaced() {
    for depth in [1, 5, 16] {
        let config = ServerConfig::default().requests_per_connection(7);
        counted(config, "get=1,put=1", |load| load.usage = Usage::KeepAlive { pipeline: depth });
    }
}

#[test]
fn what_is_replaced_and_sent_again_is_counted() {
    let running = serve(ServerConfig::default().requests_per_connection(10));
    let traffic = entities(5, "get=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    let load = requests(running.local_addr(), &traffic, 100).with(|load| load.connections = 1);
    let sequential = report(&load);
    assert_clean(&sequential);
    assert_eq!((sequential.connections_opened, sequential.reconnects, sequential.retried), (10, 9, 0));
    let with_pipeline = report(&load.with(|load| load.usage = Usage::KeepAlive { pipeline: 8 }));
    assert_clean(&with_pipeline);
    assert!(with_pipeline.retried > 0 && with_pipeline.reconnects >= 9, "{with_pipeline:?}");
}

/// The requests of the warm-up are answered and not counted.
#[test]
fn the_warm_up_does_not_count() {
    let running = serve(ServerConfig::default());
    let traffic = entities(5, "get=1");
    let target = running.local_addr();
    prefill(target, "host", &traffic).unwrap();
    for pace in [Pace::Closed, Pace::Rate(5_000.0)] {
        let before = requests(target, &traffic, 300);
        let load = before.with(|load| (load.warm_up, load.pace) = (Duration::from_millis(100), pace));
        let report = report(&load);
        assert_clean(&report);
        assert_eq!((report.answered, report.latency.len()), (300, 300));
    }
    assert!(running.shutdown().unwrap().answered > 605);
}

#[test]
fn one_request_is_discovered_and_then_repeated() {
    let running = serve(ServerConfig::default());
    let target = running.local_addr();
    let body = br#"{"id":7,"description":"seven","value":7.5}"#;
    let put = Traffic::one("PUT", "/", Some(body), Some("application/json")).unwrap();
    assert_clean(&report(&requests(target, &put, 100)));
    for method in ["GET", "HEAD"] {
        let traffic = Traffic::one(method, "/7", None, None).unwrap();
        assert_clean(&report(&requests(target, &traffic, 100)));
    }
    let absent = Traffic::one("GET", "/8", None, None).unwrap();
    let error = run(&requests(target, &absent, 1), &mut |_| {}).unwrap_err();
    assert!(matches!(error, LoadError::Server(_)) && error.to_string().starts_with("GET /8: status 404"), "{error}");
    // Two answers are discovered before each load.
    assert_eq!(running.shutdown().unwrap().answered, 3 * 102 + 1);
}

/// The answers of the first server are right on a second one with the same entities, and wrong on one with others.
#[test]
fn answers_are_discovered_on_one_server_and_compared_on_others() {
    let servers = [1, 1, 2].map(|seed| {
        let running = serve(ServerConfig::default());
        let traffic = Traffic::entities(&Data::new(seed), 40, Dist::Uniform, Mix { get: 1, put: 0 }, 0).unwrap();
        prefill(running.local_addr(), "host", &traffic).unwrap();
        running
    });
    let [first, same, other] = [0, 1, 2].map(|place: usize| servers[place].local_addr());
    let read = Exchange::new("GET", "/{id}").with(|one| one.ids = Some(0..=39));
    let absent = Exchange::new("GET", "/99").with(|one| (one.statuses, one.has_given_status) = (vec![404], true));
    let asked = Traffic::discovering(vec![read, absent.clone()]).unwrap();
    let discovered = discover(&requests(first, &asked, 1)).unwrap().unwrap();
    assert!(discovered.changing.is_empty() && !discovered.time.is_zero(), "{discovered:?}");
    assert!(discover(&requests(first, &discovered.traffic, 1)).unwrap().is_none(), "the answers are known");
    assert_clean(&report(&requests(same, &discovered.traffic, 200)));
    assert!(report(&requests(other, &discovered.traffic, 200)).failed.wrong > 0);
    // A write between the two reads changes the answer: what stays is judged.
    let put = Exchange::new("PUT", "/99").with(|one| {
        one.body = Some(br#"{"id":99,"description":"new","value":1}"#.to_vec());
        one.judged = AnswerCheck::Status;
    });
    let either = absent.with(|one| one.statuses = vec![200, 404]);
    let discovered = discover(&requests(first, &Traffic::discovering(vec![either, put]).unwrap(), 1)).unwrap().unwrap();
    let [changing] = discovered.changing.as_slice() else { panic!("{discovered:?}") };
    assert_eq!((changing.request.as_str(), changing.judged), ("GET /99", AnswerCheck::Status));
    assert_clean(&report(&requests(same, &discovered.traffic, 200)));
}

#[test]
fn processor_time_of_a_server_in_this_process() {
    let running = serve(ServerConfig::default());
    let traffic = entities(5, "get=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    for cpu in [CpuSource::Own, CpuSource::Process(std::process::id())] {
        let report = report(&requests(running.local_addr(), &traffic, 2_000).with(|load| load.cpu = cpu));
        assert!(report.server_cpu.unwrap() > Duration::ZERO && report.server_busy.unwrap() > 0.0);
        assert!(report.per_server_cpu_second().unwrap() > 0.0 && report.per_second() > 0.0);
    }
    let no_process = requests(running.local_addr(), &traffic, 1).with(|load| load.cpu = CpuSource::Process(u32::MAX));
    assert!(run(&no_process, &mut |_| {}).unwrap_err().to_string().contains("no process"));
}

/// A stopped load ends, and reports its measurements.
#[test]
fn a_load_can_be_ended_early() {
    let running = serve(ServerConfig::default());
    let traffic = entities(5, "get=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    for length in [RunLength::Time(Duration::from_secs(3600)), RunLength::Requests(u64::MAX - 1)] {
        let load = requests(running.local_addr(), &traffic, 1).with(|load| load.length = length);
        let mut seen = 0;
        let report = run(&load, &mut |progress| {
            assert!(!progress.warming && progress.failed == 0);
            seen = progress.answered;
            if seen > 100 {
                load.stop.begin(Instant::now());
            }
        });
        let report = report.unwrap();
        assert_clean(&report);
        assert!(seen > 100 && report.answered >= seen);
    }
}

/// Many connections, and a server with one worker.
#[test]
fn many_connections_and_a_sequential_server() {
    let running = serve(ServerConfig::default());
    let traffic = entities(5, "get=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    assert_clean(&report(&requests(running.local_addr(), &traffic, 5_000).with(|load| load.connections = 400)));

    let sequential = polyserve_threadpool::Sequential::new(ServerConfig::default()).unwrap();
    let service = polyserve_core::EntityService::new(polyserve_memory::StdRwlock::new());
    let running = sequential.serve(([127, 0, 0, 1], 0), service).unwrap();
    prefill(running.local_addr(), "host", &traffic).unwrap();
    for usage in [Usage::KeepAlive { pipeline: 1 }, Usage::Close] {
        let load = requests(running.local_addr(), &traffic, 200).with(|load| load.usage = usage);
        assert_clean(&report(&load));
    }
}

/// The time in which a pinned thread is awake without work is reported separately. A thread that is not pinned sleeps.
#[test]
fn being_awake_is_no_work() {
    let running = serve(ServerConfig::default());
    let traffic = entities(5, "get=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
    for (cores, pace) in [(vec![core], Pace::Rate(1_000.0)), (vec![core], Pace::Closed), (vec![], Pace::Rate(1_000.0))]
    {
        let is_awake = !cores.is_empty() && pace != Pace::Closed;
        let load = requests(running.local_addr(), &traffic, 200).with(|load| (load.cores, load.pace) = (cores, pace));
        let report = report(&load);
        assert_clean(&report);
        assert_eq!(report.client_spinning > Duration::ZERO, is_awake, "{report:?}");
    }
}
