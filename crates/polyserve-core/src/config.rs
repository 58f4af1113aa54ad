//! Every limit of a server, in one [`ServerConfig`].

use std::error::Error;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

/// The limits of a server. All servers take the same type. A server's constructor refuses a setting that it cannot honour.
///
/// ```
/// use polyserve_core::ServerConfig;
/// let config = ServerConfig::default().with(|c| {
///     c.workers = Some(4);
///     c.max_body = 64 * 1024;
/// });
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Number of threads that serve. `None` is the server's default: the available cores, or four times that in pools.
    pub workers: Option<usize>,
    /// Max number of jobs that wait for a worker. Beyond it: 503. `None` is the default: [`DEFAULT_QUEUE`] for a server
    /// with a queue. A server without a queue refuses a value.
    pub queue: Option<usize>,
    /// Max number of open connections. Beyond it: 503 and close. Default 10 000.
    pub max_connections: usize,
    /// Max length of the kernel's queue of connections that wait to be accepted. The kernel has a limit of its own. Default
    /// 4 096.
    pub backlog: u32,
    /// Max time from a request's first byte to the end of its head. Beyond it: 408. Default 10 s.
    pub head_timeout: Duration,
    /// Max time from the end of the head to the end of the body. Beyond it: 408. Default 30 s.
    pub body_timeout: Duration,
    /// Max time from a request to its deferred answer. Beyond it: 503. Default 30 s.
    pub answer_timeout: Duration,
    /// Max time from accept, or from the last answer, to a request's first byte. Beyond it, the connection is closed.
    /// Default 60 s.
    pub idle_timeout: Duration,
    /// Max time for the client to read an answer. Beyond it, the connection is cut. Default 30 s.
    pub write_timeout: Duration,
    /// Max time for which a closed connection is still read from, so that the client reads the last answer. Default 1 s.
    pub linger_timeout: Duration,
    /// Max bytes of request line and headers. Beyond it: 431; 414 if the target alone is longer, 501 if the method alone is.
    /// Default 16 KiB.
    pub max_head: usize,
    /// Max number of header fields. Beyond it: 431. Default 100, which is also the largest value.
    pub max_headers: usize,
    /// Max bytes of a body. Beyond it: 413. Default 1 MiB.
    pub max_body: usize,
    /// Max number of requests on one connection before it is closed. 0 means no limit. Default 0.
    pub requests_per_connection: u64,
    /// Whether the kernel hands a connection over only when its first byte is there (Linux). Default off.
    pub defer_accept: bool,
    /// Max time that a shutdown waits for requests that have begun. Default 10 s.
    pub drain_grace: Duration,
    /// The value of the `Server` header. Default none.
    pub server_header: Option<String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: None,
            queue: None,
            max_connections: 10_000,
            backlog: 4096,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(1),
            max_head: 16 * 1024,
            max_headers: MAX_HEADERS,
            max_body: 1024 * 1024,
            requests_per_connection: 0,
            defer_accept: false,
            drain_grace: Duration::from_secs(10),
            server_header: None,
        }
    }
}

/// The queue of a server that has one, if none is configured.
pub const DEFAULT_QUEUE: usize = 1024;

/// The largest `max_headers`: header fields are parsed into an array on the stack.
pub const MAX_HEADERS: usize = 100;

/// The largest `workers`.
pub const MAX_WORKERS: usize = 4096;

/// The largest `max_connections`, and the largest `queue`.
pub const MAX_CONNECTIONS: usize = 1 << 20;

impl ServerConfig {
    /// Returns this configuration after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns the number of workers: as configured, or `per_core` times the available cores.
    pub fn workers_or(&self, per_core: usize) -> usize {
        self.workers.unwrap_or_else(|| cores() * per_core)
    }

    /// Returns the number of jobs that may wait: as configured, or [`DEFAULT_QUEUE`].
    pub fn queue_or_default(&self) -> usize {
        self.queue.unwrap_or(DEFAULT_QUEUE)
    }

    /// Refuses a configured queue. For a server that has none.
    ///
    /// # Errors
    ///
    /// Returns an [unsupported](ConfigError::unsupported) `queue` if a queue is configured; `server` is the server's name.
    pub fn refuse_queue(&self, server: &str) -> Result<(), ConfigError> {
        match self.queue {
            None => Ok(()),
            Some(_) => {
                Err(ConfigError::unsupported("queue", format!("queue cannot be set for {server}: it has no queue")))
            }
        }
    }

    /// Resets the setting `name` to the server's own choice. Returns whether a value was configured. For a program that
    /// shares one configuration among servers, see [`ConfigError::unsupported_setting`].
    pub fn reset(&mut self, name: &str) -> bool {
        match name {
            "workers" => self.workers.take().is_some(),
            "queue" => self.queue.take().is_some(),
            _ => false,
        }
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    ///
    /// Returns an error with the name, the value and the range of the first setting that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("workers", self.workers.unwrap_or(1), MAX_WORKERS),
            ("queue", self.queue.unwrap_or(1), MAX_CONNECTIONS),
            ("max_connections", self.max_connections, MAX_CONNECTIONS),
            ("backlog", self.backlog as usize, i32::MAX as usize),
            ("max_headers", self.max_headers, MAX_HEADERS),
        ];
        for (name, value, most) in counts {
            if value == 0 || value > most {
                return Err(ConfigError::new(format!("{name} must be from 1 to {most}, not {value}")));
            }
        }
        for (name, value, least, most) in
            [("max_head", self.max_head, 64, 16 << 20), ("max_body", self.max_body, 0, 1 << 30)]
        {
            if value < least || value > most {
                return Err(ConfigError::new(format!("{name} must be from {least} to {most} bytes, not {value}")));
            }
        }
        let times = [
            ("head_timeout", self.head_timeout),
            ("body_timeout", self.body_timeout),
            ("answer_timeout", self.answer_timeout),
            ("idle_timeout", self.idle_timeout),
            ("write_timeout", self.write_timeout),
        ];
        for (name, value) in times {
            if value < Duration::from_millis(1) || value > MAX_TIMEOUT {
                return Err(ConfigError::new(format!("{name} must be from 1 ms to 24 h, not {value:?}")));
            }
        }
        for (name, value) in [("linger_timeout", self.linger_timeout), ("drain_grace", self.drain_grace)] {
            if value > MAX_TIMEOUT {
                return Err(ConfigError::new(format!("{name} must be at most 24 h, not {value:?}")));
            }
        }
        match &self.server_header {
            Some(server_header)
                if !server_header.bytes().all(|b| (b' '..=b'~').contains(&b))
                    || server_header.trim() != server_header =>
            {
                Err(ConfigError::new("server_header must be printable ASCII without spaces around it"))
            }
            _ => Ok(()),
        }
    }
}

const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Returns the number of cores that this process may use, or 1 if it is not known.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A configuration that cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    why: String,
    unsupported: Option<&'static str>,
}

impl ConfigError {
    /// An error with the text `why`, which names the setting, the value and the range.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), unsupported: None }
    }

    /// The error of a server that does not have the setting `name`, whatever the value. `why` names the setting too.
    pub fn unsupported(name: &'static str, why: impl Into<String>) -> Self {
        Self { why: why.into(), unsupported: Some(name) }
    }

    /// The setting that the server does not have. `None` if the error is about the value of a setting.
    pub fn unsupported_setting(&self) -> Option<&'static str> {
        self.unsupported
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for ConfigError {}

impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(ServerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn only_a_configured_queue_is_refused() {
        assert_eq!(ServerConfig::default().refuse_queue("me"), Ok(()));
        let mut config = ServerConfig::default().with(|c| c.queue = Some(7));
        let error = config.refuse_queue("me").unwrap_err();
        assert_eq!(error.unsupported_setting(), Some("queue"));
        assert!(error.to_string().contains("queue cannot be set for me"), "{error}");
        assert!(config.reset("queue") && !config.reset("queue") && !config.reset("backlog"));
        assert_eq!(config, ServerConfig::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        type Change = fn(&mut ServerConfig);
        let wrong: [(&str, Change); 8] = [
            ("workers", |c| c.workers = Some(0)),
            ("queue", |c| c.queue = Some(0)),
            ("max_connections", |c| c.max_connections = usize::MAX),
            ("max_headers", |c| c.max_headers = 101),
            ("max_head", |c| c.max_head = 10),
            ("head_timeout", |c| c.head_timeout = Duration::ZERO),
            ("drain_grace", |c| c.drain_grace = Duration::MAX),
            ("server_header", |c| c.server_header = Some("a\r\nb".into())),
        ];
        for (name, change) in wrong {
            let error = ServerConfig::default().with(change).validate().unwrap_err();
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }
}
