//! The two lines of Rust that use a server over a repo.
//!
//! Invariant: the printed lines compile. The catalog makes the code of a strategy from the tokens of its constructor. A macro
//! here makes a text from the tokens of the other code. In tests it also makes a function from these tokens, with only the
//! crate's prelude in its scope. A strategy without code in the catalog is built by its name.

use polyserve::catalog::{BuildCode, Catalog};
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;

/// How to use a server over a repo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// The feature of the crate `polyserve` that the lines need, if it is no default feature.
    pub feature: Option<String>,
    /// The import that the lines need. They are for a function that returns an error of any type.
    pub import: String,
    /// The lines.
    pub code: Vec<String>,
}

/// Two lines as text. In tests they are also compiled, with the given variables.
macro_rules! lines {
    (|$($variable:ident: $type:ty),*| { $($first:tt)* } { $($second:tt)* }) => {{
        #[cfg(test)]
        #[allow(non_snake_case, unused_imports)]
        const _: fn($($type),*) -> Result<(), Box<dyn std::error::Error>> = |$($variable),*| {
            use polyserve::prelude::*;
            $($first)* $($second)*
            Ok(())
        };
        [stringify!($($first)*), stringify!($($second)*)]
    }};
}

/// The lines for a server and a repo with code in the catalog.
const BY_CODE: [&str; 2] = lines!(
    |SERVER: polyserve::threadpool::Sequential, REPO: polyserve::memory::Sharded|
    { let server = SERVER; }
    { println!("{}", server.serve_until_signal("127.0.0.1:8001", EntityService::new(REPO))?); }
);

/// The lines for others, which the program's catalog builds by their names.
const BY_NAME: [&str; 2] = lines!(
    |catalog: &Catalog|
    {
        let (server, repo) =
            (catalog.build_server("SERVER", &ServerConfig::default())?, catalog.open_repo("REPO")?);
    }
    { println!("{}", server.serve_until_signal("127.0.0.1:8001", EntityService::new(repo))?); }
);

/// The lines for a service of the program's own. Its name stands for the value.
const SERVICE_BY_CODE: [&str; 2] = lines!(
    |SERVER: polyserve::threadpool::Sequential, SERVICE: polyserve::Echo|
    { let server = SERVER; }
    { println!("{}", server.serve_until_signal("127.0.0.1:8001", SERVICE)?); }
);

/// The lines for such a service on a server without code in the catalog.
const SERVICE_BY_NAME: [&str; 2] = lines!(
    |catalog: &Catalog, SERVICE: polyserve::Echo|
    { let server = catalog.build_server("SERVER", &ServerConfig::default())?; }
    { println!("{}", server.serve_until_signal("127.0.0.1:8001", SERVICE)?); }
);

/// A configuration with another number of workers, which replaces [`BuildCode::CONFIG`].
const SIZED: &str = stringify!(ServerConfig::default().workers(WORKERS));
const WORKERS: &str = "WORKERS";

impl Lines {
    /// Returns the lines that use `candidate`, for the entity store or for a service of this name.
    pub(crate) fn of(catalog: &Catalog, candidate: &Candidate, service: Option<&str>) -> Self {
        let Candidate { server, repo, workers } = candidate;
        let server_code = catalog.server(server).ok().and_then(|entry| entry.code.as_ref());
        let repo_code = catalog.repo(repo).ok().and_then(|entry| entry.code);
        let (lines, server, repo, features) = match (server_code, &repo_code) {
            (Some(server), _) if service.is_some() => (SERVICE_BY_CODE, &server.expression, repo, vec![server.feature]),
            (None, _) if service.is_some() => (SERVICE_BY_NAME, server, repo, Vec::new()),
            (Some(server), Some(repo)) => {
                (BY_CODE, &server.expression, &repo.expression, vec![server.feature, repo.feature])
            }
            _ => (BY_NAME, server, repo, Vec::new()),
        };
        let sized = workers.map(|workers| tidy(SIZED).replace(WORKERS, &workers.to_string()));
        let config = sized.as_deref().unwrap_or(BuildCode::CONFIG);
        let service = service.map(identifier).unwrap_or_default();
        let line = |text| {
            let named = tidy(text).replace("SERVER", server).replace("REPO", repo).replace("SERVICE", &service);
            named.replace(BuildCode::CONFIG, config)
        };
        let features: Vec<&str> = features.into_iter().flatten().collect();
        Self {
            feature: if features.is_empty() { None } else { Some(features.join("\", \"")) },
            import: BuildCode::IMPORT.to_owned(),
            code: lines.iter().map(|text| line(text)).collect(),
        }
    }
}

/// Returns a name as a variable's name.
fn identifier(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Returns the text of tokens with blanks as in formatted code. Blanks mean nothing to the compiler.
fn tidy(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (printed, written) in [(" :: ", "::"), (" ?", "?"), (" ;", ";"), ("! (", "!("), (" .", ".")] {
        text = text.replace(printed, written);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::CandidateSet;
    use super::super::workload::Workload;
    use super::super::workload::tests::workload;
    use super::*;

    fn of(server: &str, repo: &str, workers: Option<usize>) -> Lines {
        Lines::of(&Catalog::builtin(), &Candidate { server: server.into(), repo: repo.into(), workers }, None)
    }

    #[test]
    fn a_service_of_ones_own_is_a_variable() {
        let of = |server: &str| {
            let candidate = Candidate { server: server.into(), repo: String::new(), workers: Some(8) };
            Lines::of(&Catalog::builtin(), &candidate, Some("my-shop"))
        };
        let Lines { feature, code, .. } = of("tokio_tcp");
        assert_eq!((feature.as_deref(), code.len()), (Some("tokio"), 2));
        assert_eq!(code[0], "let server = TokioTcp::new(ServerConfig::default().workers(8))?;");
        assert_eq!(code[1], "println!(\"{}\", server.serve_until_signal(\"127.0.0.1:8001\", my_shop)?);");
        let named = "let server = catalog.build_server(\"mine\", &ServerConfig::default().workers(8))?;";
        assert_eq!(of("mine").code[0], named);
    }

    #[test]
    fn lines_are_formatted() {
        let Lines { feature, import, code } = of("tokio_tcp", "sharded", None);
        assert_eq!((feature.as_deref(), import.as_str()), (Some("tokio"), "use polyserve::prelude::*;"));
        assert_eq!(
            code,
            [
                "let server = TokioTcp::new(ServerConfig::default())?;",
                "println!(\"{}\", server.serve_until_signal(\"127.0.0.1:8001\", EntityService::new(Sharded::new()))?);",
            ]
        );
        let pool = of("pool_server/mpsc_pool", "dashmap", Some(64));
        assert_eq!(pool.feature, None);
        assert_eq!(pool.code[0], "let server = PoolServer::mpsc(ServerConfig::default().workers(64))?;");
    }

    /// The text with workers is the text of compiled code.
    #[test]
    fn workers_can_be_set_so() {
        use polyserve::ServerConfig;
        const WORKERS: usize = 64;
        let config = ServerConfig::default().workers(WORKERS);
        assert_eq!(config.workers, Some(64));
        let text = stringify!(ServerConfig::default().workers(WORKERS));
        assert_eq!(tidy(SIZED), tidy(text));
        assert_eq!(tidy(&BY_NAME.concat()).matches(BuildCode::CONFIG).count(), 1);
    }

    #[test]
    fn every_builtin_pair_has_lines_of_its_own() {
        let catalog = Catalog::builtin();
        for server in catalog.servers() {
            for repo in catalog.repos() {
                let Lines { code, .. } = of(&server.name, &repo.name, Some(8));
                assert!(code[0].starts_with("let server = ") && code[0].ends_with("?;"), "{code:?}");
                assert_eq!(code.concat().matches(".workers(8)").count(), 1, "{code:?}");
                assert!(!code.concat().contains("SERVER") && !code.concat().contains("REPO"), "{code:?}");
            }
        }
    }

    #[test]
    fn every_default_candidate_has_lines_of_its_own() {
        for (wait_ms, cores) in [(0.0, 1), (0.0, 2), (5.0, 1)] {
            let workload = Workload { wait_ms, cores, ..workload() };
            for candidate in CandidateSet::of(&Catalog::builtin(), &workload, &[], &[]).unwrap().candidates {
                assert!(
                    Lines::of(&Catalog::builtin(), &candidate, None).code[0].starts_with("let server = "),
                    "{candidate:?}"
                );
            }
        }
    }

    #[test]
    fn a_programs_own_is_made_by_its_name() {
        let mine = of("mine", "two_level", None);
        assert_eq!(
            mine.code[0],
            "let (server, repo) = (catalog.build_server(\"mine\", &ServerConfig::default())?, catalog.open_repo(\"two_level\")?);"
        );
    }
}
