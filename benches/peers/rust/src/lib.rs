//! What the peers share: the entities in one map behind one lock, the command line, and how they begin and end. What
//! differs is the framework, a binary each; each is written as its users would write it.
//!
//! Invariant: an entity is read and written as polyserve's own service does it, so that the answers are the same bytes.
//! Cost: a lock and a serialisation a request, one allocation for the answer's body.
#![forbid(unsafe_code)]

pub mod page;
pub mod tokio_http1;

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};
use std::thread;

use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An entity. The order of the fields is that of the answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entity {
    /// Its number.
    pub id: i64,
    /// What it is.
    pub description: String,
    /// What it is worth.
    pub value: f64,
}

/// What a PUT has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The entity is new, and found at this path: `/1`.
    Created(String),
    /// It took the place of one with its id.
    Replaced,
}

/// The entities.
#[derive(Debug, Default)]
pub struct Entities(RwLock<HashMap<i64, Entity>>);

impl Entities {
    /// A store for as long as the process lives.
    pub fn shared() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The entity as JSON; `None` where there is none.
    pub fn get(&self, id: i64) -> Option<Vec<u8>> {
        let entities = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let entity = entities.get(&id)?;
        let mut json = Vec::with_capacity(64 + entity.description.len());
        serde_json::to_writer(&mut json, entity).ok()?; // an f64 that was read from JSON can be written
        Some(json)
    }

    /// Stores the entity that `body` is.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn put(&self, body: &[u8]) -> Result<Put, serde_json::Error> {
        let entity: Entity = serde_json::from_slice(body)?;
        let id = entity.id;
        let before = self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, entity);
        Ok(if before.is_none() { Put::Created(format!("/{id}")) } else { Put::Replaced })
    }
}

/// The command line of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Threads that serve.
    pub workers: usize,
    /// Where it listens; port 0 is any that is free.
    pub listen: SocketAddr,
}

const USAGE: &str = "usage: [--workers N] [--listen 127.0.0.1:0] [--until-stdin-ends]";

impl Args {
    /// The command line's. From now on a SIGINT or SIGTERM, or with `--until-stdin-ends` the end of standard input, ends
    /// the process well: a peer promises no drain.
    ///
    /// # Errors
    ///
    /// Where something else is said there, or signals cannot be waited for.
    pub fn read() -> io::Result<Self> {
        Self::read_with(USAGE, |_, _| None, || {})
    }

    /// [`read`](Self::read), with flags of the peer's own. `other` is called with each unknown flag and its value, and returns
    /// whether the value is valid, or `None` if the flag is unknown. `at_end` is called before the process ends well.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_with(usage: &str, other: impl FnMut(&str, &str) -> Option<bool>, at_end: fn()) -> io::Result<Self> {
        let (args, until_stdin_ends) = Self::parse(std::env::args().skip(1), other)
            .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, format!("{wrong}; {usage}")))?;
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".into()).spawn(move || {
            signals.forever().next();
            at_end();
            std::process::exit(0);
        })?;
        if until_stdin_ends {
            thread::Builder::new().name("stdin".into()).spawn(move || {
                while io::stdin().read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
                at_end();
                std::process::exit(0);
            })?;
        }
        Ok(args)
    }

    fn parse(
        words: impl Iterator<Item = String>,
        mut other: impl FnMut(&str, &str) -> Option<bool>,
    ) -> Result<(Self, bool), String> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self { workers, listen: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut until_stdin_ends = false;
        let mut words = words.flat_map(|word| match word.split_once('=') {
            Some((flag, value)) => vec![flag.to_owned(), value.to_owned()],
            None => vec![word],
        });
        while let Some(flag) = words.next() {
            if flag == "--until-stdin-ends" {
                until_stdin_ends = true;
                continue;
            }
            let value = words.next().unwrap_or_default();
            let is_valid = match flag.as_str() {
                "--workers" => match value.parse().ok().filter(|count| (1..=1024).contains(count)) {
                    Some(workers) => {
                        args.workers = workers;
                        true
                    }
                    None => false,
                },
                "--listen" => match value.parse() {
                    Ok(listen) => {
                        args.listen = listen;
                        true
                    }
                    Err(_) => false,
                },
                _ => other(&flag, &value).ok_or_else(|| format!("{flag:?} is not known"))?,
            };
            if !is_valid {
                return Err(format!("{flag} cannot be {value:?}"));
            }
        }
        Ok((args, until_stdin_ends))
    }
}

/// Says that requests to `addr` are answered.
///
/// # Errors
///
/// Where standard output is gone.
pub fn announce(addr: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on http://{addr}")?;
    out.flush()
}

/// Runs a server on tokio: on the current thread for one worker, otherwise on so many threads. It is spawned, so that what
/// it spawns in turn stays with its thread.
///
/// # Errors
///
/// Where the runtime or the listener cannot be had, or `serve` fails.
pub fn on_tokio<F>(serve: impl FnOnce(TcpListener) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let Args { workers, listen } = Args::read()?;
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(workers).enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        announce(listener.local_addr()?)?;
        tokio::spawn(serve(listener)).await?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_the_bytes_that_polyserve_answers() {
        let entities = Entities::default();
        assert_eq!(entities.get(-5), None);
        let body = br#"{"value":60.750847,"id":-5,"description":"a\"b"}"#;
        assert_eq!(entities.put(body).unwrap(), Put::Created("/-5".into()));
        assert_eq!(entities.put(body).unwrap(), Put::Replaced);
        let json = String::from_utf8(entities.get(-5).unwrap()).unwrap();
        assert_eq!(json, r#"{"id":-5,"description":"a\"b","value":60.750847}"#);
        assert!(entities.put(b"{").is_err());
    }

    #[test]
    fn command_lines() {
        let parse = |line: &str| Args::parse(line.split_whitespace().map(str::to_owned), |_, _| None);
        let (args, until) = parse("--workers 3 --listen=127.0.0.1:8001 --until-stdin-ends").unwrap();
        assert_eq!((args.workers, args.listen.port(), until), (3, 8001, true));
        for wrong in ["--workers 0", "--workers", "--listen here", "--pool 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
