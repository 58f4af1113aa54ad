//! The programs that take part in measurements and are not in the catalog: frameworks in Rust, programs in Go, nginx, twins of
//! published servers, and a user's own servers. `benches/contestants.toml` lists them.
//!
//! Invariant: a program that cannot take part is listed with the reason. It does not prevent the others from taking
//! part. Cost: the builds, which take minutes the first time. All builds end before the first measurement.

mod keys;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use polyserve::files::read_settings_text;
use polyserve::{Shape, Shutdown};
use serde_json::{Value, json};

use self::keys::{Keys, MaxConcurrent, Ready};
use crate::Misuse;
use crate::launch::{AddressFrom, Launch, build};
use crate::reference::BODY;

pub use self::keys::Serves;

/// The name that selects all servers.
pub const ALL: &str = "all";

/// The prefix of frameworks in Rust. Their names are accepted without it.
pub const PEER: &str = "peer/";

/// The prefix of programs in Go.
pub const GO: &str = "go/";

/// The programs of `benches/contestants.toml` and of a user's file.
#[derive(Clone, Debug)]
pub struct Registry {
    programs: Vec<Program>,
}

/// A program of the registry. Two programs are equal if their names are.
#[derive(Clone, Debug)]
pub struct Program(Arc<Keys>);

/// A program after its build.
#[derive(Clone, Debug)]
pub struct BuiltProgram {
    /// The program.
    pub program: Program,
    /// The file to start, or the reason why the program does not run.
    pub file: Result<PathBuf, String>,
    /// Whether the program does not run because it, or its language, is not installed.
    pub is_absent: bool,
}

impl Registry {
    /// The programs of the repository's file.
    ///
    /// # Panics
    ///
    /// Panics if the file is wrong. It is a part of this crate, which a test reads.
    pub fn repository() -> &'static Self {
        static REPOSITORY: LazyLock<Registry> = LazyLock::new(|| {
            let text = include_str!("../../../../benches/contestants.toml");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/contestants.toml");
            Registry::read(&file, text).expect("the repository's file is tested")
        });
        &REPOSITORY
    }

    /// The programs of the repository's file, and those of `file`. A program of `file` replaces one of the same name.
    ///
    /// # Errors
    ///
    /// Returns the file, the line, the key and the reason, if `file` cannot be read or a key is unknown, missing or wrong.
    pub fn load(file: Option<&Path>) -> Result<Self, Misuse> {
        let mut all = Self::repository().clone();
        let Some(file) = file else { return Ok(all) };
        let text = read_settings_text(file).map_err(|error| Misuse(format!("{}: {error}", file.display())))?;
        let own = Self::read(file, &text).map_err(Misuse)?.programs;
        all.programs.retain(|program| !own.contains(program));
        all.programs.extend(own);
        Ok(all)
    }

    fn read(file: &Path, text: &str) -> Result<Self, String> {
        let absolute = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let keys = keys::read(file, text, absolute.parent().unwrap_or(&absolute))?;
        Ok(Self { programs: keys.into_iter().map(|keys| Program(Arc::new(keys))).collect() })
    }

    /// Returns the program of this name. Accepts `peer/hyper`, `peer:hyper` and `hyper`.
    pub fn named(&self, name: &str) -> Option<&Program> {
        let name = name.replacen(':', "/", 1);
        let is_named = |program: &&Program| program.name() == name || program.short_name() == name;
        self.programs.iter().find(is_named)
    }

    /// The servers that [`ALL`] selects, in the order of the files.
    pub fn servers(&self) -> impl Iterator<Item = &Program> {
        self.programs().filter(|program| program.is_server() && !program.0.only_by_name)
    }

    /// All programs, in the order of the files.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter()
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Program {}

impl Program {
    /// The name in tables: `peer/hyper`, `go/nethttp`, `nginx`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The name in flags: `hyper`, `go/nethttp`, `nginx`.
    pub fn short_name(&self) -> &str {
        self.name().strip_prefix(PEER).unwrap_or(self.name())
    }

    /// What the program serves.
    pub fn serves(&self) -> &Serves {
        &self.0.serves
    }

    /// Whether the program answers the requests to this service of a user's program.
    pub fn answers(&self, service: &str) -> bool {
        matches!(self.serves(), Serves::Service(name) if name == service)
    }

    /// Whether a comparison can name the program: it serves entities, a fixed answer, or a service.
    pub fn can_be_compared(&self) -> bool {
        self.is_server() || matches!(self.serves(), Serves::Service(_))
    }

    /// Whether the program is a server of entities, or of a fixed answer in their place.
    pub fn is_server(&self) -> bool {
        matches!(self.serves(), Serves::Entities | Serves::Fixed)
    }

    /// Whether the program stores entities.
    pub fn keeps_entities(&self) -> bool {
        *self.serves() == Serves::Entities
    }

    /// How the program handles connections.
    pub fn shape(&self) -> Shape {
        self.0.shape.unwrap_or(Shape::Multiplexed)
    }

    /// The max number of connections that the program serves at once on this number of cores; `None` if unlimited. `workers` overrides
    /// the default.
    pub fn max_concurrent(&self, workers: Option<usize>, cores: usize) -> Option<usize> {
        self.0.max_concurrent.map(|max| match max {
            MaxConcurrent::PerCore(count) => workers.unwrap_or(cores * count),
            MaxConcurrent::Fixed(max) => max,
        })
    }

    /// How long the program waits for a request on an idle connection while others wait; `None` if it waits forever.
    pub fn head_timeout(&self) -> Option<Duration> {
        self.0.head_timeout
    }

    /// Whether the program sends answers without a `Date`, as a published listing does.
    pub fn is_without_date(&self) -> bool {
        self.0.without_date
    }

    /// The keys that decide what is started, for the plan of a record.
    pub fn started(&self) -> Value {
        let Keys { program, args, options, workers_arg, workers, env, files, .. } = &*self.0;
        json!({"program": program, "args": args, "options": options, "workers_arg": workers_arg, "workers": workers, "env": env, "files": files})
    }

    /// Whether the program can speak TLS: its entry has a key `tls_args` or `tls_files`.
    pub fn speaks_tls(&self) -> bool {
        !self.0.tls_args.is_empty() || !self.0.tls_files.is_empty()
    }

    /// `launch` of this program, with the arguments and files with which it speaks TLS.
    #[must_use]
    pub fn over_tls(&self, mut launch: Launch) -> Launch {
        let fill = |text: &String| self.fill(text).replace("{answer}", BODY);
        launch.args.extend(self.0.tls_args.iter().map(|arg| fill(arg).into()));
        for (name, text) in &self.0.tls_files {
            launch.files.retain(|(known, _)| known != name);
            launch.files.push((name.clone(), fill(text)));
        }
        launch
    }

    /// The names of the variants of the build.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.0.variants.keys().map(String::as_str)
    }

    /// The default number of workers, if the file has one.
    pub fn workers(&self) -> Option<usize> {
        self.0.workers
    }

    /// Returns the command that starts `file`. `None` is the program's default number of workers.
    pub(crate) fn launch(&self, file: &Path, workers: Option<usize>) -> Result<Launch, String> {
        let keys = &self.0;
        match (workers, keys.max_workers) {
            (Some(workers), Some(1)) if workers > 1 => return Err(format!("{} has one worker here", keys.name)),
            (Some(workers), Some(max)) if workers > max => {
                return Err(format!("{} has at most {max} workers here", keys.name));
            }
            (Some(_), None) if keys.workers_arg.is_none() => {
                return Err(format!(
                    "the entry {} has no key workers_arg, so it takes no number of workers",
                    keys.name
                ));
            }
            _ => {}
        }
        let workers = workers.or(keys.workers);
        let number = workers.map(|workers| workers.to_string()).unwrap_or_default();
        let fill = |text: &String| self.fill(text).replace("{workers}", &number).replace("{answer}", BODY);
        let workers_arg = workers.and(keys.workers_arg.as_ref());
        Ok(Launch {
            program: file.to_owned(),
            args: keys.args.iter().chain(&keys.options).chain(workers_arg).map(|arg| fill(arg).into()).collect(),
            env: keys.env.iter().map(|(name, value)| (name.into(), fill(value).into())).collect(),
            address: match &keys.ready {
                None | Some(Ready::Json) => AddressFrom::Json,
                Some(Ready::Line(start)) => AddressFrom::Line(start.clone()),
                Some(Ready::Port) => AddressFrom::Port,
            },
            files: keys.files.iter().map(|(name, text)| (name.clone(), fill(text))).collect(),
        })
    }

    /// `launch` of a program that is not built yet, to validate a command's arguments.
    ///
    /// # Errors
    ///
    /// Returns the reason if the program does not run with this number of workers.
    pub fn unbuilt(&self, workers: Option<usize>) -> Result<Launch, String> {
        self.launch(Path::new(""), workers)
    }

    /// Replaces the placeholders that depend on the entry alone.
    fn fill(&self, text: &str) -> String {
        let Keys { program, source, target, directory, .. } = &*self.0;
        let text = text.replace("{program}", program).replace("{source}", source);
        text.replace("{target}", target).replace("{directory}", directory)
    }

    /// Checks that the language or the program is installed. Returns its program, if it is not in the `PATH`.
    ///
    /// # Errors
    ///
    /// Returns the reason, as tables print it, if it is not installed or does not run.
    pub fn is_installed(&self) -> Result<Option<PathBuf>, String> {
        let Some([program, argument]) = &self.0.requires else { return Ok(None) };
        let Err(why) = build::is_installed(program, argument) else { return Ok(None) };
        let mut places = self.0.search.iter().map(|place| Path::new(place).join(program));
        places.find(|place| build::is_installed(&place.to_string_lossy(), argument).is_ok()).map(Some).ok_or(why)
    }

    /// The command that builds the program as this variant. A variant that the entry lacks is the usual build.
    fn build_command(&self, variant: &str) -> Option<Vec<String>> {
        let more = self.0.variants.get(variant).into_iter().flatten();
        let command: Vec<String> = self.0.build.iter().chain(more).map(|arg| self.fill(arg)).collect();
        (!command.is_empty()).then_some(command)
    }

    fn build(&self, command: &[String], stop: &Shutdown) -> Result<(), String> {
        let keys = &self.0;
        if stop.is_begun() {
            return Err(String::from("it was interrupted before it was built"));
        }
        fs::create_dir_all(&keys.target).map_err(|error| format!("{} cannot be created: {error}", keys.target))?;
        let (program, args) = command.split_first().ok_or_else(|| String::from("it has no build command"))?;
        let mut command = Command::new(program);
        // In the directory of the sources, so that their own toolchain file applies.
        command.args(args).current_dir(&keys.directory).envs(&keys.build_env);
        build::run(command, &format!("building {} into {}", keys.name, keys.target), stop)
    }
}

impl BuiltProgram {
    /// Returns the command that starts the program. `None` is the program's default number of workers.
    ///
    /// # Errors
    ///
    /// Returns the reason why the program does not run.
    pub fn launch(&self, workers: Option<usize>) -> Result<Launch, String> {
        self.program.launch(self.file.as_ref().map_err(String::clone)?, workers)
    }
}

/// A build command, with what it depends on.
type BuildKey = (String, Vec<String>, BTreeMap<String, String>);

/// Builds the programs as this variant (an allocator or `best`), and prints each build on standard error. A build that
/// several programs share runs once.
pub fn build<'a>(programs: impl IntoIterator<Item = &'a Program>, variant: &str, stop: &Shutdown) -> Vec<BuiltProgram> {
    let mut done: BTreeMap<BuildKey, Result<(), String>> = BTreeMap::new();
    let mut built = |program: &Program| {
        let keys = &program.0;
        if !Path::new(&keys.directory).is_dir() {
            return (Err(format!("{} is no directory, so it holds no module and no package", keys.directory)), false);
        }
        let installed = match program.is_installed() {
            Ok(installed) => installed,
            Err(why) => return (Err(why), true),
        };
        if let Some(command) = program.build_command(variant) {
            let key = (keys.directory.clone(), command.clone(), keys.build_env.clone());
            let result = done.entry(key).or_insert_with(|| program.build(&command, stop));
            if let Err(why) = result {
                return (Err(why.clone()), keys.build_installs);
            }
        }
        let file = PathBuf::from(program.fill(&keys.program));
        match installed {
            Some(installed) => (Ok(installed), false),
            None if file.components().count() == 1 => (Ok(file), false), // in the `PATH`
            None => {
                let file = Path::new(&keys.directory).join(file);
                let is_there = file.is_file();
                (if is_there { Ok(file) } else { Err(format!("there is no {}", file.display())) }, false)
            }
        }
    };
    let one = |program: &Program| {
        let (file, is_absent) = built(program);
        BuiltProgram { program: program.clone(), file, is_absent }
    };
    programs.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests;
