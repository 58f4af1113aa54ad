//! `page`: a small HTML page that is delayed for some requests, as in the published comparison of thread pools and async
//! servers.
//!
//! The delay is an [`Answer::Later`]. It blocks a worker of a thread pool, but not an async server. The page comes from memory,
//! or is read from a file for each request, as published, by a pool of threads: then every answer is `Later`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use polyserve::files::{MAX_CONTENT, read_bounded};
use polyserve::http::header::RETRY_AFTER;
use polyserve::http::{HeaderValue, StatusCode};
use polyserve::serving::executor::PoolConfig;
use polyserve::threadpool::MpscPool;
use polyserve::{Answer, Body, Executor, Head, Job, Reply, Request, Service, get_only, promise, timer};

/// The service that answers `GET /` with a page of 176 bytes, or with a file. Every n-th request of the service is delayed.
///
/// ```
/// use polyserve::{Running, Server, ServerExt};
/// use polyserve_bench::services::Page;
/// use std::time::Duration;
/// fn serve(server: &dyn Server) -> std::io::Result<Running> {
///     server.serve("127.0.0.1:0", Page::new(10, Duration::from_secs(2)))
/// }
/// ```
#[derive(Debug)]
pub struct Page {
    every: u64,
    wait: Duration,
    served: AtomicU64,
    source: PageContent,
}

/// Where the page is.
#[derive(Clone, Debug)]
enum PageContent {
    Memory,
    File(Arc<MpscPool>, Arc<Path>),
}

impl Page {
    /// The bytes of the page in memory. The published page has as many.
    pub(crate) const BODY: &'static [u8; 176] = PAGE;
    /// The number of threads that read the file.
    pub(crate) const READERS: usize = 4;
    /// The max number of requests that wait for a reading thread. Another one is answered with 503.
    pub(crate) const READ_QUEUE: usize = 1024;

    /// Creates a service that delays every `every`-th request by `wait`. If `every` is 0, it delays none.
    pub fn new(every: u64, wait: Duration) -> Self {
        Self { every, wait, served: AtomicU64::new(0), source: PageContent::Memory }
    }

    /// Answers with the content of a file, which is read for each request after the wait.
    ///
    /// If a later read fails, the request is answered with 500. If `READ_QUEUE` requests wait, another one is
    /// answered with 503.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read now, or if a reading thread cannot be started.
    ///
    /// # Cost
    ///
    /// `READERS` threads. They end once the service is dropped.
    ///
    /// ```
    /// use polyserve_bench::services::Page;
    /// let missing = std::env::temp_dir().join("no such page");
    /// assert!(Page::default().from_file(missing).is_err());
    /// ```
    pub fn from_file(self, path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        read_bounded(&path, MAX_CONTENT)?;
        let readers = PoolConfig::new(Self::READERS).queue(Self::READ_QUEUE).name("polyserve-read");
        Ok(Self { source: PageContent::File(Arc::new(MpscPool::new(readers)?), path.into()), ..self })
    }
}

impl Default for Page {
    /// Delays every 10th request by 2 s, as published.
    fn default() -> Self {
        Self::new(10, Duration::from_secs(2))
    }
}

const MEDIA_TYPE: &str = "text/html; charset=utf-8";

const PAGE: &[u8; 176] =
    b"<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>The page.</title></head>\n\
<body>\n<h1>A small page</h1>\n<p>Every tenth one waits a while.</p>\n</body>\n</html>\n";

impl Service for Page {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        if let Some(refusal) = get_only(&request.head, "/") {
            return Answer::Now(refusal);
        }
        let nth = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        if self.every > 0 && nth.is_multiple_of(self.every) {
            let source = self.source.clone();
            timer::after(self.wait).then(move |()| source.page())
        } else {
            self.source.page()
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        get_only(head, "/")
    }
}

impl PageContent {
    fn page(&self) -> Answer<Reply> {
        match self {
            Self::Memory => Answer::Now(Reply::new(StatusCode::OK, MEDIA_TYPE, Body::Static(PAGE))),
            Self::File(readers, path) => {
                let (completer, answer) = promise(unread());
                let path = Arc::clone(path);
                let read = Job::new(move || {
                    if !completer.is_abandoned() {
                        let _ = completer.complete(read(&path)); // the answer may have been abandoned
                    }
                });
                if readers.execute(read).is_ok() { answer } else { Answer::Now(full()) }
            }
        }
    }
}

/// The first failed read is logged. A line for each would fill a disk.
static FAILED: Once = Once::new();

/// The answer with the content of a file.
fn read(path: &Path) -> Reply {
    match read_bounded(path, MAX_CONTENT) {
        Ok(content) => Reply::new(StatusCode::OK, MEDIA_TYPE, Body::Owned(content)),
        Err(error) => {
            FAILED.call_once(|| tracing::warn!(%error, "the file of the page cannot be read"));
            unread()
        }
    }
}

fn unread() -> Reply {
    Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The file of the page cannot be read.")
}

/// The answer if the queue of the reading threads is full.
fn full() -> Reply {
    Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Too many requests wait for the file to be read.")
        .with_field(RETRY_AFTER, HeaderValue::from_static("1"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[test]
    fn a_file_is_read_for_each_request() {
        let path = std::env::temp_dir().join(format!("polyserve-page-{}.html", std::process::id()));
        fs::write(&path, "one").unwrap();
        let page = Page::new(2, Duration::from_millis(1)).from_file(&path).unwrap();
        let get = || {
            let answer = page.source.page();
            assert!(!answer.is_now(), "a read does not happen in the call");
            answer.wait()
        };
        assert_eq!(get().body_bytes(&[]), b"one");
        fs::write(&path, "two").unwrap();
        assert_eq!(get().body_bytes(&[]), b"two");
        fs::remove_file(&path).unwrap();
        assert_eq!(get().status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(Page::default().from_file(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "three").unwrap();
        assert_eq!(get().body_bytes(&[]), b"three", "the threads go on after a failed read");
        fs::remove_file(&path).unwrap();
    }

    /// Returns a pool of one thread, which is busy until the sender is dropped.
    fn busy_readers(queue: usize) -> (MpscPool, Sender<()>) {
        let readers = MpscPool::new(PoolConfig::new(1).queue(queue)).unwrap();
        let (running, has_begun) = channel();
        let (go_on, may_go_on) = channel();
        let wait = Job::new(move || {
            running.send(()).unwrap();
            let _ = may_go_on.recv();
        });
        readers.execute(wait).unwrap();
        has_begun.recv().unwrap();
        (readers, go_on)
    }

    #[test]
    fn no_file_is_read_for_an_abandoned_answer() {
        // A pipe without a writer: its reader would wait.
        let path = std::env::temp_dir().join(format!("polyserve-page-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (readers, go_on) = busy_readers(2);
        let readers = Arc::new(readers);
        drop(PageContent::File(Arc::clone(&readers), path.as_path().into()).page());
        let (sender, ran) = channel();
        readers.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
        drop(go_on);
        let is_skipped = ran.recv_timeout(Duration::from_secs(10)).is_ok();
        if !is_skipped {
            drop(fs::OpenOptions::new().write(true).open(&path)); // so that the thread ends
        }
        fs::remove_file(&path).unwrap();
        assert!(is_skipped, "it is read");
    }

    #[test]
    fn a_full_queue_is_a_503_with_a_time_to_come_back() {
        let (readers, go_on) = busy_readers(1);
        readers.execute(Job::new(|| {})).unwrap();
        let source = PageContent::File(Arc::new(readers), Path::new("any").into());
        let answer = source.page();
        assert!(answer.is_now());
        let full = answer.wait();
        drop(go_on);
        let retry_after = HeaderValue::from_static("1");
        assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(full.headers().next(), Some((&RETRY_AFTER, &retry_after)));
    }
}
