//! The limit of descriptors belongs to the whole process, so this file has one test.
#![cfg(feature = "tls")]

use std::fs;
use std::path::Path;

use polyserve::TlsConfig;
use polyserve_conformance::tls::{Issued, TestAuthority};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Regression test: a new certificate that could not be read once, because the process had no descriptor left, was never used.
#[test]
fn a_certificate_that_cannot_be_read_is_read_later() {
    let directory = std::env::temp_dir().join(format!("polyserve-tls-reload-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    let write = |Issued { certificate: new, key: new_key }| {
        fs::write(&certificate, new).and_then(|()| fs::write(&key, new_key)).unwrap();
    };
    let authority = TestAuthority::new();
    write(authority.issue());
    let tls = TlsConfig::new(&*certificate, Path::new(&key)).unwrap();
    let old = tls.http1();
    assert_eq!(tls.reload_if_changed(), Ok(false));

    write(authority.issue());
    assert_eq!(tls.reload_if_changed(), Ok(false), "the files may still change");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let refused = tls.reload_if_changed().expect_err("there is no descriptor left").to_string();
    assert!(refused.contains("certificate.pem"), "{refused}");
    assert!(tls.reload_if_changed().is_err(), "it is tried again");
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(tls.reload_if_changed(), Ok(true));
    assert!(!std::sync::Arc::ptr_eq(&old, &tls.http1()), "the new certificate is in use");

    fs::write(&certificate, authority.issue().certificate).unwrap(); // of another key
    assert_eq!(tls.reload_if_changed(), Ok(false), "the files may still change");
    assert!(tls.reload_if_changed().is_err(), "the key does not belong to the certificate");
    assert_eq!(tls.reload_if_changed(), Ok(false), "a wrong pair is tried once");
    let _ = fs::remove_dir_all(directory);
}
