//! Settings with which a server rejects no connection for lack of capacity. Experiments use them if a 503 is an error.

use polyserve::catalog::{Catalog, ServerEntry};
use polyserve::env::{SETTINGS, Settings};
use polyserve::{ConfigError, Server, ServerConfig};

/// The settings that [`roomy`] may raise.
const RAISED: [&str; 2] = ["queue", "max_connections"];

/// `config` with limits for this number of concurrent connections. Limits that the user has set stay.
pub(crate) fn roomy(settings: &Settings, config: &ServerConfig, connections: usize) -> ServerConfig {
    let mut config = config.clone();
    if !settings.is_given("queue") {
        config.queue = Some(config.queue_or_default().max(connections));
    }
    if !settings.is_given("max_connections") {
        // A closing connection counts while its successor opens.
        config.max_connections = config.max_connections.max(connections * 2);
    }
    config
}

/// Makes the server with `workers`, if any, and with the settings of `config` that it has. See
/// [`ServerEntry::build_with_supported`].
pub(crate) fn fitted(
    entry: &ServerEntry,
    config: &ServerConfig,
    workers: Option<usize>,
) -> Result<(Box<dyn Server>, ServerConfig), ConfigError> {
    if workers.is_some() {
        entry.build(&ServerConfig::default().workers(workers))?;
    }
    entry.build_with_supported(&config.clone().workers(workers.or(config.workers)))
}

/// Rejects a flag for a setting that none of the catalog's `servers` has.
pub(crate) fn check_flags<'a>(
    settings: &Settings,
    catalog: &Catalog,
    servers: impl IntoIterator<Item = &'a str>,
) -> Result<(), ConfigError> {
    let entries: Vec<&ServerEntry> = servers.into_iter().filter_map(|name| catalog.server(name).ok()).collect();
    settings.check(entries)
}

/// Whether a server made with the fitted `config` has the setting of `flag`, such as `--queue=7`.
fn has(config: &ServerConfig, flag: &str) -> bool {
    match name(flag) {
        "--workers" => config.workers.is_some(),
        "--queue" => config.queue.is_some(),
        _ => true,
    }
}

/// Returns the flags of `given` for settings that a server with the fitted `config` has.
pub(crate) fn honoured(config: &ServerConfig, given: &[String]) -> Vec<String> {
    given.iter().filter(|flag| has(config, flag)).cloned().collect()
}

/// Returns the flags for a server in its own process: the limits of the fitted `config` and the settings in `also`, then
/// the other flags of `given` for settings that the server has.
pub(crate) fn flags(config: &ServerConfig, given: &[String], also: &[&str]) -> Vec<String> {
    let raised = SETTINGS.iter().filter(|setting| RAISED.contains(&setting.name()) || also.contains(&setting.name()));
    let raised_flags = raised.map(|setting| format!("{}={}", setting.flag(), setting.show(config)));
    let raised_flags: Vec<String> = raised_flags.filter(|flag| has(config, flag)).collect();
    let is_raised = |flag: &str| raised_flags.iter().any(|raised| name(raised) == name(flag));
    let others: Vec<String> = honoured(config, given).into_iter().filter(|flag| !is_raised(flag)).collect();
    [raised_flags, others].concat()
}

/// Returns the name of a flag `--name=value`.
fn name(flag: &str) -> &str {
    flag.split_once('=').map_or(flag, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_limited_on_purpose_stays() {
        let read = |flag: Option<&'static str>| {
            Settings::read(|name| flag.filter(|_| name == "queue").map(Into::into), |_| None).unwrap()
        };
        let (free, limited) = (read(None), read(Some("7")));
        let config = roomy(&free, &free.config, 5000);
        assert_eq!((config.queue, config.max_connections), (Some(5000), 10_000));
        let config = roomy(&limited, &limited.config, 50_000);
        assert_eq!((config.queue, config.max_connections), (Some(7), 100_000));
        let given = ["--queue=7", "--max-body=9"].map(String::from);
        assert_eq!(flags(&config, &given, &[]), ["--queue=7", "--max-connections=100000", "--max-body=9"]);
        assert_eq!(flags(&config, &given, &["max_body"]).len(), 3, "it is said once");
        let config = Catalog::builtin().server("sequential").unwrap().build_with_supported(&config).unwrap().1;
        assert_eq!(flags(&config, &given, &[]), ["--max-connections=100000", "--max-body=9"], "it has no queue");
    }
}
