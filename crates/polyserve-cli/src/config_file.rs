//! The configuration file of `polyserve serve`: a key for each flag, in TOML.
//!
//! ```toml
//! server = "pool_server"
//! listen = "127.0.0.1:8001"
//! workers = 4
//! head_timeout = "5s"
//! etags = true
//! ```
//!
//! The flags are the only schema: a key is a flag with `_` in place of `-`, and its value is read as that of the flag. So the file
//! becomes arguments; a key is left out if its flag or its variable is given.
//!
//! Invariant: an error names the file, the line and the key. Cost: one parse of the file, at the start.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::builder::Arg;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use polyserve::catalog::{UnknownName, nearest};
use polyserve::env::CONFIG;
use polyserve::files::read_settings_text;
use polyserve_bench::Misuse;
use toml::de::{DeTable, DeValue};

/// A file, and what it adds to the command line.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    keys: Vec<Key>,
}

/// A key that decides a setting: neither its flag nor its variable is given.
#[derive(Debug)]
struct Key {
    name: String,
    line: usize,
    arguments: Vec<String>,
}

/// Flags that a file cannot have: they are about the command, not about the server.
const ABOUT_THE_COMMAND: [&str; 5] = ["config", "check_config", "json", "help", "version"];

impl ConfigFile {
    /// Reads the file that `--config` names, or else the environment; `None` without one. `command` is `polyserve serve`, and `given`
    /// its arguments.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is not TOML, and for a key that is no flag.
    pub(crate) fn of(command: &clap::Command, given: &ArgMatches) -> Result<Option<Self>, Misuse> {
        let flag = given.get_one::<PathBuf>("config").cloned();
        let variable = || std::env::var_os(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
        let Some(path) = flag.or_else(variable) else { return Ok(None) };
        let text = read_settings_text(&path)
            .map_err(|error| Misuse(format!("the configuration file {} cannot be read: {error}", path.display())))?;
        let is_given = |arg: &Arg| {
            given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
                || std::env::var_os(variable_of(arg)).is_some_and(|text| !text.is_empty())
        };
        let mut file = Self { path, keys: Vec::new() };
        let line_of = |offset: usize| text[..offset].matches('\n').count() + 1;
        let table = DeTable::parse(&text)
            .map_err(|error| file.misuse(error.span().map_or(1, |span| line_of(span.start)), error.message()))?;
        for (name, value) in table.get_ref() {
            let line = line_of(name.span().start);
            let arg = flag_of(command, name.get_ref()).map_err(|why| file.misuse(line, why))?;
            let arguments = arguments_of(arg, value.get_ref())
                .map_err(|why| file.misuse(line, format_args!("{}: {why}", name.get_ref())))?;
            if !is_given(arg) {
                file.keys.push(Key { name: name.get_ref().to_string(), line, arguments });
            }
        }
        Ok(Some(file))
    }

    /// The arguments to add to the command line.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> {
        self.keys.iter().flat_map(|key| &key.arguments).map(OsString::from)
    }

    /// The error of the arguments, with the line of the key that caused it.
    pub(crate) fn error(&self, error: &clap::Error) -> Misuse {
        let flag = error.context().find_map(|(kind, value)| match (kind, value) {
            (ContextKind::InvalidArg, ContextValue::String(flag)) => Some(flag.as_str()),
            _ => None,
        });
        let reason = std::error::Error::source(error).map(ToString::to_string);
        let text = error.to_string();
        let why = reason.unwrap_or_else(|| text.lines().next().unwrap_or_default().replacen("error: ", "", 1));
        match flag.and_then(|flag| self.key(flag)) {
            Some(key) => self.misuse(key.line, format_args!("{}: {why}", key.name)),
            None => Misuse(format!("{}: {why}", self.path.display())),
        }
    }

    /// The error of the server's start, with the line of the key that caused it, if one did.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        let mut named = text.split_whitespace().filter(|word| word.starts_with("--"));
        let first = text.split_whitespace().next().unwrap_or_default();
        let kind = error.downcast_ref::<UnknownName>().map(UnknownName::kind).unwrap_or_default();
        match self.key(first).or_else(|| self.key(kind)).or_else(|| named.find_map(|flag| self.key(flag))) {
            Some(key) => self.misuse(key.line, text).into(),
            None => error,
        }
    }

    /// The key of a flag, such as `--workers` or `workers`.
    fn key(&self, flag: &str) -> Option<&Key> {
        let flag = flag.split([' ', '=', ',', ':']).next().unwrap_or_default();
        let name = flag.trim_start_matches('-').replace('-', "_");
        self.keys.iter().find(|key| key.name == name)
    }

    fn misuse(&self, line: usize, why: impl fmt::Display) -> Misuse {
        Misuse(format!("{}:{line}: {why}", self.path.display()))
    }
}

/// The key of a flag; `None` if a file cannot have it.
fn key_of(arg: &Arg) -> Option<String> {
    let key = arg.get_long().filter(|_| !arg.is_hide_set())?.replace('-', "_");
    (!ABOUT_THE_COMMAND.contains(&key.as_str())).then_some(key)
}

/// The variable of a flag.
fn variable_of(arg: &Arg) -> String {
    format!("POLYSERVE_{}", key_of(arg).unwrap_or_default().to_uppercase())
}

/// The flag of a key.
fn flag_of<'a>(command: &'a clap::Command, key: &str) -> Result<&'a Arg, String> {
    let flags = || command.get_arguments().filter_map(|arg| Some((key_of(arg)?, arg)));
    let found = flags().find(|(name, _)| name == key).map(|(_, arg)| arg);
    found.ok_or_else(|| {
        let keys: Vec<String> = flags().map(|(name, _)| name).collect();
        let near = nearest(key, keys.iter().map(String::as_str));
        let meant = if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(", ")) };
        format!(
            "the key {key} is unknown{meant}; the keys are the flags of `polyserve serve --help`, with _ in place of -"
        )
    })
}

/// The arguments of a flag with a value.
fn arguments_of(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    let flag = format!("--{}", arg.get_long().unwrap_or_default());
    let is_switch = !arg.get_action().takes_values();
    let takes_on_or_off = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "on|off"));
    match value {
        DeValue::Boolean(is_on) if is_switch => Ok(if *is_on { vec![flag] } else { Vec::new() }),
        _ if is_switch => Err("it must be true or false"),
        DeValue::Boolean(is_on) if takes_on_or_off => Ok(vec![format!("{flag}={}", if *is_on { "on" } else { "off" })]),
        DeValue::Array(values) => {
            let texts = values.iter().map(|value| text_of(value.get_ref())).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![format!("{flag}={}", texts.join(","))])
        }
        value => Ok(vec![format!("{flag}={}", text_of(value)?)]),
    }
}

/// A value as on a command line.
fn text_of(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        DeValue::Integer(_) => Err("the number must be decimal"),
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        DeValue::Boolean(is_on) => Ok(is_on.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("it must be a text, a number, true or false, or a list of these")
        }
    }
}
