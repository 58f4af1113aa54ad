//! A connection to an engine that is slow.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A port of the loopback address that passes connections to another port. What comes back is late by a time that can be
/// set. Its threads end with the process.
#[derive(Debug)]
pub struct SlowPort {
    port: u16,
    delay_ms: Arc<AtomicU64>,
}

impl SlowPort {
    /// Listens. The delay is zero.
    ///
    /// # Panics
    ///
    /// Panics if no port is free.
    pub fn new(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = Arc::clone(&delay_ms);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A target that is gone closes the connection.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) {
                    pass(client, server, Arc::clone(&delay));
                }
            }
        });
        Self { port, delay_ms }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the time by which everything that comes back from now on is late.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).expect("a delay is short"), Relaxed);
    }
}

/// Starts the threads of a connection.
fn pass(client: TcpStream, server: TcpStream, delay_ms: Arc<AtomicU64>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
    let (mut requests, mut to_server) = (clone(&client), clone(&server));
    let (mut answers, mut to_client) = (server, client);
    thread::spawn(move || {
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1_024];
        while let Ok(count @ 1..) = answers.read(&mut buffer) {
            let due = Instant::now() + Duration::from_millis(delay_ms.load(Relaxed));
            if sender.send((due, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to_client.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
