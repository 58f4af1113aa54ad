//! Clients that ask in a loop.

use std::io;
use std::thread::ScopedJoinHandle;

use super::prelude::*;
use crate::client::ReceiveFailure;

/// Opens connections one after the other, and calls `exchange` on each until it ends, as long as `goes_on`. The server may close a
/// connection between two answers.
///
/// # Errors
///
/// Returns an error if the server accepts no connection.
pub(super) fn reconnecting(
    addr: SocketAddr,
    max_wait: Duration,
    goes_on: impl Fn() -> bool,
    mut exchange: impl FnMut(&mut Client) -> Result<Response, ReceiveFailure>,
) -> io::Result<()> {
    while goes_on() {
        let mut client = Client::connect(addr, max_wait)?;
        while goes_on() {
            match exchange(&mut client) {
                Ok(response) if !response.closes() => {}
                Err(failure) if !failure.is_clean() => panic!("{failure}"),
                Ok(_) | Err(_) => break,
            }
        }
    }
    Ok(())
}

/// Runs `body` while `clients` run, on a thread each, until the flag is set that they get. It is set at the end of `body`, also if that
/// panics.
pub(super) fn besides<T>(
    clients: impl IntoIterator<Item = impl FnOnce(&AtomicBool) + Send>,
    body: impl FnOnce() -> T,
) -> T {
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (set, done) = (SetOnDrop(&done), &done);
        let threads = clients.into_iter().map(|client| scope.spawn(move || client(done)));
        let threads: Vec<ScopedJoinHandle<'_, ()>> = threads.collect();
        let result = body();
        drop(set);
        threads.into_iter().for_each(joined);
        result
    })
}

/// Pipelines requests without a pause until `done`, so that the server always finds more to read. Counts answers. If the server
/// `may_close` the connection, connects again.
pub(super) fn pipeline_without_pause(
    addr: SocketAddr,
    max_wait: Duration,
    may_close: bool,
    done: &AtomicBool,
    answers: &AtomicU64,
) {
    // Long heads cost the server more than the client.
    let batch =
        request("GET", "/", &"X-Name: any value, of which the server reads every byte\r\n".repeat(90)).repeat(50);
    while !done.load(Ordering::SeqCst) {
        let Ok(mut client) = Client::connect(addr, max_wait) else { continue };
        let Ok(mut sender) = client.write_half() else { continue };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst) && sender.send(&batch).is_ok() {}
            });
            while !sending.is_finished() {
                if client.has_input_within(Duration::from_millis(20)) {
                    match client.receive() {
                        Ok(response) if response.status == 200 && !response.closes() => {
                            answers.fetch_add(1, Ordering::SeqCst);
                        }
                        answer => {
                            ended.store(true, Ordering::SeqCst);
                            // The sender may wait for a server that reads no more.
                            let _ = client.half_close();
                            assert!(may_close, "the server ends the connection: {answer:?}\n{}", client.show());
                        }
                    }
                }
            }
        });
        assert!(may_close || done.load(Ordering::SeqCst), "the server does not take what is sent\n{}", client.show());
    }
}
