//! What a connection of a server that speaks TLS does besides: see [`crate::tls`].

use polyserve_core::HandshakeFailure;
use polyserve_core::http::StatusCode;

use super::{Connection, Step, Turn};
use crate::ServerState;
use crate::http1::SessionStep;
use crate::tls::{REJECTION, TlsSession, is_plain_http};

impl Connection {
    /// The driver has read `count` bytes, which are encrypted or belong to a handshake.
    pub(super) fn on_sealed(&mut self, turn: &mut Turn<'_>, count: usize) -> Step {
        let server = turn.server;
        let is_plain = self.tls.is_none() && turn.buffers.input.first().is_some_and(|first| is_plain_http(*first));
        if is_plain {
            server.count_failed_handshake(HandshakeFailure::PlainHttp, self.session.peer(), 0);
            turn.buffers.refresh(server, false);
            self.session_step = self.session.refuse_plain_http(&mut turn.of_session());
            return self.advance(turn);
        }
        if self.tls.is_none() {
            self.tls = TlsSession::new(server, false);
        }
        let Some(tls) = &mut self.tls else { return self.on_error(turn) };
        let buffers = &mut *turn.buffers;
        let bytes = buffers.input.get_mut(..count).unwrap_or_default();
        let received = tls.receive(bytes, &mut buffers.tls, &server.http.memory);
        buffers.note_read(count);
        if received.handshake_ended {
            server.count_handshake();
            turn.queued_since = None; // the first byte of a request has a timeout of its own
            tls.await_request(server.shutdown.is_begun());
            self.session.set_certificate(tls.client_certificate());
        }
        if !buffers.tls.plain.is_empty() {
            tls.await_request(false);
            let is_last = turn.must_give_way() || tls.has_worn_keys();
            turn.buffers.refresh(server, is_last);
            let buffers = &mut *turn.buffers;
            buffers.http.input_is_full = count == buffers.input.len() || tls.has_part();
            self.session_step = self.session.receive(&buffers.tls.plain, &mut server.http.turn(&mut buffers.http));
            buffers.tls.clear_plain();
        }
        if let Some(failure) = received.handshake_failure {
            server.count_failed_handshake(failure, self.session.peer(), tls.output(&turn.buffers.tls).len());
        }
        if received.failed {
            turn.buffers.http.clear();
            self.session.abandon();
            self.session_step = SessionStep::Close { linger: true };
        } else if received.input_ended {
            self.fail_handshake(server, HandshakeFailure::Closed);
            self.session_step = self.session.end_of_input();
        }
        self.advance(turn)
    }

    /// Encrypts the output of the session, and appends the end of the connection if it closes next.
    pub(super) fn seal(&mut self, turn: &mut Turn<'_>) {
        let Some(tls) = &mut self.tls else { return };
        let buffers = &mut *turn.buffers;
        if !buffers.http.out().is_empty() {
            let is_sealed = tls.seal(buffers.http.out(), &mut buffers.tls, &turn.server.http.memory);
            let answers = self.session.take_output(&mut buffers.http);
            if is_sealed {
                tls.note_answers(answers);
            } else {
                self.session_step = SessionStep::Close { linger: false };
            }
        }
        if matches!(self.session_step, SessionStep::Close { .. }) {
            tls.end(&mut buffers.tls);
        }
    }

    /// The kernel has taken the first `count` bytes of the output.
    pub(super) fn note_sealed_written(&mut self, turn: &mut Turn<'_>, count: usize) {
        let Some(tls) = &mut self.tls else { return };
        if let Some(answers) = tls.written(count, &mut turn.buffers.tls, &turn.server.http.memory) {
            self.session.count_answered(answers);
        }
    }

    /// Whether the output is only the end of TLS: the connection closes, and the output ends no answer. Such an output is not waited
    /// for.
    pub(crate) fn has_only_end(&self) -> bool {
        matches!(self.session_step, SessionStep::Close { .. })
            && self.tls.as_ref().is_some_and(|tls| !tls.has_answers())
    }

    /// Whether the answers must announce the close, because the keys cannot be used for many more.
    pub(super) fn has_worn_keys(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::has_worn_keys)
    }

    /// Counts the handshake as failed if it has not ended. The connection closes next.
    pub(super) fn fail_handshake(&mut self, server: &ServerState, failure: HandshakeFailure) {
        if self.tls.as_mut().is_some_and(TlsSession::give_up_handshake) {
            server.count_failed_handshake(failure, self.session.peer(), 0);
        }
    }

    /// Rejects a connection that has not ended its handshake, with an alert.
    pub(super) fn reject_handshake(&mut self, turn: &mut Turn<'_>) -> Step {
        self.tls = None;
        turn.server.report_alert(StatusCode::SERVICE_UNAVAILABLE, self.session.peer(), REJECTION.len());
        self.session_step = self.session.reject_with(&REJECTION, &mut turn.buffers.http);
        self.advance(turn)
    }
}
