//! Answers at every split, and wrong answers.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::encoded_requests::EncodedRequests;
use crate::request_stream::PlannedRequest;
use crate::traffic::{Exchange, Traffic};

const BODY: &str = r#"{"id":1}"#;
const SIZED: &str = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 8\r\n\r\n{\"id\":1}";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{\"i\r\n5\r\nd\":1}\r\n0\r\nTrailer: x\r\n\r\n";
const INTERIM: &str =
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"id\":1}";
const UNTIL_END: &str = "HTTP/1.1 200 OK\r\n\r\n{\"id\":1}";

fn encoded(method: &str, statuses: &[u16], answers: &[&str]) -> EncodedRequests {
    let exchange = Exchange::new(method, "/1").with(|exchange| {
        exchange.statuses = statuses.to_vec();
        exchange.answers = answers.iter().map(|answer| answer.as_bytes().to_vec()).collect();
    });
    EncodedRequests::new(&Traffic::expecting(vec![exchange]).unwrap(), "h", false)
}

/// Feeds `pieces` as a connection does, then the end. Returns the steps and the remaining bytes.
fn read(requests: &EncodedRequests, pieces: &[&[u8]], heads: &mut Heads) -> Result<(Vec<ReadStep>, Vec<u8>), Wrong> {
    let expected = requests.expected(PlannedRequest::Fixed(0));
    let (mut reader, mut steps, mut partial) = (Reader::default(), Vec::new(), Vec::new());
    for piece in pieces {
        partial.extend_from_slice(piece);
        loop {
            let (used, step) = reader.feed(&partial, &expected, heads)?;
            partial.drain(..used);
            if step == ReadStep::More {
                break;
            }
            steps.push(step);
            if partial.is_empty() {
                break;
            }
        }
    }
    steps.extend(reader.end(&expected)?);
    if reader.is_between() { Ok((steps, partial)) } else { Ok((steps, b"torn".to_vec())) }
}

fn whole(requests: &EncodedRequests, text: &str) -> Result<(Vec<ReadStep>, Vec<u8>), Wrong> {
    read(requests, &[text.as_bytes()], &mut Heads::default())
}

fn done(closes: bool) -> ReadStep {
    ReadStep::Done { closes, unexpected: None }
}

#[test]
fn every_framing_is_read_at_every_split() {
    let get = encoded("GET", &[200], &["other", BODY]);
    for (text, closes) in [(SIZED, false), (CHUNKED, false), (INTERIM, false), (UNTIL_END, true)] {
        for repeats in [1, if closes { 1 } else { 3 }] {
            let stream = text.repeat(repeats).into_bytes();
            let expected = (vec![done(closes); repeats], Vec::new());
            let mut heads = Heads::default();
            for at in 0..=stream.len() {
                let (left, right) = stream.split_at(at);
                assert_eq!(read(&get, &[left, right], &mut heads), Ok(expected.clone()), "{text:?} at {at}");
            }
            let single: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(read(&get, &single, &mut heads), Ok(expected), "{text:?} byte by byte");
        }
    }
}

#[test]
fn an_answer_without_a_body_ends_with_its_head() {
    let answers = "HTTP/1.1 200 OK\r\nContent-Length: 800\r\n\r\n".repeat(2);
    assert_eq!(whole(&encoded("HEAD", &[200], &[""]), &answers), Ok((vec![done(false); 2], vec![])));
    for status in [204, 304] {
        let answers = format!("HTTP/1.1 {status} X\r\nConnection: Close\r\n\r\n");
        assert_eq!(whole(&encoded("GET", &[status], &[""]), &answers), Ok((vec![done(true)], vec![])));
    }
}

#[test]
fn another_status_is_reported_and_its_body_skipped() {
    let get = encoded("GET", &[200, 201], &[BODY]);
    let answers = format!("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy{SIZED}");
    let refused = ReadStep::Done { closes: false, unexpected: Some(503) };
    assert_eq!(whole(&get, &answers), Ok((vec![refused, done(false)], vec![])));
}

#[test]
fn a_wrong_body_is_never_right() {
    let get = encoded("GET", &[200], &[BODY, "{\"id\":12}"]);
    let sized = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(whole(&get, &sized("{\"id\":12}")), Ok((vec![done(false)], vec![])));
    for body in ["", "{\"id\":2}", "{\"id\":1", "{\"id\":1}}", "{\"id\":12} ", "{\"id\":13}"] {
        let Wrong(why) = whole(&get, &sized(body)).unwrap_err();
        assert!(why.contains("body"), "{body}: {why}");
    }
    // The body begins like one expected body and ends like the other.
    let mixed = encoded("GET", &[200], &["aaaabbbb", "ccccdddd"]);
    let text = sized("aaaadddd").into_bytes();
    for at in 0..=text.len() {
        let (left, right) = text.split_at(at);
        assert!(read(&mixed, &[left, right], &mut Heads::default()).is_err(), "{at}");
    }
}

#[test]
fn what_is_shown_is_bounded() {
    let long = "x".repeat(100_000);
    let Wrong(why) = whole(
        &encoded("GET", &[200], &[BODY]),
        &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len()),
    )
    .unwrap_err();
    assert!(why.matches('x').count() < 210 && why.ends_with("..."), "{why}");
}

#[test]
fn broken_chunks_are_wrong_and_torn_answers_are_incomplete() {
    let get = encoded("GET", &[200], &[BODY]);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in
        ["x\r\n", "-1\r\n", "\r\n", "3\r\n{\"id\":1}\r\n", "8\n{\"id\":1}", "11111111111111111\r\n", "0\r\n\r\n"]
    {
        assert!(whole(&get, &format!("{head}{chunks}")).is_err(), "{chunks:?}");
    }
    for text in [SIZED, CHUNKED] {
        for at in 1..text.len() {
            let (steps, left) = whole(&get, &text[..at]).unwrap();
            assert!(steps.is_empty() && !left.is_empty(), "{text:?} cut at {at}");
        }
    }
}

/// For any mutation of an answer and any split, a reader with cached heads returns the same result as a new reader. A body
/// is right only if it is exactly the expected one.
#[test]
fn a_reader_with_cached_heads_reads_mutated_answers_the_same() {
    let get = encoded("GET", &[200], &[BODY]);
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut heads = Heads::default();
    for round in 0..20_000 {
        let mut stream = [SIZED, CHUNKED, INTERIM][round % 3].repeat(2).into_bytes();
        for _ in 0..random.random_range(0..3) {
            let at = random.random_range(0..stream.len());
            match random.random_range(0..3) {
                0 => stream[at] = random.random(),
                1 => drop(stream.remove(at)),
                _ => stream.insert(at, random.random()),
            }
        }
        let (left, right) = stream.split_at(random.random_range(0..=stream.len()));
        let remembered = read(&get, &[left, right], &mut heads).map_err(drop);
        let fresh = read(&get, &[left, right], &mut Heads::default()).map_err(drop);
        assert_eq!(remembered, fresh, "{}", stream.escape_ascii());
    }
}

/// Regression test: a server that repeated `100 Continue` kept its client reading for ever.
#[test]
fn interim_heads_are_bounded() {
    let get = encoded("GET", &[200], &[BODY]);
    let interim = |count| format!("{}{SIZED}", "HTTP/1.1 100 Continue\r\n\r\n".repeat(count));
    assert_eq!(whole(&get, &interim(8).repeat(2)), Ok((vec![done(false); 2], Vec::new())));
    assert!(whole(&get, &interim(9)).unwrap_err().0.starts_with("interim heads and no answer"));
    let torn = Ok((Vec::new(), b"torn".to_vec()));
    assert_eq!(whole(&get, "HTTP/1.1 100 Continue\r\n\r\n"), torn, "an answer has begun");
}

/// Regression test: the body of a 101 was awaited until the end of the connection.
#[test]
fn a_101_is_complete_with_its_head() {
    let get = encoded("GET", &[200], &[BODY]);
    let switched = ReadStep::Done { closes: true, unexpected: Some(101) };
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    assert_eq!(whole(&get, answer), Ok((vec![switched], Vec::new())));
}
