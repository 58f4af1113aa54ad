//! Names that are too long for a line.

use std::collections::HashSet;

/// The max number of characters of a name in a text that would be wider than [`WIDTH`](super::WIDTH).
pub const MAX_NAME: usize = 48;

/// Shortens names to at most `max` characters: a gap replaces the middle of longer names. The gap moves until distinct
/// names stay distinct. If no position of the gap works, all names stay whole.
pub fn shortened<S: AsRef<str>>(names: &[S], max: usize) -> Vec<String> {
    const GAP: &str = "..";
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let whole = || names.iter().map(|name| (*name).to_owned()).collect();
    if names.iter().all(|name| name.chars().count() <= max) {
        return whole();
    }
    let kept = max.saturating_sub(GAP.len());
    let with_head = |head: usize| -> Vec<String> {
        let short = |name: &&str| {
            let length = name.chars().count();
            if length <= max {
                return (*name).to_owned();
            }
            let start: String = name.chars().take(head).collect();
            let end: String = name.chars().skip(length - (kept - head)).collect();
            format!("{start}{GAP}{end}")
        };
        names.iter().map(short).collect()
    };
    let mut heads: Vec<usize> = (0..=kept).collect();
    heads.sort_by_key(|head| head.abs_diff(kept / 2));
    let distinct = names.iter().collect::<HashSet<_>>().len();
    let are_distinct = |short: &Vec<String>| short.iter().collect::<HashSet<_>>().len() == distinct;
    let found = heads.into_iter().map(with_head).find(are_distinct);
    found.unwrap_or_else(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: names that differ in their middle only were shortened to the same text.
    #[test]
    fn shortened_names_stay_distinct() {
        let names = ["pool_server/mpsc_pool/two_level", "pool_server/crossbeam_pool/two_level", "tokio_tcp/sharded"];
        let short = shortened(&names, 24);
        assert!(short.iter().all(|name| name.chars().count() <= 24), "{short:?}");
        assert_eq!(short.iter().collect::<HashSet<_>>().len(), names.len(), "{short:?}");
        assert_eq!(short[2], names[2]);
        // Without a gap that tells them apart, the names stay whole.
        let alike = ["aaaa-1-bbbb-1-cccc", "aaaa-2-bbbb-1-cccc", "aaaa-1-bbbb-2-cccc"];
        assert_eq!(shortened(&alike, 8), alike);
    }
}
