//! The socket of a connection, with flaws in reading and writing.

use std::io;
use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_serving::blocking::{Read, ReadWait, ThreadConnection, ThreadSocket, Transport};
use polyserve_serving::http1::Phase;
use polyserve_serving::{TableEntry, net};

use super::run::{FlawedRun, TICK};
use super::{Flaw, canned};

pub(super) struct FlawedSocket<'a> {
    inner: ThreadSocket<'a, ()>,
    entry: &'a TableEntry<ThreadConnection>,
    run: &'a FlawedRun,
    flaw: Flaw,
    has_answered: bool,
    /// Bytes that count as sent.
    buffered: Vec<u8>,
    /// The last wait for bytes.
    waited: Option<ReadWait>,
    /// When the first body began.
    first_body: Option<Instant>,
    /// While it is locked, no other connection is served.
    exclusive: Option<MutexGuard<'a, ()>>,
}

impl<'a> FlawedSocket<'a> {
    pub(super) fn new(entry: &'a TableEntry<ThreadConnection>, run: &'a FlawedRun, flaw: Flaw) -> Self {
        let inner = ThreadSocket::new(entry, &run.table, &());
        let (has_answered, buffered, waited, first_body, exclusive) = (false, Vec::new(), None, None, None);
        Self { inner, entry, run, flaw, has_answered, buffered, waited, first_body, exclusive }
    }

    fn is_draining(&self) -> bool {
        self.run.table.server.shutdown.is_begun()
    }

    fn deadline(&mut self, phase: Phase, deadline: Instant) -> Instant {
        let config = &self.run.table.server.config;
        match (self.flaw, phase) {
            // The next byte may be late on a busy machine.
            (Flaw::ResetsTimeoutOnEachByte | Flaw::ServesOneAndResetsTimeoutOnEachByte, Phase::Head) => {
                Instant::now() + 10 * config.head_timeout
            }
            (Flaw::TimesAllBodiesTogether, Phase::Body) => {
                *self.first_body.get_or_insert_with(Instant::now) + config.body_timeout
            }
            _ => deadline,
        }
    }

    /// Waits for the accept loop to close this connection. A client waits for longer than this, so it sees an answer that follows.
    fn wait_until_evicted(&self) {
        let deadline = Instant::now() + Duration::from_secs(3);
        let is_closed = || matches!(rustix::net::recv(self.entry.handle().as_ref(), &mut [0], PEEK), Ok((0, _)));
        while !is_closed() && Instant::now() < deadline {
            thread::sleep(TICK);
        }
    }

    /// Returns what the flaw makes of a read.
    fn after_read(&mut self, buffer: &mut [u8], read: Read) -> io::Result<Read> {
        let Some(ReadWait { phase, until, .. }) = self.waited else { return Ok(read) };
        let (is_idle, is_late) = (phase.may_close(), Instant::now() >= until);
        match (self.flaw, &read) {
            (Flaw::ChecksTimeoutsBeforeReading, Read::Bytes(_)) if is_late => return Ok(Read::Empty),
            (Flaw::StopsAcceptingAfterAnEmptyConnection, Read::End) if phase == Phase::FirstByte => {
                self.run.is_stopped.store(true, Ordering::SeqCst);
            }
            (Flaw::AnswersIdleTimeouts, Read::Empty) if is_idle && is_late => {
                let _ = net::send(self.entry.handle().as_ref(), b"HTTP/1.1 408 Request Timeout\r\n\r\n", false);
            }
            (Flaw::TimesAllBodiesTogether, Read::Empty) if phase == Phase::Body => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            (Flaw::DoesNotDrain, _) if self.is_draining() => return Err(io::ErrorKind::ConnectionAborted.into()),
            (Flaw::EvictsBeforeReading, Read::Bytes(_)) if is_idle && self.has_answered => self.wait_until_evicted(),
            (Flaw::BlocksOthersDuringARequest | Flaw::ServesWholePipelines, Read::Bytes(_))
                if self.exclusive.is_none() =>
            {
                self.exclusive = Some(lock(&self.run.one_at_a_time));
            }
            _ => {}
        }
        let Read::Bytes(count) = read else { return Ok(read) };
        let bytes = canned::request(self.flaw, &buffer[..count]);
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(Read::Bytes(count))
    }
}

impl Transport for FlawedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8], wait: ReadWait) -> io::Result<Read> {
        let phase = wait.phase;
        let wait = ReadWait { until: self.deadline(phase, wait.until), ..wait };
        self.waited = Some(wait);
        if phase.may_close() {
            self.exclusive = None;
        }
        match self.flaw {
            Flaw::ClosesAfterEveryAnswer
            | Flaw::EndsBodiesWithTheConnection
            | Flaw::AnswersInHttp10
            | Flaw::EndsBodiesOfHttp10WithTheConnection
                if self.has_answered =>
            {
                return Ok(Read::Leave);
            }
            Flaw::DrainsRefusedBodies if phase == Phase::Skip => loop {
                match net::receive(self.entry.handle().as_ref(), buffer) {
                    Ok(0) => return Ok(Read::End),
                    Ok(count) => return Ok(Read::Bytes(count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TICK),
                    Err(error) => return Err(error),
                }
            },
            Flaw::DrainsWithoutAGrace if phase == Phase::FirstByte => loop {
                match self.inner.read_now(buffer)? {
                    Read::Empty if self.is_draining() => return Ok(Read::Leave),
                    Read::Empty if Instant::now() < wait.until => thread::sleep(TICK / 20),
                    read => return Ok(read),
                }
            },
            Flaw::BuffersWithoutLimit => {
                let buffered = std::mem::take(&mut self.buffered);
                self.inner.write(&buffered, false, &|_| Instant::now() + Duration::from_secs(60));
            }
            _ => {}
        }
        let read = self.inner.read(buffer, wait)?;
        self.after_read(buffer, read)
    }

    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        let read = self.inner.read_now(buffer)?;
        self.after_read(buffer, read)
    }

    fn is_evicted(&self) -> bool {
        self.inner.is_evicted()
    }

    fn leave(&mut self, buffer: &mut [u8]) {
        self.inner.leave(buffer);
    }

    fn write_some(&mut self, bytes: &[u8], last: bool, until: Option<Instant>) -> io::Result<usize> {
        self.inner.write_some(bytes, last, until)
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize {
        let draining = self.is_draining();
        let is_kept = bytes.starts_with(b"HTTP/1.1 100")
            || self.flaw == Flaw::EndsBodiesWithTheConnection && bytes.starts_with(b"HTTP/1.1 204");
        self.has_answered |= !is_kept;
        match self.flaw {
            Flaw::LosesBytesOnAShortWrite | Flaw::BuffersWithoutLimit => {
                self.buffered.extend(bytes);
                let sent = net::send(self.entry.handle().as_ref(), &self.buffered, false).unwrap_or(0);
                self.buffered.drain(..sent);
                if self.flaw == Flaw::LosesBytesOnAShortWrite {
                    self.buffered.clear();
                }
                return bytes.len();
            }
            Flaw::DoesNotDrain if draining => return 0,
            Flaw::SendsHalfAnswersInTheDrain if draining => {
                return self.inner.write(&bytes[..bytes.len() / 2], false, deadline);
            }
            Flaw::DrainsOneAnswer if draining => {
                let first = canned::answers(bytes).first().map_or(0, |answer| answer.len());
                return self.inner.write(&bytes[..first], last, deadline);
            }
            // The client may have closed its side a moment ago.
            Flaw::ClosesOnHalfClose => {
                thread::sleep(TICK / 2);
                if matches!(rustix::net::recv(self.entry.handle().as_ref(), &mut [0], PEEK), Ok((0, _))) {
                    return 0;
                }
            }
            Flaw::AnswersOneByOne => {
                return canned::answers(bytes).into_iter().fold(0, |sent, answer| {
                    thread::sleep(TICK / 20);
                    sent + self.inner.write(answer, last, deadline)
                });
            }
            Flaw::ExtendsWritesOnProgress => {
                let mut sent = 0;
                loop {
                    // The next bytes may be late.
                    let longer = |unsent| {
                        let now = Instant::now();
                        now + 10 * deadline(unsent).saturating_duration_since(now)
                    };
                    let more = self.inner.write(&bytes[sent..], last, &longer);
                    sent += more;
                    if sent == bytes.len() || more == 0 {
                        return sent;
                    }
                }
            }
            _ => {}
        }
        let Some(answer) = canned::answer(self.flaw, bytes, &self.run.start_date, draining) else { return 0 };
        if self.inner.write(&answer, last, deadline) == answer.len() { bytes.len() } else { 0 }
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.inner.peer()
    }

    fn others_wait(&self) -> bool {
        let is_awaited = self.run.makes_room.load(Ordering::SeqCst);
        self.inner.others_wait() || is_awaited && self.flaw != Flaw::AnswersAllBeforeItMakesRoom
    }

    fn about_to_wait(&mut self) {
        self.inner.about_to_wait();
    }
}

const PEEK: rustix::net::RecvFlags = rustix::net::RecvFlags::PEEK.union(rustix::net::RecvFlags::DONTWAIT);
