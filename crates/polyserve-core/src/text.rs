//! Texts in errors are cut, because an error is one line.

/// Cuts `text` to at most `limit` bytes, at a boundary of a character.
pub(crate) fn truncate(text: &mut String, limit: usize) {
    // `str::floor_char_boundary` needs Rust 1.91.
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::truncate;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (limit, cut) in [(9, "aé€"), (6, "aé€"), (5, "aé"), (3, "aé"), (2, "a"), (0, "")] {
            let mut text = String::from("aé€");
            truncate(&mut text, limit);
            assert_eq!(text, cut, "{limit}");
        }
    }
}
