//! The page `Welcome!` on any server of the catalog, with the flags and the output of `polyserve serve --json`. It builds faster
//! than the command.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;

use polyserve::catalog::Catalog;
use polyserve::env::{SETTINGS, Settings};
use polyserve::signals::Signals;
use polyserve::{Drain, ServerExt as _};
use polyserve_ladder::{end_with_stdin, say};
use welcome::Welcome;

// The service of `polyserve serve --service welcome`. Its crate would make each rung's build longer.
#[path = "../../../../crates/polyserve-bench/src/services/welcome.rs"]
mod welcome;

/// The flags other than the settings of every server, as `--name=value`.
const OWN_FLAGS: [&str; 2] = ["server", "listen"];
const UNTIL_STDIN_ENDS: &str = "--until-stdin-ends";

fn main() -> Result<(), Box<dyn Error>> {
    let signals = Signals::register()?;
    let (given, until_stdin_ends) = read(std::env::args().skip(1))?;
    let settings = Settings::read(|name| given.get(name).cloned(), |variable| std::env::var_os(variable))?;
    let catalog = Catalog::builtin();
    let entry = catalog.server(given.get("server").map_or("tokio_per_core", String::as_str))?;
    let server = settings.make(|config| entry.build(config))?;
    let running = server.serve(settings.listen, Welcome)?;
    say(&format!(r#"{{"listening":"http://{}"}}"#, running.local_addr()))?;
    if until_stdin_ends {
        end_with_stdin()?;
    }
    let Drain { answered, cut, stuck, .. } = signals.drain(running)?;
    say(&format!(r#"{{"answered":{answered},"cut":{cut},"stuck":{stuck}}}"#))?;
    Ok(())
}

/// Returns the settings by name, and whether the process ends with standard input.
fn read(words: impl Iterator<Item = String>) -> Result<(HashMap<String, String>, bool), String> {
    let (mut given, mut until_stdin_ends) = (HashMap::new(), false);
    for word in words {
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
