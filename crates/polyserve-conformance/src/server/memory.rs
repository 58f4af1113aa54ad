//! The memory budget of a server.

use std::sync::atomic::AtomicUsize;

use polyserve_core::Body;

use super::prelude::*;
use super::resources::{NO_PROC, resident};

/// What a server may use in addition: the buffers of its threads and connections, and what its allocator keeps.
const FIXED: u64 = 32 << 20;

fn config(subject: &ServerSubject, clients: usize, budget: usize) -> ServerConfig {
    // On a pool, each of the connections holds a thread.
    let workers = subject.pooled.then_some(clients + 8);
    defaults().memory(budget).workers(workers).body_timeout(NEVER).write_timeout(NEVER)
}

/// Whether the memory of many connections can be counted.
fn needs_memory(subject: &ServerSubject) -> Result<(), String> {
    subject.needs_several("a server of one connection keeps one body and one answer")?;
    needs(resident().is_some(), NO_PROC)
}

/// Checks that the process has not grown by more than `budget` and a fixed amount since it had `before` KiB, and that small
/// requests are served. `method`: of the requests with a body.
#[track_caller]
fn check(subject: &ServerSubject, live: &Live, before: u64, budget: usize, method: &str, what: &str) {
    let grown = || resident().expect("/proc is there").saturating_sub(before) << 10;
    let max = budget as u64 + FIXED;
    // The memory of a refused request may be freed a little after its answer.
    let held = eventually(subject.max_wait.min(Duration::from_secs(5)), || grown() <= max);
    assert!(held, "{what} take {} MiB, at a budget of {} MiB", grown() >> 20, budget >> 20);
    for _ in 0..3 {
        live.ask(&get("/10"), 200);
        live.ask(&with_body(method, "/10", "", b"hello"), 200);
    }
    let mut client = live.sending(&request(method, "/10", "Content-Length: 5\r\n"));
    let_pass(Duration::from_millis(20));
    client.ask(b"hello", 200);
}

/// Answers `/n` with n bytes of its own. Counts its calls with a larger answer than a MiB.
#[derive(Default)]
struct LargeBodies {
    large: AtomicUsize,
}

impl Service for LargeBodies {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let length = number(&request);
        self.large.fetch_add(usize::from(length > 1 << 20), Ordering::SeqCst);
        Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; length])))
    }
}

/// Bodies that do not end take no more memory than the budget, whatever their number. Beyond it, a body is answered with 503 and
/// `Retry-After`. Small requests are served.
pub(super) fn incomplete_bodies_keep_to_the_memory_budget(subject: &ServerSubject) -> Result<(), String> {
    const BUDGET: usize = 16 << 20;
    const CLIENTS: usize = 80;
    const LENGTH: usize = 1 << 20;
    needs_memory(subject)?;
    in_child(2 * CLIENTS + 500, || {
        let live = subject.live(Echo, config(subject, CLIENTS, BUDGET));
        live.ask(&get("/"), 200);
        let body = with_body("POST", "/", "", &vec![b'x'; LENGTH]);
        let before = resident().expect("/proc is there");
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| live.trying(&body[..body.len() - 1])).collect();
        let refused = || clients.iter().filter(|client| client.has_input()).count();
        // What a body needs in addition to its bytes counts too.
        let settled = eventually(subject.max_wait, || refused() >= CLIENTS - BUDGET / LENGTH);
        assert!(settled, "only {} of {CLIENTS} bodies of {LENGTH} bytes were refused", refused());
        assert!(refused() < CLIENTS, "every body was refused");
        check(subject, &live, before, BUDGET, "POST", "incomplete bodies");
        for client in clients.iter_mut().filter(|client| client.has_input()) {
            let response = client.expect(503);
            assert!(response.header("Retry-After").is_some(), "a 503 has Retry-After\n{}", client.show());
        }
        drop(clients);
        // The server may need a moment to see that the others have gone.
        assert_eq!(live.ask_until_served(&body).body.len(), LENGTH);
    })
    .into()
}

/// Answers that no client reads take no more memory than the budget, whatever their number. Beyond it, the answer to a GET is
/// 503 with `Retry-After`. Small requests are served, and what was begun arrives once the client reads.
pub(super) fn unread_answers_keep_to_the_memory_budget(subject: &ServerSubject) -> Result<(), String> {
    needs_memory(subject)?;
    in_child(1000, || {
        let (_, whole) = leave_unread(subject, "GET", "POST", 0);
        assert_eq!(whole, 1, "there is memory for one answer");
    })
    .into()
}

/// Large answers to unsafe methods that no client reads take no more memory than the budget and one answer, whatever their number.
/// A request that was done is answered truthfully, so the server refuses it before it calls the service: 503 with `Retry-After`.
/// Requests with small answers are served.
pub(super) fn unread_answers_of_writes_keep_to_the_memory_budget(subject: &ServerSubject) -> Result<(), String> {
    needs_memory(subject)?;
    in_child(1000, || {
        for (method, other) in [("POST", "PUT"), ("PATCH", "POST")] {
            let (called, whole) = leave_unread(subject, method, other, UNREAD);
            assert!((1..=2).contains(&called), "{method}: {called} calls, and there is memory for one answer");
            assert_eq!(whole, called, "{method}: what was done is answered so");
        }
    })
    .into()
}

/// The length of each answer that is not read. Two of them exceed the budget, even after the kernel has taken what it takes for a client
/// that does not read.
const UNREAD: usize = 12 << 20;

/// Has many clients that do not read their large answers to requests of `method`, and checks that the server takes the memory of its
/// budget, and `more`. Small requests of the method `other` are served. Returns the numbers of large calls of the service and of large
/// answers.
#[track_caller]
fn leave_unread(subject: &ServerSubject, method: &str, other: &str, more: usize) -> (usize, usize) {
    const BUDGET: usize = 16 << 20;
    const CLIENTS: usize = 16;
    let service = Arc::new(LargeBodies::default());
    let live = subject.live(service.clone(), config(subject, CLIENTS, BUDGET));
    live.ask(&get("/10"), 200);
    let before = resident().expect("/proc is there");
    // Each write may be followed by others, which are not served before its answer is read.
    let (body, number): (&[u8], _) = if method == "GET" { (b"", 1) } else { (b"{}", 3) };
    let requests = with_body(method, &format!("/{UNREAD}"), "", body).repeat(number);
    let ask = |_| {
        let mut client = live.client();
        // The kernel takes little for this client before it reads.
        client.limit_receive_buffer(64 << 10).expect("the system takes the size of a buffer");
        client.send(&requests).expect("the server takes the requests");
        if method != "GET" {
            client.peek().expect("every write is answered before the next one");
        }
        client
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(ask).collect();
    clients.iter_mut().for_each(|client| client.peek().expect("every request is answered"));
    check(subject, &live, before, BUDGET + more, other, &format!("unread answers to {method}"));
    let called = service.large.load(Ordering::SeqCst);
    let mut whole = 0;
    for client in &mut clients {
        let response = client.expect_one_of(&[200, 503]);
        let is_refused = response.status == 503 && response.header("Retry-After").is_some();
        assert!(is_refused || response.body.len() == UNREAD, "neither whole nor refused\n{}", client.show());
        whole += usize::from(!is_refused);
    }
    drop(clients);
    // The server may need a moment to see that the others have gone.
    let length = live.ask_until_served(&with_body(method, &format!("/{}", UNREAD / 4), "", body)).body.len();
    assert_eq!(length, UNREAD / 4);
    (called, whole)
}
