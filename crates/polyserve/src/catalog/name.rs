//! The error of an unknown name, with a suggestion.

use std::error::Error;
use std::fmt;
use std::mem;

/// A name that is not in the catalog.
///
/// ```
/// use polyserve::catalog::Catalog;
///
/// # #[cfg(feature = "memory")] {
/// let error = Catalog::builtin().repo("std-mutex").unwrap_err();
/// assert_eq!(error.suggestion(), Some("std_mutex"));
/// assert!(error.known().iter().any(|name| name == "std_rwlock"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    known: Vec<String>,
    /// What is missing if the name is known.
    missing: Option<String>,
}

impl UnknownName {
    pub(crate) fn new(kind: &'static str, name: &str, known: Vec<String>) -> Self {
        Self { kind, name: name.to_owned(), known, missing: None }
    }

    /// Creates the error of a strategy without what it needs: a location, a feature, or a part of the system.
    pub(super) fn without(kind: &'static str, name: &str, missing: String) -> Self {
        Self { missing: Some(missing), ..Self::new(kind, name, Vec::new()) }
    }

    /// Adds `name` to the known names.
    pub(super) fn or(mut self, name: &str) -> Self {
        self.known.push(name.to_owned());
        self
    }

    /// Returns what has no such name: `server`, `repo`, `executor` or `service`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the known names.
    pub fn known(&self) -> &[String] {
        &self.known
    }

    /// Returns the known name nearest to the unknown one, if any is near.
    pub fn suggestion(&self) -> Option<&str> {
        nearest(&self.name, self.known.iter().map(String::as_str)).first().copied()
    }
}

/// Returns the names of `known` that `name` may have meant, the nearest first, if any is near.
///
/// ```
/// use polyserve::catalog::nearest;
///
/// assert_eq!(nearest("wrokers", ["workers", "queue"]), ["workers"]);
/// assert_eq!(nearest("grace", ["drain_grace", "queue", "kill_grace"]), ["drain_grace", "kill_grace"]);
/// assert!(nearest("zebra", ["workers", "queue"]).is_empty());
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    let near = known.clone().into_iter().map(|known| (distance(name, known), known));
    let mut near: Vec<_> = near.filter(|(distance, known)| distance * 3 <= known.len()).collect();
    near.sort_by_key(|(distance, _)| *distance);
    if near.is_empty() && name.len() > 2 {
        // A letter or two are in most names.
        return known.into_iter().filter(|known| known.contains(name)).collect();
    }
    near.into_iter().map(|(_, known)| known).collect()
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(missing) = &self.missing {
            return write!(f, "the {} {:?} needs {missing}", self.kind, self.name);
        }
        write!(f, "there is no {} {:?}", self.kind, self.name)?;
        if let Some(near) = self.suggestion() {
            write!(f, ", did you mean {near:?}?")?;
        }
        match self.known.as_slice() {
            [] => f.write_str("; this program has none"),
            known => write!(f, "; there are: {}", known.join(", ")),
        }
    }
}

impl Error for UnknownName {}

/// Returns the Levenshtein distance of two names, ignoring case.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    // The distances of the characters of `from` so far to each beginning of `to`.
    let mut distances: Vec<usize> = (0..=to.len()).collect();
    for (row, from) in from.to_lowercase().chars().enumerate() {
        let mut diagonal = mem::replace(&mut distances[0], row + 1);
        for (column, to) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = distances[column + 1];
            distances[column + 1] = replaced.min(diagonal + 1).min(distances[column] + 1);
        }
    }
    distances[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, far) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("A", "a", 0)] {
            assert_eq!(distance(from, to), far, "{from} {to}");
        }
    }

    #[test]
    fn what_may_have_been_meant() {
        let known = ["std_mutex", "std_rwlock", "two_level", "pool_server/mpsc_pool"].map(String::from).to_vec();
        let suggestion = |name| UnknownName::new("repo", name, known.clone()).suggestion().map(String::from);
        assert_eq!(suggestion("std-mutex").as_deref(), Some("std_mutex"));
        assert_eq!(suggestion("TwoLevel").as_deref(), Some("two_level"));
        assert_eq!(suggestion("mpsc_pool").as_deref(), Some("pool_server/mpsc_pool"));
        assert_eq!((suggestion("zebra"), suggestion("")), (None, None));
    }
}
