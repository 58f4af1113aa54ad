//! `TlsConfig`: what is refused, and when files are read again. What servers do with it is in the kit.
#![cfg(feature = "tls")]

use std::fs;
use std::path::{Path, PathBuf};

use polyserve::{ServerConfig, TlsConfig};
use polyserve_conformance::tls::{Issued, TestAuthority};

/// A directory of a test, which is removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyserve-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, issued: &Issued) -> (PathBuf, PathBuf) {
        let (certificate, key) = (self.0.join("certificate.pem"), self.0.join("key.pem"));
        fs::write(&certificate, &issued.certificate).unwrap();
        fs::write(&key, &issued.key).unwrap();
        (certificate, key)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let authority = TestAuthority::new();
    let (one, other) = (authority.issue(), authority.issue());
    let (certificate, key) = (one.certificate.as_str(), one.key.as_str());
    let missing = Path::new("/nowhere/certificate.pem");
    let wrong = [
        (TlsConfig::new(missing, key), "cannot read the TLS certificate /nowhere/certificate.pem"),
        (TlsConfig::new("", key), "has no certificate in PEM form"),
        (TlsConfig::new(key, key), "has no certificate in PEM form"),
        (TlsConfig::new("-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n", key), "is not in PEM form"),
        (TlsConfig::new(certificate, Path::new("/nowhere/key.pem")), "cannot read the TLS key /nowhere/key.pem"),
        (TlsConfig::new(certificate, certificate), "has no private key in PEM form"),
        (TlsConfig::new(certificate, other.key.as_str()), "cannot be used with the key"),
        (one.server().with_client_ca(key), "the certificate of the clients' authority"),
    ];
    for (result, expected) in wrong {
        let error = result.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A message or a log may show a configuration.
#[test]
fn a_key_is_not_shown() {
    let issued = TestAuthority::new().issue();
    let config = ServerConfig::default().tls(issued.server());
    let secret = issued.key.lines().nth(1).unwrap();
    assert!(!format!("{config:?}").contains(secret));
}

#[test]
fn changed_files_are_read_once_they_stay_the_same() {
    let (directory, authority) = (Directory::new("changed-files"), TestAuthority::new());
    let (certificate, key) = directory.write(&authority.issue());
    let tls = TlsConfig::new(certificate, key).unwrap();
    let first = tls.http1();
    assert_eq!((tls.reload_if_changed(), tls.reload_if_changed()), (Ok(false), Ok(false)));
    let new = authority.issue();
    fs::write(directory.0.join("certificate.pem"), &new.certificate).unwrap();
    assert_eq!(tls.reload_if_changed(), Ok(false), "the key may be written next");
    assert!(tls.reload_if_changed().is_err(), "the key does not belong to the certificate");
    assert_eq!(tls.reload_if_changed(), Ok(false), "a pair that cannot be used is tried once");
    assert!(std::sync::Arc::ptr_eq(&tls.http1(), &first), "the old pair stays in use");
    directory.write(&new);
    assert_eq!((tls.reload_if_changed(), tls.reload_if_changed()), (Ok(false), Ok(true)));
    assert!(!std::sync::Arc::ptr_eq(&tls.http1(), &first));
    assert_eq!(tls.reload_if_changed(), Ok(false));
}
