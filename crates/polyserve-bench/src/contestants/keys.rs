//! The format of a file of contestants: tables of keys, of which an entry takes those of its base that it lacks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use polyserve::Shape;
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Table, Value};

use crate::bench::definition::optional_time;

/// The keys of an entry. `docs/METHODOLOGY.md` explains them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Keys {
    pub(super) name: String,
    base: Option<String>,
    pub(super) source: String,
    pub(super) serves: Serves,
    pub(super) requires: Option<[String; 2]>,
    pub(super) search: Vec<String>,
    pub(super) directory: String,
    pub(super) target: String,
    pub(super) build: Vec<String>,
    pub(super) build_env: BTreeMap<String, String>,
    pub(super) build_installs: bool,
    pub(super) variants: BTreeMap<String, Vec<String>>,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) options: Vec<String>,
    pub(super) tls_args: Vec<String>,
    pub(super) tls_files: BTreeMap<String, String>,
    pub(super) workers_arg: Option<String>,
    pub(super) workers: Option<usize>,
    pub(super) max_workers: Option<usize>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) ready: Option<Ready>,
    #[serde(deserialize_with = "shape")]
    pub(super) shape: Option<Shape>,
    pub(super) max_concurrent: Option<MaxConcurrent>,
    #[serde(deserialize_with = "optional_time")]
    pub(super) head_timeout: Option<Duration>,
    pub(super) without_date: bool,
    pub(super) only_by_name: bool,
}

/// What a program serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serves {
    /// Entities, by the contract.
    #[default]
    Entities,
    /// One fixed answer.
    Fixed,
    /// The text `Welcome!` at `/`.
    Welcome,
    /// A page that sometimes waits.
    Page,
    /// The servers of the built-in catalog: the program is this command, built in another way.
    Catalog,
    /// CPU tasks, which it reads from its standard input.
    Tasks,
    /// The requests to the service of this name, of the catalog of a user's program.
    Service(String),
}

/// When a program is ready, and how its address is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ready {
    /// The JSON of `polyserve serve --json`.
    Json,
    /// A line that begins with this text. Unless the program is started with a `{port}`, the address follows.
    Line(String),
    /// The `{port}` accepts a connection.
    Port,
}

/// The max number of connections that a program serves at once.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MaxConcurrent {
    /// The number of workers; by default this number for each core.
    PerCore(usize),
    /// This number.
    Fixed(usize),
}

fn shape<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Shape>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "multiplexed" => Ok(Some(Shape::Multiplexed)),
        "one_per_thread" => Ok(Some(Shape::OnePerThread)),
        "one" => Ok(Some(Shape::One)),
        _ => Err(serde::de::Error::custom("shape is multiplexed, one_per_thread or one")),
    }
}

/// A file, to check each key at its place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(default, rename = "base")]
    _bases: BTreeMap<String, Keys>,
    #[serde(default, rename = "contestant")]
    _contestants: Vec<Keys>,
}

/// A file, to merge the tables.
#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    base: BTreeMap<String, Table>,
    #[serde(default)]
    contestant: Vec<Spanned<Table>>,
}

/// The placeholders that texts may have.
const PLACEHOLDERS: [&str; 8] = ["source", "target", "directory", "program", "workers", "port", "dir", "answer"];

/// Reads the entries of a file. Paths become absolute, relative to `directory`. Returns the file, the line, the key and the
/// reason, if a key is unknown, missing or wrong.
pub(super) fn read(file: &Path, text: &str, directory: &Path) -> Result<Vec<Keys>, String> {
    let in_file = |error: toml::de::Error| format!("{}: {}", file.display(), error.to_string().trim_end());
    toml::from_str::<Checked>(text).map_err(in_file)?;
    let Tables { base, contestant } = toml::from_str(text).map_err(in_file)?;
    let mut names: Vec<String> = Vec::new();
    let mut entry = |table: Spanned<Table>| {
        let line = text[..table.span().start].matches('\n').count() + 1;
        let keys = merged(table.into_inner(), &base).and_then(|table| {
            let keys = Value::Table(table).try_into::<Keys>().map_err(|error| error.to_string())?;
            keys.check()?;
            match names.contains(&keys.name) {
                true => Err(format!("name: there are two contestants {}", keys.name)),
                false => Ok(keys),
            }
        });
        let mut keys = keys.map_err(|why| format!("{}, the contestant at line {line}: {why}", file.display()))?;
        names.push(keys.name.clone());
        for path in [&mut keys.directory, &mut keys.target] {
            let absolute = directory.join(&path);
            *path = absolute.canonicalize().unwrap_or(absolute).to_string_lossy().into_owned();
        }
        Ok(keys)
    };
    contestant.into_iter().map(&mut entry).collect()
}

/// The table with the keys of its bases that it lacks.
fn merged(mut table: Table, bases: &BTreeMap<String, Table>) -> Result<Table, String> {
    for _ in 0..=bases.len() {
        let Some(name) = table.remove("base") else { return Ok(table) };
        let name = name.as_str().unwrap_or_default();
        let base = bases.get(name).ok_or_else(|| format!("base: there is no {name:?}"))?;
        base.iter().for_each(|(key, value)| {
            table.entry(key).or_insert_with(|| value.clone());
        });
    }
    Err(String::from("base: a base is its own base"))
}

impl Keys {
    fn check(&self) -> Result<(), String> {
        let Self { name, program, ready, .. } = self;
        if name.is_empty() || name.contains([',', ' ']) {
            return Err(format!("name {name:?} is empty or has a comma or a space"));
        }
        if program.is_empty() {
            return Err(format!("{name} has no key program, the program to start"));
        }
        if ready.is_none() && self.serves != Serves::Tasks {
            return Err(format!("{name} has no key ready: \"json\", \"port\" or {{ line = \"...\" }}"));
        }
        if matches!(ready, Some(Ready::Port)) && !self.texts().any(|(_, text)| text.contains("{port}")) {
            return Err(format!("{name} is ready when its port is, and no key has {{port}}"));
        }
        let is_known = |name: &str| PLACEHOLDERS.contains(&name);
        for (key, text) in self.texts().filter(|(key, _)| *key != "files") {
            let names = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            if let Some((unknown, _)) = names.into_iter().find(|(name, _)| !is_known(name)) {
                return Err(format!("{key}: there is no {{{unknown}}}, only {{{}}}", PLACEHOLDERS.join("}, {")));
            }
        }
        Ok(())
    }

    /// The texts that may have placeholders, with their keys.
    fn texts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let one =
            [("program", &self.program)].into_iter().chain(self.workers_arg.iter().map(|text| ("workers_arg", text)));
        let args = self.args.iter().map(|text| ("args", text)).chain(self.options.iter().map(|text| ("options", text)));
        let args = args.chain(self.tls_args.iter().map(|text| ("tls_args", text)));
        let files = self.files.values().chain(self.tls_files.values()).map(|text| ("files", text));
        one.chain(args).chain(self.env.values().map(|text| ("env", text))).chain(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Keys>, String> {
        super::read(Path::new("my.toml"), text, Path::new("/srv"))
    }

    #[test]
    fn an_entry_has_the_keys_of_its_bases() {
        let keys = read(
            "[base.a]\nready = \"json\"\nargs = [\"-a\"]\nprogram = \"{target}/p\"\n\
             [base.b]\nbase = \"a\"\nargs = [\"-b\"]\ntarget = \"t\"\n\
             [[contestant]]\nname = \"x\"\nbase = \"b\"\nshape = \"one\"\nhead_timeout = \"2s\"\n",
        );
        let keys = &keys.unwrap()[0];
        assert_eq!((keys.args.as_slice(), keys.target.as_str()), (&[String::from("-b")][..], "/srv/t"));
        assert_eq!((keys.shape, keys.head_timeout), (Some(Shape::One), Some(Duration::from_secs(2))));
    }

    #[test]
    fn an_error_names_the_file_the_line_and_the_key() {
        let entry = "\n[[contestant]]\nname = \"x\"\nprogram = \"p\"\n";
        for (text, parts) in [
            (format!("{entry}redy = \"json\"\n"), &["line 5", "`redy`"][..]),
            (format!("{entry}ready = \"jso\"\n"), &["line 5", "`jso`"]),
            (format!("{entry}ready = \"json\"\nshape = \"two\"\n"), &["line 6", "shape is multiplexed"]),
            (entry.to_owned(), &["line 2", "x has no key ready"]),
            (format!("{entry}ready = \"port\"\n"), &["line 2", "{port}"]),
            (format!("{entry}ready = \"json\"\nargs = [\"{{prot}}\"]\n"), &["line 2", "args: there is no {prot}"]),
            (format!("{entry}base = \"none\"\n"), &["line 2", "base: there is no \"none\""]),
            (format!("{entry}ready = \"json\"\n{entry}ready = \"json\"\n"), &["line 7", "two contestants x"]),
            (format!("[base.a]\nbase = \"a\"\n{entry}base = \"a\"\n"), &["line 4", "its own base"]),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with("my.toml") && parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
