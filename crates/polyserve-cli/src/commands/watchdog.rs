//! The watchdog of systemd (`WatchdogSec`): systemd ends a service that does not report in time, and starts it again.
//!
//! A report proves that the server serves, and not only that the process lives: since the report before, a client has got an answer, or
//! a request of the watchdog's own has. That request comes in through the listener, as those of clients do, and asks neither the service nor
//! the store, of which the errors are no reason for a restart. A refusal is an answer too: a limit, a policy for overload or used up memory
//! are no reason either.
//!
//! Invariant: a wait has a time limit, so a server that hangs cannot hold the watchdog, and is not reported. In a drain every report is
//! sent, because the drain has an end of its own. Cost: a thread. On an idle server, a connection for each report; with other requests
//! none, but a comparison of each target. Without a watchdog nothing.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polyserve::{Answer, Counters, Head, Reply, Request, Running, Service};
use polyserve_load::ClientTls;
use rustls::ClientConnection;
use sd_notify::NotifyState;

use super::systemd::notify;

/// The service is reported this number of times within the limit, so that one attempt may fail.
const REPORTS: u32 = 3;
/// The time limit of a request is this part of the limit of the watchdog.
const REQUEST_SHARE: u32 = 4;
/// The min time between two attempts. A limit that is shorter is a mistake, and must not take a core.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// The watchdog that systemd has asked for.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    limit: Duration,
    /// The path of its own requests. No client knows it.
    path: Arc<str>,
    is_ending: Arc<AtomicBool>,
}

impl Watchdog {
    /// Returns the watchdog, if systemd asks for one. As systemd reads it, a limit of zero is none.
    pub(crate) fn from_env() -> Option<Self> {
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = format!("/watchdog-{}-{}", std::process::id(), now.as_nanos()).into();
        Some(Self { limit, path, is_ending: Arc::default() })
    }

    /// Returns the service, with an answer to the requests of the watchdog.
    pub(crate) fn over(&self, service: Arc<dyn Service>) -> Arc<dyn Service> {
        Arc::new(WatchedService { path: Arc::clone(&self.path), service })
    }

    /// Reports that `running` serves, from now on.
    pub(crate) fn start(&self, running: &Running, is_tls: bool) {
        let probe = ServerProbe { addr: reachable(running.local_addr()), path: Arc::clone(&self.path), is_tls };
        let (counters, limit, is_ending) = (running.counter_source(), self.limit, Arc::clone(&self.is_ending));
        let report = move || {
            let mut served = None;
            loop {
                let now_served = served_by_workers(&counters.get());
                let is_served = served != Some(now_served) || is_ending.load(Ordering::Relaxed);
                let serves = if is_served { Ok(()) } else { probe.ask(limit / REQUEST_SHARE) };
                let pause = match serves {
                    Ok(()) => {
                        notify(&NotifyState::Watchdog);
                        limit / REPORTS
                    }
                    Err(_) if is_ending.load(Ordering::Relaxed) => MIN_PAUSE,
                    Err(error) => {
                        tracing::warn!(%error, "the server does not answer, so systemd is not told that it is alive");
                        limit / 20
                    }
                };
                // An answer to the watchdog is no answer to a client.
                served = Some(served_by_workers(&counters.get()));
                thread::sleep(pause.max(MIN_PAUSE));
            }
        };
        if let Err(error) = thread::Builder::new().name("polyserve-watchdog".into()).spawn(report) {
            tracing::warn!(%error, "systemd is not told that the process is alive");
        }
    }

    /// The end of the server has begun.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}

/// The number of answers that workers have made. The 503 to a connection that finds the server full does not need one.
fn served_by_workers(counters: &Counters) -> u64 {
    counters.answered.saturating_sub(counters.rejected)
}

/// The service with an answer to the watchdog.
struct WatchedService {
    path: Arc<str>,
    service: Arc<dyn Service>,
}

impl Service for WatchedService {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.target == &*self.path {
            return Answer::Now(Reply::text("served"));
        }
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }

    fn sees_peers(&self) -> bool {
        self.service.sees_peers()
    }
}

/// A request to the server itself.
struct ServerProbe {
    addr: SocketAddr,
    path: Arc<str>,
    is_tls: bool,
}

impl ServerProbe {
    /// Sends the request on a new connection, and waits for the answer, whatever its status.
    ///
    /// With TLS, the request is the start of a handshake: the certificate of the server may have ended, and it may ask for one. The start
    /// of the server's part, or an alert, is the answer.
    fn ask(&self, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        let mut stream = TcpStream::connect_timeout(&self.addr, limit)?;
        stream.set_write_timeout(Some(limit))?;
        stream.write_all(&self.request()?)?;
        let (mut answer, mut length) = ([0; MAX_ANSWER], 0);
        // An answer of HTTP is read to its end: the server has counted it then, and it is not taken for that of a client.
        while !(self.is_tls && length > 0) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(answer.get_mut(length..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock || length > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let answer = answer.get(..length).unwrap_or_default();
        match answer {
            [] => Err(io::Error::other("it sends nothing in time")),
            [TLS_ALERT | TLS_HANDSHAKE, ..] if self.is_tls => Ok(()),
            _ if !self.is_tls && answer.starts_with(b"HTTP/1.") => Ok(()),
            _ => Err(io::Error::other(format!("it answers {}", answer.escape_ascii()))),
        }
    }

    /// The bytes of the request.
    fn request(&self) -> io::Result<Vec<u8>> {
        if !self.is_tls {
            return Ok(
                format!("GET {} HTTP/1.1\r\nHost: watchdog\r\nConnection: close\r\n\r\n", self.path).into_bytes()
            );
        }
        let tls = ClientTls::insecure("watchdog").map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(tls.config()), tls.server_name().clone());
        let mut hello = Vec::new();
        session.map_err(io::Error::other)?.write_tls(&mut hello)?;
        Ok(hello)
    }
}

/// The types of records with an alert, and with a part of a handshake (RFC 8446, 5.1).
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;

/// The max number of bytes of an answer that are read.
const MAX_ANSWER: usize = 1024;

/// Returns an address at which this machine reaches a listener. That of all its addresses is none to connect to.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_all_addresses_is_reached_by_loopback() {
        let reached = |addr: &str| reachable(addr.parse().expect("an address")).to_string();
        assert_eq!(reached("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(reached("[::]:80"), "[::1]:80");
        assert_eq!(reached("192.0.2.1:80"), "192.0.2.1:80");
    }
}
