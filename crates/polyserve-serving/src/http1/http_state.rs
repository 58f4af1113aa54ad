//! What all connections of a server share: what answers their requests, and within which limits.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::log::LogThrottles;
use polyserve_core::overload::RequestAdmission;
use polyserve_core::{AnswerHook, Headers, ServerConfig, Service, TrustedProxies};

use super::decode::Limits;
use super::session_buffers::SessionBuffers;
use crate::memory::{FREE_BYTES, MemoryBudget};

/// The part of a server's state that HTTP needs: its service, its limits, its memory budget, and what sees its answers. All its
/// connections share it.
pub struct HttpState {
    /// The service that answers requests.
    pub service: Arc<dyn Service>,
    /// The limits of a request's size.
    pub limits: Limits,
    pub(super) server_header: Option<Box<str>>,
    pub(super) requests_per_connection: u64,
    /// The memory that all connections share.
    pub memory: MemoryBudget,
    /// The proxies that name the clients of requests.
    pub proxies: TrustedProxies,
    /// Sees every answer.
    pub on_answer: Option<AnswerHook>,
    /// Whether the address of a connection's other end is used: by the service, for the hook, or for the limit of a client's connections.
    pub needs_peers: bool,
    /// Admits requests. It stands in front of [`service`](Self::service). `None` without an overload policy.
    pub admission: Option<Arc<RequestAdmission>>,
    /// The time since which a connection waits is noted: an overload policy or a hook needs it.
    pub(crate) notes_arrivals: bool,
    /// A hook needs the clients and the targets of requests.
    pub reports_clients: bool,
    /// A hook needs the [fields of agents](super::AgentFields).
    pub reports_agents: bool,
    /// Limits what is logged about the service.
    pub failures: Arc<LogThrottles>,
}

impl HttpState {
    /// Creates the state of a server that serves `service` within the limits of `config`.
    pub fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        let admission = config.overload.as_ref().map(RequestAdmission::new);
        let reports_clients = config.on_answer.as_ref().is_some_and(AnswerHook::sees_clients);
        Self {
            needs_peers: service.sees_peers() || reports_clients || config.max_connections_per_peer.is_some(),
            service: admission.as_ref().map_or(Arc::clone(&service), |admission| admission.over(service)),
            limits: Limits::from(config),
            server_header: config.server_header.as_deref().map(Box::from),
            requests_per_connection: config.requests_per_connection.unwrap_or(u64::MAX),
            memory: MemoryBudget::new(config.memory_or_default()),
            proxies: config.trusted_proxies.clone(),
            on_answer: config.on_answer.clone(),
            reports_clients,
            reports_agents: config.on_answer.as_ref().is_some_and(AnswerHook::sees_agents),
            notes_arrivals: admission.is_some() || config.on_answer.is_some(),
            admission,
            failures: Arc::default(),
        }
    }

    /// Returns the address of the client of a request on a connection with `peer`: see [`TrustedProxies::client`].
    #[inline]
    pub fn client(&self, peer: Option<SocketAddr>, headers: Headers<'_>) -> Option<SocketAddr> {
        if self.proxies.is_empty() { peer } else { self.proxies.client(peer, |name| headers.all(name)) }
    }

    /// Lends `buffers` to a connection of this server.
    #[inline]
    pub fn turn<'a>(&'a self, buffers: &'a mut SessionBuffers) -> SessionTurn<'a> {
        SessionTurn { http: self, buffers }
    }
}

/// What a session works with while a thread serves it.
#[derive(Debug)]
pub struct SessionTurn<'a> {
    pub(super) http: &'a HttpState,
    pub(super) buffers: &'a mut SessionBuffers,
}

impl SessionTurn<'_> {
    /// Whether a small answer may be appended to the output without a look at the memory budget, and without more fields in its head.
    #[inline]
    pub(super) fn has_usual_head(&self) -> bool {
        let length = self.buffers.out.len().saturating_add(self.buffers.body.len());
        (length <= FREE_BYTES) & self.http.server_header.is_none()
    }
}

impl fmt::Debug for HttpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpState").field("limits", &self.limits).finish_non_exhaustive()
    }
}
