//! The names of contestants in a definition.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::definition::from_text;

/// The names of contestants: `catalog:*/sharded`, `peer:hyper`, `reference:null_epoll`. A star stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The origin of the contestants.
    pub origin: ContestantOrigin,
    /// Their names.
    pub name: String,
    /// The number of workers, instead of that of the workload: `catalog:pool_server@100`.
    pub workers: Option<usize>,
}

/// The origin of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContestantOrigin {
    /// A server over a repo of the catalog; with a service of its own, a server.
    Catalog,
    /// A server from another project.
    Peer,
    /// A null server: the limit of what a server can reach.
    Reference,
    /// A repo of the catalog without a server, as a trait object.
    Repo,
    /// A repo of a type that the compiler knows.
    Typed,
    /// The map of a repo, used without the trait.
    Bare,
    /// An executor of the catalog, or another way to run tasks, in the mode `tasks`.
    Executor,
}

impl ContestantOrigin {
    const ALL: [(&str, Self); 7] = [
        ("catalog", Self::Catalog),
        ("peer", Self::Peer),
        ("reference", Self::Reference),
        ("repo", Self::Repo),
        ("typed", Self::Typed),
        ("bare", Self::Bare),
        ("executor", Self::Executor),
    ];
}

/// As it begins a name: `catalog:`.
impl fmt::Display for ContestantOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(_, origin)| origin == self).map_or("", |(name, _)| name);
        write!(f, "{name}:")
    }
}

impl Pattern {
    /// Whether it stands for several names.
    pub fn has_star(&self) -> bool {
        self.name.contains('*')
    }

    /// The name of a contestant in tables: with the number of workers, if the pattern has one.
    pub fn sized(&self, name: String) -> String {
        match self.workers {
            Some(workers) => format!("{name}@{workers}"),
            None => name,
        }
    }

    /// Whether it stands for this name.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.name, name)
    }
}

/// Whether `text` is `pattern`, in which a star stands for any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().map(|(place, _)| place).chain([text.len()]).any(|place| matches(rest, &text[place..]))
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let twin = text.strip_prefix("twin:").map(|name| format!("peer:twin/{name}"));
        let text = twin.as_deref().unwrap_or(text);
        let sized = text.rsplit_once('@').and_then(|(name, workers)| Some((name, workers.parse::<usize>().ok()?)));
        let (text, workers) = sized.map_or((text, None), |(name, workers)| (name, Some(workers)));
        let known = |(origin, name): (&str, &str)| {
            let (_, origin) = ContestantOrigin::ALL.into_iter().find(|(known, _)| *known == origin)?;
            Some((origin, name.to_owned()))
        };
        let Some((origin, name)) = text.split_once(':').and_then(known) else {
            return Err(format!(
                "{text:?} is none of catalog:SERVER/REPO, peer:NAME, twin:NAME, reference:NAME, repo:NAME, typed:NAME, bare:NAME \
                 and executor:NAME"
            ));
        };
        Ok(Self { origin, name, workers })
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_is_a_peer_and_a_number_of_workers_ends_the_name() {
        let parsed = |text: &str| text.parse::<Pattern>().map(|one| (one.origin, one.name, one.workers));
        assert_eq!(parsed("twin:tokio"), Ok((ContestantOrigin::Peer, "twin/tokio".into(), None)));
        assert_eq!(parsed("catalog:smol@8"), Ok((ContestantOrigin::Catalog, "smol".into(), Some(8))));
        assert!(parsed("smol@8").is_err());
    }

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("*/sharded", "pool_server/mpsc_pool/sharded") && matches("a*b*", "acbd") && matches("*", ""));
        assert!(!matches("*/sharded", "pool_server/two_level") && !matches("ab", "abc"));
    }
}
