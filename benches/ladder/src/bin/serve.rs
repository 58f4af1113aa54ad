//! Any server of the catalog, with the flags and the output of `polyserve serve --json`. It builds faster than the
//! command. With `--print=FILE` it writes a line per request to the file, like the published entity server.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, LineWriter, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use polyserve::catalog::{Catalog, Entry};
use polyserve::env::{SETTINGS, Settings};
use polyserve::signals::Signals;
use polyserve::{Answer, Drain, Head, Reply, Request, ServerExt as _, Service};
use polyserve_ladder::{end_with_stdin, say};
use welcome::Welcome;

// The service of `polyserve serve --service welcome`. Its crate would make each rung's build longer.
#[path = "../../../../crates/polyserve-bench/src/services/welcome.rs"]
mod welcome;

/// The flags other than the settings of every server, as `--name=value`.
const OWN_FLAGS: [&str; 5] = ["server", "repo", "service", "listen", "print"];
/// Arguments of `polyserve serve` that this program ignores.
const IGNORED_WORDS: [&str; 2] = ["serve", "--json"];
const UNTIL_STDIN_ENDS: &str = "--until-stdin-ends";

fn main() -> Result<(), Box<dyn Error>> {
    let signals = Signals::register()?;
    let (given, until_stdin_ends) = read(std::env::args().skip(1))?;
    let given_or = |name: &str, default: &str| given.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let settings = Settings::read(|name| given.get(name).cloned(), |variable| std::env::var_os(variable))?;
    let welcome = Entry::service("welcome", "GET /welcome is Welcome!", &[], |_| Arc::new(Welcome));
    let catalog = Catalog::builtin().with_service(welcome);
    let entry = catalog.server(&given_or("server", "tokio_per_core"))?;
    let server = settings.make(|config| entry.build(config))?;
    let repo = catalog.repo(&given_or("repo", "two_level"))?.build()?;
    let service = catalog.service(&given_or("service", "welcome"))?.build(repo);
    let service: Arc<dyn Service> = match given.get("print") {
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

/// A service that writes a line per request, under a lock, like `println!`.
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
        let _ = writeln!(lines, "{method:?} {target}"); // a failed write does not fail the request
        drop(lines);
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

/// Returns the settings by name, and whether the process ends with standard input.
fn read(words: impl Iterator<Item = String>) -> Result<(HashMap<String, String>, bool), String> {
    let (mut given, mut until_stdin_ends) = (HashMap::new(), false);
    for word in words {
        if IGNORED_WORDS.contains(&word.as_str()) {
            continue;
        }
        if word == UNTIL_STDIN_ENDS {
            until_stdin_ends = true;
            continue;
        }
        let (flag, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not --name=value"))?;
        let own = OWN_FLAGS.into_iter().find(|name| flag.strip_prefix("--") == Some(name));
        let name = own.or_else(|| SETTINGS.iter().find(|setting| setting.flag() == flag).map(|setting| setting.name()));
        given.insert(name.ok_or_else(|| format!("{flag:?} is not known"))?.to_owned(), value.to_owned());
    }
    Ok((given, until_stdin_ends))
}
