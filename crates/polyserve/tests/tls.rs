//! TLS through the catalog.
#![cfg(feature = "tls")]

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve_conformance::tls::TestAuthority;

/// Every server has TLS. Regression test: a program that shares one configuration among servers got a server without TLS in place of
/// an error.
#[test]
fn no_server_leaves_tls_out() {
    let config = ServerConfig::default().tls(TestAuthority::new().issue().server());
    for entry in Catalog::builtin().servers() {
        let (_, config) = entry.build_with_supported(&config).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        assert!(config.tls.is_some(), "{}", entry.name);
    }
}
