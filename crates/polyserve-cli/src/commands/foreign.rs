//! The foreign servers that a flag names: `--peers hyper,go/nethttp` or `--peers all`.

use polyserve::Shutdown;
use polyserve_lab::Misuse;
use polyserve_lab::launch::Launch;
use polyserve_lab::launch::foreign::{self, Foreign, ForeignSources};

use super::names::ALL;

/// The error for a name that no foreign server has.
pub(crate) fn unknown(name: &str) -> String {
    let names: Vec<_> = Foreign::all().into_iter().map(Foreign::name).collect();
    format!("there is no peer {name:?}: they are {}, or {ALL}", names.join(", "))
}

/// Returns the foreign servers of a flag, and whether it names [`ALL`] of them.
pub(crate) fn foreign_servers(names: &[String]) -> Result<(Vec<Foreign>, bool), Misuse> {
    let (mut named, mut is_all) = (Vec::new(), false);
    for name in names {
        match Foreign::named(name) {
            Some(server) => named.push(server),
            None if name == ALL => is_all = true,
            None => return Err(Misuse(unknown(name))),
        }
    }
    Ok((named, is_all))
}

/// A foreign server of a flag, after its build.
pub(crate) struct BuiltServer {
    pub(crate) name: String,
    /// Its process, or why it cannot take part.
    pub(crate) launch: Result<Launch, String>,
    /// Whether a missing one is no error: it was not asked for by name, or is not installed.
    pub(crate) is_excused: bool,
}

/// Builds the foreign servers of a flag that keep entities. `connections` is the number that each must serve at a
/// time, if connections are kept.
pub(crate) fn built(
    names: &[String],
    workers: Option<usize>,
    connections: Option<usize>,
    allocator: &str,
    stop: &Shutdown,
) -> Result<Vec<BuiltServer>, Misuse> {
    let (named, is_all) = foreign_servers(names)?;
    let is_selected = |server: &Foreign| is_all || named.contains(server);
    let selected: Vec<Foreign> = Foreign::all().into_iter().filter(is_selected).collect();
    let built = foreign::build(&selected, ForeignSources::default(), allocator, stop).into_iter().map(|program| {
        let server = program.server;
        let launch =
            match server.max_concurrent(workers).zip(connections).filter(|(max, connections)| max < connections) {
                Some((max, _)) => Err(format!("it serves {max} connections at a time")),
                None if !server.keeps_entities() => Err(String::from("it stores no entities")),
                None => program.launch(workers),
            };
        BuiltServer { name: server.title(), launch, is_excused: program.is_absent || !named.contains(&server) }
    });
    Ok(built.collect())
}
