//! The three lines of Rust that use a server over a repo.
//!
//! Invariant: what is printed is what was compiled. A macro makes of the same tokens a text, and in tests a function whose
//! scope has the crate's prelude and nothing else. What has no lines here, a program's own, is made by its name.

#[cfg(test)]
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;

/// How to use a server over a repo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// The feature of the crate `polyserve` that they need beside the default ones.
    pub feature: Option<String>,
    /// What they need in scope; they stand in a function that returns an error of any kind.
    pub import: String,
    /// The lines.
    pub code: Vec<String>,
}

/// Three lines, as text and as code.
struct Piece {
    server: &'static str,
    repo: &'static str,
    feature: Option<&'static str>,
    code: [&'static str; 3],
    /// Nobody calls it: it serves until a signal. That it compiles is what it is there for.
    #[cfg(test)]
    #[allow(dead_code)]
    compiled: fn(&Catalog) -> Result<(), Box<dyn std::error::Error>>,
}

macro_rules! piece {
    (
        $server:expr, $repo:expr, $feature:expr, $catalog:ident,
        { $($first:tt)* } { $($second:tt)* } { $($third:tt)* }
    ) => {
        Piece {
            server: $server,
            repo: $repo,
            feature: $feature,
            code: [stringify!($($first)*), stringify!($($second)*), stringify!($($third)*)],
            #[cfg(test)]
            compiled: |$catalog| {
                #[allow(unused_imports)]
                use polyserve::prelude::*;
                let _ = $catalog;
                $($first)* $($second)* $($third)*
                Ok(())
            },
        }
    };
}

/// A server over each of the repos.
macro_rules! over {
    ($server:literal, $feature:expr, $make:expr, { $($repo:literal => $empty:expr;)* }) => {
        &[$(piece!(
            $server, $repo, $feature, catalog,
            { let server = $make?; }
            { let running = server.serve(([127, 0, 0, 1], 8001).into(), EntityService::shared($empty))?; }
            { println!("{}", run_until_signalled(running)?); }
        )),*]
    };
}

macro_rules! grid {
    (servers { $($server:literal $feature:expr => $make:expr;)* } repos $repos:tt) => {
        &[$(over!($server, $feature, $make, $repos)),*]
    };
}

const GRID: &[&[Piece]] = grid! {
    servers {
        "sequential" None => polyserve::threadpool::Sequential::new(ServerConfig::default());
        "leader_followers" None => polyserve::threadpool::LeaderFollowers::new(ServerConfig::default());
        "pool_server/mpsc_pool" None =>
            PoolServer::new(ServerConfig::default(), |c| Ok(std::sync::Arc::new(MpscPool::new(c.into())?)));
        "pool_server/crossbeam_pool" None => PoolServer::new(ServerConfig::default(), |c|
            Ok(std::sync::Arc::new(polyserve::threadpool::CrossbeamPool::new(c.into())?)));
        "pool_server/stealing_pool" None => PoolServer::new(ServerConfig::default(), |c|
            Ok(std::sync::Arc::new(polyserve::threadpool::StealingPool::new(c.into())?)));
        "tokio_tcp" Some("tokio") => TokioTcp::new(ServerConfig::default());
        "tokio_per_core" Some("tokio") => TokioPerCore::new(ServerConfig::default());
        "tokio_hyper" Some("hyper") => TokioHyper::new(ServerConfig::default());
        "smol" Some("smol") => Smol::new(ServerConfig::default());
        "futures_pool" Some("futures") => FuturesPool::new(ServerConfig::default());
    }
    repos {
        "std_mutex" => StdMutex::default();
        "std_rwlock" => StdRwlock::default();
        "two_level" => TwoLevel::default();
        "dashmap" => polyserve::memory::Dashmap::default();
        "sharded" => polyserve::memory::Sharded::default();
        "packed" => polyserve::memory::Packed::default();
        "papaya" => polyserve::memory::Papaya::default();
        "scc" => polyserve::memory::Scc::default();
        "copy_on_write" => polyserve::memory::CopyOnWrite::default();
        "actor" => polyserve::memory::Actor::default();
    }
};

/// For what has no lines of its own: by its name, from the catalog that the program has.
const BY_NAME: Piece = piece!(
    "SERVER", "REPO", None, catalog,
    { let (server, repo) = (catalog.server("SERVER")?, catalog.repo("REPO")?); }
    {
        let running = (server.make)(&ServerConfig::default())?
            .serve(([127, 0, 0, 1], 8001).into(), EntityService::shared((repo.make)()?))?;
    }
    { println!("{}", run_until_signalled(running)?); }
);

/// A configuration, and one of another number of workers; both stand for each other.
const CONFIG: &str = "ServerConfig::default()";
const SIZED: &str = stringify!(ServerConfig::default().with(|config| config.workers = Some(WORKERS)));
const WORKERS: &str = "WORKERS";

impl Lines {
    /// How to use `candidate`.
    pub fn of(candidate: &Candidate) -> Self {
        let Candidate { server, repo, workers } = candidate;
        let known = |piece: &&Piece| piece.server == server && piece.repo == repo;
        let piece = GRID.iter().copied().flatten().find(known).unwrap_or(&BY_NAME);
        let sized = workers.map(|workers| SIZED.replace(WORKERS, &workers.to_string()));
        let line = |text: &&str| {
            let mut text = tidy(text);
            if piece.server == BY_NAME.server {
                text = text.replace(BY_NAME.server, server).replace(BY_NAME.repo, repo);
            }
            sized.as_ref().map_or(text.clone(), |sized| text.replace(CONFIG, &tidy(sized)))
        };
        Self {
            feature: piece.feature.map(String::from),
            import: String::from("use polyserve::prelude::*;"),
            code: piece.code.iter().map(line).collect(),
        }
    }
}

/// The text of tokens with blanks where people put them; blanks mean nothing to the compiler.
fn tidy(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (printed, written) in [(" :: ", "::"), (" ?", "?"), (" ;", ";"), ("! (", "!("), (" .", ".")] {
        text = text.replace(printed, written);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::super::{Field, Workload};
    use super::*;

    fn of(server: &str, repo: &str, workers: Option<usize>) -> Lines {
        Lines::of(&Candidate { server: server.into(), repo: repo.into(), workers })
    }

    #[test]
    fn lines_as_people_write_them() {
        let Lines { feature, import, code } = of("tokio_tcp", "two_level", None);
        assert_eq!((feature.as_deref(), import.as_str()), (Some("tokio"), "use polyserve::prelude::*;"));
        assert_eq!(
            code,
            [
                "let server = TokioTcp::new(ServerConfig::default())?;",
                "let running = server.serve(([127, 0, 0, 1], 8001).into(), EntityService::shared(TwoLevel::default()))?;",
                "println!(\"{}\", run_until_signalled(running)?);",
            ]
        );
        let pool = of("pool_server/mpsc_pool", "dashmap", Some(64));
        assert_eq!(pool.feature, None);
        assert_eq!(
            pool.code[0],
            "let server = PoolServer::new(ServerConfig::default().with(|config| config.workers = Some(64)), |c| Ok(std::sync::Arc::new(MpscPool::new(c.into())?)))?;"
        );
    }

    /// The text with workers is not in the grid, so it is held against code here.
    #[test]
    fn workers_can_be_set_so() {
        use polyserve::ServerConfig;
        const WORKERS: usize = 64;
        let config = ServerConfig::default().with(|config| config.workers = Some(WORKERS));
        assert_eq!(config.workers, Some(64));
        let text = stringify!(ServerConfig::default().with(|config| config.workers = Some(WORKERS)));
        assert_eq!(tidy(SIZED), tidy(text));
        let sized = GRID.iter().copied().flatten().chain([&BY_NAME]);
        assert!(sized.into_iter().all(|piece| tidy(&piece.code.concat()).matches(CONFIG).count() == 1));
    }

    /// A name that is not in the catalog any more would send its user nowhere.
    #[test]
    fn every_name_is_one_of_the_catalogs() {
        let catalog = Catalog::builtin();
        for piece in GRID.iter().copied().flatten() {
            catalog.server(piece.server).unwrap();
            catalog.repo(piece.repo).unwrap();
        }
    }

    #[test]
    fn who_takes_part_by_default_has_lines_of_its_own() {
        for (wait_ms, cores) in [(0.0, 1), (0.0, 2), (5.0, 1)] {
            let workload = Workload { wait_ms, cores, ..workload() };
            for candidate in Field::of(&Catalog::builtin(), &workload, &[], &[]).unwrap().candidates {
                assert!(Lines::of(&candidate).code[0].starts_with("let server = "), "{candidate:?}");
            }
        }
    }

    #[test]
    fn a_programs_own_is_made_by_its_name() {
        let mine = of("mine", "two_level", None);
        assert_eq!(mine.code[0], "let (server, repo) = (catalog.server(\"mine\")?, catalog.repo(\"two_level\")?);");
        assert!(mine.code[1].starts_with("let running = (server.make)(&ServerConfig::default())?"), "{mine:?}");
    }
}
