//! [`Engine`]: what a store asks of its engine.

use std::rc::Rc;

use polyserve_core::{Put, Removed};

use crate::error::{EngineFailure, Source};

/// A stored value.
#[derive(Debug)]
pub(crate) struct Stored<V> {
    /// The JSON of the entity.
    pub(crate) value: Vec<u8>,
    /// What tells this value from a later one under the same key.
    #[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "only etcd has revisions"))]
    pub(crate) version: V,
}

/// A page of stored values.
#[derive(Debug, Default)]
pub(crate) struct StoredPage {
    pub(crate) entries: Vec<StoredEntry>,
    /// Whether there may be more after them.
    pub(crate) has_more: bool,
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct StoredEntry {
    /// The whole key, with its prefix.
    pub(crate) key: String,
    /// The JSON of the entity, or why what is stored is no value at all.
    pub(crate) value: Result<Vec<u8>, Source>,
}

/// An engine, with the connections to it. It lives on the I/O thread.
///
/// Each operation is one attempt: it sends its request at most once. The caller bounds its time, and repeats it if that is
/// safe.
pub(crate) trait Engine: 'static {
    /// The name in messages.
    const NAME: &'static str;

    /// What an attempt uses.
    type Connection;

    /// What tells one value of a key from another: a revision, or nothing if the bytes of the value do.
    type Version: Send + 'static;

    /// Returns an open connection. With `late`, it is another one, for an operation that `late` has not answered yet. `written` is
    /// the key of a write.
    ///
    /// A failure is never [`EngineFailure::Unknown`].
    async fn connection(
        self: &Rc<Self>,
        late: Option<&Self::Connection>,
        written: Option<&str>,
    ) -> Result<Self::Connection, EngineFailure>;

    /// Replaces a connection that did not answer in time. Later operations get another one.
    fn suspect(&self, connection: &Self::Connection);

    /// Looks at why the engine has not done an operation. Another connection may lead to a node that can.
    fn refused(&self, _connection: &Self::Connection, _why: &Source) {}

    /// Whether a refusal is likely to last, such as that of an engine that is full. It is repeated only for a moment: reads need
    /// the room of the operations that wait.
    fn lasts(_why: &Source) -> bool {
        false
    }

    async fn get(
        &self,
        connection: &Self::Connection,
        key: &str,
    ) -> Result<Option<Stored<Self::Version>>, EngineFailure>;

    async fn put(&self, connection: &Self::Connection, key: &str, value: &[u8]) -> Result<Put, EngineFailure>;

    async fn remove(&self, connection: &Self::Connection, key: &str) -> Result<Removed, EngineFailure>;

    /// Stores `value` if the key still has the value `seen`, or none. Returns whether it did.
    async fn put_over(
        &self,
        connection: &Self::Connection,
        key: &str,
        seen: Option<&Stored<Self::Version>>,
        value: &[u8],
    ) -> Result<bool, EngineFailure>;

    /// Removes the key if it still has the value `seen`. Returns whether it did.
    async fn remove_seen(
        &self,
        connection: &Self::Connection,
        key: &str,
        seen: &Stored<Self::Version>,
    ) -> Result<bool, EngineFailure>;

    /// Asks for a write that changes nothing. The failure is the one that a write would get. `key` is the prefix.
    async fn try_write(&self, connection: &Self::Connection, key: &str) -> Result<(), EngineFailure>;

    /// Reads a page of the keys that begin with `prefix`, in an order that the engine keeps: at most `limit`, after the key `after`, with
    /// values of at most [`MAX_PAGE_BYTES`](polyserve_core::MAX_PAGE_BYTES) unless there is only one.
    async fn page(
        &self,
        connection: &Self::Connection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StoredPage, EngineFailure>;

    /// Returns the number of keys that begin with `prefix`.
    async fn len(&self, connection: &Self::Connection, prefix: &str) -> Result<u64, EngineFailure>;

    /// Removes all keys that begin with `prefix`.
    async fn clear(&self, connection: &Self::Connection, prefix: &str) -> Result<(), EngineFailure>;
}
