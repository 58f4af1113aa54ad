//! What an error of the server, of a pooler or of the client means: whether the statement may have been done.

use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{EngineFailure, Source, in_one_line, is_untrusted};

/// Whether a session has lost a prepared statement, or the statement's result has changed its type.
pub(super) fn is_forgotten(error: &Error) -> bool {
    match error.code() {
        Some(&SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::DUPLICATE_PSTATEMENT) => true,
        Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
            error.as_db_error().and_then(DbError::routine) == Some("RevalidateCachedQuery")
        }
        _ => false,
    }
}

/// Texts of PgBouncer, which has one code for several errors, for a statement that it has given to no server.
const NO_SERVER: [&str; 4] =
    ["query_wait_timeout", "server login has been failing", "server login failed", "cannot connect to server"];

/// Whether a pooler has given the statement to no server.
pub(super) fn has_no_server(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| is_without_server(error.code(), error.message()))
}

fn is_without_server(code: &SqlState, message: &str) -> bool {
    *code == SqlState::PROTOCOL_VIOLATION && NO_SERVER.iter().any(|text| message.contains(text))
}

/// What an error means for the statement. If `is_complete`, the server may have committed it before it sent the error.
pub(super) fn classify(error: Error, is_complete: bool) -> EngineFailure {
    if is_forgotten(&error) {
        return EngineFailure::NotDone(error.into());
    }
    match error.code().map(SqlState::code) {
        Some(code) => failure_of(code, severity(&error), is_complete)(error.into()),
        None if is_of_values(&error) => EngineFailure::Rejected(error.into()),
        // The connection ended: a commit may have come before.
        None => EngineFailure::Unknown(error.into()),
    }
}

/// Whether a value could not be encoded, and was not sent, or cannot be decoded.
fn is_of_values(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| match source.downcast_ref::<io::Error>() {
        Some(error) => error.kind() == io::ErrorKind::InvalidInput,
        None => true,
    })
}

pub(super) fn severity(error: &Error) -> Option<Severity> {
    error.as_db_error().and_then(DbError::parsed_severity)
}

/// The statement took longer than `transaction_timeout`, since PostgreSQL 17. The client library has no name for this code.
const TRANSACTION_TIMEOUT: &str = "25P04";

/// What an SQLSTATE means for the statement. A code alone does not tell: a server that panics as it writes its log has the code of a
/// full disk, and the commit may be in that log.
fn failure_of(code: &str, severity: Option<Severity>, is_complete: bool) -> fn(Source) -> EngineFailure {
    match severity {
        Some(Severity::Panic) => return EngineFailure::Unknown,
        Some(Severity::Fatal) if is_complete => return EngineFailure::Unknown,
        _ => {}
    }
    match SqlState::from_code(code) {
        // The server ends: a commit may have come before.
        SqlState::CRASH_SHUTDOWN | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => EngineFailure::Unknown,
        SqlState::ADMIN_SHUTDOWN if is_complete => EngineFailure::Unknown,
        // It was undone: the server was not ready, is a standby, or stopped the statement.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::READ_ONLY_SQL_TRANSACTION => EngineFailure::NotDone,
        // Class 53: no room, no memory, too many connections. Class 57: an operator stopped it, or the server starts or ends.
        _ if code.starts_with("53") || code.starts_with("57") || code == TRANSACTION_TIMEOUT => EngineFailure::NotDone,
        // Class 08: a connection failed, perhaps one between a pooler and the server.
        _ if code.starts_with("08") => EngineFailure::Unknown,
        // For example, an index holds at most about 2,700 bytes of an id.
        SqlState::PROGRAM_LIMIT_EXCEEDED => EngineFailure::TooLarge,
        // Class 28: the server does not accept the user or the password.
        _ if code.starts_with("28") => EngineFailure::Unauthenticated,
        _ => EngineFailure::Rejected,
    }
}

/// What an error means for a session that is being opened. Nothing was written.
pub(super) fn not_open(error: Error) -> EngineFailure {
    // The client has no code for these: settings without a host or a password, and a method that it does not know.
    match &*error.to_string() {
        "invalid configuration" => return EngineFailure::Rejected(error.into()),
        "authentication error" => return EngineFailure::Unauthenticated(error.into()),
        _ if is_untrusted(&in_one_line(&error)) => return EngineFailure::Unauthenticated(error.into()),
        _ => {}
    }
    match classify(error, false).of_read() {
        // Another process creates the table at the same time.
        EngineFailure::Rejected(source) if is_race(&source) => EngineFailure::NotDone(source),
        failure => failure,
    }
}

fn is_race(source: &Source) -> bool {
    let code = source.downcast_ref().and_then(Error::code);
    matches!(code, Some(&SqlState::UNIQUE_VIOLATION | &SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_OBJECT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_leaves_a_statement_unknown() {
        let failure = |code: &str, is_complete| failure_of(code, Some(Severity::Error), is_complete)("test".into());
        // Class 08, also codes that this client does not know; completion unknown; the server crashes.
        for code in ["08000", "08003", "08006", "08007", "08P01", "08X99", "40003", "57P02"] {
            assert!(matches!(failure(code, false), EngineFailure::Unknown(_)), "{code}");
        }
        for code in [
            "40001", "40P01", "55P03", "57014", "57P03", "57P05", "25006", "25P04", "53000", "53100", "53200", "53300",
            "53X99",
        ] {
            assert!(matches!(failure(code, true), EngineFailure::NotDone(_)), "{code}");
        }
        for code in ["23505", "42P01", "42501", "54001", "40002", "0A000", "22021"] {
            assert!(matches!(failure(code, true), EngineFailure::Rejected(_)), "{code}");
        }
        assert!(matches!(failure("54000", false), EngineFailure::TooLarge(_)));
        for code in ["28000", "28P01"] {
            assert!(matches!(failure(code, false), EngineFailure::Unauthenticated(_)), "{code}");
        }
    }

    /// Regression test: a statement that PgBouncer gave to no server was reported as one that may have been done.
    #[test]
    fn a_pooler_without_a_server_has_not_done_it() {
        let is_without = |text| is_without_server(&SqlState::from_code("08P01"), text);
        assert!(is_without("query_wait_timeout"));
        assert!(is_without("server login has been failing, try again later (server_login_retry)"));
        assert!(is_without("pgbouncer cannot connect to server"));
        assert!(!is_without("server conn crashed?"));
        assert!(!is_without_server(&SqlState::from_code("P0001"), "query_wait_timeout"));
    }

    /// A server that is shut down ends a statement before its commit, if it has not sent that it is complete.
    #[test]
    fn a_shutdown_after_a_statement_is_complete_leaves_it_unknown() {
        for severity in [None, Some(Severity::Fatal)] {
            assert!(matches!(failure_of("57P01", severity, false)("test".into()), EngineFailure::NotDone(_)));
            assert!(matches!(failure_of("57P01", severity, true)("test".into()), EngineFailure::Unknown(_)));
        }
    }

    /// Regression test: a server that panicked as it wrote the log of a commit was said to have done nothing, and the write was
    /// sent again. The server finds the commit in its log when it starts.
    #[test]
    fn a_server_that_ends_leaves_a_statement_unknown() {
        let failure = |code, severity, is_complete| failure_of(code, Some(severity), is_complete)("test".into());
        for code in ["53100", "58030", "XX000"] {
            for is_complete in [false, true] {
                assert!(matches!(failure(code, Severity::Panic, is_complete), EngineFailure::Unknown(_)), "{code}");
            }
            assert!(matches!(failure(code, Severity::Fatal, true), EngineFailure::Unknown(_)), "{code}");
        }
        assert!(matches!(failure("53300", Severity::Fatal, false), EngineFailure::NotDone(_)));
    }
}
