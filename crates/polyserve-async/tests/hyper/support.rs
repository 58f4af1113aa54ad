//! Servers on hyper, and their clients.

use std::sync::Arc;
use std::time::Duration;

use polyserve_async::TokioHyper;
use polyserve_conformance::client::Client;
use polyserve_core::{EntityService, Running, ServerConfig, ServerExt as _, Service};
use polyserve_memory::StdMutex;

pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

pub(crate) const GET: &str = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";

pub(crate) const ENTITY: &str = r#"{"id":1,"description":"a","value":0.5}"#;

pub(crate) fn serve(service: Arc<dyn Service>, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::default();
    change(&mut config);
    TokioHyper::new(config).expect("every setting is supported").serve(([127, 0, 0, 1], 0), service).expect("it serves")
}

pub(crate) fn entities(change: impl FnOnce(&mut ServerConfig)) -> Running {
    serve(Arc::new(EntityService::new(StdMutex::new())), change)
}

#[track_caller]
pub(crate) fn client(running: &Running) -> Client {
    Client::connect(running.local_addr(), MAX_WAIT).expect("the server accepts connections")
}
