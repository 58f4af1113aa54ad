use polyserve_core::Supports;

use super::*;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn read(flags: Pairs<'_>, variables: Pairs<'_>) -> Result<Settings, SettingError> {
    let (flags, variables): (HashMap<_, _>, HashMap<_, _>) =
        (flags.iter().copied().collect(), variables.iter().copied().collect());
    Settings::read(|name| flags.get(name).map(|v| (*v).into()), |name| variables.get(name).map(|v| (*v).into()))
}

#[test]
fn nothing_said_is_the_default() {
    let settings = read(&[], &[]).unwrap();
    assert_eq!((settings.listen, settings.config), (DEFAULT_LISTEN, ServerConfig::default()));
    assert_eq!((settings.pool_size, settings.given), (None, vec![]));
}

/// Every field of the configuration has a variable and a flag.
#[test]
fn every_field_has_a_setting() {
    let debug_text = format!("{:#?}", ServerConfig::default());
    let fields = debug_text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':')).map(|field| field.0);
    // A hook is code, and certificates are files that a program reads.
    let fields: Vec<&str> = fields.filter(|field| !["on_answer", "tls"].contains(field)).collect();
    let names: Vec<&str> = SETTINGS.iter().map(Setting::name).collect();
    assert_eq!(names, fields);
}

#[test]
fn every_setting_sets_its_own_field_and_shows_it() {
    for setting in SETTINGS {
        let text = match setting.form() {
            form::count::FORM => "7",
            form::bytes::FORM => "2MiB",
            form::time::FORM => "1m 3s",
            form::switch::FORM => "true",
            form::overload::FORM => "static:7",
            form::proxies::FORM => "10.0.0.0/8,::1/128",
            _ => "me",
        };
        let settings = read(&[], &[(&setting.variable(), text)]).unwrap();
        assert_eq!(setting.show(&settings.config), text, "{setting:?}");
        let default_text = setting.show(&ServerConfig::default());
        let mut config = settings.config;
        if !["workers", "queue", "memory", "server_header"].contains(&setting.name()) {
            assert!(setting.set(&mut config, &default_text), "{setting:?}: {default_text}");
            assert_eq!(config, ServerConfig::default(), "{setting:?} changes another field too");
        }
    }
}

#[test]
fn the_flag_comes_before_the_variable_and_that_before_the_published_one() {
    let variables = [("POLYSERVE_LISTEN", "127.0.0.1:2"), ("TCP_ADDRESS", "127.0.0.1:3")];
    assert_eq!(read(&[("listen", "127.0.0.1:1")], &variables).unwrap().listen.port(), 1);
    assert_eq!(read(&[], &variables).unwrap().listen.port(), 2);
    assert_eq!(read(&[], &variables[1..]).unwrap().listen.port(), 3);

    let variables = [("POLYSERVE_WORKERS", "2"), ("THREAD_POOL_SIZE", "3")];
    let workers = |flags, variables| {
        let settings = read(flags, variables).unwrap();
        (settings.config.workers, settings.pool_size)
    };
    assert_eq!(workers(&[("workers", "1")], &variables), (Some(1), None));
    assert_eq!(workers(&[], &variables), (Some(2), None));
    assert_eq!(workers(&[], &variables[1..]), (None, Some(3)));
}

#[test]
fn what_is_overridden_is_not_looked_at_and_empty_is_none() {
    let settings = read(&[("listen", "127.0.0.1:1")], &[("POLYSERVE_LISTEN", "nonsense"), ("TCP_ADDRESS", "?")]);
    assert_eq!(settings.unwrap().listen.port(), 1);
    let settings = read(&[], &[("POLYSERVE_LISTEN", ""), ("TCP_ADDRESS", "127.0.0.1:3"), ("POLYSERVE_QUEUE", "")]);
    assert_eq!(settings.unwrap().listen.port(), 3);
}

#[test]
fn a_name_is_resolved() {
    assert!(read(&[], &[("TCP_ADDRESS", "localhost:80")]).unwrap().listen.ip().is_loopback());
}

#[test]
fn errors_name_the_source_the_value_and_what_is_allowed() {
    for (flags, variables, parts) in [
        (&[][..], &[("POLYSERVE_HEAD_TIMEOUT", "soon")][..], ["POLYSERVE_HEAD_TIMEOUT", "\"soon\"", "a time such as"]),
        (&[("head_timeout", "0s")], &[], ["--head-timeout", "\"0s\"", "from 1 ms to 24 h"]),
        (&[("workers", "0")], &[], ["--workers", "\"0\"", "from 1 to 4096"]),
        (&[], &[("POLYSERVE_BACKLOG", "99999999999")], ["POLYSERVE_BACKLOG", "99999999999", "in range"]),
        (&[], &[("POLYSERVE_QUEUE", "many")], ["POLYSERVE_QUEUE", "\"many\"", "a whole number"]),
        (&[], &[("POLYSERVE_MAX_BODY", "1kB")], ["POLYSERVE_MAX_BODY", "\"1kB\"", "a number of bytes"]),
        (&[("idle_timeout", "10")], &[], ["--idle-timeout", "\"10\"", "10s"]),
        (&[], &[("POLYSERVE_DEFER_ACCEPT", "2")], ["POLYSERVE_DEFER_ACCEPT", "\"2\"", "true or false"]),
        (&[], &[("POLYSERVE_SERVER_HEADER", "a\nb")], ["POLYSERVE_SERVER_HEADER", "a\\nb", "printable ASCII"]),
        (&[], &[("TCP_ADDRESS", "nonsense")], ["TCP_ADDRESS", "\"nonsense\"", "like 127.0.0.1:8001"]),
        (&[], &[("THREAD_POOL_SIZE", "0")], ["THREAD_POOL_SIZE", "\"0\"", "from 1 to 4096"]),
    ] {
        let error = read(flags, variables).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_boolean_variable_is_off_unless_it_is_set() {
    let strict = |value: Option<&str>| switch(STRICT_MEDIA_TYPE, value.map(Into::into));
    assert_eq!((strict(None), strict(Some("")), strict(Some("off"))), (Ok(false), Ok(false), Ok(false)));
    assert_eq!((strict(Some("1")), strict(Some("true"))), (Ok(true), Ok(true)));
    let error = strict(Some("maybe")).unwrap_err().to_string();
    assert!(error.contains("POLYSERVE_STRICT_MEDIA_TYPE=\"maybe\"") && error.contains("true or false"), "{error}");
}

#[test]
fn an_error_is_short_whatever_the_value() {
    let long = "\u{2603}".repeat(10_000);
    for variable in ["POLYSERVE_QUEUE", "POLYSERVE_LISTEN"] {
        assert!(read(&[], &[(variable, &long)]).unwrap_err().to_string().len() < 400);
    }
    let raw = |name: &str| (name == "POLYSERVE_QUEUE").then(|| OsString::from_vec(vec![b'7', 0xff]));
    let error = Settings::read(|_| None, raw).unwrap_err().to_string();
    assert!(error.contains("POLYSERVE_QUEUE") && error.contains("Unicode"), "{error}");
}

/// Regression test: `THREAD_POOL_SIZE` in the environment made a server without a pool refuse to start.
#[test]
fn the_published_pool_size_is_a_hint() {
    let settings = read(&[], &[("THREAD_POOL_SIZE", "3"), ("POLYSERVE_HEAD_TIMEOUT", "7s")]).unwrap();
    let pool = |config: &ServerConfig| Ok((config.workers, config.head_timeout));
    let single = |config: &ServerConfig| match config.workers {
        None => Ok((config.workers, config.head_timeout)),
        Some(_) => Err(ConfigError::unsupported("workers", "3", "1 for this server")),
    };
    assert_eq!(settings.make(pool), Ok((Some(3), Duration::from_secs(7))));
    assert_eq!(settings.make(single), Ok((None, Duration::from_secs(7))));

    let flag = read(&[("workers", "3")], &[]).unwrap();
    assert!(flag.make(single).is_err(), "what was asked for by a flag is refused, not ignored");
}

/// Regression test: a value that the server refuses was dropped without a word, and the server ran with its own number
/// of workers.
#[test]
fn a_refused_pool_size_is_an_error() {
    let settings = read(&[], &[("THREAD_POOL_SIZE", "3")]).unwrap();
    let at_most_two = |config: &ServerConfig| match config.workers {
        Some(workers) if workers > 2 => Err(ConfigError::new("workers", 3, "at most 2")),
        workers => Ok(workers),
    };
    assert_eq!(settings.make(at_most_two), Err(ConfigError::new("workers", 3, "at most 2")));
}

/// A variable may be meant for another server that is started in the same environment. A flag is meant for this server.
#[test]
fn a_flag_that_a_server_does_not_have_is_refused_and_a_variable_is_left_out() {
    let no_queue = |config: &ServerConfig| Supports::new("me").check(config).map(|()| config.queue);
    let variable = read(&[], &[("POLYSERVE_QUEUE", "7")]).unwrap();
    assert_eq!((variable.config.queue, variable.make(no_queue)), (Some(7), Ok(None)));
    let flag = read(&[("queue", "7")], &[("POLYSERVE_QUEUE", "8")]).unwrap();
    let error = flag.make(no_queue).unwrap_err();
    assert_eq!(error.unsupported_setting(), Some("queue"), "{error}");
}

/// Regression test: a flag for several servers was refused by the first that does not have the setting.
#[cfg(feature = "threadpool")]
#[test]
fn a_flag_applies_to_the_servers_that_have_it_and_is_refused_if_none_has() {
    let catalog = crate::catalog::Catalog::builtin();
    let [sequential, pool] = ["sequential", "pool_server"].map(|name| catalog.server(name).unwrap());
    for (flag, value) in [("queue", "7"), ("workers", "3")] {
        let settings = read(&[(flag, value)], &[]).unwrap();
        assert_eq!(settings.check([sequential, pool]), Ok(()));
        let error = settings.check([sequential]).unwrap_err().to_string();
        assert!(error.contains(flag) && error.contains("sequential"), "{error}");
        assert_eq!(pool.build_with_supported(&settings.config).unwrap().1, settings.config);
        assert_eq!(sequential.build_with_supported(&settings.config).unwrap().1, ServerConfig::default());
    }
    assert_eq!(read(&[], &[("POLYSERVE_QUEUE", "7")]).unwrap().check([sequential]), Ok(()));
}

#[test]
fn an_unknown_variable_is_an_error_with_a_suggestion() {
    let check = |variables: Pairs<'_>| {
        check_variables(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())), &["POLYSERVE_MINE"])
    };
    assert_eq!(check(&[("POLYSERVE_QUEUE", "1"), ("POLYSERVE_LISTEN", "x"), ("POLYSERVE_CASES", "1")]), Ok(()));
    assert_eq!(check(&[("POLYSERVE_MINE", "1"), ("POLYSERVES", "x"), ("POLYSERVE_QUEU", ""), ("PATH", "x")]), Ok(()));
    for (variable, suggestion) in [
        ("POLYSERVE_QUEU", "POLYSERVE_QUEUE"),
        ("POLYSERVE_HEADTIMEOUT", "POLYSERVE_HEAD_TIMEOUT"),
        ("POLYSERVE_BANNER", "POLYSERVE_SERVER_HEADER"),
        ("POLYSERVE_MIE", "POLYSERVE_MINE"),
        ("POLYSERVE_PORT", "POLYSERVE_LISTEN"),
    ] {
        let error = check(&[(variable, "5")]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{variable}=\"5\"")) && error.contains(&format!("did you mean {suggestion}?")),
            "{error}"
        );
    }
    // Regression test: the prefix counted in the comparison, so that every short name was near `POLYSERVE_LOG`.
    for far in ["POLYSERVE_ZZZZZZZZZZZZ", "POLYSERVE_FAST", "POLYSERVE_X"] {
        let error = check(&[(far, "5")]).unwrap_err().to_string();
        assert!(error.contains("is unknown") && !error.contains("did you mean"), "{error}");
    }
    let raw = OsString::from_vec(b"POLYSERVE_\xff".to_vec());
    assert!(check_variables([(raw, "5".into())], &[]).unwrap_err().to_string().contains("is unknown"));
}

/// The names of variables in the files under `path`: all of a script, and those between quotation marks of other files. Other names
/// in code are examples.
fn variables_under(path: &Path, names: &mut BTreeSet<String>) {
    if path.is_dir() {
        // The tests of the variables use names that are unknown.
        if ["src/env", "polyserve-cli/tests", "target", "node_modules"].iter().any(|skipped| path.ends_with(skipped)) {
            return;
        }
        std::fs::read_dir(path).unwrap().for_each(|entry| variables_under(&entry.unwrap().path(), names));
    } else if let Ok(text) = std::fs::read_to_string(path) {
        let start =
            if path.extension().is_some_and(|extension| extension == "rs") { "\"POLYSERVE_" } else { "POLYSERVE_" };
        for (at, _) in text.match_indices(start) {
            let name = text[at..].trim_start_matches('"');
            let end = name.find(|char: char| !char.is_ascii_uppercase() && !char.is_ascii_digit() && char != '_');
            let name = &name[..end.unwrap_or(name.len())];
            names.extend((name != PREFIX).then(|| name.to_owned()));
        }
    }
}

/// Regression test: `ci/disk.sh` sets a variable that the command did not know, so the command did not start there.
#[test]
fn the_projects_own_variables_are_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for folder in ["ci", ".ci", "crates", "benches/benches"] {
        variables_under(&root.join(folder), &mut names);
    }
    assert!(names.len() > 20, "{names:?}");
    let unknown = |name: &&String| check_variables([((*name).into(), "1".into())], &[]).is_err();
    assert_eq!(names.iter().filter(unknown).collect::<Vec<_>>(), [""; 0]);
}

/// Regression test: the list lacked the settings of the service and of the log. It stood behind a suggestion too, which was hard to find
/// in it.
#[test]
fn the_error_of_an_unknown_variable_lists_every_setting_unless_one_is_near() {
    let error =
        |unknown: &str| check_variables([(unknown.into(), "5".into())], &["POLYSERVE_MINE"]).unwrap_err().to_string();
    let far = error("POLYSERVE_ZZZZZZZZZZZZ");
    let others = [LISTEN_VARIABLE, "POLYSERVE_MINE"].iter().chain(OTHER_SETTINGS);
    for name in SETTINGS.iter().map(Setting::variable).chain(others.map(|name| (*name).to_owned())) {
        assert!(far.contains(&format!(" {name}")), "{name}: {far}");
    }
    let near = error("POLYSERVE_QUEU");
    assert!(near.ends_with("=\"5\" is unknown, did you mean POLYSERVE_QUEUE?"), "{near}");
    let several = error("POLYSERVE_GRACE");
    assert!(several.ends_with(", did you mean POLYSERVE_DRAIN_GRACE?"), "{several}");
}

/// Regression test: in a Kubernetes cluster with a service named `polyserve`, no program started.
#[test]
fn variables_that_kubernetes_injects_are_skipped() {
    let check = |(name, value): (&str, &str)| check_variables([(name.into(), value.into())], &[]);
    for injected in [
        ("POLYSERVE_SERVICE_HOST", "10.0.171.239"),
        ("POLYSERVE_SERVICE_PORT", "8001"),
        ("POLYSERVE_SERVICE_PORT_HTTP", "8001"),
        ("POLYSERVE_SERVICE_PORT_HTTP_ADMIN", "8001"),
        ("POLYSERVE_PORT", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_PORT", "udp://10.0.171.239:8001"),
        ("POLYSERVE_PORT", "sctp://10.0.171.239:8001"),
        ("POLYSERVE_PORT_8001_TCP", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_PORT_8001_TCP_PROTO", "tcp"),
        ("POLYSERVE_PORT_8001_TCP_PORT", "8001"),
        ("POLYSERVE_PORT_8001_TCP_ADDR", "10.0.171.239"),
        ("POLYSERVE_PORT_53_UDP_ADDR", "10.0.171.239"),
        ("POLYSERVE_PORT_53_SCTP", "sctp://10.0.171.239:53"),
        ("POLYSERVE_CANARY_SERVICE_HOST", "10.0.171.239"),
        ("POLYSERVE_CANARY_2_SERVICE_PORT_HTTP", "8001"),
        ("POLYSERVE_SERVICE_PORT_SERVICE_PORT_HTTP", "8001"),
        ("POLYSERVE_CANARY_PORT", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_CANARY_PORT_8001_TCP_ADDR", "10.0.171.239"),
    ] {
        assert_eq!(check(injected), Ok(()), "{injected:?}");
    }
    for unknown in [
        ("POLYSERVE_PORT", "8001"),
        ("POLYSERVE_PORT", "http://10.0.171.239:8001"),
        ("POLYSERVE_PORT", "x tcp://10.0.171.239:8001"),
        ("POLYSERVE_SPORT", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_SERVICE", "polyserve"),
        ("POLYSERVE_SERVICE_HOSTS", "10.0.171.239"),
        ("POLYSERVE_SERVICE_HOST_X", "10.0.171.239"),
        ("POLYSERVE_SERVICE_PORTS", "8001"),
        ("POLYSERVE_SERVICE_PORT_", "8001"),
        ("POLYSERVE_XSERVICE_PORT", "8001"),
        ("POLYSERVE__SERVICE_HOST", "10.0.171.239"),
        ("POLYSERVE_A-B_SERVICE_HOST", "10.0.171.239"),
        ("POLYSERVE_PORT_TCP", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_PORT_8001", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_PORT_8001_HTTP", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_PORT_8001_TCP_NAME", "tcp"),
        ("POLYSERVE_PORT_8O01_TCP", "tcp://10.0.171.239:8001"),
        ("POLYSERVE_REPORT_8001_TCP", "tcp://10.0.171.239:8001"),
    ] {
        assert!(check(unknown).is_err_and(|error| error.to_string().contains("is unknown")), "{unknown:?}");
    }
}
