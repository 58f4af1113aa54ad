//! Configuration from flags and environment variables: which source of a setting counts, and what it says.
//!
//! For every setting the first source that has it counts: the flag, then its `POLYSERVE_...` variable, then the
//! published servers' variable (`TCP_ADDRESS`, `THREAD_POOL_SIZE`), then the default. What is overridden is not even
//! looked at. An empty variable counts as none.
//!
//! Invariant: this process's environment is read through a function that the caller gives, so that a test never
//! changes it. Cost: one look-up a setting, once.
//!
//! ```
//! use polyserve::env::Settings;
//!
//! let variables = |name: &str| match name {
//!     "POLYSERVE_HEAD_TIMEOUT" => Some("500ms".into()),
//!     "TCP_ADDRESS" => Some("localhost:8080".into()),
//!     _ => None,
//! };
//! let settings = Settings::read(|_flag| None, variables).unwrap();
//! assert_eq!(settings.config.head_timeout.as_millis(), 500);
//! assert_eq!(settings.listen.port(), 8080);
//! ```

mod form;
mod setting;

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use polyserve_core::config::MAX_WORKERS;
use polyserve_core::{ConfigError, ServerConfig, net};

pub use setting::{SETTINGS, Setting};

/// Where a server listens that was told nothing: 127.0.0.1:8001.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8001);

/// The name of the address as a setting: the flag is `--listen`, the variable [`LISTEN_VARIABLE`].
pub const LISTEN: &str = "listen";

/// The variable with the address to listen on, `HOST:PORT`; a name is resolved.
pub const LISTEN_VARIABLE: &str = "POLYSERVE_LISTEN";

/// The published servers' variable with the address to listen on.
pub const PUBLISHED_LISTEN: &str = "TCP_ADDRESS";

/// The published servers' variable with the number of workers. See [`Settings::pool_size`].
pub const PUBLISHED_WORKERS: &str = "THREAD_POOL_SIZE";

/// What the sources say together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Every limit; [`validate`](ServerConfig::validate) accepts it.
    pub config: ServerConfig,
    /// `THREAD_POOL_SIZE`, unless the number of workers was set by name. A hint: a server that takes a number of workers
    /// takes this one, any other is not disturbed by it. [`Settings::make`] applies it.
    pub pool_size: Option<usize>,
    /// The names of those settings of [`SETTINGS`] that a flag or a `POLYSERVE_...` variable has set.
    pub given: Vec<&'static str>,
}

impl Settings {
    /// What this process's environment says.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`].
    pub fn from_env() -> Result<Self, SettingError> {
        Self::read(|_| None, |variable| std::env::var_os(variable))
    }

    /// What the sources say. `flag` is asked by setting (`head_timeout`, `listen`), `variable` by its full name.
    ///
    /// # Errors
    ///
    /// The first value that does not say what it should, by its source.
    pub fn read(
        flag: impl Fn(&str) -> Option<String>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingError> {
        let sources = Sources { flag: &flag, variable: &variable };
        let mut settings = Self {
            listen: sources.listen()?.unwrap_or(DEFAULT_LISTEN),
            config: ServerConfig::default(),
            pool_size: None,
            given: Vec::new(),
        };
        for setting in SETTINGS {
            if let Some(value) = sources.find(setting.name(), &setting.variable())? {
                apply(setting, &value, &mut settings.config)?;
                settings.given.push(setting.name());
            }
        }
        if settings.config.workers.is_none() {
            settings.pool_size = sources.pool_size()?;
        }
        Ok(settings)
    }

    /// Whether a flag or a `POLYSERVE_...` variable has set the setting `name`.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// Makes a server, or anything else that takes a configuration: with [`pool_size`](Self::pool_size) workers where
    /// that is honoured, otherwise without.
    ///
    /// # Errors
    ///
    /// As `make`, for the configuration without the hint.
    pub fn make<S>(&self, make: impl Fn(&ServerConfig) -> Result<S, ConfigError>) -> Result<S, ConfigError> {
        let hinted = self.pool_size.map(|workers| self.config.clone().with(|c| c.workers = Some(workers)));
        match hinted.map(|config| make(&config)) {
            Some(Ok(made)) => Ok(made),
            Some(Err(_)) | None => make(&self.config),
        }
    }
}

struct Sources<'a> {
    flag: &'a dyn Fn(&str) -> Option<String>,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Sources<'_> {
    fn find(&self, name: &str, variable: &str) -> Result<Option<Value>, SettingError> {
        match (self.flag)(name) {
            Some(text) => Ok(Some(Value { source: Source::Flag(setting::flag(name)), text })),
            None => self.variable(variable),
        }
    }

    fn variable(&self, variable: &str) -> Result<Option<Value>, SettingError> {
        let Some(raw) = (self.variable)(variable).filter(|raw| !raw.is_empty()) else { return Ok(None) };
        let source = Source::Variable(variable.to_owned());
        match raw.into_string() {
            Ok(text) => Ok(Some(Value { source, text })),
            Err(raw) => {
                Err(Value { source, text: raw.to_string_lossy().into_owned() }.wrong("is not valid Unicode".into()))
            }
        }
    }

    fn listen(&self) -> Result<Option<SocketAddr>, SettingError> {
        let found = match self.find(LISTEN, LISTEN_VARIABLE)? {
            Some(value) => Some(value),
            None => self.variable(PUBLISHED_LISTEN)?,
        };
        let Some(value) = found else { return Ok(None) };
        let refused = |error: std::io::Error| value.wrong(brief(&format!("cannot be used: {error}"), 200));
        net::resolve(&value.text).map(Some).map_err(refused)
    }

    fn pool_size(&self) -> Result<Option<usize>, SettingError> {
        let Some(value) = self.variable(PUBLISHED_WORKERS)? else { return Ok(None) };
        match value.text.trim().parse() {
            Ok(workers) if (1..=MAX_WORKERS).contains(&workers) => Ok(Some(workers)),
            _ => Err(value.wrong(format!("is not a number of threads from 1 to {MAX_WORKERS}"))),
        }
    }
}

/// Sets one setting, and checks it alone, so that an error names its source.
fn apply(setting: &Setting, value: &Value, config: &mut ServerConfig) -> Result<(), SettingError> {
    let wrong = |why| Err(value.wrong(why));
    if !setting.set(config, &value.text) {
        return wrong(format!("is not {}", setting.form()));
    }
    let mut alone = ServerConfig::default();
    let _ = setting.set(&mut alone, &value.text); // as above
    alone.validate().or_else(|error| wrong(format!("is refused: {error}")))
}

struct Value {
    source: Source,
    text: String,
}

impl Value {
    fn wrong(&self, why: String) -> SettingError {
        SettingError { source: self.source.clone(), value: brief(&self.text, 100), why }
    }
}

/// At most about `most` bytes of a text: an error is one line.
fn brief(text: &str, most: usize) -> String {
    let kept = &text[..text.floor_char_boundary(most)];
    if kept.len() < text.len() { format!("{kept}...") } else { kept.to_owned() }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Flag(String),
    Variable(String),
}

/// A setting whose value does not say what it should: names the flag or the variable, the value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    source: Source,
    value: String,
    why: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, value, why } = self;
        match source {
            Source::Flag(flag) => write!(f, "{flag} {value:?} {why}"),
            Source::Variable(name) => write!(f, "the environment variable {name}={value:?} {why}"),
        }
    }
}

impl Error for SettingError {}

#[cfg(test)]
mod tests;
