//! [`ConnectError`], and why an operation failed.

use std::error::Error;
use std::fmt;

use polyserve_core::RepoError;
pub(crate) use polyserve_core::log::in_one_line;

/// The source of an error.
pub(crate) type Source = Box<dyn Error + Send + Sync>;

/// The reason why a store could not be constructed. Its text has the texts of all causes, so it has no
/// [`source`](Error::source).
#[derive(Debug)]
pub struct ConnectError {
    text: String,
}

impl ConnectError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { text: what.into() }
    }

    pub(crate) fn caused(what: impl fmt::Display, source: impl Into<Source>) -> Self {
        Self { text: format!("{what}: {}", in_one_line(&*source.into())) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ConnectError {}

/// The texts that stand before what was sent or stored: in Redis' answer to an unknown command, in the client's text of an
/// answer of an unexpected type, and in PostgreSQL's messages on values.
const BEFORE_DATA: [&str; 3] = [", with args beginning with", " (response was", ": \""];

/// Returns the text of an error and of its causes, without the entity's data. The log has it.
pub(crate) fn without_data(error: &(dyn Error + 'static)) -> String {
    let mut text = in_one_line(error);
    if let Some(end) = BEFORE_DATA.iter().filter_map(|before| text.find(before)).min() {
        text.truncate(end);
    }
    text
}

/// Why an engine did not do what it was asked.
#[derive(Debug)]
pub(crate) enum EngineFailure {
    /// It was certainly not done, and another try may succeed.
    NotDone(Source),
    /// It may have been done, or may still be done.
    Unknown(Source),
    /// It was certainly not done: one side does not accept the password or the certificate of the other. Another try fails too, until
    /// one of them has been changed.
    Unauthenticated(Source),
    /// It was certainly not done, and another try fails too: the entity or its id is larger than the engine takes.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "postgres")),
        allow(dead_code, reason = "Redis takes what a server does")
    )]
    TooLarge(Source),
    /// It was certainly not done, and another try fails too: what is stored under the key is no value of a store.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis has values of several kinds"))]
    NoValue(Source),
    /// It was certainly not done, and another try fails too.
    Rejected(Source),
}

impl EngineFailure {
    /// Makes it a failure after which the operation may have been done.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis answers a write in two parts"))]
    pub(crate) fn into_unknown(self) -> Self {
        Self::Unknown(self.into_source())
    }

    /// The source of the error.
    pub(crate) fn into_source(self) -> Source {
        let (Self::NotDone(source)
        | Self::Unknown(source)
        | Self::Unauthenticated(source)
        | Self::TooLarge(source)
        | Self::NoValue(source)
        | Self::Rejected(source)) = self;
        source
    }

    /// Whether another try fails too.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Unauthenticated(_) | Self::TooLarge(_) | Self::NoValue(_) | Self::Rejected(_))
    }

    /// Makes it the failure of an operation that changes nothing.
    pub(crate) fn of_read(self) -> Self {
        match self {
            Self::Unknown(source) => Self::NotDone(source),
            failure => failure,
        }
    }

    /// The error of the repo's operation. `engine` is the engine's name.
    pub(crate) fn into_repo_error(self, engine: &'static str) -> RepoError {
        let error = |what, source: Source| format!("{engine} {what}: {}", without_data(&*source)).into();
        match self {
            Self::NotDone(source) => RepoError::NotDone(error("did not do it", source)),
            Self::Unknown(source) => RepoError::Unavailable(error("may have done it or not", source)),
            // The engine is away until one side has another password or certificate.
            Self::Unauthenticated(source) => {
                RepoError::NotDone(error("does not accept the store's login, or is not trusted", source))
            }
            Self::TooLarge(source) => RepoError::TooLarge(error("does not take so much", source)),
            Self::NoValue(source) | Self::Rejected(source) => RepoError::Other(error("rejected it", source)),
        }
    }
}

/// Whether a text is that of a handshake that fails each time: one side does not trust the certificate of the other, or the server does
/// not speak TLS.
pub(crate) fn is_untrusted(text: &str) -> bool {
    const ALERTS: [&str; 4] = ["Certificate", "UnknownCA", "AccessDenied", "UnsupportedCertificate"];
    let alert = text.split_once("received fatal alert: ").map(|(_, alert)| alert);
    text.contains("invalid peer certificate")
        || text.contains("server does not support TLS")
        || alert.is_some_and(|alert| ALERTS.iter().any(|known| alert.contains(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of a client library: its text, and its cause.
    #[derive(Debug)]
    struct LayeredError(&'static str, Option<Box<LayeredError>>);

    impl fmt::Display for LayeredError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for LayeredError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|source| &**source as _)
        }
    }

    fn layered(texts: &[&'static str]) -> Option<Box<LayeredError>> {
        let (first, rest) = texts.split_first()?;
        Some(Box::new(LayeredError(first, layered(rest))))
    }

    /// The texts of an error and of all its sources, as a program prints them.
    fn printed(error: &dyn Error) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text += &format!(": {error}");
            source = error.source();
        }
        text
    }

    /// Regression test: the text of an error had the texts of its sources, and a program that prints the sources printed
    /// each cause again.
    #[test]
    fn each_cause_is_printed_once() {
        for (texts, expected) in [
            (&["db error", "no such table"][..], "db error: no such table"),
            (&["transport: refused", "refused"], "transport: refused"),
            (&["refused", "refused"], "refused"),
            (&["one", "two", "three"], "one: two: three"),
        ] {
            let source = || Source::from(layered(texts).expect("there is a text"));
            let connect = ConnectError::caused("cannot connect", source());
            assert_eq!(printed(&connect), format!("cannot connect: {expected}"));
            let repo = EngineFailure::NotDone(source()).into_repo_error("etcd");
            let start = "the repo is unavailable, and the operation was not done: etcd did not do it";
            assert_eq!(printed(&repo), format!("{start}: {expected}"));
        }
    }

    /// Regression test: a certificate that was not trusted any more was an error of the store, and not an engine that is away. So was
    /// a password that had been changed.
    #[test]
    fn an_engine_that_does_not_accept_the_store_is_away() {
        for (text, is_away) in [
            ("error connecting: invalid peer certificate: Expired", true),
            ("transport error: received fatal alert: UnknownCA", true),
            ("received fatal alert: HandshakeFailure", false),
            ("permission denied for table polyserve", false),
        ] {
            assert_eq!(is_untrusted(text), is_away, "{text}");
        }
        let text = || Source::from("password authentication failed");
        for (failure, is_away) in
            [(EngineFailure::Unauthenticated(text()), true), (EngineFailure::Rejected(text()), false)]
        {
            assert!(failure.is_final());
            let error = failure.into_repo_error("postgres");
            assert_eq!(matches!(error, RepoError::NotDone(_)), is_away, "{error:?}");
            assert!(printed(&error).ends_with(": password authentication failed"), "{error:?}");
        }
    }

    /// Regression test: the log had the entity that a request sent, or that the engine stored.
    #[test]
    fn a_text_has_no_data() {
        for (text, expected) in [
            (
                "An error was signalled by the server - unknown command 'EVAL', with args beginning with: '1' 'secret'",
                "An error was signalled by the server - unknown command 'EVAL'",
            ),
            (
                r#"Incompatible type - "Response type not string" (response was bulk-string('secret'))"#,
                r#"Incompatible type - "Response type not string""#,
            ),
            (
                r#"db error: ERROR: invalid input syntax for type integer: "secret""#,
                "db error: ERROR: invalid input syntax for type integer",
            ),
            (
                r#"db error: ERROR: relation "polyserve" does not exist"#,
                r#"db error: ERROR: relation "polyserve" does not exist"#,
            ),
        ] {
            assert_eq!(without_data(&*Source::from(text)), expected);
        }
    }
}
