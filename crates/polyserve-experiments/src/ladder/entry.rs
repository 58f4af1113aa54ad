//! Who climbs: every subject on every rung, each lowest rung once more, and the references.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use polyserve::{Connections, Shutdown};
use polyserve_lab::compare::contestant::{Contestant, Role as Part};
use polyserve_lab::launch::{AddressFrom, Launch, go};

use super::record::{self, NotRun, Role};
use super::rung::{Rung, Settings};
use super::variant::{Binary, Sources, Variant, fingerprint};

/// Whose optimisations are measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name: a server of the catalog, or `warp`.
    pub name: String,
    /// The binary that it is in.
    pub binary: Binary,
    /// What it is told, whatever the rung.
    pub args: Vec<String>,
    /// What its shape can do with connections.
    pub shape: Connections,
}

/// Somebody who takes part, ready to be started.
#[derive(Clone, Debug)]
pub struct Climber {
    /// What is recorded of it.
    pub record: record::Contestant,
    /// How it is started and measured.
    pub contestant: Contestant,
}

/// What begins a reference's name, as in the published ladder: `go-fasthttp`.
pub const GO: &str = "go-";

impl Subject {
    fn launch(&self, program: &Path, settings: &Settings) -> Launch {
        let mut args = vec![String::from("--until-stdin-ends"), String::from("--listen=127.0.0.1:0")];
        let address = match self.binary {
            Binary::Serve | Binary::ServeAll => {
                args.extend([format!("--server={}", self.name), String::from("--service=welcome")]);
                AddressFrom::Json
            }
            Binary::Warp => {
                let told = [(settings.pipeline_flush, "pipeline_flush"), (settings.date_cache, "date_cache")];
                let without = told.into_iter().filter(|(is_set, _)| !is_set);
                args.extend(without.map(|(_, name)| format!("--without={name}")));
                AddressFrom::Line("listening on ".into())
            }
        };
        let args = args.iter().chain(&self.args).map(OsString::from).collect();
        Launch { program: program.to_owned(), args, env: Vec::new(), address }
    }

    fn climber(&self, rung: &Rung, below: Option<&Rung>, program: &Path) -> Result<Climber, String> {
        let name = rung.settings.name_for(&self.name);
        let contestant = Contestant::new(&name, Part::Ranked, self.launch(program, &rung.settings));
        let (program_bytes, program_hash) = print_of(program)?;
        let record = record::Contestant {
            name,
            role: Role::Rung,
            subject: self.name.clone(),
            step: rung.step.map(|step| step.name().to_owned()),
            below: below.map(|below| below.settings.name_for(&self.name)),
            aside: rung.step.is_some_and(super::rung::Step::is_aside),
            settings: Some(rung.settings.clone()),
            program_bytes,
            program_hash,
            answer_bytes: 0,
        };
        Ok(Climber { record, contestant: contestant.with(|one| one.shape = Some(self.shape)) })
    }
}

/// Builds what the subjects need for these rungs, all of it once, and lists who climbs and who cannot.
pub fn climbers(
    subjects: &[Subject],
    rungs: &[Rung],
    sources: &Sources,
    stop: &Shutdown,
) -> (Vec<Climber>, Vec<NotRun>) {
    let variant = |subject: &Subject, rung: &Rung| Variant {
        binary: subject.binary,
        settings: subject.binary.built_with(&rung.settings),
    };
    let mut variants: Vec<Variant> = Vec::new();
    for (subject, rung) in subjects.iter().flat_map(|subject| rungs.iter().map(move |rung| (subject, rung))) {
        let wanted = variant(subject, rung);
        if !variants.contains(&wanted) {
            variants.push(wanted);
        }
    }
    let built: Vec<Result<PathBuf, String>> = sources.build(&variants, stop);
    let (mut climbers, mut not_run) = (Vec::new(), Vec::new());
    for subject in subjects {
        for rung in rungs {
            let wanted = variant(subject, rung);
            let program = variants.iter().zip(&built).find(|(variant, _)| **variant == wanted).map(|(_, built)| built);
            let program = program.cloned().unwrap_or_else(|| Err(String::from("it was not built")));
            let below = rung.below.map(|below| &rungs[below]);
            match program.and_then(|program| subject.climber(rung, below, &program)) {
                Ok(climber) => {
                    let control = (rung.below.is_none()).then(|| control(&climber));
                    climbers.push(climber);
                    climbers.extend(control);
                }
                Err(why) => {
                    not_run.push(NotRun { name: rung.settings.name_for(&subject.name), role: Role::Rung, why });
                }
            }
        }
    }
    (climbers, not_run)
}

/// The lowest rung once more.
fn control(Climber { record, contestant }: &Climber) -> Climber {
    let name = format!("{} (again)", record.name);
    let record = record::Contestant { name: name.clone(), role: Role::Control, ..record.clone() };
    Climber { record, contestant: contestant.clone().with(|one| one.name = name) }
}

/// Builds the references of these names, `go-fasthttp`, from the sources in `root`, and lists them.
pub fn references(
    names: &[String],
    root: Option<&Path>,
    workers: Option<usize>,
    stop: &Shutdown,
) -> (Vec<Climber>, Vec<NotRun>) {
    let servers: Vec<go::Server> = names.iter().filter_map(|name| server(name)).collect();
    let module = go::Module::new(root.map(|root| root.join("benches/peers/go")).as_deref());
    let programs: Vec<&'static str> = servers.iter().map(|server| server.program).collect();
    let built = module.build(&programs, stop);
    let (mut climbers, mut not_run) = (Vec::new(), Vec::new());
    for server in servers {
        let name = server.name.replacen(go::PREFIX, GO, 1);
        let program = built.iter().find(|(program, _)| *program == server.program).map(|(_, program)| program.clone());
        let program = program.unwrap_or_else(|| Err(String::from("it was not built")));
        match program.and_then(|program| Ok((print_of(&program)?, program))) {
            Ok(((program_bytes, program_hash), program)) => climbers.push(Climber {
                record: record::Contestant {
                    name: name.clone(),
                    role: Role::Reference,
                    subject: name.clone(),
                    step: None,
                    below: None,
                    aside: false,
                    settings: None,
                    program_bytes,
                    program_hash,
                    answer_bytes: 0,
                },
                contestant: Contestant::new(&name, Part::Ranked, server.launch(&program, workers))
                    .with(|one| one.shape = Some(Connections::Multiplexed)),
            }),
            Err(why) => not_run.push(NotRun { name, role: Role::Reference, why }),
        }
    }
    (climbers, not_run)
}

/// The Go server with this name of a reference; `None` where there is none that has the welcome.
pub fn server(name: &str) -> Option<go::Server> {
    let known = ["go/fasthttp", "go/nethttp"].into_iter().find(|known| known.replacen(go::PREFIX, GO, 1) == name)?;
    go::Server::named(known).copied()
}

fn print_of(program: &Path) -> Result<(u64, String), String> {
    fingerprint(program).map_err(|error| format!("{} cannot be read: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::rung::{QUICK, rungs};

    #[test]
    fn a_rung_is_started_with_what_it_was_not_built_with() {
        let subject = |binary| Subject {
            name: "any".into(),
            binary,
            args: vec!["--workers=2".into()],
            shape: Connections::Multiplexed,
        };
        let ladder = rungs(&QUICK);
        let args = |binary, rung: &Rung| {
            let launch = subject(binary).launch(Path::new("p"), &rung.settings);
            launch.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let lowest = args(Binary::Warp, &ladder[0]);
        assert!(lowest.ends_with("--without=pipeline_flush --without=date_cache --workers=2"), "{lowest}");
        let top = args(Binary::Warp, &ladder[3]);
        assert!(!top.contains("pipeline_flush") && top.contains("--without=date_cache"), "{top}");
        let ours = args(Binary::Serve, &ladder[0]);
        assert!(ours.contains("--server=any --service=welcome") && !ours.contains("without"), "{ours}");
    }

    #[test]
    fn references_have_their_published_names() {
        assert_eq!(server("go-fasthttp").unwrap().name, "go/fasthttp");
        assert!(server("go-nethttp").is_some() && server("go-twin-rwmutex").is_none() && server("fasthttp").is_none());
    }

    #[test]
    fn who_cannot_be_built_is_named() {
        let subjects =
            [Subject { name: "warp".into(), binary: Binary::Warp, args: Vec::new(), shape: Connections::Multiplexed }];
        let nowhere = Path::new("/nonexistent");
        let stop = Shutdown::new();
        let (none, not_run) = climbers(&subjects, &rungs(&QUICK), &Sources::new(Some(nowhere)), &stop);
        let names: Vec<&str> = not_run.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["warp", "warp+lto", "warp+lto+jemalloc", "warp+lto+jemalloc+pipeline-flush"]);
        assert!(none.is_empty() && not_run.iter().all(|one| one.why.contains("holds no package")));
        let (none, not_run) = references(&["go-fasthttp".into()], Some(nowhere), None, &stop);
        assert!(none.is_empty() && not_run[0].why.contains("holds no module"), "{not_run:?}");
    }
}
