//! Any server of the catalog, with the flags and the output of `polyserve serve --json`. It builds faster than the command.
//! With `--print=FILE` it writes a line for each request to the file, like the published entity server.
//!
//! Built with `--cfg polyserve_without="pipeline_flush"` its codec sends every answer alone; with
//! `--cfg polyserve_without="date_cache"` it formats a date for each.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, LineWriter, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use polyserve::catalog::Catalog;
use polyserve::env::{SETTINGS, Settings};
use polyserve::signals::Signals;
use polyserve::{Answer, Drain, Head, Reply, Request, ServerExt as _, Service};
use polyserve_ladder::{end_with_stdin, say};

/// The flags other than the settings of every server, as `--name=value`.
const OWN: [&str; 5] = ["server", "repo", "service", "listen", "print"];
/// Words of `polyserve serve` that this program ignores.
const UNDERSTOOD: [&str; 2] = ["serve", "--json"];
const UNTIL_STDIN_ENDS: &str = "--until-stdin-ends";

fn main() -> Result<(), Box<dyn Error>> {
    let signals = Signals::register()?;
    let (told, until_stdin_ends) = read(std::env::args().skip(1))?;
    let or = |name: &str, usual: &str| told.get(name).cloned().unwrap_or_else(|| usual.to_owned());
    let settings = Settings::read(|name| told.get(name).cloned(), |variable| std::env::var_os(variable))?;
    let catalog = Catalog::builtin();
    let entry = catalog.server(&or("server", "tokio_per_core"))?;
    let server = settings.make(|config| (entry.make)(config))?;
    let repo = (catalog.repo(&or("repo", "two_level"))?.make)()?;
    let service = (catalog.service(&or("service", "welcome"))?.make)(repo);
    let service: Arc<dyn Service> = match told.get("print") {
        Some(file) => Arc::new(Printing::new(service, file)?),
        None => service,
    };
    let running = server.serve(settings.listen, service)?;
    say(&format!(r#"{{"listening":"http://{}"}}"#, running.local_addr()))?;
    if until_stdin_ends {
        end_with_stdin()?;
    }
    let Drain { answered, cut, stuck, .. } = signals.drain(running)?;
    say(&format!(r#"{{"answered":{answered},"cut":{cut},"stuck":{stuck}}}"#))?;
    Ok(())
}

/// A service that writes a line for each request, under a lock, like `println!`.
struct Printing {
    service: Arc<dyn Service>,
    lines: Mutex<LineWriter<std::fs::File>>,
}

impl Printing {
    fn new(service: Arc<dyn Service>, file: &str) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(file)?;
        Ok(Self { service, lines: Mutex::new(LineWriter::new(file)) })
    }
}

impl Service for Printing {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let Head { method, target, .. } = request.head;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(lines, "{method:?} {target}"); // a request is answered without its line too
        drop(lines);
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

/// The settings by name, and whether the end of standard input ends the process.
fn read(words: impl Iterator<Item = String>) -> Result<(HashMap<String, String>, bool), String> {
    let (mut told, mut until_stdin_ends) = (HashMap::new(), false);
    for word in words {
        if UNDERSTOOD.contains(&word.as_str()) {
            continue;
        }
        if word == UNTIL_STDIN_ENDS {
            until_stdin_ends = true;
            continue;
        }
        let (flag, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not --name=value"))?;
        let own = OWN.into_iter().find(|own| flag.strip_prefix("--") == Some(own));
        let name = own.or_else(|| SETTINGS.iter().find(|setting| setting.flag() == flag).map(|setting| setting.name()));
        told.insert(name.ok_or_else(|| format!("{flag:?} is not known"))?.to_owned(), value.to_owned());
    }
    Ok((told, until_stdin_ends))
}
