//! The output is bounded, never lost and never repeated, and its answers are counted.

use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Body, Reply};
use polyserve_serving::http1::{HttpState, OUTPUT_BOUND, Phase, Session, SessionBuffers, SessionStep};

use super::support::*;

const GET: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";

fn buffers() -> SessionBuffers {
    let mut buffers = SessionBuffers::new();
    buffers.refresh(std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777), false);
    buffers
}

/// The kernel accepts the output in three parts. Tested with many pairs of offsets.
#[test]
fn a_short_write_loses_nothing_and_repeats_nothing() {
    let server = server();
    let answer = ok(&echo_text("GET", "/1", ""));
    let expected = answer.repeat(2);
    let answers_in = |bytes: usize| (bytes / answer.len()) as u64;
    for first in 0..=expected.len() {
        for second in (first..=expected.len()).step_by(7).chain([expected.len()]) {
            let (mut session, mut buffers) = (Session::new(), buffers());
            let _ = session.receive(&GET.repeat(2), &mut server.turn(&mut buffers));
            let mut sent = buffers.out()[..first].to_vec();
            session.written(first, &mut buffers);
            assert!(buffers.out().is_empty(), "what is not written is the session's");
            assert_eq!((session.take_answered(), session.is_busy()), (answers_in(first), first < expected.len()));
            assert_eq!(session.unsent(), &expected.as_bytes()[first..]);
            sent.extend_from_slice(&session.unsent()[..second - first]);
            assert_eq!(session.advance(second - first), second == expected.len());
            assert_eq!(session.take_answered(), answers_in(second) - answers_in(first), "at {first} and {second}");
            sent.extend_from_slice(session.unsent());
            let rest = session.unsent().len();
            assert!(session.advance(rest) && session.unsent().is_empty() && !session.is_busy());
            assert_eq!(session.take_answered(), 2 - answers_in(second));
            assert_eq!(String::from_utf8(sent).unwrap(), expected);
        }
    }
}

/// Output that is added while older output is unsent is sent after it.
#[test]
fn what_is_unsent_comes_first() {
    let server = server();
    let (mut session, mut buffers) = (Session::new(), buffers());
    let answer = ok(&echo_text("GET", "/1", ""));
    let _ = session.receive(GET, &mut server.turn(&mut buffers));
    session.written(10, &mut buffers);
    let _ = session.receive(GET, &mut server.turn(&mut buffers));
    session.written(0, &mut buffers);
    session.written(0, &mut buffers);
    assert_eq!(session.unsent(), &answer.repeat(2).as_bytes()[10..]);
    assert!(!session.advance(answer.len() - 10));
    assert_eq!(session.take_answered(), 1);
    assert!(!session.advance(answer.len() - 1));
    assert_eq!(session.take_answered(), 0);
    assert!(session.advance(1));
    assert_eq!(session.take_answered(), 1);
}

#[test]
fn a_cut_connection_counts_what_was_wholly_written() {
    let server = server();
    let answer = ok(&echo_text("GET", "/1", "")).len();
    for (written, count) in [(0, 0), (answer - 1, 0), (answer, 1), (2 * answer + 1, 2)] {
        let (mut session, mut buffers) = (Session::new(), buffers());
        let _ = session.receive(&GET.repeat(3), &mut server.turn(&mut buffers));
        session.written(1.min(written), &mut buffers);
        session.advance(written.saturating_sub(1));
        session.abandon();
        assert_eq!((session.take_answered(), session.is_busy()), (count, false), "{written} bytes were written");
        assert!(session.unsent().is_empty());
    }
}

/// Serves answers with `size` bytes of body.
fn large(size: usize) -> HttpState {
    let call = move |_: &polyserve_core::Request<'_>, body: &mut Vec<u8>| {
        body.resize(size, b'.');
        Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::InPlace))
    };
    server_by(|_| (), call, |_| None)
}

#[test]
fn gathered_output_is_bounded() {
    let server = large(OUTPUT_BOUND / 3);
    let (mut session, mut buffers) = (Session::new(), buffers());
    let answer = ok(&".".repeat(OUTPUT_BOUND / 3));
    let mut step = session.receive(&GET.repeat(7), &mut server.turn(&mut buffers));
    let mut sizes = Vec::new();
    while step == SessionStep::Write {
        assert!(session.is_busy(), "a request waits for its turn");
        assert!((OUTPUT_BOUND..OUTPUT_BOUND + answer.len()).contains(&buffers.out().len()));
        sizes.push(buffers.out().len() / answer.len());
        session.written(buffers.out().len(), &mut buffers);
        step = session.resume(&mut server.turn(&mut buffers));
    }
    sizes.push(buffers.out().len() / answer.len());
    assert_eq!((sizes, step), (vec![3, 3, 1], SessionStep::Read(Phase::Idle)));
    session.written(buffers.out().len(), &mut buffers);
    assert_eq!(session.take_answered(), 7);
}

/// The bound is reached in the middle of a body, after an early answer, and before a close.
#[test]
fn the_bound_may_be_reached_anywhere() {
    let server = large(OUTPUT_BOUND);
    let answer = ok(&".".repeat(OUTPUT_BOUND));
    let put = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(&[GET, put].concat()), SessionStep::Read(Phase::Body));
    assert_eq!(wire.take_output(), answer);
    assert_eq!(wire.send(&[&b"0\r\n\r\n"[..], GET, b"GET"].concat()), SessionStep::Read(Phase::Head));
    assert_eq!(wire.take_output(), answer.repeat(2));
    assert_eq!(wire.send(b" / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), CLOSE);
    assert_eq!(wire.take_output(), ok_with(CLOSES, &".".repeat(OUTPUT_BOUND)));
    assert_eq!(wire.answered, 4);
}

/// Pipelined requests reach the bound several times, and the client reads the answers in pieces of every size.
#[test]
fn every_way_of_writing_gives_the_same_bytes() {
    let server = large(OUTPUT_BOUND / 2);
    let expected = ok(&".".repeat(OUTPUT_BOUND / 2)).repeat(5);
    for size in [1, 2, 1000, 4096, OUTPUT_BOUND / 2, OUTPUT_BOUND - 1, OUTPUT_BOUND, 3 * OUTPUT_BOUND] {
        let mut wire = Wire::with_accept(&server, Box::new(move |count| count.min(size)));
        assert_eq!(wire.send(&GET.repeat(5)), SessionStep::Read(Phase::Idle));
        assert!(wire.take_output() == expected, "in pieces of {size}");
        assert_eq!(wire.answered, 5);
    }
}

/// Buffers that grew past the kept capacity are freed, and grow again.
#[test]
fn a_large_answer_after_another() {
    let server = large(1 << 20);
    let mut wire = Wire::new(&server);
    for _ in 0..3 {
        let _ = wire.send(GET);
        assert!(wire.take_output() == ok(&".".repeat(1 << 20)));
    }
}
