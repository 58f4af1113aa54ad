//! The built-in repos that keep their entities at a location.

#[cfg(any(feature = "durable", feature = "etcd", feature = "redis", feature = "postgres"))]
use std::sync::Arc;

#[allow(unused_imports, reason = "a build without these repos does not use them")]
use super::super::{BuildCode, Entry, LocatedRepo, Promise, RepoEntry};

/// The names of all built-in kinds, each with the feature that it needs, and whether this build has it.
pub(in super::super) const FEATURES: [(&str, &str, bool); 4] = [
    ("durable", "durable", cfg!(feature = "durable")),
    ("etcd", "etcd", cfg!(feature = "etcd")),
    ("redis_cluster", "redis", cfg!(feature = "redis")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
];

/// Returns the kinds that this build has.
pub(super) fn all() -> Vec<LocatedRepo> {
    vec![
        #[cfg(feature = "durable")]
        durable(),
        #[cfg(feature = "etcd")]
        engine!(
            "etcd",
            "a key for each entity in an etcd cluster",
            "URL,...",
            &[Promise::Linearizable, Promise::AnswersLater, Promise::Durable, Promise::Shared],
            "etcd",
            polyserve::cluster::Etcd,
            || match variable("ETCDCTL_USER").as_deref().and_then(|user| user.split_once(':')) {
                Some((name, password)) => polyserve::cluster::EtcdOptions::default().user(name, password),
                None => Default::default(),
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
                Promise::Shared,
                Promise::Other("a failover may lose writes"),
            ],
            "redis",
            polyserve::cluster::RedisCluster,
            || match variable("REDISCLI_AUTH") {
                Some(password) => polyserve::cluster::RedisOptions::default().password(password),
                None => Default::default(),
            }
        ),
        #[cfg(feature = "postgres")]
        engine!(
            "postgres",
            "a row for each entity in a table of PostgreSQL",
            "URL",
            &[Promise::Linearizable, Promise::AnswersLater, Promise::Durable, Promise::Shared],
            "postgres",
            polyserve::cluster::Postgres,
            || match variable("PGPASSWORD") {
                Some(password) => polyserve::cluster::PostgresOptions::default().password(password),
                None => Default::default(),
            }
        ),
    ]
}

/// Returns the value of an environment variable. The engines' own tools take passwords from these too, so that no command line and
/// no record of a measurement has them.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Creates the kind of a store over an engine from its type, which has constructors `connect` and `temporary`, and the function
/// that returns its options.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
macro_rules! engine {
    ($name:literal, $summary:literal, $location:literal, $promises:expr, $feature:literal, $repo:ident $(:: $path:ident)*, $options:expr) => {
        LocatedRepo::new($name, $summary, $location, $promises, |urls, _over| {
            use polyserve_core::Entity;
            use polyserve_core::entity::NamedEntity;

            type Repo<E> = $repo $(:: $path)* <E>;
            let [kept, empty, named] = [(); 3].map(|()| urls.to_owned());
            let code = format!(
                "{}::<Entity>::connect({urls:?}, Default::default())?",
                stringify!($repo $(:: $path)*).replace(' ', "")
            );
            Entry::repo(&format!("{}:{urls}", $name), $summary, $promises, move || {
                Ok(Arc::new(Repo::<Entity>::temporary(&empty, ($options)()).map_err(std::io::Error::other)?))
            })
            .with_open(move || {
                Ok(Arc::new(Repo::<Entity>::connect(&kept, ($options)()).map_err(std::io::Error::other)?))
            })
            .with_named(move || {
                Ok(Arc::new(Repo::<NamedEntity>::temporary(&named, ($options)()).map_err(std::io::Error::other)?))
            })
            .with_code(BuildCode::new(Some($feature), code))
        })
    };
}
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
use engine;

/// The durable store over `sharded`, or over any other repo in memory.
#[cfg(feature = "durable")]
fn durable() -> LocatedRepo {
    use polyserve_core::entity::NamedEntity;
    use polyserve_durable::Durable;
    use polyserve_memory::Sharded;

    const PROMISES: &[Promise] = &[Promise::Linearizable, Promise::AnswersNowOrLater, Promise::Durable];
    let summary = "a log with group commit under a repo in memory";
    let at = move |path: &str, over: Option<&RepoEntry>| {
        let name = over.map_or_else(|| format!("durable:{path}"), |over| format!("durable/{}:{path}", over.name));
        let [kept, empty, named] = [(); 3].map(|()| path.to_owned());
        let Some(over) = over else {
            let code = format!("polyserve::durable::Durable::open({path:?}, Sharded::new())?");
            return Entry::repo(&name, summary, PROMISES, move || {
                Ok(Arc::new(Durable::temporary(&empty, Sharded::new())?))
            })
            .with_open(move || Ok(Arc::new(Durable::open(&kept, Sharded::new())?)))
            .with_named(move || Ok(Arc::new(Durable::temporary(&named, Sharded::of::<NamedEntity>())?)))
            .with_code(BuildCode::new(Some("durable"), code));
        };
        let (make, make_kept) = (Arc::clone(&over.make), Arc::clone(&over.make));
        let entry = Entry::repo(&name, summary, PROMISES, move || Ok(Arc::new(Durable::temporary(&empty, make()?)?)))
            .with_open(move || Ok(Arc::new(Durable::open(&kept, make_kept()?)?)));
        let code = over.code.as_ref().map(|code| {
            let expression = format!("polyserve::durable::Durable::open({path:?}, {})?", code.expression);
            BuildCode::new(Some("durable"), expression)
        });
        let entry = RepoEntry { code, ..entry };
        match over.named.clone() {
            Some(make) => entry.with_named(move || Ok(Arc::new(Durable::temporary(&named, make()?)?))),
            None => entry,
        }
    };
    LocatedRepo::new("durable", summary, "PATH", PROMISES, at).with_repos()
}
