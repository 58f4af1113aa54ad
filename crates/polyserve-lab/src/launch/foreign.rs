//! The contestants from other projects, which take part on request: frameworks in Rust, the programs in Go, and nginx.
//! This module lists them, builds them, and returns the command that starts each one.
//!
//! Invariant: a contestant that cannot take part is listed with the reason. It does not prevent the others from taking
//! part. Cost: the builds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polyserve::{Shape, Shutdown, cores};

use super::{Launch, go, nginx, peers};

/// A server from another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// One of [`peers::NAMES`].
    Peer(&'static str),
    /// A server in Go.
    Go(&'static go::GoServer),
    /// nginx with a fixed answer.
    Nginx,
}

/// The directories of the sources. `None` is the directory in this repository.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForeignSources<'a> {
    /// The package of the Rust frameworks.
    pub peers: Option<&'a Path>,
    /// The module of the Go programs.
    pub go: Option<&'a Path>,
}

impl Foreign {
    /// All contestants from other projects.
    pub fn all() -> Vec<Self> {
        let rust = peers::NAMES.into_iter().map(Self::Peer);
        rust.chain(go::SERVERS.iter().map(Self::Go)).chain([Self::Nginx]).collect()
    }

    /// Returns the contestant of this name. Accepts the names in flags and in tables: `hyper`, `peer/hyper`,
    /// `go/nethttp`, `nginx`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|server| name == server.name() || name == server.title())
    }

    /// The name in flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer(name) => name,
            Self::Go(server) => server.name,
            Self::Nginx => nginx::NAME,
        }
    }

    /// The name in tables.
    pub fn title(self) -> String {
        match self {
            Self::Peer(name) => format!("{}{name}", peers::PREFIX),
            Self::Go(_) | Self::Nginx => self.name().to_owned(),
        }
    }

    /// How the server handles connections. A goroutine of the twin serves one connection at a time, as does a thread of
    /// [`BARE_POOL`](peers::BARE_POOL).
    pub fn shape(self) -> Shape {
        match self {
            Self::Go(server) if server.is_twin() => Shape::OnePerThread,
            Self::Peer(peers::BARE_POOL) => Shape::OnePerThread,
            Self::Peer(_) | Self::Go(_) | Self::Nginx => Shape::Multiplexed,
        }
    }

    /// The maximum number of connections that the server serves concurrently; `None` if unlimited. `workers` overrides
    /// the default, which is smaller if the server may not use all cores.
    pub fn max_concurrent(self, workers: Option<usize>) -> Option<usize> {
        match self {
            Self::Go(server) => server.max_concurrent(workers),
            Self::Peer(peers::BARE_POOL) => Some(workers.unwrap_or_else(cores)),
            Self::Peer(_) | Self::Nginx => None,
        }
    }

    /// How long the server waits for a request on an idle connection while others wait; `None` if it waits forever.
    pub fn head_timeout(self) -> Option<Duration> {
        matches!(self, Self::Go(_)).then_some(go::HEAD_TIMEOUT)
    }

    /// Whether the server stores entities. nginx sends one fixed answer.
    pub fn keeps_entities(self) -> bool {
        self != Self::Nginx
    }
}

/// A contestant that was requested, after its build.
#[derive(Clone, Debug)]
pub struct ForeignProgram {
    /// The contestant.
    pub server: Foreign,
    /// The program, or the reason why it does not run.
    pub program: Result<PathBuf, String>,
    /// Whether the program is missing because it is not installed.
    pub is_absent: bool,
    site: Option<Arc<nginx::Site>>,
}

impl ForeignProgram {
    /// A contestant without a build, to validate a command's arguments.
    pub fn unbuilt(server: Foreign) -> Self {
        Self { server, program: Ok(PathBuf::new()), is_absent: false, site: None }
    }

    /// Returns the command that starts the contestant. `None` is the contestant's default number of workers.
    ///
    /// # Errors
    ///
    /// Returns the reason why the contestant does not run.
    pub fn launch(&self, workers: Option<usize>) -> Result<Launch, String> {
        let program = self.program.as_ref().map_err(String::clone)?;
        match self.server {
            Foreign::Peer(_) => Ok(peers::launch(program, workers)),
            Foreign::Go(server) => Ok(server.launch(program, workers)),
            Foreign::Nginx if workers.is_some_and(|workers| workers > 1) => {
                Err(String::from("nginx is one process here, which has one worker"))
            }
            Foreign::Nginx => match &self.site {
                Some(site) => site.launch(program).map_err(|error| format!("nginx: {error}")),
                None => Ok(peers::launch(program, workers)), // not built: it is never started
            },
        }
    }
}

/// Builds the contestants, and prints each build on standard error. Returns each contestant once, in the order of
/// [`Foreign::all`], and then the variants in Go.
pub fn build(asked: &[Foreign], sources: ForeignSources<'_>, allocator: &str, stop: &Shutdown) -> Vec<ForeignProgram> {
    let is_asked = |server: &Foreign| asked.contains(server);
    let names: Vec<_> = peers::NAMES.into_iter().filter(|name| is_asked(&Foreign::Peer(name))).collect();
    let servers: Vec<_> = go::GoServer::all().filter(|server| is_asked(&Foreign::Go(server))).collect();
    let programs: Vec<_> = servers.iter().map(|server| server.program).collect();

    let mut all: Vec<ForeignProgram> = peers::Package::new(sources.peers, allocator)
        .build(&names, stop)
        .into_iter()
        .map(|peer| ForeignProgram { program: peer.program, ..ForeignProgram::unbuilt(Foreign::Peer(peer.name)) })
        .collect();
    let built = go::Module::new(sources.go).build(&programs, stop);
    let no_go = !servers.is_empty() && go::is_installed().is_err();
    all.extend(servers.into_iter().map(|server| {
        let file = built.iter().find(|(name, _)| *name == server.program);
        let program = file.map_or_else(|| Err(String::from("it was not built")), |(_, file)| file.clone());
        ForeignProgram { program, is_absent: no_go, ..ForeignProgram::unbuilt(Foreign::Go(server)) }
    }));
    all.extend(is_asked(&Foreign::Nginx).then(nginx));
    all
}

fn nginx() -> ForeignProgram {
    let program = nginx::program();
    let is_absent = program.is_err();
    match program.and_then(|program| Ok((program, nginx::Site::new().map_err(|error| error.to_string())?))) {
        Ok((program, site)) => ForeignProgram {
            program: Ok(program),
            site: Some(Arc::new(site)),
            ..ForeignProgram::unbuilt(Foreign::Nginx)
        },
        Err(why) => ForeignProgram { program: Err(why), is_absent, ..ForeignProgram::unbuilt(Foreign::Nginx) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        let all = Foreign::all();
        for server in &all {
            assert_eq!(Foreign::named(server.name()), Some(*server));
            assert_eq!(Foreign::named(&server.title()), Some(*server));
        }
        assert_eq!(all.len(), peers::NAMES.len() + go::SERVERS.len() + 1);
        assert_eq!((Foreign::named("peer/nginx"), Foreign::named("twin-rwmutex")), (None, None));
        assert_eq!(Foreign::named("go/twin-syncmap").map(Foreign::shape), Some(Shape::OnePerThread));
        assert_eq!(Foreign::named("go/fasthttp").map(Foreign::shape), Some(Shape::Multiplexed));
    }

    #[test]
    fn a_contestant_without_sources_is_listed() {
        let nowhere = Some(Path::new("/nonexistent"));
        let sources = ForeignSources { peers: nowhere, go: nowhere };
        let asked = ["go/twin-syncmap", "warp", "go/twin-rwmutex"].map(|name| Foreign::named(name).unwrap());
        let all = build(&asked, sources, "system", &Shutdown::new());
        let names: Vec<_> = all.iter().map(|program| program.server.title()).collect();
        assert_eq!(names, ["peer/warp", "go/twin-rwmutex", "go/twin-syncmap"]);
        for program in all {
            let why = program.launch(None).unwrap_err();
            assert!(why.contains("holds no "), "{why}");
        }
    }

    #[test]
    fn nginx_has_one_worker() {
        let program = ForeignProgram::unbuilt(Foreign::Nginx);
        assert!(program.launch(Some(2)).unwrap_err().contains("one worker"));
        program.launch(Some(1)).unwrap();
    }
}
