//! Texts in errors are cut, because an error is one line.

/// Returns `text` in at most `limit` bytes. If it is cut, between two characters, three dots follow.
pub(crate) fn shortened(text: impl Into<String>, limit: usize) -> String {
    const DOTS: &str = "...";
    let mut text = text.into();
    if text.len() > limit {
        // `str::floor_char_boundary` needs Rust 1.91.
        let end = (0..=limit.saturating_sub(DOTS.len())).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str(DOTS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (limit, cut) in [(10, "aé€bcd"), (9, "aé€bcd"), (8, "aé..."), (6, "aé..."), (5, "a..."), (3, "...")]
        {
            assert_eq!(shortened("aé€bcd", limit), cut, "{limit}");
        }
    }
}
