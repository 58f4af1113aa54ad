//! Servers over the stores: many connections, and several processes in front of one engine.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;

use polyserve_async::TokioTcp;
use polyserve_conformance::client::Client;
use polyserve_conformance::history::{
    CheckVerdict, EntityForm, History, RecordingControl, RecordingWorkload, check, record_http,
};
use polyserve_conformance::property::Outcome;
use polyserve_conformance::server::{self, Nested, ServerSubject};
use polyserve_core::{Entity, EntityService, ServerConfig, ServerExt as _};
use polyserve_engines::process::MAX_WAIT;

use crate::Test;
use crate::kind::{Connect as _, Kind, long_limits, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    vec![
        Test::shared(kind, "connections_start_no_threads", move |urls| connections_start_no_threads(kind, urls)),
        Test::shared(kind, "four_processes_are_one_store", move |urls| four_processes_are_one_store(kind, urls)),
        Test::shared(kind, "pages_list_all_entities", move |urls| pages_list_all_entities(kind, urls)),
        Test::shared(kind, "nested_entities_are_kept", move |urls| nested_entities_are_kept(kind, urls)),
        Test::shared(kind, "a_merge_patch_loses_no_update", move |urls| a_merge_patch_loses_no_update(kind, urls)),
    ]
}

const CONNECTIONS: usize = 256;

/// A child process serves with two workers. Many connections put and get at the same time, and the process has as many
/// threads as before.
fn connections_start_no_threads(kind: Kind, urls: &str) {
    let server = ServerProcess::start(kind, urls, &name_space());
    // The first request has started all threads.
    Client::connect(server.addr, MAX_WAIT).unwrap().ask(&get(0), 404);
    let before = server.threads();
    let (connected, checked) = (Barrier::new(CONNECTIONS + 1), Barrier::new(CONNECTIONS + 1));
    let addr = server.addr;
    let run_client = |number: usize| {
        let mut client = Client::connect(addr, MAX_WAIT).expect("it connects");
        connected.wait();
        client.ask(&put(number), 201);
        let response = client.ask(&get(number), 200);
        assert!(response.text().contains(&format!("\"description\":\"number {number}\"")), "{response:?}");
        for _ in 0..8 {
            client.ask(&get(number), 200);
        }
        checked.wait();
    };
    let during = thread::scope(|scope| {
        let run_client = &run_client;
        for number in 0..CONNECTIONS {
            scope.spawn(move || run_client(number));
        }
        connected.wait();
        checked.wait();
        server.threads()
    });
    assert_eq!(during, before, "threads with {CONNECTIONS} connections, and with one");
}

fn get(id: usize) -> Vec<u8> {
    format!("GET /{id} HTTP/1.1\r\nHost: test\r\n\r\n").into_bytes()
}

fn put(id: usize) -> Vec<u8> {
    let body = format!(r#"{{"id":{id},"description":"number {id}","value":0.5}}"#);
    let length = body.len();
    format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The pages of a list, each after the last entity of the page before, have each entity once.
fn pages_list_all_entities(kind: Kind, urls: &str) {
    const ENTITIES: usize = 25;
    let server = ServerProcess::start(kind, urls, &name_space());
    let mut client = Client::connect(server.addr, MAX_WAIT).expect("it connects");
    (0..ENTITIES).for_each(|id| _ = client.ask(&put(id), 201));
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let request = format!("GET /?limit=10{after} HTTP/1.1\r\nHost: test\r\n\r\n");
        let page = client.ask(request.as_bytes(), 200).text().to_string();
        let ids: Vec<usize> = page.split("\"id\":").skip(1).map(number).collect();
        assert!(ids.len() <= 10, "{page}");
        listed.extend(ids);
        match page.split_once("\"next\":\"") {
            Some((_, next)) => after = format!("&after={}", number(next)),
            None => break,
        }
    }
    listed.sort_unstable();
    assert_eq!(listed, (0..ENTITIES).collect::<Vec<_>>());
}

/// Returns the number at the beginning of a text.
fn number(text: &str) -> usize {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().expect("it begins with a number")
}

/// Clients of four server processes over one engine see one linearizable store.
fn four_processes_are_one_store(kind: Kind, urls: &str) {
    let name_space = name_space();
    let servers: Vec<_> = (0..4).map(|_| ServerProcess::start(kind, urls, &name_space)).collect();
    let targets: Vec<_> = servers.iter().map(|server| server.addr.into()).collect();
    let workload = RecordingWorkload { operations: 4_000, keys: 4, first_key: 1, seed: 7, conditions: false };
    let control = RecordingControl::default();
    let recording = record_http(&targets, EntityForm::Published, &workload, 8, MAX_WAIT, &control);
    assert_eq!(recording.wrong, []);
    let history = History::new(recording.operations).unwrap_or_else(|invalid| panic!("{invalid}"));
    assert_eq!((history.unknown(), history.shows_nothing()), (0, None));
    let verdict = check(&history);
    assert!(matches!(verdict, CheckVerdict::Linearizable), "{verdict:?}");
}

/// The thread of a store has the stack for them. A stack that overflows ends this program.
fn nested_entities_are_kept(kind: Kind, urls: &str) {
    let subject = ServerSubject::new(TokioTcp::new);
    let store = kind.connect::<Nested>(urls, &name_space(), long_limits()).expect("it connects");
    assert_eq!(server::nested_entities_are_kept_over(&subject, store), Outcome::Held);
}

/// Clients of one server patch different members of an entity.
fn a_merge_patch_loses_no_update(kind: Kind, urls: &str) {
    let subject = ServerSubject::new(TokioTcp::new);
    let store = kind.connect(urls, &name_space(), long_limits()).expect("it connects");
    assert_eq!(server::a_merge_patch_loses_no_update_over(&subject, store), Outcome::Held);
    let named = kind.connect(urls, &name_space(), long_limits()).expect("it connects");
    assert_eq!(server::a_merge_patch_loses_no_update_of_named_entities_over(&subject, named), Outcome::Held);
}

/// What tells this program that it is a server: the store's name, the engine's URLs and the name space.
const SERVE: &str = "POLYSERVE_TEST_SERVE";

/// A server in a child process. Dropping it ends the process.
struct ServerProcess {
    child: Child,
    addr: SocketAddr,
}

impl ServerProcess {
    fn start(kind: Kind, urls: &str, name_space: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program has a path"));
        command.env(SERVE, format!("{}|{urls}|{name_space}", kind.name())).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be started");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut address).expect("it can be read");
        let addr = address.trim().parse().unwrap_or_else(|_| panic!("a server printed {address:?}"));
        Self { child, addr }
    }

    /// The number of its threads.
    fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the server runs").count()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child process: serves until the parent ends. Elsewhere returns false.
pub(crate) fn serve_if_child() -> bool {
    let Ok(arguments) = env::var(SERVE) else { return false };
    let [name, urls, name_space] = arguments.split('|').collect::<Vec<_>>()[..] else { panic!("{arguments:?}") };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).expect("a store has this name");
    let store = kind.connect::<Entity>(urls, name_space, long_limits()).expect("it connects");
    let server = TokioTcp::new(ServerConfig::default().workers(2)).expect("the settings are valid");
    let running = server.serve("127.0.0.1:0", EntityService::new(store)).expect("it listens");
    let mut out = std::io::stdout();
    writeln!(out, "{}", running.local_addr()).and_then(|()| out.flush()).expect("the parent reads the address");
    let _ = std::io::stdin().read(&mut [0]);
    true
}
