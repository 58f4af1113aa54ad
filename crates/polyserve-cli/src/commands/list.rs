//! `polyserve list`: the entries of the catalog.

use std::borrow::Cow;
use std::process::ExitCode;

use polyserve::catalog::{Catalog, Entry, OVERLOAD_POLICIES, RepoScheme};
use polyserve_bench::output::{print, print_json};
use polyserve_bench::report::wrapped;
use serde::Serialize;

use super::names::build_hint;

#[derive(Serialize)]
struct Listing<'a> {
    servers: Vec<ListEntry<'a>>,
    /// The servers that the system does not allow, with the reasons. The JSON does not list them: a program cannot start them here.
    #[serde(skip)]
    not_allowed: Vec<ListEntry<'a>>,
    short_server_names: Vec<ListEntry<'a>>,
    repos: Vec<ListEntry<'a>>,
    located_repos: Vec<ListEntry<'a>>,
    /// How to build the repos of features that are off. The JSON does not list them: a program cannot start them.
    #[serde(skip)]
    not_built: Vec<ListEntry<'a>>,
    executors: Vec<ListEntry<'a>>,
    services: Vec<ListEntry<'a>>,
    references: Vec<ListEntry<'a>>,
    overload_policies: Vec<ListEntry<'a>>,
}

#[derive(Serialize)]
struct ListEntry<'a> {
    name: Cow<'a, str>,
    summary: &'a str,
    promises: String,
    tags: String,
    code: Option<Code<'a>>,
}

/// The Rust code that builds a strategy.
#[derive(Serialize)]
struct Code<'a> {
    feature: Option<&'a str>,
    expression: &'a str,
}

/// The repos that need a location, with `NAME:LOCATION` as their names.
fn located_entries(repos: &[RepoScheme]) -> Vec<ListEntry<'_>> {
    repos
        .iter()
        .map(|repo| ListEntry {
            name: repo.form().into(),
            summary: &repo.summary,
            promises: words(&repo.promises),
            tags: String::new(),
            code: None,
        })
        .collect()
}

fn list_entries<M>(entries: &[Entry<M>]) -> Vec<ListEntry<'_>> {
    entries
        .iter()
        .map(|Entry { name, summary, promises, tags, code, .. }| ListEntry {
            name: name.into(),
            summary,
            promises: words(promises),
            tags: words(tags),
            code: code.as_ref().map(|code| Code { feature: code.feature, expression: &code.expression }),
        })
        .collect()
}

/// An entry with a name and a summary alone.
fn plain<'a>((name, summary): (&'a str, &'a str)) -> ListEntry<'a> {
    ListEntry { name: name.into(), summary, promises: String::new(), tags: String::new(), code: None }
}

fn words(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn run(catalog: &Catalog, json: bool) -> anyhow::Result<ExitCode> {
    let hints: Vec<_> = catalog.repos_not_built().map(|(name, feature)| (name, build_hint(feature))).collect();
    let not_built = hints.iter().map(|(name, hint)| plain((*name, hint.as_str()))).collect();
    let reasons: Vec<_> = catalog.servers_not_allowed().collect();
    let listing = Listing {
        servers: list_entries(catalog.servers()),
        not_allowed: reasons.iter().map(|(entry, reason)| plain((&entry.name, reason))).collect(),
        short_server_names: catalog.short_server_names().map(plain).collect(),
        repos: list_entries(catalog.repos()),
        located_repos: located_entries(catalog.repo_schemes()),
        not_built,
        executors: list_entries(catalog.executors()),
        services: list_entries(catalog.services()),
        references: list_entries(catalog.references()),
        overload_policies: OVERLOAD_POLICIES.into_iter().map(plain).collect(),
    };
    if json { print_json(&listing) } else { print(&text(&listing)) }?;
    Ok(ExitCode::SUCCESS)
}

/// The entries of each kind. An entry has a line with the name and the summary, and a line with the promises.
fn text(listing: &Listing<'_>) -> String {
    let kinds = [
        ("servers", &listing.servers),
        ("servers that the system does not allow", &listing.not_allowed),
        ("short names of servers", &listing.short_server_names),
        ("repos", &listing.repos),
        ("repos that need a location", &listing.located_repos),
        ("repos that are not built in", &listing.not_built),
        ("executors", &listing.executors),
        ("services", &listing.services),
        ("references", &listing.references),
        ("overload policies", &listing.overload_policies),
    ];
    let widths = kinds.iter().flat_map(|(_, entries)| entries.iter()).map(|entry| entry.name.chars().count());
    let indent = widths.max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (kind, entries) in kinds.iter().filter(|(_, entries)| !entries.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{kind}:\n"));
        for ListEntry { name, summary, promises, .. } in *entries {
            text.push_str(&wrapped(&format!("{name:indent$}{summary}\n"), indent));
            if !promises.is_empty() {
                text.push_str(&wrapped(&format!("{:indent$}{promises}\n", ""), 0));
            }
        }
    }
    text
}
