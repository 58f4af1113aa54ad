//! `null_accept`: one thread that accepts, receives, sends and closes, and blocks in each. The limit of a connection for
//! each request.
//!
//! What the first `recv` brings is taken for one request, whatever it is; the answer says `Connection: close`. There is
//! no readiness to ask for. `workers` is 1, `requests_per_connection` 0 or 1, and means 1; the timeouts and limits are
//! not looked at, so a client that stays silent holds up the others until it speaks or goes. A shutdown ends that too:
//! the reading side of the one open connection is closed, so that what had come is still answered.
//!
//! Cost: `accept4`, `recvfrom`, `sendto`, `close`, each once for a connection, and a lock that nobody else wants before
//! the shutdown.
//!
//! *Wins when* it is the limit that is asked for. *Loses when* a connection is kept.

use std::io::{self, Read as _, Write as _};
use std::net::{self, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::net::{is_connection_error, listen};
use polyserve::sync::{read, write};
use polyserve::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, Shutdown};

use super::answer::{Answers, Clock};
use super::validate;

/// The limit of a connection for each request. It ignores its service.
#[derive(Clone, Debug)]
pub struct NullAccept {
    config: ServerConfig,
}

impl NullAccept {
    /// One that honours the address's side of `config`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, more than one worker is asked for, or more than one request on a connection.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        validate("null_accept", &config)?;
        Ok(Self { config })
    }
}

impl Server for NullAccept {
    fn connections(&self) -> Connections {
        Connections::One
    }

    fn serve(&self, addr: SocketAddr, _service: Arc<dyn Service>) -> io::Result<Running> {
        let door = Arc::new(Door { listener: listen(addr, &self.config)?, guest: RwLock::default() });
        let local_addr = door.listener.local_addr()?;
        let shutdown = Shutdown::new();
        let answers = Answers::new(true, Clock::start(&shutdown)?);
        let (closed, ends) = (Arc::downgrade(&door), shutdown.clone());
        shutdown.on_begin(move || closed.upgrade().iter().for_each(|door| door.close()));
        let running = Running::start("null_accept", local_addr, self.config.drain_grace, shutdown.clone(), move || {
            run(&door, answers, &ends)
        });
        running.inspect_err(|_| shutdown.begin(Instant::now())) // the clock ends with it
    }
}

/// The sockets that the thread may block in, where a shutdown reaches them.
struct Door {
    listener: TcpListener,
    guest: RwLock<Option<TcpStream>>,
}

impl Door {
    /// Wakes whoever blocks in `accept` or in `recv`; from now on both return at once.
    fn close(&self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(net::Shutdown::Both);
        if let Some(guest) = &*read(&self.guest) {
            let _ = guest.shutdown(net::Shutdown::Read);
        }
    }
}

/// How long `accept` rests when the system has no descriptor or memory left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

fn run(door: &Door, mut answers: Answers, shutdown: &Shutdown) -> Drain {
    let mut input = vec![0; 64 * 1024];
    let mut answered = 0;
    while !shutdown.is_begun() {
        match door.listener.accept() {
            Ok((guest, _)) => {
                *write(&door.guest) = Some(guest);
                answered += u64::from(serve(door, &mut answers, &mut input, shutdown));
                drop(write(&door.guest).take());
            }
            Err(error) if is_connection_error(&error) || shutdown.is_begun() => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
        }
    }
    answers.end();
    Drain { answered, cut: 0, stuck: 0 }
}

/// Serves the guest; whether it was answered.
fn serve(door: &Door, answers: &mut Answers, input: &mut [u8], shutdown: &Shutdown) -> bool {
    let guest = read(&door.guest);
    let Some(mut guest) = guest.as_ref() else { return false };
    // A shutdown that had begun before it saw this guest would not wake this thread.
    if shutdown.is_begun() {
        let _ = guest.shutdown(net::Shutdown::Read);
    }
    let came = guest.read(input).is_ok_and(|count| count > 0);
    came && guest.write_all(answers.take(1)).is_ok()
}
