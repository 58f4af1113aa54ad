//! The servers, through the server kit.
#![cfg(feature = "tokio")]

#[cfg(feature = "hyper")]
use polyserve_async::servers::TokioHyper;
use polyserve_async::servers::{TokioPerCore, TokioTcp};
use polyserve_conformance::server::ServerSubject;
use polyserve_conformance::server_conformance;

server_conformance!(tokio_tcp, ServerSubject::new(TokioTcp::new));
server_conformance!(tokio_per_core, ServerSubject::new(TokioPerCore::new));
#[cfg(feature = "hyper")]
server_conformance!(
    tokio_hyper,
    ServerSubject::new(TokioHyper::new).deviating(|d| {
        d.bare_lf_ends_a_line = true;
        d.chunked_overrides_length = true;
        d.chunk_sizes_are_believed = true;
        d.chunk_extensions_hold_anything = true;
    })
);
