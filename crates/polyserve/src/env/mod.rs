//! Configuration from flags and environment variables.
//!
//! For every setting the first source with a value counts: the flag, then the `POLYSERVE_...` variable, then the published
//! servers' variable (`TCP_ADDRESS`, `THREAD_POOL_SIZE`), then the default. Overridden values are not checked. An empty
//! variable counts as none. An unknown `POLYSERVE_...` variable is an error, unless it has one of the forms that Kubernetes
//! or a container link injects for a service with the name `polyserve` or `polyserve-...`. [`check_variables`] lists them.
//!
//! A server refuses a setting that it does not have. If a flag has set it, that is an error. If a variable has set it, the
//! setting is left out with a warning, see [`Settings::make`].
//!
//! Invariant: the caller passes a function that reads variables, so tests never change the environment. Cost: one look-up
//! for each setting, once.
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

use polyserve_core::{ConfigError, ServerConfig, resolve_address};

use crate::catalog::{ServerEntry, nearest};
pub use setting::{SETTINGS, Setting};

/// Reads a number of bytes such as 65536, 64KiB, 1MiB or 2GiB, as the settings are read. Returns `None` for other texts.
///
/// ```
/// assert_eq!(polyserve::env::parse_bytes("64KiB"), Some(64 * 1024));
/// assert_eq!(polyserve::env::parse_bytes("64kB"), None);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    form::bytes::parse_u64(text)
}

/// The default address: 127.0.0.1:8001.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8001);

/// The name of the address setting: the flag is `--listen`, the variable [`LISTEN_VARIABLE`].
pub const LISTEN: &str = "listen";

/// The variable with the address to listen on, `HOST:PORT`. A name is resolved.
pub const LISTEN_VARIABLE: &str = "POLYSERVE_LISTEN";

/// The published servers' variable with the address to listen on.
pub const PUBLISHED_LISTEN: &str = "TCP_ADDRESS";

/// The published servers' variable with the number of workers. See [`Settings::pool_size`].
pub const PUBLISHED_WORKERS: &str = "THREAD_POOL_SIZE";

/// The variable with the path of the health check, such as `/readyz`. Without it there is none.
pub const READY: &str = "POLYSERVE_READY";

/// The variable with the file of the settings of `polyserve serve`, in TOML. Without it there is none.
pub const CONFIG: &str = "POLYSERVE_CONFIG";

/// The variable with the path of the socket at which a process of `polyserve serve` takes over from the one before. Without it there is
/// none.
pub const HANDOVER: &str = "POLYSERVE_HANDOVER";

/// The variable with the file of the server's certificate, in PEM form. Without it the server does not speak TLS.
pub const TLS_CERT: &str = "POLYSERVE_TLS_CERT";

/// The variable with the file of the certificate's key, in PEM form.
pub const TLS_KEY: &str = "POLYSERVE_TLS_KEY";

/// The variable with the file of the authorities of clients, in PEM form. With it, a client without a certificate is not served.
pub const TLS_CLIENT_CA: &str = "POLYSERVE_TLS_CLIENT_CA";

/// The variable that lets the command serve beyond loopback although it does not know its users, or without TLS. Its value is that of
/// a [`switch`].
pub const TRUST_NETWORK: &str = "POLYSERVE_TRUST_NETWORK";

/// The variable with the file of users and their tokens. Without it, requests need no token.
pub const TOKENS: &str = "POLYSERVE_TOKENS";

/// The variable with the hosts that requests may name, with a comma between them. Without it, they may name any.
pub const HOSTS: &str = "POLYSERVE_HOSTS";

/// The variable with the address of health checks and metrics, `HOST:PORT`. Without it there is none.
pub const ADMIN: &str = "POLYSERVE_ADMIN";

/// The variable with the time from the first signal to the drain, such as `5s`. It is zero by default.
pub const LAME_DUCK: &str = "POLYSERVE_LAME_DUCK";

/// The variable with the file of the access log, or `-` for standard error. Without it there is none.
pub const ACCESS_LOG: &str = "POLYSERVE_ACCESS_LOG";

/// The variable with the form of the access log's lines: `json` or `common`. It is `json` by default.
pub const ACCESS_LOG_FORMAT: &str = "POLYSERVE_ACCESS_LOG_FORMAT";

/// The variable with a number: one in this number of answers is logged. It is 1 by default.
pub const ACCESS_LOG_SAMPLE: &str = "POLYSERVE_ACCESS_LOG_SAMPLE";

/// The variable with the max number of lines a second of the access log. There is no limit by default.
pub const ACCESS_LOG_RATE: &str = "POLYSERVE_ACCESS_LOG_RATE";

/// The variable that makes the entity service reject a `Content-Type` other than JSON, and that of a PATCH if it is not that of a merge
/// patch. A boolean, off by default.
pub const STRICT_MEDIA_TYPE: &str = "POLYSERVE_STRICT_MEDIA_TYPE";

/// The variable that sets whether entities have tags. Conditions are evaluated in any case: without a tag, `*` is judged by
/// whether the entity exists, and a list of tags names no entity. Its value is that of a [`switch`].
pub const ETAGS: &str = "POLYSERVE_ETAGS";

/// Logs a warning of a variable that has no effect here, and `why`. It is no error: the variable may be meant for another process.
pub fn warn_of_left_out(variable: &str, why: &dyn fmt::Display) {
    tracing::warn!(variable, %why, "a setting from the environment is left out");
}

/// Parses the value of the boolean variable `name`. An absent or empty value is false.
///
/// # Errors
///
/// Returns [`SettingError`] if the value is not a boolean.
///
/// ```
/// assert_eq!(polyserve::env::switch("VERBOSE", Some("on".into())), Ok(true));
/// assert_eq!(polyserve::env::switch("VERBOSE", None), Ok(false));
/// ```
pub fn switch(name: &str, value: Option<OsString>) -> Result<bool, SettingError> {
    let Some(raw) = value.filter(|raw| !raw.is_empty()) else { return Ok(false) };
    let value = Value { source: Source::Variable(name.to_owned()), text: raw.to_string_lossy().into_owned() };
    form::switch::parse(&value.text).ok_or_else(|| value.wrong(format!("is not {}", form::switch::FORM)))
}

/// The settings from all sources.
///
/// ```
/// use polyserve::env::Settings;
///
/// let settings = Settings::read(|flag| (flag == "workers").then(|| "4".into()), |_variable| None)?;
/// assert!(settings.is_given("workers"));
/// let config = settings.make(|config| config.validate().map(|()| config.clone())).unwrap();
/// assert_eq!(config.workers, Some(4));
/// # Ok::<(), polyserve::env::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The limits. [`validate`](ServerConfig::validate) accepts them.
    pub config: ServerConfig,
    /// `THREAD_POOL_SIZE`, unless a flag or `POLYSERVE_WORKERS` sets the number of workers. A server without a
    /// number of workers ignores the variable with a warning. [`Settings::make`] applies it.
    pub pool_size: Option<usize>,
    /// The names of the settings that a flag or a `POLYSERVE_...` variable has set.
    pub given: Vec<&'static str>,
    /// The names of the settings that a flag has set.
    by_flag: Vec<&'static str>,
}

impl Settings {
    /// Reads the settings from this process's environment.
    ///
    /// # Errors
    ///
    /// Returns [`SettingError`] as [`Settings::read`] and [`check_variables`] do.
    ///
    /// ```no_run
    /// use polyserve::env::Settings;
    /// let settings = Settings::from_env()?;
    /// println!("{} workers", settings.with_pool_size().workers_or(4));
    /// # Ok::<(), polyserve::env::SettingError>(())
    /// ```
    pub fn from_env() -> Result<Self, SettingError> {
        check_variables(std::env::vars_os(), &[])?;
        Self::read(|_| None, |variable| std::env::var_os(variable))
    }

    /// Reads the settings from `flag` and `variable`. `flag` is called with a setting's name (`head_timeout`, `listen`),
    /// `variable` with a variable's full name.
    ///
    /// # Errors
    ///
    /// Returns [`SettingError`] for the first value that cannot be used.
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
            by_flag: Vec::new(),
        };
        for setting in SETTINGS {
            if let Some(value) = sources.find(setting.name(), &setting.variable())? {
                apply(setting, &value, &mut settings.config)?;
                settings.given.push(setting.name());
                if matches!(value.source, Source::Flag(_)) {
                    settings.by_flag.push(setting.name());
                }
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

    /// The configuration with [`pool_size`](Self::pool_size) as the number of workers, if there is a pool size.
    pub fn with_pool_size(&self) -> ServerConfig {
        self.config.clone().workers(self.config.workers.or(self.pool_size))
    }

    /// Makes one server, or anything else that takes a configuration. A variable for a setting that the server does not
    /// have is left out with a logged warning: the variable may be meant for another server.
    ///
    /// # Errors
    ///
    /// Returns the error of `make` if a value is wrong, or if a flag sets a setting that the server does not have.
    pub fn make<S>(&self, make: impl Fn(&ServerConfig) -> Result<S, ConfigError>) -> Result<S, ConfigError> {
        let mut config = self.with_pool_size();
        loop {
            let error = match make(&config) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match error.unsupported_setting().filter(|name| !self.by_flag.contains(name)) {
                Some(name) if config.reset(name) => {
                    let variable = if self.is_given(name) { setting::variable(name) } else { PUBLISHED_WORKERS.into() };
                    warn_of_left_out(&variable, &error);
                }
                _ => return Err(error),
            }
        }
    }

    /// Checks that each flag applies to at least one of `servers`. A command over several servers then starts each with
    /// the settings that it has, see [`ServerEntry::build_with_supported`].
    ///
    /// # Errors
    ///
    /// Returns the last server's error if no server has the setting of a flag.
    ///
    /// ```
    /// use polyserve::catalog::Catalog;
    /// use polyserve::env::Settings;
    /// let settings = Settings::read(|flag| (flag == "queue").then(|| "64".into()), |_variable| None)?;
    /// let catalog = Catalog::builtin();
    /// assert!(settings.check(catalog.servers()).is_ok());
    /// assert!(settings.check(catalog.servers().iter().filter(|server| server.name == "sequential")).is_err());
    /// # Ok::<(), polyserve::env::SettingError>(())
    /// ```
    pub fn check<'a>(&self, servers: impl IntoIterator<Item = &'a ServerEntry>) -> Result<(), ConfigError> {
        let servers: Vec<_> = servers.into_iter().collect();
        for name in &self.by_flag {
            let mut error = None;
            for server in &servers {
                let mut config = ServerConfig::default();
                match *name {
                    "workers" => config.workers = self.config.workers,
                    "queue" => config.queue = self.config.queue,
                    _ => {}
                }
                error = server.build(&config).err().filter(|error| error.unsupported_setting() == Some(name));
                if error.is_none() {
                    break;
                }
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
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
        let refused = |error: std::io::Error| value.wrong(shorten(&format!("cannot be used: {error}"), 200));
        resolve_address(&value.text).map(Some).map_err(refused)
    }

    fn pool_size(&self) -> Result<Option<usize>, SettingError> {
        let Some(value) = self.variable(PUBLISHED_WORKERS)? else { return Ok(None) };
        match value.text.trim().parse() {
            Ok(workers) if (1..=ServerConfig::MAX_WORKERS).contains(&workers) => Ok(Some(workers)),
            _ => Err(value.wrong(format!("is not a number of threads from 1 to {}", ServerConfig::MAX_WORKERS))),
        }
    }
}

/// The settings that are not in [`SETTINGS`].
const OTHER_SETTINGS: &[&str] = &[
    STRICT_MEDIA_TYPE,
    ETAGS,
    READY,
    CONFIG,
    HANDOVER,
    TLS_CERT,
    TLS_KEY,
    TLS_CLIENT_CA,
    TRUST_NETWORK,
    TOKENS,
    HOSTS,
    ADMIN,
    LAME_DUCK,
    ACCESS_LOG,
    ACCESS_LOG_FORMAT,
    ACCESS_LOG_SAMPLE,
    ACCESS_LOG_RATE,
    "POLYSERVE_LOG",
];

/// The project's other variables: for the tests, the benches and the build.
const OTHER_VARIABLES: &[&str] = &[
    "POLYSERVE_BENCH",
    "POLYSERVE_BENCH_OUT",
    "POLYSERVE_BENCH_THREADS",
    "POLYSERVE_BUILT_AS",
    "POLYSERVE_BUILT_BY",
    "POLYSERVE_BUILT_FROM",
    "POLYSERVE_CASES",
    "POLYSERVE_CHDIR_DIRECTORY",
    "POLYSERVE_CONFORMANCE_CHILD",
    "POLYSERVE_CRASHES",
    "POLYSERVE_CRASH_DIRECTORY",
    "POLYSERVE_CRASH_LIFE",
    "POLYSERVE_DRAIN_ROUNDS",
    "POLYSERVE_FAULTS",
    "POLYSERVE_MODELS",
    "POLYSERVE_MODEL_FAULT",
    "POLYSERVE_MODEL_LIMIT",
    "POLYSERVE_RESTARTS",
    "POLYSERVE_SEED",
    "POLYSERVE_SEEDS",
    "POLYSERVE_SERVING_TEST_CHILD",
    "POLYSERVE_SMALL_DISK",
    "POLYSERVE_TEST_IN_NETWORK",
    "POLYSERVE_TEST_MARK",
    "POLYSERVE_TEST_SERVE",
    "POLYSERVE_TEST_STRESS_CASE",
    "POLYSERVE_TEST_WAITS",
];

/// Names that a variable once had or is expected to have, and its name.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("BANNER", "SERVER_HEADER"),
    ("ADDRESS", "LISTEN"),
    ("HOST", "LISTEN"),
    ("PORT", "LISTEN"),
    ("THREADS", "WORKERS"),
    ("POOL_SIZE", "WORKERS"),
];

/// The start of the name of every variable of this project.
const PREFIX: &str = "POLYSERVE_";

/// Checks that every `POLYSERVE_...` variable among `variables` is known: a setting's, the project's own, or one of `more`.
/// An empty variable counts as none.
///
/// Kubernetes and container links inject variables for each service. For a service with the name `polyserve`, or with a name
/// that begins with `polyserve-`, exactly these are skipped. After `POLYSERVE` each may have `_` and the rest of the service's
/// name, as in `POLYSERVE_CANARY_PORT`. `*` stands for letters, digits and `_`, at least one.
///
/// | variable | if its value |
/// |---|---|
/// | `POLYSERVE_SERVICE_HOST` | is any |
/// | `POLYSERVE_SERVICE_PORT`, `POLYSERVE_SERVICE_PORT_*` | is any |
/// | `POLYSERVE_PORT` | begins with `tcp://`, `udp://` or `sctp://` |
/// | `POLYSERVE_PORT_80_TCP` of any number, or with `_UDP` or `_SCTP`; also with `_PROTO`, `_PORT` or `_ADDR` at its end | is any |
///
/// # Errors
///
/// Returns [`SettingError`] for the first unknown variable. It suggests the settings with the nearest names; if none is near, it lists
/// all settings.
///
/// ```
/// use polyserve::env::check_variables;
/// let variable = ("POLYSERVE_WORKRES".into(), "4".into());
/// assert!(check_variables([variable], &[]).unwrap_err().to_string().contains("POLYSERVE_WORKERS"));
/// let injected = ("POLYSERVE_SERVICE_HOST".into(), "10.0.0.1".into());
/// assert!(check_variables([injected], &[]).is_ok());
/// ```
pub fn check_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[&str],
) -> Result<(), SettingError> {
    let settings = || {
        let others = OTHER_SETTINGS.iter().chain(more).map(ToString::to_string);
        std::iter::once(LISTEN_VARIABLE.to_owned()).chain(SETTINGS.iter().map(Setting::variable)).chain(others)
    };
    let is_known = |name: &str| OTHER_VARIABLES.contains(&name) || settings().any(|known| known == name);
    for (name, text) in variables {
        // A name that is not Unicode is unknown too.
        let name = name.to_string_lossy();
        let Some(own) = name.strip_prefix(PREFIX) else { continue };
        let text = text.to_string_lossy();
        if text.is_empty() || is_known(&name) || is_injected(own, &text) {
            continue;
        }
        // The prefix says nothing about which setting was meant.
        let names: Vec<String> =
            settings().map(|known| known.strip_prefix(PREFIX).unwrap_or(&known).to_owned()).collect();
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == own).map(|(_, name)| *name);
        let near = other.map_or_else(|| nearest(own, names.iter().map(String::as_str)), |name| vec![name]);
        let why = if near.is_empty() {
            format!("is unknown; the settings are {}", settings().collect::<Vec<_>>().join(", "))
        } else {
            let near: Vec<_> = near.iter().map(|name| format!("{PREFIX}{name}")).collect();
            format!("is unknown, did you mean {}?", near.join(", "))
        };
        let source = Source::Variable(name.clone().into_owned());
        return Err(Value { source, text: text.into_owned() }.wrong(why));
    }
    Ok(())
}

/// Whether a variable has the form of one that Kubernetes or a container link injects. `name` is without [`PREFIX`].
///
/// Source: the Kubernetes documentation, "Discovering services", and Docker's "Legacy container links".
fn is_injected(name: &str, value: &str) -> bool {
    fn without<'a>(name: &'a str, endings: [&str; 3]) -> Option<&'a str> {
        endings.into_iter().find_map(|ending| name.strip_suffix(ending))
    }
    let is_word =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    // The service may have a longer name, such as `polyserve-canary`. The rest of that name precedes the ending.
    let ends = |name: &str, ending: &str| {
        let rest = name.strip_suffix(ending);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_suffix('_').is_some_and(is_word))
    };
    let is_service_port = |(at, marker): (usize, &str)| {
        let (start, port) = name.split_at(at + marker.len());
        ends(start, marker) && (port.is_empty() || port.strip_prefix('_').is_some_and(is_word))
    };
    // `PORT_80_TCP` and `PORT_80_TCP_ADDR`.
    let is_port = || {
        let address = without(without(name, ["_PROTO", "_PORT", "_ADDR"]).unwrap_or(name), ["_TCP", "_UDP", "_SCTP"])?;
        let start = address.trim_end_matches(|digit: char| digit.is_ascii_digit());
        Some(start.len() < address.len() && ends(start, "PORT_"))
    };
    let is_address = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    ends(name, "SERVICE_HOST")
        || name.match_indices("SERVICE_PORT").any(is_service_port)
        || is_port() == Some(true)
        || (ends(name, "PORT") && is_address())
}

/// Applies one setting. Validates it alone, so that the error names its source.
fn apply(setting: &Setting, value: &Value, config: &mut ServerConfig) -> Result<(), SettingError> {
    let wrong = |why| Err(value.wrong(why));
    if !setting.set(config, &value.text) {
        return wrong(format!("is not {}", setting.form()));
    }
    let mut alone = ServerConfig::default();
    let _ = setting.set(&mut alone, &value.text); // succeeded above
    alone.validate().or_else(|error| wrong(format!("is refused: {error}")))
}

struct Value {
    source: Source,
    text: String,
}

impl Value {
    fn wrong(&self, why: String) -> SettingError {
        SettingError { source: self.source.clone(), value: shorten(&self.text, 100), why }
    }
}

/// Returns at most about `limit` bytes of a text, because an error is one line.
fn shorten(text: &str, limit: usize) -> String {
    // `str::floor_char_boundary` needs Rust 1.91.
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    let prefix = &text[..end.unwrap_or(0)];
    if prefix.len() < text.len() { format!("{prefix}...") } else { prefix.to_owned() }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Flag(String),
    Variable(String),
}

/// The error of a setting. It names the flag or the variable, the value, and the allowed values.
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
