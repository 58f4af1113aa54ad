//! Every limit of a server, in one [`ServerConfig`].

mod memory;
mod supports;
#[cfg(feature = "tls")]
mod tls;
mod trusted_proxies;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use memory::default_memory;
pub use supports::Supports;
#[cfg(feature = "tls")]
pub use tls::{PemSource, TlsConfig, TlsError};
pub use trusted_proxies::{InvalidProxies, TrustedProxies};

use crate::answer_hook::{AnswerHook, AnswerReport};
use crate::overload::Overload;
use crate::text::shortened;

/// The limits of a server. All servers take the same type. A server's constructor refuses a setting that it cannot honour.
///
/// Each setting has a setter of the same name. The setter of an optional setting takes a value or an `Option`.
///
/// ```
/// use polyserve_core::ServerConfig;
/// let config = ServerConfig::default().workers(4).max_body(64 * 1024);
/// assert_eq!((config.workers, config.max_body), (Some(4), 64 * 1024));
/// let error = config.max_body(2 << 30).validate().unwrap_err();
/// assert_eq!(error.to_string(), "max_body must be from 0 to 1073741824 bytes, not 2147483648");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Number of threads that serve. `None` is the server's default: the available cores, or four times that in pools.
    pub workers: Option<usize>,
    /// Max number of jobs that wait for a worker. Beyond it: 503. `None` is the default: [`Self::DEFAULT_QUEUE`] for
    /// a server with a queue. A server without a queue refuses a value.
    pub queue: Option<usize>,
    /// Max number of open connections. Beyond it, the connection that has been idle for longest, and for 50 ms at least, is
    /// closed for the new one; if none is idle, the new one gets 503 and is closed. Default 10 000.
    pub max_connections: usize,
    /// Max number of open connections of one client address; of one /64 network for IPv6. A new one beyond it gets 503 and is
    /// closed. A connection counts until its socket is closed. `None`, the default, is no limit.
    pub max_connections_per_peer: Option<u64>,
    /// The proxies that name the client of a request in `Forwarded` or `X-Forwarded-For`, for [`Request::peer`](crate::Request::peer)
    /// and for reports of answers. `max_connections_per_peer` does not limit them. Default none.
    pub trusted_proxies: TrustedProxies,
    /// Max length of the kernel's queue of connections that wait to be accepted. The kernel has a limit of its own. Default
    /// 4 096.
    pub backlog: u32,
    /// Max time from accept to the first byte of a connection. Beyond it, the connection is closed. Default 10 s.
    pub first_byte_timeout: Duration,
    /// Max time from a request's first byte to the end of its head. Beyond it: 408. Default 10 s.
    pub head_timeout: Duration,
    /// Max time from the end of the head to the end of the body. Beyond it: 408. Default 30 s.
    pub body_timeout: Duration,
    /// Min rate of a body, in bytes per second. A body has 5 s, and one second more for each piece of this length that has
    /// arrived, but at most `body_timeout`. Beyond it: 408. Zero is no minimum. Default 240.
    pub min_body_rate: u32,
    /// Max time from a request to its deferred answer. Beyond it: 503. Default 30 s.
    pub answer_timeout: Duration,
    /// Max time from the last answer to the next request's first byte. Beyond it, the connection is closed. Default 60 s.
    pub idle_timeout: Duration,
    /// Max time for the client to read an answer, plus one second for each 64 KiB that the kernel did not take at once. Beyond
    /// it, the connection is cut, whatever progress the client makes. Default 30 s.
    pub write_timeout: Duration,
    /// Max time for which a closed connection is still read from, so that the client reads the last answer. It begins anew while a client
    /// goes on with a body, at `min_body_rate` at least, for `body_timeout` in all, but not in a drain. Default 1 s.
    pub linger_timeout: Duration,
    /// Max bytes of request line and headers. Beyond it: 431; 414 if the target alone is longer, 501 if the method alone is.
    /// Default 16 KiB.
    pub max_head: usize,
    /// Max number of header fields. Beyond it: 431. Default 100, which is also the largest value.
    pub max_headers: usize,
    /// Max bytes of a body. Beyond it: 413. Default 1 MiB.
    pub max_body: usize,
    /// Max bytes of incomplete bodies and of answers that clients have not taken, of all connections together. Beyond it, a
    /// new body and the answer to a safe method become 503. `None` is the default: a quarter of the machine's memory, or of the
    /// cgroup's if that is less.
    pub memory: Option<usize>,
    /// Max number of requests on one connection before it is closed. `None`, the default, is no limit.
    pub requests_per_connection: Option<u64>,
    /// Whether the kernel hands a connection over only when its first byte is there (Linux). Default off.
    pub defer_accept: bool,
    /// Whether each thread of an event loop stays on one core, the next of those that the process may use (Linux, servers with a loop for
    /// each core). Default off.
    pub pin: bool,
    /// Whether an event loop hands a new connection to the loop that has the fewest (servers with a loop for each core). Otherwise the
    /// kernel decides by the client's address and port, which can be uneven if connections are few. Default off.
    pub spread: bool,
    /// Whether HTTP/2 is served too, to clients that begin with its preface ("prior knowledge"), or that negotiate it over TLS (a server
    /// that has it: `tokio_hyper`, with the feature `http2`). Default off.
    pub http2: bool,
    /// Max time that a shutdown waits for requests that have begun. Default 10 s.
    pub drain_grace: Duration,
    /// The value of the `Server` header. Default none.
    pub server_header: Option<String>,
    /// Which requests are refused with 503 if there is more work than the server can do. `None`, the default, is none. See
    /// [`overload`](crate::overload).
    pub overload: Option<Overload>,
    /// A hook that sees every answer, also those that the server gives itself. Default none.
    pub on_answer: Option<AnswerHook>,
    /// The certificate and the key if the server speaks TLS. A handshake counts as the begun head of a request: it has the
    /// `head_timeout`, and a drain waits for it. Default none.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: None,
            queue: None,
            max_connections: 10_000,
            max_connections_per_peer: None,
            trusted_proxies: TrustedProxies::default(),
            backlog: 4096,
            first_byte_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_body_rate: 240,
            answer_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(1),
            max_head: 16 * 1024,
            max_headers: Self::MAX_HEADERS,
            max_body: 1024 * 1024,
            memory: None,
            requests_per_connection: None,
            defer_accept: false,
            pin: false,
            spread: false,
            http2: false,
            drain_grace: Duration::from_secs(10),
            server_header: None,
            overload: None,
            on_answer: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// The bounds of the settings, and the default of a queue.
impl ServerConfig {
    /// The queue of a server that has one, if none is configured.
    pub const DEFAULT_QUEUE: usize = 1024;

    /// The largest `max_headers`: header fields are parsed into an array on the stack.
    pub const MAX_HEADERS: usize = 100;

    /// The largest `workers`.
    pub const MAX_WORKERS: usize = 4096;

    /// The smallest `memory`.
    pub const MIN_MEMORY: usize = 1 << 20;

    /// The largest `max_connections`, and the largest `queue`.
    pub const MAX_CONNECTIONS: usize = 1 << 20;
}

/// The setters of [`ServerConfig`].
macro_rules! setters {
    ($($name:ident: $value:ty;)*) => {
        /// One setter for each setting. A value is checked by [`validate`](Self::validate), which every constructor calls.
        impl ServerConfig {
            $(
                #[doc = concat!("Sets [`", stringify!($name), "`](field@Self::", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $value) -> Self {
                    self.$name = $name.into();
                    self
                }
            )*
        }
    };
}

setters! {
    workers: impl Into<Option<usize>>;
    queue: impl Into<Option<usize>>;
    max_connections: usize;
    max_connections_per_peer: impl Into<Option<u64>>;
    trusted_proxies: TrustedProxies;
    backlog: u32;
    first_byte_timeout: Duration;
    head_timeout: Duration;
    body_timeout: Duration;
    min_body_rate: u32;
    answer_timeout: Duration;
    idle_timeout: Duration;
    write_timeout: Duration;
    linger_timeout: Duration;
    max_head: usize;
    max_headers: usize;
    max_body: usize;
    memory: impl Into<Option<usize>>;
    requests_per_connection: impl Into<Option<u64>>;
    defer_accept: bool;
    pin: bool;
    spread: bool;
    http2: bool;
    drain_grace: Duration;
    overload: impl Into<Option<Overload>>;
}

impl ServerConfig {
    /// Sets [`server_header`](field@Self::server_header).
    #[must_use]
    pub fn server_header(mut self, server_header: impl Into<String>) -> Self {
        self.server_header = Some(server_header.into());
        self
    }

    /// Sets [`on_answer`](field@Self::on_answer): `hook` is called for every answer. [`AnswerHook`] says when.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let refused = Arc::new(AtomicU64::new(0));
    /// let count = Arc::clone(&refused);
    /// let config = ServerConfig::default().on_answer(move |answer| {
    ///     if answer.status.as_u16() >= 400 {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn on_answer(mut self, hook: impl Fn(&AnswerReport<'_>) + Send + Sync + 'static) -> Self {
        self.on_answer = Some(AnswerHook::new(hook));
        self
    }

    /// Sets [`tls`](field@Self::tls): the server speaks TLS, and nothing else.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn tls(mut self, tls: impl Into<Option<TlsConfig>>) -> Self {
        self.tls = tls.into();
        self
    }

    /// Returns the number of workers: as configured, or `per_core` times the available cores.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// assert_eq!(ServerConfig::default().workers(3).workers_or(4), 3);
    /// assert_eq!(ServerConfig::default().workers_or(4), 4 * polyserve_core::cores());
    /// ```
    pub fn workers_or(&self, per_core: usize) -> usize {
        self.workers.unwrap_or_else(|| cores() * per_core)
    }

    /// Returns the number of jobs that may wait: as configured, or [`Self::DEFAULT_QUEUE`].
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// assert_eq!(ServerConfig::default().queue(64).queue_or_default(), 64);
    /// assert_eq!(ServerConfig::default().queue_or_default(), 1_024);
    /// ```
    pub fn queue_or_default(&self) -> usize {
        self.queue.unwrap_or(Self::DEFAULT_QUEUE)
    }

    /// Returns the memory budget in bytes: as configured, or a quarter of the machine's memory or of the cgroup's limit.
    pub fn memory_or_default(&self) -> usize {
        self.memory.unwrap_or_else(default_memory)
    }

    /// Resets the setting `name` to the server's own choice. Returns whether a value was configured. For a program that
    /// shares one configuration among servers, see [`ConfigError::unsupported_setting`]. TLS is never reset: a server that does not have
    /// it must not serve without it.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// let mut config = ServerConfig::default().queue(8);
    /// assert!(config.reset("queue") && !config.reset("queue") && !config.reset("backlog"));
    /// assert_eq!(config, ServerConfig::default());
    /// ```
    pub fn reset(&mut self, name: &str) -> bool {
        match name {
            "workers" => self.workers.take().is_some(),
            "queue" => self.queue.take().is_some(),
            "pin" => std::mem::take(&mut self.pin),
            "spread" => std::mem::take(&mut self.spread),
            "http2" => std::mem::take(&mut self.http2),
            _ => false,
        }
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    ///
    /// Returns an error with the name, the value and the range of the first setting that is out of range.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// assert!(ServerConfig::default().validate().is_ok());
    /// assert_eq!(ServerConfig::default().max_head(1).validate().unwrap_err().expected(), "from 64 to 16777216 bytes");
    /// ```
    pub fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("workers", self.workers.unwrap_or(1), Self::MAX_WORKERS),
            ("queue", self.queue.unwrap_or(1), Self::MAX_CONNECTIONS),
            ("max_connections", self.max_connections, Self::MAX_CONNECTIONS),
            ("backlog", self.backlog as usize, i32::MAX as usize),
            ("max_headers", self.max_headers, Self::MAX_HEADERS),
        ];
        for (name, value, max) in counts {
            if value == 0 || value > max {
                return Err(ConfigError::new(name, value, format!("from 1 to {max}")));
            }
        }
        for (name, limit) in [
            ("max_connections_per_peer", self.max_connections_per_peer),
            ("requests_per_connection", self.requests_per_connection),
        ] {
            if limit == Some(0) {
                return Err(ConfigError::new(name, 0, "at least 1"));
            }
        }
        let memory = self.memory.unwrap_or(Self::MIN_MEMORY);
        for (name, value, min, max) in [
            ("max_head", self.max_head, 64, 16 << 20),
            ("max_body", self.max_body, 0, 1 << 30),
            ("memory", memory, Self::MIN_MEMORY, isize::MAX as usize),
        ] {
            if value < min || value > max {
                return Err(ConfigError::new(name, value, format!("from {min} to {max} bytes")));
            }
        }
        let times = [
            ("first_byte_timeout", self.first_byte_timeout),
            ("head_timeout", self.head_timeout),
            ("body_timeout", self.body_timeout),
            ("answer_timeout", self.answer_timeout),
            ("idle_timeout", self.idle_timeout),
            ("write_timeout", self.write_timeout),
        ];
        for (name, value) in times {
            if value < Duration::from_millis(1) || value > MAX_TIMEOUT {
                return Err(ConfigError::new(name, format_args!("{value:?}"), "from 1 ms to 24 h"));
            }
        }
        for (name, value) in [("linger_timeout", self.linger_timeout), ("drain_grace", self.drain_grace)] {
            if value > MAX_TIMEOUT {
                return Err(ConfigError::new(name, format_args!("{value:?}"), "at most 24 h"));
            }
        }
        if let Some((overload, expected)) = self.overload.as_ref().and_then(|it| Some((it, it.expected()?))) {
            return Err(ConfigError::new("overload", overload, expected));
        }
        match &self.server_header {
            Some(text) if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) || text.trim() != text => {
                let text = format!("{text:?}");
                Err(ConfigError::new("server_header", text, "printable ASCII without spaces around it"))
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

/// A configuration that cannot be honoured: the setting, its value, and what is expected instead.
///
/// ```
/// use polyserve_core::ServerConfig;
/// let error = ServerConfig::default().workers(0).validate().unwrap_err();
/// assert_eq!((error.setting(), error.value(), error.expected()), ("workers", "0", "from 1 to 4096"));
/// assert_eq!(error.to_string(), "workers must be from 1 to 4096, not 0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    expected: Cow<'static, str>,
    unsupported: bool,
}

impl ConfigError {
    /// The error of a `setting` with a `value` that is not as `expected`. `expected` completes the sentence "it must be ..".
    pub fn new(setting: &'static str, value: impl fmt::Display, expected: impl Into<Cow<'static, str>>) -> Self {
        let value = shortened(value.to_string(), MAX_VALUE);
        Self { setting, value, expected: expected.into(), unsupported: false }
    }

    /// The error of a server that does not have the `setting`, or has one fixed value for it.
    ///
    /// ```
    /// let error = polyserve_core::ConfigError::unsupported("workers", 4, "1 for this server");
    /// assert_eq!(error.unsupported_setting(), Some("workers"));
    /// ```
    pub fn unsupported(
        setting: &'static str,
        value: impl fmt::Display,
        expected: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { unsupported: true, ..Self::new(setting, value, expected) }
    }

    /// Returns the name of the setting.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// Returns the value that was refused, cut to 100 bytes.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns what the value must be, for example a range with its unit.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// The setting that the server does not have. `None` if the error is about the value of a setting.
    pub fn unsupported_setting(&self) -> Option<&'static str> {
        self.unsupported.then_some(self.setting)
    }
}

/// Max bytes of a refused value that an error shows.
const MAX_VALUE: usize = 100;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}, not {}", self.setting, self.expected, self.value)
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
    fn what_is_wrong_is_named() {
        let config = ServerConfig::default;
        let wrong = [
            ("workers", "0", config().workers(0)),
            ("memory", "1048575", config().memory(ServerConfig::MIN_MEMORY - 1)),
            ("queue", "0", config().queue(0)),
            ("max_connections", "18446744073709551615", config().max_connections(usize::MAX)),
            ("max_headers", "101", config().max_headers(101)),
            ("max_connections_per_peer", "0", config().max_connections_per_peer(0)),
            ("requests_per_connection", "0", config().requests_per_connection(0)),
            ("max_head", "10", config().max_head(10)),
            ("head_timeout", "0ns", config().head_timeout(Duration::ZERO)),
            ("drain_grace", "18446744073709551615.999999999s", config().drain_grace(Duration::MAX)),
            ("server_header", "\"a\\r\\nb\"", config().server_header("a\r\nb")),
            ("overload", "static:0", config().overload(Overload::static_limit(0))),
        ];
        for (setting, value, config) in wrong {
            let error = config.validate().unwrap_err();
            assert_eq!((error.setting(), error.value()), (setting, value));
            assert_eq!(error.to_string(), format!("{setting} must be {}, not {value}", error.expected()));
        }
    }

    #[test]
    fn a_refused_value_is_shown_in_part() {
        let error = ServerConfig::default().server_header("\u{2603}".repeat(1000)).validate().unwrap_err();
        assert!(error.value().len() <= MAX_VALUE, "{error}");
    }
}
