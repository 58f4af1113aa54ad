//! The servers, through the server kit.

#[cfg(any(feature = "tokio", feature = "smol"))]
use polyserve_conformance::{server::ServerSubject, server_conformance};

#[cfg(feature = "tokio")]
server_conformance!(tokio_tcp, ServerSubject::new(polyserve_async::servers::TokioTcp::new));
#[cfg(feature = "tokio")]
server_conformance!(tokio_per_core, ServerSubject::new(polyserve_async::servers::TokioPerCore::new));
#[cfg(feature = "smol")]
server_conformance!(smol, ServerSubject::new(polyserve_async::servers::Smol::new));
#[cfg(feature = "hyper")]
server_conformance!(
    tokio_hyper,
    ServerSubject::new(polyserve_async::servers::TokioHyper::new).deviating(|d| {
        d.bare_lf_ends_a_line = true;
        d.chunked_overrides_length = true;
    })
);
