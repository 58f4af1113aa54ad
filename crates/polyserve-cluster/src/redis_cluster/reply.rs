//! What a reply of a node means. The client library returns an error reply as a *value*, so a reply is success only if it has
//! exactly the form that its command has then: see [`read`].

use std::collections::HashSet;

use redis::{ErrorKind, FromRedisValue as _, RedisError, Value};

use crate::error::EngineFailure;

/// The form of a reply to a command that was done.
pub(super) trait ReplyForm: Sized {
    /// Returns `None` if the reply has another form.
    fn of(value: Value) -> Option<Self>;
}

/// A value, or that there is none.
impl ReplyForm for Option<Vec<u8>> {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Nil => Some(None),
            Value::BulkString(bytes) => Some(Some(bytes)),
            _ => None,
        }
    }
}

/// A count.
impl ReplyForm for u64 {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Int(count) => count.try_into().ok(),
            _ => None,
        }
    }
}

/// Whether it was done.
impl ReplyForm for bool {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => None,
        }
    }
}

/// Names of keys.
impl ReplyForm for Vec<Vec<u8>> {
    fn of(value: Value) -> Option<Self> {
        let Value::Array(names) = value else { return None };
        let name = |value| if let Value::BulkString(name) = value { Some(name) } else { None };
        names.into_iter().map(name).collect()
    }
}

/// The reply to `SCAN`: the next cursor, and keys.
pub(super) type Scanned = (u64, Vec<Vec<u8>>);

impl ReplyForm for Scanned {
    fn of(value: Value) -> Option<Self> {
        Self::from_redis_value(value).ok()
    }
}

/// The replies of several nodes to `SCAN`, each with the node's address.
impl ReplyForm for Vec<(String, Scanned)> {
    fn of(value: Value) -> Option<Self> {
        Self::from_redis_value(value).ok()
    }
}

/// The texts of several nodes, each with the node's address.
impl ReplyForm for Vec<(String, String)> {
    fn of(value: Value) -> Option<Self> {
        Self::from_redis_value(value).ok()
    }
}

/// The reply to `CLUSTER SLOTS`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServedSlots {
    /// The number of slots that have a master.
    pub(super) count: u64,
    /// The ids of the masters.
    pub(super) masters: HashSet<Vec<u8>>,
}

impl ReplyForm for ServedSlots {
    fn of(value: Value) -> Option<Self> {
        let Value::Array(ranges) = value else { return None };
        let mut served = Self::default();
        for range in ranges {
            // The first slot, the last one, the master, and its replicas.
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else { return None };
            let [_host, _port, Value::BulkString(id), ..] = &master[..] else { return None };
            served.count += u64::try_from(last - first).ok()? + 1;
            served.masters.insert(id.clone());
        }
        Some(served)
    }
}

/// Reads a reply. All replies to the store's commands go through this function.
///
/// An error reply is a failure, also within another reply. So is a reply of an unexpected form: the command may have been done.
pub(super) fn read<T: ReplyForm>(value: Value) -> Result<T, EngineFailure> {
    let value = value.extract_error().map_err(classify)?;
    T::of(value).ok_or_else(|| EngineFailure::Unknown("the reply has an unexpected form".into()))
}

/// The codes of the errors of a node that has not executed a command, and may execute it later or knows another node.
const NOT_DONE: [&str; 11] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// The codes of the errors of a node that does not know the user or the password. It has executed nothing.
const NO_LOGIN: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// The code of the error of a command for values, on a key that is a list or a set.
const WRONG_TYPE: &str = "WRONGTYPE";

/// The start of the client's error for a request to a node to which it has no connection. Nothing was sent.
const NOT_CONNECTED: &str = "Requested connection not found";

/// The start of the client's error for a request that came when it had no connection to any node.
const NO_CONNECTIONS: &str = "No connections found";

/// The start of the text of a node that has as many clients as it takes. Its code is only `ERR`. It has read nothing.
const NO_ROOM_FOR_CLIENT: &str = "max number of clients";

/// Whether a refusal is likely to last: there is no room, or replicas are missing.
pub(super) fn lasts(error: &RedisError) -> bool {
    matches!(code(error), Some("OOM" | "MISCONF" | "NOREPLICAS"))
}

/// Whether the client has no connection to any node.
pub(super) fn has_lost_all(error: &RedisError) -> bool {
    error.kind() == ErrorKind::ClusterConnectionNotFound && error.to_string().starts_with(NO_CONNECTIONS)
}

/// Whether the client has no connection to the node that a request is for.
pub(super) fn is_unknown_node(error: &RedisError) -> bool {
    error.kind() == ErrorKind::ClusterConnectionNotFound && error.to_string().starts_with(NOT_CONNECTED)
}

/// Whether the text of an error has that of a node that does not know the user or the password.
pub(super) fn is_no_login(text: &str) -> bool {
    NO_LOGIN.iter().any(|code| text.contains(code))
}

/// What an error means for the request.
pub(super) fn classify(error: RedisError) -> EngineFailure {
    match error.kind() {
        _ if is_unknown_node(&error) => EngineFailure::NotDone(error.into()),
        // The client also answers requests with it that were sent, if it has no connection left to read the layout from.
        ErrorKind::ClusterConnectionNotFound => EngineFailure::Unknown(error.into()),
        ErrorKind::Io if error.is_connection_refusal() => EngineFailure::NotDone(error.into()),
        ErrorKind::Io | ErrorKind::Parse => EngineFailure::Unknown(error.into()),
        _ if code(&error).is_some_and(|code| NOT_DONE.contains(&code)) => EngineFailure::NotDone(error.into()),
        _ if error.detail().is_some_and(|text| text.starts_with(NO_ROOM_FOR_CLIENT)) => {
            EngineFailure::NotDone(error.into())
        }
        _ if code(&error).is_some_and(|code| NO_LOGIN.contains(&code)) => EngineFailure::Unauthenticated(error.into()),
        _ if code(&error) == Some(WRONG_TYPE) => EngineFailure::NoValue(error.into()),
        _ => EngineFailure::Rejected(error.into()),
    }
}

/// The code of an error reply. The scripts of this store write at most once, and last: if that fails, they have done nothing.
/// Before Redis 7, the code of such an error is in its text: `ERR Error running script ...: -OOM command not allowed ...`.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let of_script = error.detail().filter(|text| code == "ERR" && text.starts_with("Error running script"));
    match of_script.and_then(|text| text.rsplit_once(": -")) {
        Some((_, cause)) => cause.split(' ').next(),
        None => Some(code),
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn value(text: &str) -> Value {
        parse_redis_value(text.as_bytes()).expect("the text is RESP")
    }

    fn failure(text: &str) -> EngineFailure {
        read::<Option<Vec<u8>>>(value(text)).expect_err("the text is no value")
    }

    #[test]
    fn a_node_that_refuses_has_not_done_it() {
        for text in [
            "-MOVED 7 127.0.0.1:1\r\n",
            "-ASK 7 127.0.0.1:1\r\n",
            "-TRYAGAIN\r\n",
            "-CLUSTERDOWN x\r\n",
            "-MASTERDOWN x\r\n",
            "-READONLY x\r\n",
            "-LOADING x\r\n",
            "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            "-BUSY Redis is busy running a script.\r\n",
            "-MISCONF Redis is configured to save RDB snapshots\r\n",
            "-NOREPLICAS Not enough good replicas to write.\r\n",
            "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -OOM command not allowed\r\n",
            "*1\r\n-OOM command not allowed\r\n",
            "-ERR max number of clients reached\r\n",
            "-ERR max number of clients + cluster connections reached\r\n",
        ] {
            assert!(matches!(failure(text), EngineFailure::NotDone(_)), "{text}: {:?}", failure(text));
        }
        for text in [
            "-WRONGTYPE x\r\n",
            "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -WRONGTYPE x\r\n",
        ] {
            assert!(matches!(failure(text), EngineFailure::NoValue(_)), "{text}: {:?}", failure(text));
        }
        for text in [
            "-NOPERM x\r\n",
            "-NOSCRIPT x\r\n",
            "-ERR unknown command\r\n",
            "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -NOPERM x\r\n",
        ] {
            assert!(matches!(failure(text), EngineFailure::Rejected(_)), "{text}: {:?}", failure(text));
        }
        for text in ["-NOAUTH x\r\n", "-WRONGPASS x\r\n"] {
            assert!(matches!(failure(text), EngineFailure::Unauthenticated(_)), "{text}: {:?}", failure(text));
        }
    }

    #[test]
    fn the_masters_of_slots_are_counted_once() {
        let node = |id: &str| format!("*4\r\n$1\r\nh\r\n:1\r\n$1\r\n{id}\r\n*0\r\n");
        let range = |first, last, id: &str| format!("*4\r\n:{first}\r\n:{last}\r\n{}{}", node(id), node("r"));
        let slots = ["*3\r\n".to_owned(), range(0, 9, "a"), range(10, 10, "b"), range(12, 13, "a")].concat();
        let served = read::<ServedSlots>(value(&slots)).unwrap();
        assert_eq!(served, ServedSlots { count: 13, masters: [b"a".to_vec(), b"b".to_vec()].into() });
        assert_eq!(read::<ServedSlots>(value("*0\r\n")).unwrap(), ServedSlots::default());
        assert!(read::<ServedSlots>(value("*1\r\n*2\r\n:0\r\n:1\r\n")).is_err());
    }

    /// Regression test: a write that was sent counted as one that was certainly not done, if the client had lost all connections
    /// before the answer.
    #[test]
    fn a_client_without_connections_may_have_sent_it() {
        let lost = RedisError::from((ErrorKind::ClusterConnectionNotFound, "No connections found"));
        assert!(matches!(classify(lost), EngineFailure::Unknown(_)));
        let address = "127.0.0.1:1".to_owned();
        let absent =
            RedisError::from((ErrorKind::ClusterConnectionNotFound, "Requested connection not found", address));
        assert!(matches!(classify(absent), EngineFailure::NotDone(_)));
    }

    /// Regression test: an error reply to a put was taken for the value that the put has replaced. Nothing but a value is one.
    #[test]
    fn a_reply_has_the_form_that_its_command_has() {
        let forms =
            ["$2\r\n{}\r\n", "_\r\n", ":0\r\n", ":1\r\n", ":2\r\n", ":-1\r\n", "+OK\r\n", "*0\r\n", "%0\r\n", "#t\r\n"];
        let accepted = |is_read: fn(Value) -> bool| {
            let accepted = forms.iter().copied().filter(|form| is_read(value(form)));
            accepted.collect::<Vec<_>>()
        };
        assert_eq!(accepted(|form| read::<Option<Vec<u8>>>(form).is_ok()), forms[..2]);
        assert_eq!(accepted(|form| read::<u64>(form).is_ok()), forms[2..5]);
        assert_eq!(accepted(|form| read::<bool>(form).is_ok()), forms[2..4]);
        assert_eq!(accepted(|form| read::<Vec<Vec<u8>>>(form).is_ok()), forms[7..8]);
        assert!(matches!(failure("+OK\r\n"), EngineFailure::Unknown(_)));
    }
}
