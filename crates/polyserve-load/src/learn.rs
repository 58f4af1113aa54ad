//! The answer to a request, learned by asking once.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

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
    let (status, body) =
        asked(load, &script, ask).map_err(|why| LoadError::Server(format!("{}: {why}", script.name(ask))))?;
    let statuses = match exchange.method.as_str() {
        // The first creates, the others replace.
        "PUT" if [200, 201, 204].contains(&status) => vec![200, 201, 204],
        _ => vec![status],
    };
    let known = Exchange { statuses, answers: vec![body], ..exchange.clone() };
    Traffic::expecting(vec![known]).map(Some)
}

fn asked(load: &Load, script: &Script, ask: Ask) -> Result<(u16, Vec<u8>), String> {
    let mut stream =
        TcpStream::connect_timeout(&load.target, load.patience).map_err(|error| format!("cannot connect: {error}"))?;
    let limits = stream.set_read_timeout(Some(load.patience)).and(stream.set_write_timeout(Some(load.patience)));
    limits.map_err(|error| error.to_string())?;
    let mut request = Vec::new();
    script.write(ask, &mut request);
    stream.write_all(&request).map_err(|error| format!("cannot send: {error}"))?;
    let (expected, mut reader, mut heads) = (script.expected(ask), Reader::default(), Heads::default());
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let step = match stream.read(&mut buffer) {
            Ok(0) => reader.end(&expected).map_err(|wrong| wrong.0)?.ok_or("the connection ended before the answer")?,
            Ok(received) => {
                kept.extend_from_slice(buffer.get(..received).unwrap_or_default());
                let (used, step) = reader.feed(&kept, &expected, &mut heads).map_err(|wrong| wrong.0)?;
                kept.drain(..used);
                step
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(format!("no answer within {} s", load.patience.as_secs_f64()));
            }
            Err(error) => return Err(format!("cannot receive: {error}")),
        };
        match step {
            Step::More => {}
            Step::Done { unexpected: Some(status), .. } => return Err(format!("status {status}: {}", reader.shown())),
            Step::Done { unexpected: None, .. } => return Ok(reader.take_learned()),
        }
    }
}
