//! Lines and names of output for people, and their max widths.

use std::collections::HashSet;

/// The max number of characters of a line, unless all columns were asked for.
pub(crate) const WIDTH: usize = 120;

/// Breaks lines of more than `WIDTH` characters at spaces. The next lines are indented by `indent` more spaces than the broken
/// line. A longer word stays whole.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut wrapped = String::new();
    for line in text.split_inclusive('\n') {
        let start = line.len() - line.trim_start_matches(' ').len() + indent;
        let mut width = 0;
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if width > start && width + length > WIDTH {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(start));
                width = start;
            }
            wrapped.push_str(word);
            width += word.chars().count();
        }
    }
    wrapped
}

/// The max number of characters of a name in a text that would be wider than [`WIDTH`].
pub(crate) const MAX_NAME: usize = 48;

/// Shortens names to at most `max` characters: a gap replaces the middle of longer names. The gap moves until distinct
/// names stay distinct. If no position of the gap works, all names stay whole.
pub(crate) fn shortened<S: AsRef<str>>(names: &[S], max: usize) -> Vec<String> {
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

    #[test]
    fn long_lines_are_broken_at_spaces() {
        for short in ["a short line\n\n  another\n", "without an end", ""] {
            assert_eq!(wrapped(short, 3), short);
        }
        let long = format!("name  {}", "words ".repeat(50).trim_end());
        let lines: Vec<String> = wrapped(&long, 6).lines().map(String::from).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.starts_with("      words")), "{lines:?}");
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&lines.join("\n")), words(&long), "wrapping changes no word");
        let word = "x".repeat(WIDTH + 1);
        assert_eq!(wrapped(&format!("   {word} {word}"), 3), format!("   {word}\n      {word}"));
    }

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
