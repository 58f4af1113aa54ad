//! The threads that read a file for the answers of a service. A read is I/O, so it must not happen in `call`.
//!
//! Invariants: at most `threads` reads run at a time, and at most `queue` wait. An abandoned answer is not read for.
//!
//! Cost: a promise, and a channel of std's `mpsc` behind a lock, for each read. The threads end once the readers are dropped and
//! the queue is empty.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;

use polyserve::{Answer, Completer, promise};

/// What a read results in.
#[derive(Debug)]
pub(super) enum FileRead {
    /// The content.
    Content(Vec<u8>),
    /// The queue was full, so the file was not read.
    Full,
    /// The read failed, or its thread has ended.
    Failed,
}

/// The queue of the reading threads. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FileReaders(SyncSender<Completer<FileRead>>);

impl FileReaders {
    /// Starts `threads` threads that call `read`. At most `queue` reads wait for a thread.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub(super) fn start(
        threads: usize,
        queue: usize,
        read: impl Fn() -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(queue);
        let (receiver, read) = (Arc::new(Mutex::new(receiver)), Arc::new(read));
        for number in 0..threads {
            let (receiver, read) = (Arc::clone(&receiver), Arc::clone(&read));
            let body = move || {
                while let Some(completer) = next(&receiver) {
                    serve(completer, &*read);
                }
            };
            thread::Builder::new().name(format!("polyserve-read-{number}")).spawn(body)?;
        }
        Ok(Self(sender))
    }

    /// Reads the file. The answer is [`Now`](Answer::Now) if the queue is full.
    pub(super) fn read(&self) -> Answer<FileRead> {
        let (completer, answer) = promise(FileRead::Failed);
        match self.0.try_send(completer) {
            Err(TrySendError::Full(_)) => Answer::Now(FileRead::Full),
            // Without a receiver the completer is dropped, which answers `Failed`.
            Ok(()) | Err(TrySendError::Disconnected(_)) => answer,
        }
    }
}

fn next(receiver: &Mutex<Receiver<Completer<FileRead>>>) -> Option<Completer<FileRead>> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// The first failed read is logged. A line for each would fill a disk.
static FAILED: Once = Once::new();

fn serve(completer: Completer<FileRead>, read: &impl Fn() -> io::Result<Vec<u8>>) {
    if completer.is_abandoned() {
        return;
    }
    let result = match read() {
        Ok(content) => FileRead::Content(content),
        Err(error) => {
            FAILED.call_once(|| tracing::warn!(%error, "the file of the page cannot be read"));
            FileRead::Failed
        }
    };
    let _ = completer.complete(result); // the answer may have been abandoned
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Readers with one thread, which announces each read and then waits for its content.
    fn gated(queue: usize) -> (FileReaders, Receiver<()>, std::sync::mpsc::Sender<io::Result<Vec<u8>>>) {
        let (announce, announced) = channel();
        let (content, contents) = channel();
        let contents = Mutex::new(contents);
        let read = move || {
            announce.send(()).unwrap();
            contents.lock().unwrap().recv().unwrap_or_else(|_| Ok(Vec::new()))
        };
        (FileReaders::start(1, queue, read).unwrap(), announced, content)
    }

    #[test]
    fn a_full_queue_is_refused_at_once() {
        let (readers, announced, content) = gated(1);
        let first = readers.read();
        announced.recv().unwrap(); // the thread has taken it from the queue
        let second = readers.read();
        assert!(!first.is_now() && !second.is_now());
        assert!(matches!(readers.read(), Answer::Now(FileRead::Full)));
        for (answer, bytes) in [(first, b"1"), (second, b"2")] {
            content.send(Ok(bytes.to_vec())).unwrap();
            assert!(matches!(answer.wait(), FileRead::Content(content) if content == bytes));
        }
    }

    #[test]
    fn an_error_is_answered_and_the_thread_goes_on() {
        let (readers, _announced, content) = gated(2);
        content.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        assert!(matches!(readers.read().wait(), FileRead::Failed));
        content.send(Ok(b"again".to_vec())).unwrap();
        assert!(matches!(readers.read().wait(), FileRead::Content(content) if content == b"again"));
    }

    #[test]
    fn an_abandoned_answer_is_not_read_for_and_the_threads_end() {
        let (readers, announced, content) = gated(2);
        let first = readers.read();
        announced.recv().unwrap();
        drop(readers.read());
        drop(readers);
        content.send(Ok(Vec::new())).unwrap();
        let _ = first.wait();
        assert!(announced.recv().is_err(), "the thread has ended without a second read");
    }
}
