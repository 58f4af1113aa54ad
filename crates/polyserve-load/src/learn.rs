//! The answer to a request, learned by asking once.
//!
//! Invariant: it is over when the client's patience is, however slowly the server reads or writes. Cost: a connection; a
//! stop is heard of within a tenth of a second, but for the time that connecting takes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::answer::{Heads, Reader, Step};
use crate::draws::{Ask, Draws};
use crate::error::LoadError;
use crate::load::Load;
use crate::script::Script;
use crate::traffic::{Exchange, Traffic};

/// The load's traffic with its answer, where that is not known yet.
pub(crate) fn learned(load: &Load) -> Result<Option<Traffic>, LoadError> {
    let Some(exchange) = load.traffic.unknown() else { return Ok(None) };
    let script = Script::new(&load.traffic, &load.host, true);
    let ask = Draws::next(&mut load.traffic.draws(0, 1));
    let (status, body) = asked(load, &script, ask).map_err(|no| match no {
        No::Stopped => LoadError::Stopped,
        No::Answer(why) => LoadError::Server(format!("{}: {why}", script.name(ask))),
    })?;
    let statuses = match exchange.method.as_str() {
        // The first creates, the others replace.
        "PUT" if [200, 201, 204].contains(&status) => vec![200, 201, 204],
        _ => vec![status],
    };
    let known = Exchange { statuses, answers: vec![body], ..exchange.clone() };
    Traffic::expecting(vec![known]).map(Some)
}

/// Why nothing was learned.
enum No {
    Stopped,
    Answer(String),
}

impl<S: Into<String>> From<S> for No {
    fn from(why: S) -> Self {
        Self::Answer(why.into())
    }
}

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(100);

fn asked(load: &Load, script: &Script, ask: Ask) -> Result<(u16, Vec<u8>), No> {
    let begun = Instant::now();
    let mut stream =
        TcpStream::connect_timeout(&load.target, load.patience).map_err(|error| format!("cannot connect: {error}"))?;
    let step = Some(LOOK.min(load.patience));
    stream.set_read_timeout(step).and(stream.set_write_timeout(step)).map_err(|error| error.to_string())?;
    let may_go_on = || match begun.elapsed() >= load.patience {
        _ if load.stop.is_begun() => Err(No::Stopped),
        true => Err(format!("no answer within {} s", load.patience.as_secs_f64()).into()),
        false => Ok(()),
    };
    let mut request = Vec::new();
    script.write(ask, &mut request);
    let mut unsent = request.as_slice();
    while !unsent.is_empty() {
        may_go_on()?;
        match stream.write(unsent) {
            Ok(sent) => unsent = unsent.get(sent..).unwrap_or_default(),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(format!("cannot send: {error}").into()),
        }
    }
    let (expected, mut reader, mut heads) = (script.expected(ask), Reader::default(), Heads::default());
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        may_go_on()?;
        let step = match stream.read(&mut buffer) {
            Ok(0) => reader.end(&expected).map_err(|wrong| wrong.0)?.ok_or("the connection ended before the answer")?,
            Ok(received) => {
                kept.extend_from_slice(buffer.get(..received).unwrap_or_default());
                let (used, step) = reader.feed(&kept, &expected, &mut heads).map_err(|wrong| wrong.0)?;
                kept.drain(..used);
                step
            }
            Err(error) if is_pause(&error) => continue,
            Err(error) => return Err(format!("cannot receive: {error}").into()),
        };
        match step {
            Step::More => {}
            Step::Done { unexpected: Some(status), .. } => {
                return Err(format!("status {status}: {}", reader.shown()).into());
            }
            Step::Done { unexpected: None, .. } => return Ok(reader.take_learned()),
        }
    }
}

/// Whether nothing has happened.
fn is_pause(error: &std::io::Error) -> bool {
    [ErrorKind::Interrupted, ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}
