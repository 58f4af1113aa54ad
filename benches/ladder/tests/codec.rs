//! What the codec does with and without the two optimisations that `patches` removes. Each patch also changes what its
//! test expects, so this file passes in every copy of the sources that the ladder builds.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use polyserve_core::{Reply, Request, ServerConfig};
use polyserve_serving::http1::{HttpState, Phase, Session, SessionBuffers, SessionStep};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const CACHED_DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

/// Returns the writes that contain the answers to three requests.
fn writes() -> Vec<String> {
    let server = HttpState::new(Arc::new(|_: Request<'_>| Reply::text("Welcome!")), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    buffers.refresh(UNIX_EPOCH + Duration::from_secs(784_111_777), false);
    let mut step = session.receive(&GET.repeat(3), &mut server.turn(&mut buffers));
    let mut writes = Vec::new();
    loop {
        let out = buffers.out();
        if !out.is_empty() {
            writes.push(String::from_utf8(out.to_vec()).expect("an answer is text"));
        }
        session.written(out.len(), &mut buffers);
        match step {
            SessionStep::Write => step = session.resume(&mut server.turn(&mut buffers)),
            other => {
                assert_eq!(other, SessionStep::Read(Phase::Idle));
                assert_eq!(session.take_answered(), 3);
                return writes;
            }
        }
    }
}

#[test]
fn three_answers_are_written_together() {
    let writes = writes();
    assert_eq!(writes.concat().matches("Welcome!").count(), 3);
    assert_eq!(writes.len(), 1);
}

#[test]
fn three_answers_have_the_cached_date() {
    let output = writes().concat();
    assert_eq!(output.matches("\r\nDate: ").count(), 3);
    assert_eq!(output.matches(CACHED_DATE).count(), 3);
}
