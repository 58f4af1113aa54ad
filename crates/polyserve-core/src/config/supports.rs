//! [`Supports`]: the settings that a server has, as a constant.

use super::{ConfigError, ServerConfig};

/// The settings that a server has, of those that not all servers have: workers, a queue, loops, and HTTP/2. The constructor of a server
/// checks its configuration with such a constant.
///
/// ```
/// use polyserve_core::{ServerConfig, Supports};
///
/// const SUPPORTS: Supports = Supports::new("my_server").one_worker();
///
/// assert!(SUPPORTS.check(&ServerConfig::default()).is_ok());
/// let error = SUPPORTS.check(&ServerConfig::default().queue(8)).unwrap_err();
/// assert_eq!(error.to_string(), "queue must be left out for my_server (it has no queue), not 8");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Supports {
    server: &'static str,
    workers: Workers,
    has_queue: bool,
    has_loops: bool,
    has_http2: bool,
}

/// The numbers of workers that a server can have.
#[derive(Clone, Copy, Debug)]
enum Workers {
    Any,
    One,
    /// It has no workers, for this reason.
    Unset(&'static str),
}

impl Supports {
    /// The settings of a server with this name. It has any number of workers, no queue, no event loops, and no HTTP/2.
    pub const fn new(server: &'static str) -> Self {
        Self { server, workers: Workers::Any, has_queue: false, has_loops: false, has_http2: false }
    }

    /// The server has a queue.
    #[must_use]
    pub const fn queue(self) -> Self {
        Self { has_queue: true, ..self }
    }

    /// Each worker of the server is an event loop, with connections of its own: it has `pin` and `spread`.
    #[must_use]
    pub const fn loops(self) -> Self {
        Self { has_loops: true, ..self }
    }

    /// The server has HTTP/2.
    #[must_use]
    pub const fn http2(self) -> Self {
        Self { has_http2: true, ..self }
    }

    /// The server has one worker.
    #[must_use]
    pub const fn one_worker(self) -> Self {
        Self { workers: Workers::One, ..self }
    }

    /// The server has no workers. `why` is the reason, and what to set instead, for the error.
    #[must_use]
    pub const fn no_workers(self, why: &'static str) -> Self {
        Self { workers: Workers::Unset(why), ..self }
    }

    /// Checks that every setting of `config` is in its range, and that the server has it.
    ///
    /// # Errors
    ///
    /// Returns the error of [`ServerConfig::validate`], or an [unsupported](ConfigError::unsupported) `queue`, `pin`,
    /// `spread`, `http2` or `workers`.
    pub fn check(&self, config: &ServerConfig) -> Result<(), ConfigError> {
        config.validate()?;
        let server = self.server;
        if let Some(jobs) = config.queue.filter(|_| !self.has_queue) {
            return Err(ConfigError::unsupported("queue", jobs, format!("left out for {server} (it has no queue)")));
        }
        let switches = [
            ("pin", config.pin, self.has_loops, "no event loop for each core"),
            ("spread", config.spread, self.has_loops, "no event loop for each core"),
            ("http2", config.http2, self.has_http2, "no HTTP/2, or was built without it"),
        ];
        for (name, is_set, is_had, what) in switches {
            if is_set && !is_had {
                return Err(ConfigError::unsupported(name, true, format!("left out for {server} (it has {what})")));
            }
        }
        match (config.workers, self.workers) {
            (None, _) | (_, Workers::Any) | (Some(1), Workers::One) => Ok(()),
            (Some(count), Workers::One) => Err(ConfigError::unsupported("workers", count, format!("1 for {server}"))),
            (Some(count), Workers::Unset(why)) => {
                Err(ConfigError::unsupported("workers", count, format!("left out for {server} ({why})")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_configured_is_refused() {
        let unsupported = |supports: Supports, config: &ServerConfig| {
            supports.check(config).err().map(|error| error.unsupported_setting())
        };
        let (any, one, none) =
            (Supports::new("me"), Supports::new("me").one_worker(), Supports::new("me").no_workers("x"));
        for supports in [any, one, none] {
            assert_eq!(unsupported(supports, &ServerConfig::default()), None);
            assert_eq!(unsupported(supports, &ServerConfig::default().queue(7)), Some(Some("queue")));
            assert_eq!(unsupported(supports.queue(), &ServerConfig::default().queue(7)), None);
            assert_eq!(unsupported(supports, &ServerConfig::default().http2(true)), Some(Some("http2")));
            assert_eq!(unsupported(supports.http2(), &ServerConfig::default().http2(true)), None);
            assert_eq!(unsupported(supports, &ServerConfig::default().workers(0)), Some(None), "a value out of range");
        }
        let refused = |workers| [any, one, none].map(|it| unsupported(it, &ServerConfig::default().workers(workers)));
        assert_eq!(refused(1), [None, None, Some(Some("workers"))]);
        assert_eq!(refused(2), [None, Some(Some("workers")), Some(Some("workers"))]);
    }
}
