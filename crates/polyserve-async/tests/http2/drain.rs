//! A drain, and its deadline.

use std::time::Duration;

use http::Method;
use polyserve_core::Drain;

use super::support::{HeldReplies, client_runtime, connect, request, serve, text};

/// A request that began before the shutdown is answered. The connection then ends, as an idle connection does.
#[test]
fn a_drain_serves_what_has_begun() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    let drain = client_runtime().block_on(async {
        let (mut sender, connection) = connect(addr).await;
        let (_idle, idle_connection) = connect(addr).await;
        let asked = tokio::spawn(async move {
            let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
            text(answer).await
        });
        held_replies.asked.acquire().await.expect("it is not closed").forget();
        let drained = tokio::spawn(running.drained());
        let _ = idle_connection.await.expect("no panic"); // so the drain has begun
        assert_eq!(held_replies.open(), 1, "the answer is still wanted");
        assert_eq!(asked.await.expect("no panic"), "given");
        let _ = connection.await.expect("no panic");
        drained.await.expect("no panic").expect("it ends well")
    });
    assert_eq!(drain, Drain::new(1, 0, 0));
}

#[test]
fn the_deadline_cuts_streams_and_counts_them() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    let runtime = client_runtime();
    let drain = runtime.block_on(async {
        let (sender, _connection) = connect(addr).await;
        for _ in 0..3 {
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request(Method::GET, "/", "")).await });
        }
        held_replies.asked.acquire_many(3).await.expect("it is not closed").forget();
        tokio::task::spawn_blocking(move || running.shutdown_within(Duration::from_millis(50))).await
    });
    assert_eq!(drain.expect("no panic").expect("it ends"), Drain::new(0, 3, 0));
}
