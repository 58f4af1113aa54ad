//! What is left after the end: nothing. Counted in a process of its own.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::Connections;
use polyserve_core::service::Echo;
use polyserve_core::timer;

use super::keep_alive::echo;
use super::live::eventually;
use super::services::{Gate, Large, let_pass};
use super::subject::ServerSubject;
use super::wire::{get, request, with_body};
use crate::client::Client;
use crate::property::{Outcome, in_child};

/// Descriptors that this process may have; a cautious guess where the system does not say.
pub(super) fn descriptor_limit() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(256)
}

/// Threads and descriptors of this process.
fn count() -> io::Result<(usize, usize)> {
    let entries = |path: &str| Ok::<usize, io::Error>(fs::read_dir(path)?.count());
    Ok((entries("/proc/self/task")?, entries("/proc/self/fd")?))
}

const NO_PROC: &str = "threads and descriptors are counted in /proc, which this system does not have";

/// Serves in every way that ends differently, and ends.
fn serve_and_end(subject: &ServerSubject) {
    let live = echo(subject);
    for _ in 0..50 {
        live.ask(&with_body("POST", "/", "Connection: close\r\n", b"hello"), 200);
        live.ask(&get("/"), 200);
        drop(live.client());
        let mut broken = live.client();
        let _ = broken.send(b"G@T / HTTP/1.1\r\n\r\n");
        broken.expect(400);
    }
    let idle: Vec<Client> = (0..5).map(|_| live.client()).collect();
    live.shutdown();
    drop(idle);

    let gate = Gate::new();
    let live = subject.live(gate.clone(), |_| ());
    let mut waiting = live.client();
    waiting.send(&get("/hold")).expect("the server takes the request");
    gate.wait_for(1, subject.patience);
    live.shutdown_within(Duration::from_millis(20));

    let live = subject.live(Arc::new(Large), |config| config.write_timeout = Duration::from_millis(50));
    let mut deaf = live.client();
    deaf.send(&get("/30000000")).expect("the server takes the request");
    deaf.peek().expect("the answer begins");
    live.drop_it();
}

/// After the end every thread and every descriptor is gone, whatever the clients did.
pub fn nothing_is_left_after_the_end(subject: &ServerSubject) -> Outcome {
    if !Path::new("/proc/self/task").exists() {
        return Outcome::NotRun(NO_PROC.into());
    }
    in_child(|| {
        // These start with their first use, and stay.
        timer::after(Duration::from_millis(1)).wait();
        serve_and_end(subject);
        let before = count().expect("/proc is there");
        for _ in 0..3 {
            serve_and_end(subject);
        }
        let mut after = before;
        let back = eventually(subject.patience, || {
            after = count().expect("/proc is there");
            after.0 <= before.0 && after.1 <= before.1
        });
        assert!(back, "threads and descriptors were {before:?} and are {after:?}");
    })
}

/// While it serves, connections that have ended leave nothing behind.
pub fn ended_connections_leave_nothing(subject: &ServerSubject) -> Outcome {
    if !Path::new("/proc/self/task").exists() {
        return Outcome::NotRun(NO_PROC.into());
    }
    in_child(|| {
        timer::after(Duration::from_millis(1)).wait();
        let live = echo(subject);
        let some = || {
            for _ in 0..100 {
                live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
                live.ask(&get("/"), 200);
            }
        };
        some();
        let mut before = count().expect("/proc is there");
        some();
        let mut after = before;
        let back = eventually(subject.patience, || {
            after = count().expect("/proc is there");
            // Connections of the first round may have been counted while they were ending.
            before = (before.0.min(after.0 + 4), before.1.min(after.1 + 4));
            after.0 <= before.0 + 4 && after.1 <= before.1 + 4
        });
        assert!(back, "threads and descriptors were {before:?} and are {after:?}");
    })
}

/// Where descriptors run out, connections that stand are served, and new ones again once there are some: the server neither
/// dies nor forgets them.
pub fn running_out_of_descriptors_ends_nothing(subject: &ServerSubject) -> Outcome {
    const MOST: usize = 70_000;
    if !Path::new("/proc/self/task").exists() {
        return Outcome::NotRun(NO_PROC.into());
    }
    if descriptor_limit() > MOST {
        return Outcome::NotRun(format!("{} descriptors are too many to use up", descriptor_limit()));
    }
    in_child(|| {
        let live = echo(subject);
        let mut standing = live.client();
        standing.ask(&get("/"), 200);
        let mut files: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        // Room for the client's own descriptor, and none for the server's.
        files.pop();
        let mut waiting = live.client();
        waiting.send(&get("/")).expect("the kernel takes the request");
        // Long enough for the server to find out; the property holds without it, too.
        let_pass(Duration::from_millis(100));
        // A server of one connection closes the idle one, and so has a descriptor for the one that waits.
        for _ in 0..if subject.shape() == Connections::One { 0 } else { 20 } {
            standing.ask(&get("/"), 200);
        }
        drop(files);
        waiting.expect(200);
        drop(waiting);
        live.ask(&get("/"), 200);
        let drain = live.shutdown();
        assert_eq!((drain.cut, drain.stuck), (0, 0), "{drain}");
    })
}

/// As many clients as there are descriptors for come and go, and the server is as it was.
pub fn many_connections_come_and_go(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |_| ());
    for _ in 0..500 {
        live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
    }
    let mut client = live.client();
    for _ in 0..500 {
        client.ask(&get("/"), 200);
    }
    Outcome::Held
}
