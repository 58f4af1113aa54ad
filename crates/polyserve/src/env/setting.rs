//! Every field of [`ServerConfig`] as a setting: one row each, from which its variable, its flag and its help follow.

use std::fmt;

use polyserve_core::ServerConfig;

use super::form;

/// A field of [`ServerConfig`] that can be set by text.
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
    /// The field: `head_timeout`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it means, in one line.
    pub fn summary(&self) -> &'static str {
        self.summary
    }

    /// What its value may be: "a time such as 10s, 500ms or 2m".
    pub fn form(&self) -> &'static str {
        self.form
    }

    /// What stands for its value in a usage line: `TIME`.
    pub fn value_name(&self) -> &'static str {
        self.value_name
    }

    /// Whether it is on or off and nothing else, so that a flag needs no value.
    pub fn is_switch(&self) -> bool {
        self.form == form::switch::FORM
    }

    /// Its environment variable: `POLYSERVE_HEAD_TIMEOUT`.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// Its flag: `--head-timeout`.
    pub fn flag(&self) -> String {
        flag(self.name)
    }

    /// Its value in `config`, as it could be written.
    pub fn show(&self, config: &ServerConfig) -> String {
        (self.show)(config)
    }

    /// Sets it in `config`; false where `text` is not of its [`form`](Self::form). Whether the value makes sense, only
    /// [`ServerConfig::validate`] says.
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

/// The variable of the setting `name`.
pub(super) fn variable(name: &str) -> String {
    format!("POLYSERVE_{}", name.to_ascii_uppercase())
}

/// The flag of the setting `name`.
pub(super) fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

macro_rules! settings {
    ($($name:ident: $form:ident, $summary:literal;)*) => {
        /// Every field of [`ServerConfig`], in its order.
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
    workers: workers, "Threads that serve";
    queue: queue, "Jobs that may wait for a worker, if the server has a queue; more are answered 503";
    max_connections: count, "Open connections; past it 503";
    backlog: count, "The kernel's queue of connections that wait to be accepted";
    head_timeout: time, "From a request's first byte to the end of its head; past it 408";
    body_timeout: time, "From the end of the head to the end of the body; past it 408";
    answer_timeout: time, "From a request to an answer that comes later; past it 503";
    idle_timeout: time, "From accept, or the last answer, to a request's first byte; past it closed";
    write_timeout: time, "From an answer to the client having taken it; past it cut";
    linger_timeout: time, "How long a closed connection is still read from, so that the client sees the last answer";
    max_head: bytes, "Bytes of request line and headers; past it 431 or 414";
    max_headers: count, "Header fields; past it 431";
    max_body: bytes, "Bytes of body; past it 413";
    requests_per_connection: count, "Requests answered on one connection before it is closed; 0 is no limit";
    defer_accept: switch, "The kernel hands a connection over only when its first byte is there (Linux)";
    drain_grace: time, "How long a shutdown waits for requests that have begun";
    server_header: text, "The Server header's value";
}
