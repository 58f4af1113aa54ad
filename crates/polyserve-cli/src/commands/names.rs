//! The names on a command line, and the default names.

use std::borrow::Borrow;

use polyserve::catalog::{Catalog, Entry, Tag, UnknownName};

/// Returns the names of the entries with this tag.
pub(crate) fn tagged<M>(entries: &[Entry<M>], tag: Tag) -> Vec<&str> {
    entries.iter().filter(|entry| entry.has(tag)).map(|entry| entry.name.as_str()).collect()
}

/// Returns the full names of the entries with these names.
pub(crate) fn full_names<M, E: Borrow<Entry<M>>>(
    names: &[String],
    find: impl Fn(&str) -> Result<E, UnknownName>,
) -> Result<Vec<String>, UnknownName> {
    names.iter().map(|name| Ok(find(name)?.borrow().name.clone())).collect()
}

/// The name that selects all servers, all foreign servers, or all repos that need no location.
pub(crate) const ALL: &str = "all";

/// Returns the full names of the repos with these names. [`ALL`] selects the repos that need no location. It lists the
/// other repos on standard error, including those that this build lacks.
pub(crate) fn repo_names(catalog: &Catalog, names: &[String]) -> Result<Vec<String>, UnknownName> {
    if names == [ALL] {
        for repo in catalog.repo_schemes() {
            eprintln!("not configured, so left out: {}", repo.form());
        }
        for (name, feature) in catalog.repos_not_built() {
            eprintln!("not built in, so left out: {name} ({})", build_hint(feature));
        }
        return Ok(catalog.repos().iter().map(|entry| entry.name.clone()).collect());
    }
    full_names(&joined(names), |name| catalog.repo(name))
}

/// Returns how to build the command with a feature that it lacks.
pub(crate) fn build_hint(feature: &str) -> String {
    format!("build with `--features {feature}`")
}

/// Joins the parts of a name in a list that was split at each comma. A location of several URLs has commas too.
pub(crate) fn joined(parts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in parts {
        let has_scheme = |text: &str| text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains(':'));
        match names.last_mut() {
            Some(before) if has_scheme(part) && before.contains("://") => {
                before.push(',');
                before.push_str(part);
            }
            _ => names.push(part.clone()),
        }
    }
    names
}

/// Returns the names of all `entries`. A quick run has the number of names in `quick`, which are built-in entries. It
/// takes the program's own entries first, the last added before the others. Then come the entries named in `quick`, then
/// the rest. The result is in the order of the catalog.
pub(crate) fn default_names<M>(entries: &[Entry<M>], builtin: &[Entry<M>], quick: Option<&[&str]>) -> Vec<String> {
    let mut places: Vec<usize> = (0..entries.len()).collect();
    if let Some(names) = quick {
        places.sort_by_key(|place| {
            let name = entries[*place].name.as_str();
            let is_own = builtin.iter().all(|entry| entry.name != name);
            if is_own { (0, entries.len() - place) } else { (1 + usize::from(!names.contains(&name)), *place) }
        });
        places.truncate(names.len());
        places.sort_unstable();
    }
    places.into_iter().map(|place| entries[place].name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_may_have_commas() {
        let parts = |text: &str| joined(&text.split(',').map(String::from).collect::<Vec<_>>());
        assert_eq!(parts("sharded,packed"), ["sharded", "packed"]);
        assert_eq!(parts("etcd:http://a:1,http://b:2,sharded"), ["etcd:http://a:1,http://b:2", "sharded"]);
        assert_eq!(
            parts("redis_cluster:redis://a,redis://b,postgres:postgres://c,durable:d"),
            ["redis_cluster:redis://a,redis://b", "postgres:postgres://c", "durable:d"]
        );
    }

    #[test]
    fn a_quick_comparison_takes_the_programs_own_first() {
        let entry = |name: &str| Entry::service(name, "", &[], |_| std::sync::Arc::new(polyserve::Echo));
        let quick = |name: &str| entry(name).with_tags(&[Tag::Quick]);
        let entries = [entry("sequential"), quick("a"), quick("b"), quick("c"), entry("own1"), entry("own2")];
        let builtin = &entries[..4];
        assert_eq!(default_names(&entries, builtin, None).len(), 6);
        let tagged = |builtin| tagged(builtin, Tag::Quick);
        assert_eq!(default_names(&entries, builtin, Some(&tagged(builtin))), ["a", "own1", "own2"]);
        assert_eq!(default_names(&entries, &entries[1..2], Some(&tagged(&entries[1..2]))), ["own2"]);
        assert_eq!(default_names(builtin, builtin, Some(&tagged(builtin))), ["a", "b", "c"]);
    }
}
