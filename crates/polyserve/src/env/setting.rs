//! The fields of [`ServerConfig`] as settings. The variable, the flag and the help of a setting follow from one row of a
//! table.

use std::fmt;

use polyserve_core::ServerConfig;

use super::form;

/// A field of [`ServerConfig`] that text can set.
///
/// ```
/// use polyserve::env::SETTINGS;
/// let setting = SETTINGS.iter().find(|setting| setting.name() == "head_timeout").unwrap();
/// assert_eq!((setting.flag(), setting.variable()), ("--head-timeout".into(), "POLYSERVE_HEAD_TIMEOUT".into()));
///
/// let mut config = polyserve::ServerConfig::default();
/// assert!(setting.set(&mut config, "3s") && !setting.set(&mut config, "soon"));
/// assert_eq!(setting.show(&config), "3s");
/// println!("{} {}: {}, {}", setting.flag(), setting.value_name(), setting.summary(), setting.form());
/// assert!(!setting.is_switch());
/// ```
#[derive(Clone, Copy)]
pub struct Setting {
    name: &'static str,
    summary: &'static str,
    value_name: &'static str,
    form: &'static str,
    set: fn(&mut ServerConfig, &str) -> bool,
    show: fn(&ServerConfig) -> String,
}

impl Setting {
    /// Returns the name of the field: `head_timeout`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns a description in one line.
    pub fn summary(&self) -> &'static str {
        self.summary
    }

    /// Returns the form of the value: "a time such as 10s, 500ms or 2m".
    pub fn form(&self) -> &'static str {
        self.form
    }

    /// Returns the placeholder of the value in a usage line: `TIME`.
    pub fn value_name(&self) -> &'static str {
        self.value_name
    }

    /// Whether the setting is a boolean, so that its flag needs no value.
    pub fn is_switch(&self) -> bool {
        self.form == form::switch::FORM
    }

    /// Returns the environment variable: `POLYSERVE_HEAD_TIMEOUT`.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// Returns the flag: `--head-timeout`.
    pub fn flag(&self) -> String {
        flag(self.name)
    }

    /// Returns the value in `config` as text.
    pub fn show(&self, config: &ServerConfig) -> String {
        (self.show)(config)
    }

    /// Sets the value in `config`. Returns false if `text` does not have the [`form`](Self::form). The range is checked by
    /// [`ServerConfig::validate`].
    #[must_use]
    pub fn set(&self, config: &mut ServerConfig, text: &str) -> bool {
        (self.set)(config, text)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the variable of the setting `name`.
pub(super) fn variable(name: &str) -> String {
    format!("POLYSERVE_{}", name.to_ascii_uppercase())
}

/// Returns the flag of the setting `name`.
pub(super) fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

macro_rules! settings {
    ($($name:ident: $form:ident, $summary:literal;)*) => {
        /// Every field of [`ServerConfig`] that text can set, in its order.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            summary: $summary,
            value_name: form::$form::NAME,
            form: form::$form::FORM,
            set: |config, text| form::$form::parse(text).map(|value| config.$name = value).is_some(),
            show: |config| form::$form::show(&config.$name),
        }),*];
    };
}

settings! {
    workers: workers, "Number of worker threads";
    queue: queue, "Max jobs that wait for a worker, if the server has a queue; more are answered 503";
    max_connections: count, "Max open connections; beyond it, an idle one is closed, or the new one is answered 503";
    max_connections_per_peer: limit, "Max open connections of one address (of an IPv6 /64); a new one is answered 503; 0 is no limit";
    trusted_proxies: proxies, "Proxies that name the client in Forwarded or X-Forwarded-For; they may open any number of connections";
    backlog: count, "The kernel's queue of connections that wait to be accepted";
    first_byte_timeout: time, "Max time from accept to the first byte of a connection; then the connection is closed";
    head_timeout: time, "Max time from a request's first byte to the end of its head; then 408";
    body_timeout: time, "Max time from the end of the head to the end of the body; then 408";
    min_body_rate: count, "Min bytes per second of a body, after its first 5 s; slower is answered 408; 0 is no minimum";
    answer_timeout: time, "Max time from a request to a deferred answer; then 503";
    idle_timeout: time, "Max time from the last answer to the first byte of the next request; then the connection is closed";
    write_timeout: time, "Max time for the client to take an answer, plus 1 s for each 64 KiB; then the connection is cut";
    linger_timeout: time, "Max time that a closed connection is still read, so that the client receives the last answer; it begins anew while a body goes on, at most for --body-timeout";
    max_head: bytes, "Max size of request line and headers; more is answered 431 or 414";
    max_headers: count, "Max number of header fields; more are answered 431";
    max_body: bytes, "Max size of a body; more is answered 413";
    memory: memory, "Max memory of incomplete bodies and unsent answers of all connections; more is answered 503";
    requests_per_connection: limit, "Max requests on one connection; then it is closed; 0 is no limit";
    defer_accept: switch, "The kernel hands a connection over only when its first byte is there (Linux)";
    pin: switch, "Each event loop stays on one core (epoll and io_uring)";
    spread: switch, "An event loop hands a new connection to the loop with the fewest (epoll and io_uring)";
    http2: switch, "HTTP/2 is served too, with prior knowledge, or negotiated over TLS (tokio_hyper)";
    drain_grace: time, "Max time that a shutdown waits for requests that have begun";
    server_header: text, "The value of the Server header";
    overload: overload, "Which requests are answered 503 if there is more work than can be done: beyond N at once, after a wait, or by itself";
}
