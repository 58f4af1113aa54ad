//! `polyserve list`: the entries of the catalog.

use std::borrow::Cow;
use std::process::ExitCode;

use polyserve::catalog::{Catalog, Entry, LocatedRepo};
use polyserve_lab::output::{print, print_json};
use polyserve_report::Table;
use serde::Serialize;

#[derive(Serialize)]
struct Listing<'a> {
    servers: Vec<ListEntry<'a>>,
    repos: Vec<ListEntry<'a>>,
    located_repos: Vec<ListEntry<'a>>,
    executors: Vec<ListEntry<'a>>,
    services: Vec<ListEntry<'a>>,
    references: Vec<ListEntry<'a>>,
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
fn located(repos: &[LocatedRepo]) -> Vec<ListEntry<'_>> {
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

fn lines<M>(entries: &[Entry<M>]) -> Vec<ListEntry<'_>> {
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

fn words(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn run(catalog: &Catalog, json: bool) -> anyhow::Result<ExitCode> {
    let listing = Listing {
        servers: lines(catalog.servers()),
        repos: lines(catalog.repos()),
        located_repos: located(catalog.located_repos()),
        executors: lines(catalog.executors()),
        services: lines(catalog.services()),
        references: lines(catalog.references()),
    };
    if json { print_json(&listing) } else { print(&table(&listing).to_string()) }?;
    Ok(ExitCode::SUCCESS)
}

fn table(listing: &Listing<'_>) -> Table {
    let mut table = Table::of_texts(&["kind", "name", "what it is", "what it promises"]);
    for (kind, lines) in [
        ("server", &listing.servers),
        ("repo", &listing.repos),
        ("repo", &listing.located_repos),
        ("executor", &listing.executors),
        ("service", &listing.services),
        ("reference", &listing.references),
    ] {
        for ListEntry { name, summary, promises, .. } in lines {
            table.row(vec![kind.to_owned(), name.to_string(), (*summary).to_owned(), promises.clone()]);
        }
    }
    table
}
