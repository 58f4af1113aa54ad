//! The comparison of the codec with the plain reader on one stream, in one piece, byte by byte and split at random. The fuzz target
//! `session` includes it.

use std::sync::Arc;

use polyserve_core::ServerConfig;
use polyserve_serving::http1::{HttpState, SessionStep};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::answers::{CONTINUE, Expect, Expected};
use super::reader::{self, Rules};
use super::service::{Call, RecordedCalls, Recorder};
use super::wire::{AcceptFn, Wire};

/// A stream, and the limits of the server.
pub(crate) struct Case {
    pub(crate) stream: Vec<u8>,
    pub(crate) rules: Rules,
    /// The max number of requests on a connection; 0 is no limit.
    pub(crate) max_requests: u64,
}

/// Returns the case of an input of the fuzz target `session`, and the seed of its splits: the first byte selects the limits, the second the
/// splits, and the rest is the stream. `None` if one of the two is missing.
pub(crate) fn case_of(input: &[u8]) -> Option<(Case, u64)> {
    let [limits, splits, stream @ ..] = input else { return None };
    let rules = match limits % 3 {
        0 => Rules { max_head: 16 * 1024, max_headers: 100, max_body: 1024 * 1024 },
        1 => Rules { max_head: 256, max_headers: 4, max_body: 64 },
        _ => Rules { max_head: 1024, max_headers: 100, max_body: 0 },
    };
    Some((Case { stream: stream.to_vec(), rules, max_requests: u64::from(limits / 64) }, u64::from(*splits)))
}

/// Returns the number of steps in the stream of `case`, or how the codec misread it. `seed` selects the random splits.
pub(crate) fn check(case: &Case, seed: u64) -> Result<u64, String> {
    let steps = reader::read(&case.stream, &case.rules);
    let max_requests = if case.max_requests == 0 { u64::MAX } else { case.max_requests };
    let expected = Expected::of(&steps, max_requests);

    let unsplit = serve(case, [case.stream.as_slice()].into_iter(), Box::new(|count| count));
    expected.check(&unsplit.out)?;
    let answers = expected.answers.iter().filter(|answer| **answer != Expect::Continue).count() as u64;
    if unsplit.calls != expected.calls {
        return Err(format!("the service saw {:#?}, not {:#?}", unsplit.calls, expected.calls));
    } else if unsplit.closed != expected.closed || unsplit.answered != answers {
        let Served { closed, answered, .. } = unsplit;
        return Err(format!("closed: {closed}, not {}; answered: {answered}, not {answers}", expected.closed));
    }

    let bytewise = serve(case, case.stream.chunks(1), Box::new(|count| count));
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let at_random = serve(case, split(&mut rng, &case.stream).into_iter(), random_accept(rng));
    for (how, served) in [("byte by byte", bytewise), ("split at random", at_random)] {
        if !expected.depends_on_arrival && served != unsplit {
            return Err(format!("{how} it differs: {served:?}\nnot {unsplit:?}"));
        }
    }
    Ok(steps.len() as u64)
}

/// The result of serving a stream.
struct Served {
    calls: Vec<Call>,
    out: Vec<u8>,
    closed: bool,
    answered: u64,
}

impl PartialEq for Served {
    /// Removes `100 Continue`, because whether it is sent may depend on the split.
    fn eq(&self, other: &Self) -> bool {
        let same = (&self.calls, self.closed, self.answered) == (&other.calls, other.closed, other.answered);
        same && (self.out == other.out || without_continue(&self.out) == without_continue(&other.out))
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { calls, out, closed, answered } = self;
        write!(f, "{calls:?}, closed: {closed}, answered: {answered}, b\"{}\"", out.escape_ascii())
    }
}

fn without_continue(out: &[u8]) -> Vec<u8> {
    let mut rest = out;
    let mut filtered = Vec::with_capacity(out.len());
    while let Some((&byte, after)) = rest.split_first() {
        match rest.strip_prefix(CONTINUE) {
            Some(after) => rest = after,
            None => {
                filtered.push(byte);
                rest = after;
            }
        }
    }
    filtered
}

fn serve<'s>(case: &Case, parts: impl Iterator<Item = &'s [u8]>, accept: AcceptFn) -> Served {
    let recorded = RecordedCalls::default();
    let config = ServerConfig::default()
        .max_head(case.rules.max_head)
        .max_headers(case.rules.max_headers)
        .max_body(case.rules.max_body)
        .requests_per_connection((case.max_requests > 0).then_some(case.max_requests));
    config.validate().unwrap();
    let server = HttpState::new(Arc::new(Recorder { calls: Arc::clone(&recorded) }), &config);
    let mut wire = Wire::with_accept(&server, accept);
    for part in parts {
        if matches!(wire.send(part), SessionStep::Close { .. }) {
            break;
        }
    }
    let (closed, sent) = (wire.is_closed(), wire.out.len());
    let end = wire.end();
    assert!(
        matches!(end, SessionStep::Close { .. }) && wire.out.len() == sent,
        "the end of input ends it, and says nothing"
    );
    let calls = std::mem::take(&mut *recorded.lock().unwrap());
    Served { calls, out: wire.out, closed, answered: wire.answered }
}

/// Splits a stream into a few pieces of any length.
fn split<'s>(rng: &mut ChaCha8Rng, stream: &'s [u8]) -> Vec<&'s [u8]> {
    let mut cuts: Vec<usize> = (0..rng.random_range(0..8)).map(|_| rng.random_range(0..=stream.len())).collect();
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut start = 0;
    for cut in cuts.into_iter().chain([stream.len()]) {
        if cut > start {
            parts.push(&stream[start..cut]);
        }
        start = cut;
    }
    parts
}

fn random_accept(mut rng: ChaCha8Rng) -> AcceptFn {
    let all = rng.random_range(0..2) == 0;
    Box::new(move |count| if all || count == 0 { count } else { rng.random_range(0..=count) })
}
