//! The contestants: every subject on every rung, a second entry of each lowest rung, and the references.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::compare::contestant::{self, Contestant};
use crate::contestants::{self, BuiltProgram, Program, Registry};
use crate::experiment::{again, distinct};
use crate::launch::{AddressFrom, Launch};
use polyserve::{Shape, Shutdown};

use super::record::{RungEntry, RungRole};
use super::rung::{self, BuildSettings, Rung, RungStep};
use super::variant::{Binary, LadderSources, Variant, fingerprint};

/// A server, which has a ladder of its own.
#[derive(Clone, Debug)]
pub struct LadderSubject {
    /// The name: a server of the catalog, or `warp`.
    pub name: String,
    /// The binary that contains it.
    pub binary: Binary,
    /// Arguments on every rung.
    pub args: Vec<String>,
    /// The server's shape.
    pub shape: Shape,
    /// Whether it runs on tokio.
    pub is_on_tokio: bool,
}

/// A contestant that can be started.
#[derive(Clone, Debug)]
pub struct Participant {
    /// The contestant, as it is recorded. The length of its answer is not known yet.
    pub entry: RungEntry,
    /// The process, and how it is measured.
    pub contestant: Contestant,
}

/// A rung or a reference after the build.
#[derive(Clone, Debug)]
pub struct RungBuild {
    /// The name of the rung or the reference.
    pub name: String,
    /// Its contestants, or why there are none. A lowest rung has two.
    pub result: Result<Vec<Participant>, String>,
}

/// The `Server` header of our servers. The published answers name their server, in eight letters.
const SERVER: &str = "polyserv";

/// The prefix of a reference's name, as in the published ladder: `go-fasthttp`.
pub const GO: &str = "go-";

impl LadderSubject {
    /// Returns true if the step can change the subject. The dates of warp are formatted once per second on every rung. The codec
    /// of our servers hashes no names, and it has a clock of its own.
    fn supports(&self, step: RungStep) -> bool {
        let is_warp = self.binary == Binary::Warp;
        match step {
            RungStep::DateCache => !is_warp,
            RungStep::HeaderHash | RungStep::ClockReads | RungStep::DateEach => is_warp,
            RungStep::WakerArray => is_warp || self.is_on_tokio,
            _ => true,
        }
    }

    fn launch(&self, program: &Path, settings: &BuildSettings) -> Launch {
        let mut args = vec![String::from("--until-stdin-ends"), String::from("--listen=127.0.0.1:0")];
        let address = match self.binary {
            Binary::Serve | Binary::ServeAll => {
                let server = format!("--server={}", self.name);
                args.extend([server, String::from("--service=welcome"), format!("--server-header={SERVER}")]);
                AddressFrom::Json
            }
            Binary::Warp => {
                let without = [(!settings.pipeline_flush, "pipeline_flush"), (settings.date_each, "date_cache")];
                let flags = without.iter().filter(|(is_off, _)| *is_off).map(|(_, name)| format!("--without={name}"));
                args.extend(flags);
                AddressFrom::Line("listening on ".into())
            }
        };
        let args = args.iter().chain(&self.args).map(OsString::from).collect();
        Launch { program: program.to_owned(), args, env: Vec::new(), address, files: Vec::new() }
    }

    /// The contestants of a rung: one, and the control if it is the lowest.
    fn participants(&self, rung: &Rung, below: Option<&Rung>, program: &Path) -> Result<Vec<Participant>, String> {
        let name = rung.settings.name_for(&self.name);
        let (program_bytes, program_hash) = fingerprint_of(program)?;
        let entry = RungEntry {
            name,
            role: RungRole::Rung,
            subject: self.name.clone(),
            step: rung.step.map(|step| step.name().to_owned()),
            below: below.map(|below| below.settings.name_for(&self.name)),
            aside: rung.step.is_some_and(RungStep::is_aside),
            settings: Some(rung.settings.clone()),
            program_bytes,
            program_hash,
            answer_bytes: 0,
        };
        let control = rung.below.is_none().then(|| RungEntry {
            name: again(&entry.name),
            role: RungRole::Control,
            ..entry.clone()
        });
        let launch = self.launch(program, &rung.settings);
        let participant = |entry: RungEntry| Participant::new(entry, launch.clone(), self.shape);
        Ok([entry].into_iter().chain(control).map(participant).collect())
    }
}

impl Participant {
    fn new(entry: RungEntry, launch: Launch, shape: Shape) -> Self {
        let contestant = Contestant::new(&entry.name, contestant::Role::Ranked, launch);
        Self { entry, contestant: contestant.with(|contestant| contestant.shape = Some(shape)) }
    }
}

/// Builds the programs that the subjects need for their rungs of these steps, each once. Returns every subject on every rung.
pub fn rungs(
    subjects: &[LadderSubject],
    steps: &[RungStep],
    sources: &LadderSources,
    stop: &Shutdown,
) -> Vec<RungBuild> {
    let ladder = |subject: &LadderSubject| {
        let steps: Vec<RungStep> = steps.iter().copied().filter(|step| subject.supports(*step)).collect();
        rung::rungs(&steps)
    };
    let ladders: Vec<(&LadderSubject, Vec<Rung>)> = subjects.iter().map(|subject| (subject, ladder(subject))).collect();
    let variant = |subject: &LadderSubject, rung: &Rung| Variant {
        binary: subject.binary,
        settings: subject.binary.built_with(&rung.settings),
    };
    let all = || ladders.iter().flat_map(|(subject, rungs)| rungs.iter().map(move |rung| (*subject, rungs, rung)));
    let variants = distinct(all().map(|(subject, _, rung)| variant(subject, rung)));
    let built: Vec<Result<PathBuf, String>> = sources.build(&variants, stop);
    let build = |(subject, rungs, rung): (&LadderSubject, &Vec<Rung>, &Rung)| {
        let needed = variant(subject, rung);
        let program = variants.iter().zip(&built).find(|(variant, _)| **variant == needed).map(|(_, built)| built);
        let program = program.cloned().unwrap_or_else(|| Err(String::from("it was not built")));
        let below = rung.below.map(|below| &rungs[below]);
        let result = program.and_then(|program| subject.participants(rung, below, &program));
        RungBuild { name: rung.settings.name_for(&subject.name), result }
    };
    all().map(build).collect()
}

/// Builds the references of these names, such as `go-fasthttp`, from the sources in `root`.
pub fn references(names: &[String], root: Option<&Path>, workers: Option<usize>, stop: &Shutdown) -> Vec<RungBuild> {
    let go = root.map(|root| root.join("benches/peers/go"));
    let registry = Registry::repository().clone().with_sources(contestants::GO, go.as_deref());
    let servers = names.iter().filter_map(|name| registry.named(server(name)?.name()));
    let build = |built: BuiltProgram| {
        let name = built.program.name().replacen(contestants::GO, GO, 1);
        let participant = || {
            let launch = built.launch(workers)?;
            let (program_bytes, program_hash) = fingerprint_of(&launch.program)?;
            let entry = RungEntry {
                name: name.clone(),
                role: RungRole::Reference,
                subject: name.clone(),
                step: None,
                below: None,
                aside: false,
                settings: None,
                program_bytes,
                program_hash,
                answer_bytes: 0,
            };
            Ok(vec![Participant::new(entry, launch, Shape::Multiplexed)])
        };
        let result = participant();
        RungBuild { name, result }
    };
    contestants::build(servers, "", stop).into_iter().map(build).collect()
}

/// The Go server of a reference's name; `None` if no server with the welcome has that name.
pub fn server(name: &str) -> Option<&'static Program> {
    let is_named = |known: &&str| known.replacen(contestants::GO, GO, 1) == name;
    Registry::repository().named(["go/fasthttp", "go/nethttp"].into_iter().find(is_named)?)
}

fn fingerprint_of(program: &Path) -> Result<(u64, String), String> {
    fingerprint(program).map_err(|error| format!("{} cannot be read: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::rung::{QUICK, STEPS, rungs};

    fn subject(binary: Binary) -> LadderSubject {
        let (name, args, shape) = ("warp".into(), Vec::new(), Shape::Multiplexed);
        LadderSubject { name, binary, args, shape, is_on_tokio: true }
    }

    #[test]
    fn a_rung_is_started_with_what_it_was_not_built_with() {
        let subject =
            |binary| LadderSubject { name: "any".into(), args: vec!["--workers=2".into()], ..subject(binary) };
        let ladder = rungs(&QUICK);
        let args = |binary, rung: &Rung| {
            let launch = subject(binary).launch(Path::new("p"), &rung.settings);
            launch.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let lowest = args(Binary::Warp, &ladder[0]);
        assert!(lowest.ends_with("--without=pipeline_flush --workers=2"), "{lowest}");
        let top = args(Binary::Warp, &ladder[3]);
        assert!(!top.contains("without"), "{top}");
        let ours = args(Binary::Serve, &ladder[0]);
        assert!(ours.contains("--server=any --service=welcome") && !ours.contains("without"), "{ours}");
    }

    #[test]
    fn references_have_their_published_names() {
        assert_eq!(server("go-fasthttp").unwrap().name(), "go/fasthttp");
        assert!(server("go-nethttp").is_some() && server("go-twin-rwmutex").is_none() && server("fasthttp").is_none());
    }

    #[test]
    fn a_rung_that_cannot_be_built_is_named() {
        let subjects = [subject(Binary::Warp)];
        let nowhere = Path::new("/nonexistent");
        let stop = Shutdown::new();
        let built = super::rungs(&subjects, &QUICK, &LadderSources::new(Some(nowhere)), &stop);
        let names: Vec<&str> = built.iter().map(|build| build.name.as_str()).collect();
        assert_eq!(names, ["warp", "warp+lto", "warp+lto+jemalloc", "warp+lto+jemalloc+pipeline-flush"]);
        assert!(built.iter().all(|build| build.result.as_ref().unwrap_err().contains("has no Cargo.toml")));
        let built = references(&["go-fasthttp".into()], Some(nowhere), None, &stop);
        assert!(built[0].result.as_ref().unwrap_err().contains("holds no "), "{built:?}");
    }

    #[test]
    fn a_step_that_cannot_change_a_subject_is_left_out() {
        let steps = |subject: &LadderSubject| -> Vec<&str> {
            STEPS.iter().filter(|step| !subject.supports(**step)).map(|step| step.name()).collect()
        };
        assert_eq!(steps(&subject(Binary::Warp)), ["date-cache"]);
        assert_eq!(steps(&subject(Binary::Serve)), ["header-hash", "clock-reads", "date-each"]);
        let threads = LadderSubject { is_on_tokio: false, ..subject(Binary::Serve) };
        assert_eq!(steps(&threads), ["waker-array", "header-hash", "clock-reads", "date-each"]);
    }

    /// The lowest rung has a second entry, which differs from the first by its name and role only.
    #[test]
    fn the_lowest_rung_has_a_control() {
        let subject = subject(Binary::Warp);
        let ladder = rungs(&QUICK);
        let program = std::env::current_exe().unwrap();
        let lowest = subject.participants(&ladder[0], None, &program).unwrap();
        let [rung, control] = &lowest[..] else { panic!("{lowest:?}") };
        assert_eq!((control.entry.name.as_str(), control.contestant.name.as_str()), ("warp (again)", "warp (again)"));
        assert_eq!(
            control.entry,
            RungEntry { name: "warp (again)".into(), role: RungRole::Control, ..rung.entry.clone() }
        );
        assert_eq!(control.contestant.launch, rung.contestant.launch);
        let above = subject.participants(&ladder[1], Some(&ladder[0]), &program).unwrap();
        assert_eq!((above.len(), above[0].entry.below.as_deref()), (1, Some("warp")));
    }
}
