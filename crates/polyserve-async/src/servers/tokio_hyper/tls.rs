//! TLS between the socket and the [`Input`](super::input::Input): the session of the servers on the codec, with their rules
//! (`polyserve_serving::tls`).
//!
//! hyper and the codec see the bytes of HTTP only. The session is in the [`Output`](super::output::Output), which encrypts what it sends.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::task::Poll;
use std::time::Instant;

use hyper::rt::ReadBufCursor;
use polyserve_core::HandshakeFailure;
use polyserve_serving::http1::refusal::PLAIN_HTTP;
use polyserve_serving::http1::{OUTPUT_BOUND, Phase};
use polyserve_serving::tls::{TlsBuffers, TlsSession, is_plain_http};

use super::connection_state::{ConnectionState, RequestState, Stage};

thread_local! {
    /// The buffers that the sessions of a thread share. They are empty between two calls.
    static BUFFERS: RefCell<TlsBuffers> = RefCell::new(TlsBuffers::default());
}

/// Calls `act` with the buffers of the thread.
pub(super) fn with_buffers<T>(act: impl FnOnce(&mut TlsBuffers) -> T) -> T {
    BUFFERS.with_borrow_mut(|buffers| {
        let result = act(buffers);
        buffers.trim(2 * OUTPUT_BOUND);
        result
    })
}

/// What the client has done with its TLS, besides requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TlsEvents {
    /// It sends no more.
    pub(super) has_ended: bool,
    /// Its bytes are no TLS, or not of this session. The alert is in the output.
    pub(super) has_failed: bool,
}

impl RequestState {
    /// Decrypts bytes that were read, and passes on to hyper what it may read of them. It is pending if that is nothing.
    pub(super) fn received_sealed(
        &mut self,
        connection: &ConnectionState,
        sealed: &mut [u8],
        to: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let server = connection.server();
        if self.output.tls.is_none() {
            if sealed.first().is_some_and(|first| is_plain_http(*first)) {
                server.count_failed_handshake(HandshakeFailure::PlainHttp, connection.peer, 0);
                self.input.refusal = Some(PLAIN_HTTP);
                return Poll::Pending;
            }
            self.output.tls = TlsSession::new(server, connection.shared.http2.is_some());
        }
        let Some(tls) = &mut self.output.tls else { return Poll::Ready(Err(ErrorKind::Unsupported.into())) };
        let plain = with_buffers(|buffers| {
            let received = tls.receive(sealed, buffers, &server.http.memory);
            if received.handshake_ended {
                server.count_handshake();
                tls.await_request(server.shutdown.is_begun());
                if let Some(certificate) = tls.client_certificate() {
                    let _ = connection.certificate.set(certificate); // a connection has one handshake
                }
            }
            if !buffers.plain.is_empty() {
                tls.await_request(false);
            }
            tls.keep(buffers, &server.http.memory);
            if let Some(failure) = received.handshake_failure {
                server.count_failed_handshake(failure, connection.peer, tls.kept().len());
            }
            self.tls_events.has_ended |= received.input_ended;
            self.tls_events.has_failed |= received.failed;
            std::mem::take(&mut buffers.plain)
        });
        if self.tls_events.has_failed {
            self.output.clear(); // what can still be sent is the alert
        }
        if !self.output.is_empty() {
            self.send(connection, false); // the next part of the handshake
        }
        if self.tls_events.has_failed {
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        }
        if plain.is_empty() {
            return Poll::Pending;
        }
        let passed = self.received(connection, &plain, to);
        with_buffers(|buffers| {
            buffers.plain = plain;
            buffers.clear_plain();
        });
        passed
    }

    /// Counts the handshake as failed if it has not ended. The connection closes next.
    pub(super) fn fail_handshake(&mut self, connection: &ConnectionState, failure: HandshakeFailure) {
        if self.output.tls.as_mut().is_some_and(TlsSession::give_up_handshake) {
            connection.server().count_failed_handshake(failure, connection.peer, 0);
        }
    }

    /// Whether the connection has negotiated HTTP/2, and has not begun it.
    pub(super) fn has_negotiated_http2(&self) -> bool {
        self.requests == 0 && self.stage != Stage::Http2 && self.output.tls.as_ref().is_some_and(TlsSession::is_http2)
    }

    /// The stage of the connection: a handshake, and an incomplete record, are the begun head of the next request.
    pub(super) fn stage_over_tls(&self, stage: Stage) -> Stage {
        match stage {
            Stage::FirstByte | Stage::Idle if self.has_tls_part() => Stage::Head,
            stage => stage,
        }
    }

    /// Whether a handshake or a record has begun.
    pub(super) fn has_tls_part(&self) -> bool {
        self.output.tls.as_ref().is_some_and(TlsSession::has_part)
    }

    /// Returns when the wait in `stage` began, which begins or goes on at `now`.
    pub(super) fn wait_since(&mut self, stage: Stage, now: Instant) -> Instant {
        let phase = match stage {
            Stage::FirstByte => Phase::FirstByte,
            Stage::Idle => Phase::Idle,
            _ => return now,
        };
        let requests = self.requests;
        self.output.tls.as_mut().map_or(now, |tls| tls.wait_since((requests, phase), now))
    }
}
