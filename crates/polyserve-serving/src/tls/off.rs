//! In place of TLS, without the feature: no connection has a session, so the compiler removes what would use it.

use std::time::Instant;

use crate::ServerState;
use crate::http1::Phase;
use crate::memory::MemoryBudget;
use crate::tls::Received;

/// There is none.
#[derive(Debug)]
pub(crate) enum TlsSession {}

/// No buffers.
#[derive(Debug, Default)]
pub(crate) struct TlsBuffers {
    pub(crate) plain: [u8; 0],
}

impl TlsBuffers {
    pub(crate) fn capacity(&self) -> usize {
        0
    }

    pub(crate) fn trim(&mut self, _: usize) {}

    pub(crate) fn clear_plain(&mut self) {}

    pub(crate) fn clear(&mut self) {}
}

impl TlsSession {
    pub(crate) fn new(_: &ServerState) -> Option<Self> {
        None
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_part(&self) -> bool {
        match *self {}
    }

    pub(crate) fn await_request(&mut self, _: bool) {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &mut [u8], _: &mut TlsBuffers, _: &MemoryBudget) -> Received {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _: &[u8], _: &mut TlsBuffers, _: &MemoryBudget) -> bool {
        match *self {}
    }

    pub(crate) fn has_worn_keys(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wait_since(&mut self, _: (u64, Phase), _: Instant) -> Instant {
        match *self {}
    }

    pub(crate) fn note_answers(&mut self, _: u64) {
        match *self {}
    }

    pub(crate) fn end(&mut self, _: &mut TlsBuffers) {
        match *self {}
    }

    pub(crate) fn output<'a>(&'a self, _: &'a TlsBuffers) -> &'a [u8] {
        match *self {}
    }

    pub(crate) fn written(&mut self, _: usize, _: &mut TlsBuffers, _: &MemoryBudget) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn unsent(&self) -> usize {
        match *self {}
    }

    pub(crate) fn has_answers(&self) -> bool {
        match *self {}
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        match *self {}
    }
}
