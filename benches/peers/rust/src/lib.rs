//! The parts that the peers share: the entities in one map behind one lock, the command line, and the start and end of
//! the process. Each framework has its own binary, written as a user of the framework would write it.
//!
//! Invariant: entities are parsed and written like in polyserve's own service, so the answers have the same bytes.
//! Cost: per request a lock and a serialisation, and one allocation for the body of the answer.
#![forbid(unsafe_code)]

pub mod tokio_http1;

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An entity. The fields have the same order as in the answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entity {
    /// The id.
    pub id: i64,
    /// The description.
    pub description: String,
    /// The value.
    pub value: f64,
}

/// The result of a PUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The entity is new. The path of the entity, such as `/1`.
    Created(String),
    /// The entity replaced one with the same id.
    Replaced,
}

/// The entities.
#[derive(Debug, Default)]
pub struct Entities(RwLock<HashMap<i64, Entity>>);

impl Entities {
    /// Returns a store that lives as long as the process.
    pub fn shared() -> &'static Self {
        Box::leak(Box::default())
    }

    /// Returns the entity as JSON, or `None` if the id is not stored.
    pub fn get(&self, id: i64) -> Option<Vec<u8>> {
        let entities = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let entity = entities.get(&id)?;
        let mut json = Vec::with_capacity(64 + entity.description.len());
        serde_json::to_writer(&mut json, entity).ok()?; // an `f64` that was parsed from JSON can be written
        Some(json)
    }

    /// Parses and stores an entity.
    ///
    /// # Errors
    ///
    /// Returns an error if `body` is not an entity.
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
    /// The number of worker threads.
    pub workers: usize,
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The files of a certificate and of its key. Without one, the peer does not speak TLS.
    pub tls: [Option<PathBuf>; 2],
}

const USAGE: &str = "usage: [--workers N] [--listen 127.0.0.1:0] [--tls-cert FILE --tls-key FILE] [--until-stdin-ends]";

impl Args {
    /// Reads the command line. From then on, a SIGINT or SIGTERM ends the process with exit code 0. With
    /// `--until-stdin-ends`, so does the end of standard input. A peer does not drain.
    ///
    /// # Errors
    ///
    /// Returns an error if the command line is invalid, or if signals cannot be handled.
    pub fn read() -> io::Result<Self> {
        let (args, until_stdin_ends) = Self::parse(std::env::args().skip(1))
            .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, format!("{wrong}; {USAGE}")))?;
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".into()).spawn(move || {
            signals.forever().next();
            std::process::exit(0);
        })?;
        if until_stdin_ends {
            thread::Builder::new().name("stdin".into()).spawn(move || {
                while io::stdin().read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
                std::process::exit(0);
            })?;
        }
        Ok(args)
    }

    /// [`read`](Self::read) for a peer that does not speak TLS.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and if there is a certificate or a key.
    pub fn without_tls() -> io::Result<Self> {
        let args = Self::read()?;
        match args.tls {
            [None, None] => Ok(args),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "this peer does not speak TLS")),
        }
    }

    fn parse(words: impl Iterator<Item = String>) -> Result<(Self, bool), String> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self { workers, listen: SocketAddr::from(([127, 0, 0, 1], 0)), tls: [None, None] };
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
                "--tls-cert" | "--tls-key" => {
                    args.tls[usize::from(flag == "--tls-key")] = Some(value.clone().into());
                    true
                }
                _ => return Err(format!("{flag:?} is not known")),
            };
            if !is_valid {
                return Err(format!("{flag} cannot be {value:?}"));
            }
        }
        Ok((args, until_stdin_ends))
    }
}

/// The TLS of a peer with the certificate and the key in these files: HTTP/1.1 by rustls with ring.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or if the key does not belong to the certificate.
fn acceptor([certificate, key]: [Option<PathBuf>; 2]) -> io::Result<Option<TlsAcceptor>> {
    let Some((certificate, key)) = certificate.zip(key) else { return Ok(None) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).map_err(io::Error::other)?.collect();
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let builder = ServerConfig::builder().with_no_client_auth();
    let mut config = builder.with_single_cert(chain.map_err(io::Error::other)?, key).map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Prints that the server listens on `addr`.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub fn announce(addr: SocketAddr) -> io::Result<()> {
    announce_as("http", addr)
}

fn announce_as(scheme: &str, addr: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {scheme}://{addr}")?;
    out.flush()
}

/// Runs a server on tokio: on the current thread for one worker, otherwise on `workers` threads. The server is a
/// spawned task, so the tasks that it spawns start in the local queue of its worker thread.
///
/// # Errors
///
/// Returns an error if the command line is invalid, if the runtime or the listener cannot be created, or if `serve`
/// fails.
pub fn on_tokio<F>(serve: impl FnOnce(TcpListener, Option<TlsAcceptor>) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let Args { workers, listen, tls } = Args::read()?;
    let tls = acceptor(tls)?;
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(workers).enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        announce_as(if tls.is_some() { "https" } else { "http" }, listener.local_addr()?)?;
        tokio::spawn(serve(listener, tls)).await?
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
        let parse = |line: &str| Args::parse(line.split_whitespace().map(str::to_owned));
        let (args, until) = parse("--workers 3 --listen=127.0.0.1:8001 --until-stdin-ends").unwrap();
        assert_eq!((args.workers, args.listen.port(), until), (3, 8001, true));
        for wrong in ["--workers 0", "--workers", "--listen here", "--pool 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
