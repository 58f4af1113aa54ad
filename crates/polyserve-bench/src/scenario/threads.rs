//! The threads of the clients.

use std::sync::RwLock;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, bail};
use polyserve::sync::{read, write};

/// The number of connections that check the final state, or fill a store.
pub(super) const CHECK_CONNECTIONS: usize = 8;

/// The stack of a client's thread, which formats requests and parses answers only.
pub(super) const STACK: usize = 256 * 1024;

/// Runs each of `works` on a thread of its own. All start at the same instant.
pub(super) fn together<T, W>(works: impl Iterator<Item = W>) -> anyhow::Result<Vec<T>>
where
    W: FnOnce(Instant) -> T + Send,
    T: Send,
{
    // Locked for writing until all threads are started. `None` if one could not be started: then no thread works.
    let gate = RwLock::new(None);
    thread::scope(|scope| {
        let mut closed = write(&gate);
        let mut threads = Vec::new();
        let mut failed = None;
        for work in works {
            let gate = &gate;
            let body = move || {
                let start = *read(gate);
                start.map(work)
            };
            match thread::Builder::new().name("client".into()).stack_size(STACK).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let count = threads.len();
        if let Some(error) = failed {
            drop(closed);
            return Err(error).with_context(|| format!("no more than {count} client threads can be started"));
        }
        *closed = Some(Instant::now());
        drop(closed);
        let mut results = Vec::with_capacity(count);
        for thread in threads {
            match thread.join() {
                Ok(result) => results.extend(result),
                Err(panic) => bail!("a client panicked: {}", polyserve::panics::panic_text(panic.as_ref())),
            }
        }
        Ok(results)
    })
}
