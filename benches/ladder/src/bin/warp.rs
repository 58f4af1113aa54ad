//! warp's filters on hyper's connections, for pipelined requests. warp's own server, which the published listing uses, does
//! not set TCP_NODELAY, so every batch of pipelined answers would wait for 40 ms. Therefore this program accepts the
//! connections itself.
//!
//! Two rungs are set by flags and need no separate build. `--without=pipeline_flush` makes hyper send every answer
//! separately. `--without=date_cache` formats a date per answer; by default, hyper formats a date once per second.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, SystemTime};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use polyserve_ladder::{end_with_stdin, say};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use warp::Filter as _;
use warp::http::HeaderValue;
use warp::http::header::{CONTENT_TYPE, DATE, SERVER};
use warp::reply::{Reply as _, Response};

/// hyper's default, which it applies only if a timer is set.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The backlog that Go uses.
const BACKLOG: u32 = 4096;
/// The published answers have a server name of eight letters.
const NAME: HeaderValue = HeaderValue::from_static("warp 0.4");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The command line.
#[derive(Clone, Copy, Debug)]
struct Args {
    workers: usize,
    listen: SocketAddr,
    until_stdin_ends: bool,
    pipeline_flush: bool,
    date_cache: bool,
}

fn main() -> io::Result<()> {
    let args = Args::read(std::env::args().skip(1));
    let args = args.map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong))?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        signals.forever().next();
        std::process::exit(0); // this program does not drain
    })?;
    if args.until_stdin_ends {
        end_with_stdin()?;
    }
    let mut builder = if args.workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(args.workers).enable_all().build()?.block_on(async move {
        let listener = listen(args.listen)?;
        say(&format!("listening on http://{}", listener.local_addr()?))?;
        // The accept loop is a spawned task, so the tasks that it spawns start in the local queue of its worker thread.
        tokio::spawn(serve(listener, args)).await?
    })
}

/// Listens with a backlog for all connections of a load. `TcpListener::bind` sets a backlog of 128, and a client that
/// finds it full retries after a second.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

async fn serve(listener: TcpListener, args: Args) -> io::Result<()> {
    let Args { pipeline_flush, date_cache, .. } = args;
    let mut http1 = http1::Builder::new();
    http1.pipeline_flush(pipeline_flush).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let welcome = warp::path::end().and(warp::get().or(warp::head()).unify()).map(move || welcome(date_cache));
    let service = TowerToHyperService::new(warp::service(welcome));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await; // probably out of file descriptors
            continue;
        };
        let _ = stream.set_nodelay(true); // fails if the client has disconnected
        let connection = http1.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { drop(connection.await) }); // errors concern only this client
    }
}

/// Returns the answer. hyper adds a date if there is none.
fn welcome(date_cache: bool) -> Response {
    let mut response = "Welcome!".into_response();
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(SERVER, NAME);
    if !date_cache && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())) {
        response.headers_mut().insert(DATE, date);
    }
    response
}

impl Args {
    fn read(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut args = Self { workers, listen, until_stdin_ends: false, pipeline_flush: true, date_cache: true };
        for word in words {
            let (flag, value) = word.split_once('=').unwrap_or((&word, ""));
            let wrong = || {
                format!(
                    "{word:?} is not known: [--workers=N] [--listen=ADDR] [--until-stdin-ends] [--without=pipeline_flush] [--without=date_cache]"
                )
            };
            match (flag, value) {
                ("--until-stdin-ends", "") => args.until_stdin_ends = true,
                ("--without", "pipeline_flush") => args.pipeline_flush = false,
                ("--without", "date_cache") => args.date_cache = false,
                ("--listen", addr) => args.listen = addr.parse().map_err(|_| wrong())?,
                ("--workers", count) => {
                    let count = count.parse().ok().filter(|count| (1..=1024).contains(count));
                    args.workers = count.ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        Ok(args)
    }
}
