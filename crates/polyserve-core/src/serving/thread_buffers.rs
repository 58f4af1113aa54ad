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

    /// Tells the scratch the time and the server's state; to be called before bytes are received.
    pub fn refresh(&mut self, server: &ServerState) {
        self.scratch.refresh(SystemTime::now(), server.shutdown.is_begun());
    }
}
