//! TLS through the catalog.
#![cfg(feature = "tls")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use polyserve::{ServerConfig, TlsConfig};
use polyserve_conformance::tls::{TestAuthority, Validity};

/// Every server has TLS. Regression test: a program that shares one configuration among servers got a server without TLS in place of
/// an error.
#[test]
fn no_server_leaves_tls_out() {
    let config = ServerConfig::default().tls(TestAuthority::new().issue().server());
    for entry in support::servers("no_server_leaves_tls_out") {
        let (_, config) = entry.build_with_supported(&config).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        assert!(config.tls.is_some(), "{}", entry.name);
    }
}

/// Regression test: a new pair was not seen if its files had the inodes, the lengths and the times of the old ones, as after an `rsync` in
/// place that keeps times, or where the file system has no finer time.
#[test]
fn a_change_is_seen_by_the_content() {
    let directory = std::env::temp_dir().join(format!("polyserve-tls-content-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    let write = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    let authority = TestAuthority::new();
    let first = authority.issue();
    write(&certificate, &first.certificate);
    write(&key, &first.key);
    let tls = TlsConfig::new(&*certificate, &*key).unwrap();
    let old = tls.http1();
    assert_eq!(tls.reload_if_changed(), Ok(false));

    // The length of a signature differs from one to the next.
    let mut second = authority.issue();
    while second.certificate.len() != first.certificate.len() {
        second = authority.issue();
    }
    assert_eq!(second.key.len(), first.key.len());
    write(&certificate, &second.certificate);
    write(&key, &second.key);
    assert_eq!(tls.reload_if_changed(), Ok(false), "the files may still change");
    assert_eq!(tls.reload_if_changed(), Ok(true));
    assert!(!Arc::ptr_eq(&old, &tls.http1()), "the new certificate is in use");
    assert_eq!(tls.reload_if_changed(), Ok(false));

    // A file that is absent while it is replaced is no error, and one that stays absent is.
    fs::remove_file(&key).unwrap();
    assert_eq!(tls.reload_if_changed(), Ok(false));
    write(&key, &second.key);
    assert_eq!(tls.reload_if_changed(), Ok(false));
    fs::remove_file(&key).unwrap();
    assert_eq!(tls.reload_if_changed(), Ok(false));
    let refused = tls.reload_if_changed().expect_err("it is absent").to_string();
    assert!(refused.contains("key.pem"), "{refused}");
    let _ = fs::remove_dir_all(directory);
}

/// Regression test: a new certificate that had expired took the place of a valid one.
#[test]
fn a_new_certificate_must_be_valid_now() {
    let directory = std::env::temp_dir().join(format!("polyserve-tls-validity-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    let authority = TestAuthority::new();
    let write = |validity| {
        let issued = authority.issue_while(validity);
        fs::write(&certificate, issued.certificate).unwrap();
        fs::write(&key, issued.key).unwrap();
    };
    write(Validity::Valid);
    let tls = TlsConfig::new(&*certificate, &*key).unwrap();
    assert_eq!(tls.check_time(), Ok(()));
    assert!(tls.not_after().is_some_and(|end| end > SystemTime::now()));
    let (old, end) = (tls.http1(), tls.not_after());

    let faults = [(Validity::Expired, "certificate expired"), (Validity::NotYetValid, "certificate not valid yet")];
    for (validity, fault) in faults {
        write(validity);
        for refused in
            [tls.reload(), tls.reload_if_changed().map(drop).and_then(|()| tls.reload_if_changed().map(drop))]
        {
            let refused = refused.expect_err("it is not valid").to_string();
            assert!(refused.contains(fault) && refused.contains("certificate.pem"), "{refused}");
        }
        assert!(Arc::ptr_eq(&old, &tls.http1()), "the old certificate stays in use");
        assert_eq!(tls.not_after(), end);
        // The clock of a machine that has just started may be wrong, so a server starts with it.
        let started = TlsConfig::new(&*certificate, &*key).unwrap();
        assert!(started.check_time().is_err_and(|error| error.to_string().contains(fault)));
    }
    let expired = authority.issue_while(Validity::Expired).server();
    assert_eq!(expired.not_after(), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200)));
    let _ = fs::remove_dir_all(directory);
}

/// Regression test: a certificate that began a little later was refused once, and never used.
#[test]
fn a_certificate_that_begins_later_is_used_then() {
    let directory = std::env::temp_dir().join(format!("polyserve-tls-begin-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    let authority = TestAuthority::new();
    let write = |validity| {
        let issued = authority.issue_while(validity);
        fs::write(&certificate, issued.certificate).unwrap();
        fs::write(&key, issued.key).unwrap();
    };
    write(Validity::Valid);
    let tls = TlsConfig::new(&*certificate, &*key).unwrap();
    let old = tls.http1();
    write(Validity::From(SystemTime::now() + Duration::from_secs(3)));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut refusals = BTreeSet::new();
    while !tls.reload_if_changed().unwrap_or_else(|error| {
        refusals.insert(error.to_string());
        false
    }) {
        assert!(Instant::now() < deadline, "it is never used: {refusals:?}");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!Arc::ptr_eq(&old, &tls.http1()), "it is used");
    assert!(refusals.len() <= 1, "one text is logged once: {refusals:?}");
    let _ = fs::remove_dir_all(directory);
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_show_the_end_of_the_certificate() {
    let metrics = polyserve::metrics::Metrics::new();
    let line = "\npolyserve_tls_certificate_not_after_timestamp_seconds 978307200\n";
    assert!(!metrics.text().contains("polyserve_tls_certificate"));
    let authority = TestAuthority::new();
    for validity in [Validity::Valid, Validity::Expired] {
        let config = ServerConfig::default().tls(authority.issue_while(validity).server());
        let _ = metrics.observe(config);
    }
    assert!(metrics.text().contains(line), "{}", metrics.text());
}
