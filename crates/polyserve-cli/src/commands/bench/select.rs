//! The contestants that a pattern of a definition stands for.

use std::collections::BTreeMap;

use anyhow::{Error, bail};
use polyserve::catalog::Catalog;
use polyserve_bench::bench::{ContestantOrigin, Pattern, SweepCell};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::experiment::{Absent, distinct};
use polyserve_bench::stores::bare::{NAMES, PREFIX, TYPED, TYPED_PREFIX};
use polyserve_bench::tasks::runner::OTHERS;

use super::super::entrants::Pair;
use super::Run;
use super::run::absent;

/// What a pattern stands for.
pub(super) enum Selected<'a> {
    /// A server over a repo of the catalog. A service that uses no repo has servers only.
    Pair(Pair),
    /// A program from outside the catalog.
    Program(&'a BuiltProgram),
    /// A null server, by its name.
    Reference(String),
    /// An executor, or another way to run tasks, by its name.
    Executor(String),
    /// A repo or a bare map, by its name in the mode `store`.
    Store(String),
}

/// A contestant at a cell, or why it cannot take part.
pub(super) struct Entrant<C> {
    pub(super) name: String,
    pub(super) contestant: Result<C, String>,
    /// Whether the run succeeds without the contestant.
    pub(super) is_excused: bool,
}

impl Run<'_> {
    /// The contestants of all patterns, each once. `of` finds those of a pattern.
    pub(super) fn entrants<C>(
        &self,
        of: impl Fn(&Pattern) -> anyhow::Result<Vec<Entrant<C>>>,
    ) -> anyhow::Result<Vec<Entrant<C>>> {
        let mut all: Vec<Entrant<C>> = Vec::new();
        for pattern in self.patterns() {
            for entrant in of(pattern)? {
                if all.iter().all(|known| known.name != entrant.name) {
                    all.push(entrant);
                }
            }
        }
        Ok(all)
    }

    /// The baseline: the first contestant of its pattern. Without a pattern, the first of all that can be a default.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such contestant.
    pub(super) fn baseline<C>(
        &self,
        of: impl Fn(&Pattern) -> anyhow::Result<Vec<Entrant<C>>>,
        can_be_default: impl Fn(&Entrant<C>) -> bool,
    ) -> anyhow::Result<Entrant<C>> {
        let found = match &self.definition.baseline {
            Some(pattern) => of(pattern)?.into_iter().next(),
            None => self.entrants(of)?.into_iter().find(can_be_default),
        };
        Ok(found.ok_or_else(|| self.definition.misuse("baseline", "no contestant of this name can be the baseline"))?)
    }

    /// The contestants that take part at a cell. Those that cannot are added to `left_out`. `--only` keeps the baseline.
    pub(super) fn taking_part<C>(
        &self,
        entrants: Vec<Entrant<C>>,
        baseline: Option<&str>,
        cell: &SweepCell,
        left_out: &mut Vec<Absent>,
    ) -> Vec<C> {
        let mut contestants = Vec::new();
        for Entrant { name, contestant, is_excused } in entrants {
            if baseline != Some(&name) && !self.wants(&name) {
                continue;
            }
            match contestant {
                Ok(contestant) => contestants.push(contestant),
                Err(why) => left_out.push(absent(&name, cell, why, is_excused)),
            }
        }
        contestants
    }

    /// The servers that a star stands for and that the system does not allow, each with the reason.
    pub(super) fn not_allowed(&self) -> BTreeMap<String, String> {
        let catalog = self.session.catalog;
        let patterns = || self.patterns().filter(|one| one.origin == ContestantOrigin::Catalog && one.has_star());
        let is_meant = |server: &str| {
            patterns().any(|pattern| {
                let pairs = |has_repos| pairs_of(server, pattern, catalog, has_repos).unwrap_or_default();
                [true, false].into_iter().flat_map(pairs).any(|pair| self.wants(&pair.name()))
            })
        };
        let named = catalog.servers_not_allowed().map(|(entry, reason)| (entry.name.clone(), reason));
        named.filter(|(server, _)| is_meant(server)).collect()
    }

    /// The contestants of a pattern, in the order of the catalog or of the file of contestants. `has_repos` is false if servers take
    /// part without a repo.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is unknown. Of programs, all names are known.
    pub(super) fn select<'a>(
        &self,
        pattern: &Pattern,
        programs: &'a [BuiltProgram],
        has_repos: bool,
    ) -> anyhow::Result<Vec<Selected<'a>>> {
        let catalog = self.session.catalog;
        let selected = || -> anyhow::Result<Vec<Selected<'a>>> {
            Ok(match pattern.origin {
                ContestantOrigin::Catalog => {
                    pairs(pattern, catalog, has_repos)?.into_iter().map(Selected::Pair).collect()
                }
                ContestantOrigin::Peer => {
                    let own = programs.iter().filter(|built| pattern.matches(built.program.short_name()));
                    own.map(Selected::Program).collect()
                }
                ContestantOrigin::Reference if pattern.has_star() => {
                    let all = catalog.references().iter().map(|entry| entry.name.clone());
                    all.filter(|name| pattern.matches(name)).map(Selected::Reference).collect()
                }
                ContestantOrigin::Reference => {
                    vec![Selected::Reference(catalog.reference(&pattern.name)?.name.clone())]
                }
                ContestantOrigin::Executor => {
                    executors(pattern, catalog)?.into_iter().map(Selected::Executor).collect()
                }
                ContestantOrigin::Repo | ContestantOrigin::Typed | ContestantOrigin::Bare => {
                    stores(pattern, catalog)?.into_iter().map(Selected::Store).collect()
                }
            })
        };
        Ok(selected().map_err(|why| self.definition.misuse("contestants", why))?)
    }
}

/// The pairs of the catalog that a pattern stands for.
fn pairs(pattern: &Pattern, catalog: &Catalog, has_repos: bool) -> anyhow::Result<Vec<Pair>> {
    let name = &pattern.name;
    if !pattern.has_star() {
        // A service may use a repo.
        if !has_repos && (catalog.server(name).is_ok() || Pair::parse(name, catalog).is_err()) {
            let server = catalog.server(name)?.name.clone();
            return Ok(vec![Pair { server, repo: String::new() }]);
        }
        let pair = Pair::parse(name, catalog).map_err(Error::msg)?;
        let (server, repo) = (catalog.server(&pair.server)?.name.clone(), catalog.repo(&pair.repo)?.name.clone());
        return Ok(vec![Pair { server, repo }]);
    }
    let of = |server: &str| pairs_of(server, pattern, catalog, has_repos);
    let found: Vec<Vec<Pair>> =
        catalog.servers().iter().map(|entry| of(&entry.name)).collect::<anyhow::Result<Vec<_>>>()?;
    if found.iter().any(|pairs| !pairs.is_empty()) {
        return Ok(found.concat());
    }
    let is_meant = |server: &str| of(server).is_ok_and(|pairs| !pairs.is_empty());
    match catalog.servers_not_allowed().find(|(entry, _)| is_meant(&entry.name)) {
        Some((_, reason)) => bail!("catalog:{name} stands for a server that the system does not allow: {reason}"),
        None => bail!("nothing in the catalog matches catalog:{name}; see `polyserve list`"),
    }
}

/// The pairs of this server that a pattern with a star stands for.
fn pairs_of(server: &str, pattern: &Pattern, catalog: &Catalog, has_repos: bool) -> anyhow::Result<Vec<Pair>> {
    let name = &pattern.name;
    let repos: Vec<String> = match has_repos {
        false => vec![String::new()],
        // A repo at a location.
        true if name.contains(':') => {
            let pair = Pair::parse(name, catalog).map_err(Error::msg)?;
            vec![catalog.repo(&pair.repo)?.name.clone()]
        }
        true => catalog.repos().iter().map(|entry| entry.name.clone()).collect(),
    };
    let all = repos.into_iter().map(|repo| Pair { server: server.to_owned(), repo });
    Ok(all.filter(|pair| pattern.matches(&pair.name())).collect())
}

/// The executors of the catalog and the other ways to run tasks. An executor takes precedence over another of its name.
fn executors(pattern: &Pattern, catalog: &Catalog) -> anyhow::Result<Vec<String>> {
    if !pattern.has_star() && !OTHERS.contains(&pattern.name.as_str()) {
        return Ok(vec![catalog.executor(&pattern.name)?.name.clone()]);
    }
    let executors = catalog.executors().iter().map(|entry| entry.name.clone());
    let all = distinct(executors.chain(OTHERS.map(String::from)));
    let found: Vec<String> = all.into_iter().filter(|name| pattern.matches(name)).collect();
    if found.is_empty() {
        bail!("no executor matches executor:{}; see `polyserve list`", pattern.name);
    }
    Ok(found)
}

/// The repos of the catalog, or the maps in another form. Their names in the mode `store` begin with the form.
fn stores(pattern: &Pattern, catalog: &Catalog) -> anyhow::Result<Vec<String>> {
    let (prefix, names) = match pattern.origin {
        ContestantOrigin::Bare => (PREFIX, NAMES.map(String::from).to_vec()),
        ContestantOrigin::Typed => (TYPED_PREFIX, TYPED.map(String::from).to_vec()),
        _ if pattern.has_star() => ("", catalog.repos().iter().map(|entry| entry.name.clone()).collect()),
        // A name of the catalog has short forms.
        _ => return Ok(vec![catalog.repo(&pattern.name)?.name.clone()]),
    };
    let is_meant = |name: &&String| pattern.matches(name.strip_prefix(prefix).unwrap_or(name));
    let found: Vec<String> = names.iter().filter(is_meant).cloned().collect();
    if found.is_empty() {
        bail!("there is no {prefix}{}; there are {}", pattern.name, names.join(", "));
    }
    Ok(found)
}
