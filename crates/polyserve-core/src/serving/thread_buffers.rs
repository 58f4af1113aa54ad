//! What a thread has at hand while it serves connections.

use std::time::SystemTime;

use super::ServerState;
use crate::http1::Scratch;

/// One thread's buffers.
#[derive(Debug)]
pub struct ThreadBuffers {
    /// Where bytes are read to.
    pub input: Box<[u8]>,
    /// Where answers are written to.
    pub scratch: Scratch,
}

/// Bytes read at once. Large enough for a pipeline of a hundred small requests.
const INPUT: usize = 32 * 1024;

impl Default for ThreadBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadBuffers {
    /// Fresh buffers: 32 KiB to read to.
    pub fn new() -> Self {
        Self { input: vec![0; INPUT].into_boxed_slice(), scratch: Scratch::new() }
    }

    /// Sets the time for the `Date` header. Answers carry `Connection: close` while the server is draining. To be called
    /// before each batch of [`Session::receive`](crate::http1::Session::receive) and its like.
    pub fn refresh(&mut self, server: &ServerState) {
        self.refresh_closing(server, false);
    }

    /// Like [`refresh`](Self::refresh), but answers also carry `Connection: close` if `others_wait`: other connections
    /// wait for this thread. See [`Scratch::refresh`].
    pub fn refresh_closing(&mut self, server: &ServerState, others_wait: bool) {
        self.scratch.refresh(SystemTime::now(), others_wait || server.shutdown.is_begun());
    }
}
