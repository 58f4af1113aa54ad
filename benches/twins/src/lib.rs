//! The parts that the twins of published listings share: the command line, and the first and the last line of output.
//! The listings themselves are in `src/bin`, one program each. The header of each program names its
//! deviations from the listing.
//!
//! Every server here deviates in the same three ways, because the instrument starts it, finds its address and checks
//! its count of answers: it takes its settings from flags, it prints its address as the first line and
//! `{"answered":N,"cut":0,"stuck":0}` as the last one, and it counts its answers (an atomic addition).
#![forbid(unsafe_code)]

pub mod page;
pub mod pool;

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// The command line of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// The size of the pool.
    pub workers: usize,
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    until_stdin_ends: bool,
}

impl Args {
    /// Reads the command line: `--workers N`, `--listen ADDR` and `--until-stdin-ends`. `other` is called with each
    /// other flag and its value. It returns whether the value is valid, or `None` if the flag is unknown.
    ///
    /// # Errors
    ///
    /// Returns an error that ends in `usage` if the command line is invalid.
    pub fn read(usage: &str, other: impl FnMut(&str, &str) -> Option<bool>) -> io::Result<Self> {
        let parsed = Self::parse(std::env::args().skip(1), other);
        parsed.map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, format!("{wrong}; usage: {usage}")))
    }

    fn parse(
        words: impl Iterator<Item = String>,
        mut other: impl FnMut(&str, &str) -> Option<bool>,
    ) -> Result<Self, String> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self { workers, listen: SocketAddr::from(([127, 0, 0, 1], 0)), until_stdin_ends: false };
        let mut words = words.flat_map(|word| match word.split_once('=') {
            Some((flag, value)) => vec![flag.to_owned(), value.to_owned()],
            None => vec![word],
        });
        while let Some(flag) = words.next() {
            if flag == "--until-stdin-ends" {
                args.until_stdin_ends = true;
                continue;
            }
            let value = words.next().unwrap_or_default();
            let is_valid = match flag.as_str() {
                "--workers" => {
                    let workers = value.parse().ok().filter(|count| (1..=1024).contains(count));
                    args.workers = workers.unwrap_or(args.workers);
                    workers.is_some()
                }
                "--listen" => {
                    let listen = value.parse();
                    args.listen = listen.clone().unwrap_or(args.listen);
                    listen.is_ok()
                }
                _ => other(&flag, &value).ok_or_else(|| format!("{flag:?} is not known"))?,
            };
            if !is_valid {
                return Err(format!("{flag} cannot be {value:?}"));
            }
        }
        Ok(args)
    }

    /// Calls `end` once, at the first SIGINT or SIGTERM, or at the end of standard input with `--until-stdin-ends`.
    ///
    /// # Errors
    ///
    /// Returns an error if signals cannot be handled.
    pub fn at_end(&self, end: impl Fn() + Clone + Send + 'static) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let at_signal = end.clone();
        thread::spawn(move || signals.forever().take(1).for_each(|_| at_signal()));
        if self.until_stdin_ends {
            thread::spawn(move || {
                while io::stdin().read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
                end();
            });
        }
        Ok(())
    }

    /// Ends the process at a signal or at the end of standard input. A listing without a shutdown uses this.
    ///
    /// # Errors
    ///
    /// Returns an error if signals cannot be handled.
    pub fn exit_at_end(&self) -> io::Result<()> {
        self.at_end(|| {
            let _ = print_counts(&mut io::stdout()); // standard output may be closed
            std::process::exit(0);
        })
    }
}

/// Prints the first line: the address.
///
/// # Errors
///
/// Returns an error if `out` cannot be written.
pub fn announce(out: &mut impl io::Write, addr: SocketAddr) -> io::Result<()> {
    writeln!(out, "listening on http://{addr}")?;
    out.flush()
}

/// Counts an answer. Call it before the connection closes, so that the count includes each connection that a client
/// has seen closed.
pub fn answered() {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
}

/// Prints the last line: the number of answers.
///
/// # Errors
///
/// Returns an error if `out` cannot be written.
pub fn print_counts(out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "{{\"answered\":{},\"cut\":0,\"stuck\":0}}", ANSWERED.load(Ordering::Relaxed))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let parse = |line: &str| {
            let other = |flag: &str, value: &str| (flag == "--print").then_some(!value.is_empty());
            Args::parse(line.split_whitespace().map(str::to_owned), other)
        };
        let args = parse("--workers 3 --listen=127.0.0.1:8001 --until-stdin-ends --print=/dev/null").unwrap();
        assert_eq!((args.workers, args.listen.port(), args.until_stdin_ends), (3, 8001, true));
        for wrong in ["--workers 0", "--workers", "--listen here", "--pool 3", "--print"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
