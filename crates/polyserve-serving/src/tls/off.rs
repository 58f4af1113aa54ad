//! In place of TLS, without the feature: no connection has a session, so the compiler removes what would use it.
#![allow(missing_docs)] // as in `session.rs`

use std::time::Instant;

use polyserve_core::ClientCertificate;

use crate::ServerState;
use crate::http1::Phase;
use crate::memory::MemoryBudget;
use crate::tls::Received;

/// There is none.
#[derive(Debug)]
pub enum TlsSession {}

/// No buffers.
#[derive(Debug, Default)]
pub struct TlsBuffers {
    pub plain: [u8; 0],
}

impl TlsBuffers {
    pub fn capacity(&self) -> usize {
        0
    }

    pub fn trim(&mut self, _: usize) {}

    pub fn clear_plain(&mut self) {}

    pub fn clear(&mut self) {}
}

impl TlsSession {
    pub fn new(_: &ServerState, _: bool) -> Option<Self> {
        None
    }

    pub fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub fn give_up_handshake(&mut self) -> bool {
        match *self {}
    }

    pub fn is_http2(&self) -> bool {
        match *self {}
    }

    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        match *self {}
    }

    pub fn has_part(&self) -> bool {
        match *self {}
    }

    pub fn await_request(&mut self, _: bool) {
        match *self {}
    }

    pub fn receive(&mut self, _: &mut [u8], _: &mut TlsBuffers, _: &MemoryBudget) -> Received {
        match *self {}
    }

    pub fn seal(&mut self, _: &[u8], _: &mut TlsBuffers, _: &MemoryBudget) -> bool {
        match *self {}
    }

    pub fn has_worn_keys(&self) -> bool {
        match *self {}
    }

    pub fn wait_since(&mut self, _: (u64, Phase), _: Instant) -> Instant {
        match *self {}
    }

    pub fn keep(&mut self, _: &mut TlsBuffers, _: &MemoryBudget) {
        match *self {}
    }

    pub fn kept(&self) -> &[u8] {
        match *self {}
    }

    pub fn note_answers(&mut self, _: u64) {
        match *self {}
    }

    pub fn end(&mut self, _: &mut TlsBuffers) {
        match *self {}
    }

    pub fn output<'a>(&'a self, _: &'a TlsBuffers) -> &'a [u8] {
        match *self {}
    }

    pub fn written(&mut self, _: usize, _: &mut TlsBuffers, _: &MemoryBudget) -> Option<u64> {
        match *self {}
    }

    pub fn unsent(&self) -> usize {
        match *self {}
    }

    pub fn has_answers(&self) -> bool {
        match *self {}
    }

    pub fn reserved_bytes(&self) -> usize {
        match *self {}
    }
}
