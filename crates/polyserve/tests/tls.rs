//! TLS through the catalog.
#![cfg(all(feature = "tls", feature = "hyper"))]

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve_conformance::tls::TestAuthority;

/// Regression test: a program that shares one configuration among servers got a server without TLS in place of an error.
#[test]
fn no_server_leaves_tls_out() {
    let config = ServerConfig::default().tls(TestAuthority::new().issue().server());
    let mut refused = Vec::new();
    for entry in Catalog::builtin().servers() {
        match entry.build_with_supported(&config) {
            Ok((_, config)) => assert!(config.tls.is_some(), "{}", entry.name),
            Err(error) => {
                assert_eq!(error.unsupported_setting(), Some("tls"), "{}: {error}", entry.name);
                refused.push(entry.name.clone());
            }
        }
    }
    assert_eq!(refused, ["tokio_hyper"]);
}
