//! The width of output for people.

/// The max number of characters of a line, unless all columns were asked for.
pub const WIDTH: usize = 120;

/// Breaks lines of more than [`WIDTH`] characters at spaces. The next lines are indented by `indent` more spaces than the broken
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
}
