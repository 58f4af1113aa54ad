//! A process that is stopped for a while loses no request that arrived in time.

use super::prelude::*;
use crate::property::ServingChild;

/// Each timeout of the server under test.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Requests that arrived in time, before or while the server's process was stopped, are answered when the process
/// continues. This holds even if the stop was longer than each timeout: the server reads from the socket before it checks a
/// timeout.
///
/// Tested with a request on an idle connection, the rest of a head, and the rest of a body.
pub(super) fn a_stopped_process_loses_no_request(subject: &ServerSubject) -> Result<(), String> {
    needs(cfg!(target_os = "linux"), "stopping a process is tested on Linux only")?;
    let serve = |parent: &ChildSide| {
        let live = subject.live(Echo, with_client_timeouts(TIMEOUT));
        parent.announce(live.addr);
        parent.wait_for_parent();
    };
    with_serving_child(None, serve, |child| {
        // A busy machine may take longer than the timeout to stop the process. Then the attempt shows nothing, and is
        // repeated.
        for _ in 0..10 {
            match stop_and_ask(subject, child) {
                Stopped::InTime => return Outcome::Held,
                Stopped::TooLate => {}
                Stopped::Never => return Outcome::NotRun("this system cannot stop a process".into()),
            }
        }
        Outcome::NotRun(format!("in 10 attempts the process was never stopped within {TIMEOUT:?}"))
    })
    .into()
}

/// Whether the process was stopped before any timeout could pass.
enum Stopped {
    InTime,
    TooLate,
    Never,
}

fn stop_and_ask(subject: &ServerSubject, child: &ServingChild) -> Stopped {
    let body: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab";
    let cases: [(&[u8], &[u8]); 3] = [(b"", &get("/")), (b"GET / HT", b"TP/1.1\r\nHost: a\r\n\r\n"), (body, b"cd")];
    // A server of one connection gets the cases one after the other.
    let at_once = subject.at_a_time(cases.len());
    for cases in cases.chunks(at_once) {
        let connect = || Client::connect(child.addr, subject.max_wait).expect("the server accepts connections");
        let started = Instant::now();
        let is_late = || started.elapsed() >= TIMEOUT / 2;
        let mut clients: Vec<Client> = cases.iter().map(|_| connect()).collect();
        for client in &mut clients {
            // The timeouts may have ended a connection, if the machine is busy.
            match client.exchange(&get("/")) {
                Ok(response) if response.status == 200 => {}
                Ok(response) if response.status == 408 && is_late() => return Stopped::TooLate,
                Err(failure) if failure.is_clean() && is_late() => return Stopped::TooLate,
                answer => panic!("{answer:?}\n{}", client.show()),
            }
        }
        for (client, (first, _)) in clients.iter_mut().zip(cases) {
            let sent = client.send(first);
            if is_late() {
                return Stopped::TooLate;
            }
            sent.expect("the server takes the request");
        }
        // The server reads the first parts, and its timeouts begin.
        let_pass(TIMEOUT / 10);
        if !child.stop() {
            child.resume();
            return Stopped::Never;
        }
        for (client, (_, rest)) in clients.iter_mut().zip(cases) {
            client.send(rest).expect("the kernel takes the request");
        }
        let in_time = started.elapsed() < TIMEOUT / 2;
        let_pass(2 * TIMEOUT);
        child.resume();
        if !in_time {
            return Stopped::TooLate;
        }
        for client in &mut clients {
            client.expect(200);
        }
    }
    Stopped::InTime
}
