//! Settings under which a server turns nobody away for want of room: for whom a 503 is an error.

use polyserve::ServerConfig;
use polyserve::env::{SETTINGS, Settings};

/// The settings that [`roomy`] may raise.
const RAISED: [&str; 2] = ["queue", "max_connections"];

/// `config`, made to hold `connections` at a time, but for what was limited on purpose.
pub(crate) fn roomy(settings: &Settings, config: &ServerConfig, connections: usize) -> ServerConfig {
    config.clone().with(|config| {
        if !settings.is_given("queue") {
            config.queue = config.queue.max(connections);
        }
        if !settings.is_given("max_connections") {
            // One that is closing still counts while its successor opens.
            config.max_connections = config.max_connections.max(connections * 2);
        }
    })
}

/// The flags that tell a server of its own process what `config` has room for, and the settings named in `also`; then
/// those of `given` that say anything else, as they are.
pub(crate) fn flags(config: &ServerConfig, given: &[String], also: &[&str]) -> Vec<String> {
    let raised = SETTINGS.iter().filter(|setting| RAISED.contains(&setting.name()) || also.contains(&setting.name()));
    let ours: Vec<String> = raised.map(|setting| format!("{}={}", setting.flag(), setting.show(config))).collect();
    let is_ours = |flag: &str| ours.iter().any(|one| name(one) == name(flag));
    let others: Vec<String> = given.iter().filter(|flag| !is_ours(flag)).cloned().collect();
    [ours, others].concat()
}

/// A flag's name, in `--name=value`.
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
        assert_eq!((config.queue, config.max_connections), (5000, 10_000));
        let config = roomy(&limited, &limited.config, 50_000);
        assert_eq!((config.queue, config.max_connections), (7, 100_000));
        let given = ["--queue=7", "--max-body=9"].map(String::from);
        assert_eq!(flags(&config, &given, &[]), ["--queue=7", "--max-connections=100000", "--max-body=9"]);
        assert_eq!(flags(&config, &given, &["max_body"]).len(), 3, "it is said once");
    }
}
