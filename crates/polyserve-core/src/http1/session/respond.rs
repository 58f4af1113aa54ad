//! From requests to answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use super::carry::Carry;
use super::{Env, Exchange, Phase, Scratch, Session, State, Want, exchange, log_panic, panicked};
use crate::answer::Answer;
use crate::http1::date::Date;
use crate::http1::decode::{Parsed, Refusal};
use crate::http1::encode::{self, Line};
use crate::service::{Reply, Request, Version};

impl Session {
    pub(super) fn call(&mut self, parsed: &Parsed<'_>, body: &[u8], last: bool, env: &Env, scratch: &mut Scratch) {
        let request = Request { head: parsed.head, body };
        let exchange = exchange(parsed);
        scratch.body.clear();
        let in_place = &mut scratch.body;
        match catch_unwind(AssertUnwindSafe(|| env.service.call(request, in_place))) {
            Ok(Answer::Now(reply)) => self.finish(exchange, &reply, last, env, scratch),
            Ok(Answer::Later(future)) => {
                self.set_state(State::Answer(exchange, future));
                self.want = Want::Answer;
            }
            Err(panic) => self.finish(exchange, &panicked(panic), last, env, scratch),
        }
    }

    /// Encodes an answer that came later.
    pub(super) fn respond(&mut self, last: bool, env: &Env, scratch: &mut Scratch) {
        if let State::Answered(exchange, reply) = std::mem::replace(&mut self.state, State::Head) {
            scratch.body.clear(); // what was written beside a later answer is nobody's
            self.finish(exchange, &reply, last, env, scratch);
        }
    }

    fn finish(&mut self, exchange: Exchange, reply: &Reply, last: bool, env: &Env, scratch: &mut Scratch) {
        if self.encode(exchange, reply, last, env, scratch) {
            self.set_state(State::Head);
            self.want = Want::Read(Phase::Idle);
        } else {
            // A client that asked for the close itself, and sent nothing after, sends nothing more.
            self.close(exchange.keep_alive || !last);
        }
    }

    /// Appends an answer. Returns whether the connection stays open. `last`: no further request has arrived, not even in
    /// part.
    pub(super) fn encode(
        &mut self,
        exchange: Exchange,
        reply: &Reply,
        last: bool,
        env: &Env,
        scratch: &mut Scratch,
    ) -> bool {
        self.requests = self.requests.saturating_add(1);
        let spent = self.requests >= env.requests_per_connection;
        let close = !exchange.keep_alive || spent || (scratch.closing && last);
        if cfg!(polyserve_without = "date_cache") {
            scratch.date = Date::new(SystemTime::now()); // the ladder of optimisations is also measured so
        }
        let line = Line {
            version: exchange.version,
            close,
            head_only: exchange.head_only,
            date: scratch.date.as_str(),
            server_header: env.server_header.as_deref(),
        };
        encode::answer(&mut scratch.out, reply, reply.body_bytes(&scratch.body), &line);
        scratch.ends.push(scratch.out.len());
        !close
    }

    pub(super) fn refuse(&mut self, refusal: Refusal, head_only: bool, env: &Env, scratch: &mut Scratch) {
        let exchange = Exchange { version: Version::Http11, head_only, keep_alive: false };
        self.encode(exchange, &Reply::problem(refusal.status, refusal.detail), true, env, scratch);
        self.close(true);
    }

    pub(super) fn close(&mut self, linger: bool) {
        self.set_state(State::Closed);
        self.carry = Carry::default();
        self.want = Want::Close { linger: linger && !self.input_ended };
    }

    pub(super) fn settle(&mut self, exchange: Exchange, reply: Reply) {
        self.set_state(State::Answered(exchange, reply));
    }

    /// The old state may hold a service's future, whose drop is foreign code.
    pub(super) fn set_state(&mut self, state: State) {
        let old = std::mem::replace(&mut self.state, state);
        if let State::Answer(_, future) = old
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future)))
        {
            log_panic(panic, "an answer panicked as it was dropped");
        }
    }
}
