//! The built-in repos that keep their entities at a location.

#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
use std::io;
#[cfg(any(feature = "durable", feature = "etcd", feature = "redis", feature = "postgres"))]
use std::sync::Arc;

#[allow(unused_imports, reason = "a build without these repos does not use them")]
use super::super::{BuildCode, Entry, Promise, RepoEntry, RepoScheme};

/// The names of all built-in kinds, each with the feature that it needs, and whether this build has it.
pub(in super::super) const FEATURES: [(&str, &str, bool); 4] = [
    ("durable", "durable", cfg!(feature = "durable")),
    ("etcd", "etcd", cfg!(feature = "etcd")),
    ("redis_cluster", "redis", cfg!(feature = "redis")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
];

/// Returns the kinds that this build has.
pub(super) fn all() -> Vec<RepoScheme> {
    vec![
        #[cfg(feature = "durable")]
        durable(),
        #[cfg(feature = "etcd")]
        engine!(
            "etcd",
            "a key for each entity in an etcd cluster",
            "URL,...",
            &[Promise::Linearizable, Promise::AnswersLater, Promise::Scans, Promise::Durable, Promise::Shared],
            "etcd",
            polyserve::cluster::Etcd,
            || -> io::Result<_> {
                let mut options = polyserve::cluster::EtcdOptions::default();
                options.user = variable("ETCDCTL_USER")?.as_deref().map(etcd_user).transpose()?;
                options.tls = tls(["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"])?;
                Ok(options)
            }
        ),
        #[cfg(feature = "redis")]
        engine!(
            "redis_cluster",
            "a key for each entity in a Redis Cluster",
            "URL,...",
            &[
                Promise::Linearizable,
                Promise::AnswersLater,
                Promise::Scans,
                Promise::Shared,
                Promise::Other("a failover may lose writes"),
            ],
            "redis",
            polyserve::cluster::RedisCluster,
            || -> io::Result<_> {
                let mut options = polyserve::cluster::RedisOptions::default();
                options.password = variable("REDISCLI_AUTH")?;
                options.tls = tls(["REDISCLI_CACERT", "REDISCLI_CERT", "REDISCLI_KEY"])?;
                Ok(options)
            }
        ),
        #[cfg(feature = "postgres")]
        engine!(
            "postgres",
            "a row for each entity in a table of PostgreSQL",
            "URL",
            &[Promise::Linearizable, Promise::AnswersLater, Promise::Scans, Promise::Durable, Promise::Shared],
            "postgres",
            polyserve::cluster::Postgres,
            || -> io::Result<_> {
                let mut options = polyserve::cluster::PostgresOptions::default();
                options.password = variable("PGPASSWORD")?;
                options.tls = tls(["PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"])?;
                Ok(options)
            }
        ),
    ]
}

/// Returns the value of an environment variable. The engines' own tools take passwords from these too, so that no command line and
/// no record of a measurement has them.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
fn variable(name: &str) -> io::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(io::Error::other(format!("{name} is not UTF-8"))),
    }
}

/// Reads the files that variables name: of the authorities, of a certificate and of its key.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
fn tls(names: [&str; 3]) -> io::Result<Option<polyserve_cluster::EngineTls>> {
    let mut paths = [const { None }; 3];
    for (path, name) in paths.iter_mut().zip(names) {
        *path = variable(name)?.map(std::path::PathBuf::from);
    }
    let [ca, chain, key] = &paths;
    let tls = polyserve_cluster::EngineTls::from_files(ca.as_deref(), chain.as_deref(), key.as_deref());
    tls.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", names.join(", "))))
}

/// Returns the name and the password in the value of ETCDCTL_USER.
#[cfg(feature = "etcd")]
fn etcd_user(value: &str) -> io::Result<(String, String)> {
    match value.split_once(':') {
        Some((name, password)) if !name.is_empty() => Ok((name.to_owned(), password.to_owned())),
        // The message does not show the value, which may be a password.
        _ => Err(io::Error::other("ETCDCTL_USER has to be a name, a colon and a password; an example: app:secret")),
    }
}

/// Creates the kind of a store over an engine from its type, which has constructors `connect` and `temporary`, and the function
/// that returns its options or an `io::Error`.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
macro_rules! engine {
    ($name:literal, $summary:literal, $location:literal, $promises:expr, $feature:literal, $repo:ident $(:: $path:ident)*, $options:expr) => {
        RepoScheme::new($name, $summary, $location, $promises, |urls, _over| {
            use polyserve_core::Entity;

            type Repo<E> = $repo $(:: $path)* <E>;
            let [kept, empty] = [(); 2].map(|()| urls.to_owned());
            let code = format!(
                "{}::<Entity>::connect({urls:?}, Default::default())?",
                stringify!($repo $(:: $path)*).replace(' ', "")
            );
            Entry::repo(&format!("{}:{urls}", $name), $summary, $promises, move || {
                Ok(Arc::new(Repo::<Entity>::temporary(&empty, ($options)()?).map_err(io::Error::other)?))
            })
            .with_open(move || {
                Ok(Arc::new(Repo::<Entity>::connect(&kept, ($options)()?).map_err(io::Error::other)?))
            })
            .with_code(BuildCode::new(Some($feature), code))
        })
    };
}
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
use engine;

/// Returns the path of a location. A shell does not expand the `~` in `durable:~/data`, so this does.
#[cfg(feature = "durable")]
fn expanded(path: &str, home: Option<std::ffi::OsString>) -> std::io::Result<std::path::PathBuf> {
    use std::io::{Error, ErrorKind};
    use std::path::PathBuf;

    let Some(rest) = path.strip_prefix('~') else { return Ok(path.into()) };
    let wrong = |reason: String| Error::new(ErrorKind::InvalidInput, reason);
    if !(rest.is_empty() || rest.starts_with('/')) {
        return Err(wrong(format!(
            "the path {path:?} names the home of another user; write it out, or begin it with ./"
        )));
    }
    match home.filter(|home| !home.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(rest.trim_start_matches('/'))),
        None => Err(wrong(format!("the path {path:?} begins with ~, and the variable HOME is not set"))),
    }
}

/// The durable store over `sharded`, or over any other repo in memory.
#[cfg(feature = "durable")]
fn durable() -> RepoScheme {
    use polyserve_durable::Durable;
    use polyserve_memory::Sharded;

    const OF_ALL: &[Promise] = &[Promise::Linearizable, Promise::AnswersNowOrLater, Promise::Durable];
    let summary = "a log with group commit under a repo in memory";
    let located = |path: &str| expanded(path, std::env::var_os("HOME"));
    let at = move |path: &str, over: Option<&RepoEntry>| {
        let name = over.map_or_else(|| format!("durable:{path}"), |over| format!("durable/{}:{path}", over.name));
        let [kept, empty] = [(); 2].map(|()| path.to_owned());
        // A program has no shell that expands it.
        let path = located(path).unwrap_or_else(|_| path.into());
        let Some(over) = over else {
            let code = format!("polyserve::durable::Durable::open({path:?}, Sharded::new())?");
            return Entry::repo(&name, summary, OF_ALL, move || {
                Ok(Arc::new(Durable::temporary(located(&empty)?, Sharded::new())?))
            })
            .with_open(move || Ok(Arc::new(Durable::open(located(&kept)?, Sharded::new())?)))
            .with_code(BuildCode::new(Some("durable"), code));
        };
        let (over_empty, over_kept) = (over.clone(), over.clone());
        let scans = over.promises(Promise::Scans).then_some(Promise::Scans);
        let promises: Vec<_> = OF_ALL.iter().copied().chain(scans).collect();
        let entry = Entry::repo(&name, summary, &promises, move || {
            Ok(Arc::new(Durable::temporary(located(&empty)?, over_empty.build()?)?))
        })
        .with_open(move || Ok(Arc::new(Durable::open(located(&kept)?, over_kept.build()?)?)));
        let code = over.code.as_ref().map(|code| {
            let expression = format!("polyserve::durable::Durable::open({path:?}, {})?", code.expression);
            BuildCode::new(Some("durable"), expression)
        });
        RepoEntry { code, ..entry }
    };
    let of_kind = [OF_ALL, &[Promise::ScansAsRepo]].concat();
    RepoScheme::new("durable", summary, "PATH", &of_kind, at).with_repos()
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "etcd")]
    use super::etcd_user;

    /// Regression test: `durable:~/data` made a directory with the name `~`.
    #[cfg(feature = "durable")]
    #[test]
    fn a_path_may_begin_with_the_home_directory() {
        let expand = |path, home: Option<&str>| super::expanded(path, home.map(Into::into));
        for (path, expected) in [
            ("~/data", "/home/a/data"),
            ("~", "/home/a/"),
            ("~//data/x", "/home/a/data/x"),
            ("data/~", "data/~"),
            ("./~", "./~"),
            ("/data", "/data"),
        ] {
            assert_eq!(expand(path, Some("/home/a")).unwrap().to_str(), Some(expected));
        }
        for (path, home) in [("~/data", None), ("~", Some("")), ("~other/data", Some("/home/a"))] {
            let error = expand(path, home).unwrap_err().to_string();
            assert!(error.contains(&format!("{path:?}")), "{error}");
        }
    }

    /// Regression test: a value without a colon was ignored, and etcd answered that the user name is empty.
    #[cfg(feature = "etcd")]
    #[test]
    fn the_user_of_etcd_has_a_name_and_a_password() {
        assert_eq!(etcd_user("app:a:b").unwrap(), ("app".to_owned(), "a:b".to_owned()));
        assert_eq!(etcd_user("app:").unwrap(), ("app".to_owned(), String::new()));
        for value in ["hunter2", ":hunter2"] {
            let error = etcd_user(value).expect_err(value).to_string();
            assert!(error.contains("ETCDCTL_USER") && !error.contains(value), "{error}");
        }
    }
}
