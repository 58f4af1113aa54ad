//! The servers, through the server kit.
#![cfg(feature = "tokio")]

use polyserve_async::servers::{TokioPerCore, TokioTcp};
use polyserve_conformance::server::ServerSubject;
use polyserve_conformance::server_conformance;

server_conformance!(tokio_tcp, ServerSubject::new(TokioTcp::new));
server_conformance!(tokio_per_core, ServerSubject::new(TokioPerCore::new));
