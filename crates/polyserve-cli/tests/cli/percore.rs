//! Servers with a loop for each core: on a system that forbids io_uring, and the settings of their loops.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use polyserve::percore::IoUring;
use rustix::process::Signal;

use super::{Dir, MAX_WAIT, Serving, ask, get, has, polyserve, serve, text, until};

/// Returns the command as it runs where io_uring is forbidden, as in most containers: strace refuses the system call that makes a ring.
/// Prints a note and returns `None` if strace cannot trace here. With `-D`, the command is the child, and strace its grandchild.
fn without_ring(test: &str, line: &str) -> Option<Command> {
    let strace = |program: &str| {
        let mut strace = Command::new("strace");
        strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "inject=io_uring_setup:error=EPERM", program]);
        strace.stdin(Stdio::null());
        strace
    };
    let probe = strace("true").output().map_err(|error| error.to_string());
    let traces = probe.and_then(|probe| if probe.status.success() { Ok(()) } else { Err(text(&probe.stderr)) });
    if let Err(why) = traces {
        let _ = writeln!(std::io::stderr(), "not run: {test}: strace cannot refuse a system call here: {why}"); // past the harness's capture
        return None;
    }
    let plain = polyserve(line);
    let mut command = strace(plain.get_program().to_str().expect("it is text"));
    command.args(plain.get_args()).current_dir(plain.get_current_dir().expect("it is set"));
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    Some(command)
}

/// Regression test: a server that the system does not allow vanished from the list without a reason.
#[test]
fn a_server_that_is_not_allowed_is_listed_with_the_reason() {
    const REASON: &str = "io_uring is forbidden here";
    let test = "a_server_that_is_not_allowed_is_listed_with_the_reason";
    let Some(mut list) = without_ring(test, "list") else { return };
    let listed = list.output().expect("the command runs");
    assert!(listed.status.success(), "{listed:?}");
    let listed = text(&listed.stdout);
    let (_, section) =
        listed.split_once("\nservers that the system does not allow:\n").expect("the list has the section");
    let section = section.split("\n\n").next().expect("it has lines").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(section.starts_with("io_uring ") && section.contains(REASON), "{section}");

    let Some(mut as_json) = without_ring(test, "list --json") else { return };
    let listing = super::parsed(&as_json.output().expect("the command runs"));
    let servers = super::texts(super::array(&listing["servers"]), "name");
    assert!(servers.contains(&"epoll") && !servers.contains(&"io_uring"), "{servers:?}");

    let Some(mut serve) = without_ring(test, "serve --listen 127.0.0.1:0 --server io_uring") else { return };
    let refused = serve.output().expect("the command runs");
    assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(2), &b""[..]));
    has(&text(&refused.stderr), &["the server \"io_uring\" needs what the system does not allow", REASON]);
}

/// Regression test: a star stood for fewer servers, and neither the output nor the record told which.
#[test]
fn a_star_names_the_server_that_is_not_allowed() {
    let dir = Dir::new("not-allowed");
    let contestants = r#"contestants=["catalog:*ing*/sharded"]"#;
    let few = "--set rounds=1 --set mode.latency=false --set mode.slice=20ms --set sweep={} --set chart=[] --set workload.connections=2";
    let line = format!("bench keys {few} --set workload.keys=2 --set {contestants} --out {dir}");
    let Some(mut bench) = without_ring("a_star_names_the_server_that_is_not_allowed", &line) else { return };
    let output = bench.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let log = text(&output.stderr);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("does not allow")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    has(lines[0], &["left out", "io_uring (", "io_uring is forbidden here"]);
    has(
        dir.lines("keys.jsonl")[0]["plan"]["not_allowed"]["io_uring"].as_str().unwrap(),
        &["io_uring is forbidden here"],
    );
    let nothing = format!("bench keys {few} --set contestants=[\"catalog:io*/sharded\"]");
    let mut nothing = without_ring("a_star_names_the_server_that_is_not_allowed", &nothing).expect("it traces");
    has(
        &text(&nothing.output().expect("the command runs").stderr),
        &["catalog:io*/sharded", "io_uring is forbidden here"],
    );
}

/// The names of the threads of a process, without the numbers of the loops.
fn threads(serving: &Serving) -> Vec<String> {
    tasks(serving).into_iter().map(|(name, _)| name.split('-').next().expect("a name").to_owned()).collect()
}

/// The names of the threads of a process, each with its status, sorted.
fn tasks(serving: &Serving) -> Vec<(String, String)> {
    let directory = fs::read_dir(format!("/proc/{}/task", serving.child.id())).expect("the process runs");
    let of = |task: std::path::PathBuf, file| fs::read_to_string(task.join(file)).expect("the thread runs");
    let task = |task: fs::DirEntry| (of(task.path(), "comm").trim_end().to_owned(), of(task.path(), "status"));
    let mut tasks: Vec<_> = directory.map(|entry| task(entry.expect("a thread"))).collect();
    tasks.sort();
    tasks
}

#[test]
fn per_core_is_epoll_if_a_ring_is_forbidden_and_says_so_once() {
    let test = "per_core_is_epoll_if_a_ring_is_forbidden_and_says_so_once";
    let Some(command) = without_ring(test, "serve --listen 127.0.0.1:0 --server per_core") else { return };
    let (serving, mut log) = Serving::logging(command);
    let names = threads(&serving);
    assert!(names.contains(&"epoll".to_owned()) && !names.contains(&"io_uring".to_owned()), "{names:?}");
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));
    assert_eq!(serving.drained(Signal::TERM), "answered 1, cut 0, stuck 0\n");
    let mut logged = String::new();
    log.read_to_string(&mut logged).expect("it logs text");
    let lines: Vec<_> = logged.lines().filter(|line| line.contains("per_core is epoll, not io_uring")).collect();
    assert_eq!(lines.len(), 1, "{logged}");
    has(lines[0], &["WARN", "io_uring_setup has failed", "io_uring is forbidden here"]);
}

#[test]
fn per_core_is_the_server_that_runs_here() {
    let serving = serve("--server per_core");
    let expected = if IoUring::check().is_ok() { "io_uring" } else { "epoll" };
    assert!(threads(&serving).iter().any(|name| name == expected), "{:?}", threads(&serving));
    serving.drained(Signal::TERM);
}

/// The cores of each loop of `epoll`.
fn cores(args: &str) -> Vec<String> {
    let serving = serve(&format!("--server epoll --workers 2 {args}"));
    let cores =
        |status: &str| status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).map(str::to_owned);
    let loops = tasks(&serving).into_iter().filter(|(name, _)| ["epoll-0", "epoll-1"].contains(&name.as_str()));
    let cores = loops.map(|(_, status)| cores(&status).expect("the kernel names them")).collect();
    serving.drained(Signal::TERM);
    cores
}

#[test]
fn pin_keeps_each_loop_on_a_core() {
    let (free, pinned) = (cores(""), cores("--pin"));
    assert!(free.len() == 2 && free[0] == free[1], "{free:?}");
    let is_one = |cores: &String| cores.parse::<u32>().is_ok();
    assert!(pinned.len() == 2 && pinned.iter().all(is_one), "{pinned:?}");
    assert!(pinned[0] != pinned[1] || is_one(&free[0]), "{pinned:?} of {free:?}");
}

/// The number of sockets and other descriptors that each epoll of a process waits for.
fn registered(serving: &Serving) -> Vec<usize> {
    let of_process = format!("/proc/{}", serving.child.id());
    let descriptors = fs::read_dir(format!("{of_process}/fd")).expect("the process runs").flatten();
    let is_epoll = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().ends_with("[eventpoll]"))
    };
    let count = |entry: fs::DirEntry| {
        let info =
            fs::read_to_string(format!("{of_process}/fdinfo/{}", entry.file_name().display())).unwrap_or_default();
        info.lines().filter(|line| line.starts_with("tfd:")).count()
    };
    descriptors.filter(is_epoll).map(count).collect()
}

/// The kernel spreads connections over listeners by a hash of their addresses, so the loops would have different numbers.
#[test]
fn spread_gives_each_loop_as_many_connections() {
    const LOOPS: usize = 3;
    const CLIENTS: usize = 30 * LOOPS;
    let serving = serve(&format!("--server epoll --workers {LOOPS} --spread"));
    let without = registered(&serving);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(serving.addr).expect("the server listens");
        client.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
        client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        client.read_exact(&mut [0; 12]).expect("the server answers");
        clients.push(client);
    }
    let expected: Vec<_> = without.iter().map(|count| if *count > 0 { count + CLIENTS / LOOPS } else { 0 }).collect();
    until("the loops have different numbers of connections", || registered(&serving) == expected);
    drop(clients);
    serving.drained(Signal::TERM);
}
