//! Whether a record of a comparison is complete: an interrupted run, or a run that is still measured, is not.

use serde_json::Value;

/// Why the record of a comparison is not complete. Its last line is its ranking, which says if the run was interrupted.
pub fn compare(lines: &[Value]) -> Option<String> {
    let ranking = lines.iter().any(|line| line["kind"] == "ranking");
    (!ranking).then(|| String::from("the run has no ranking: it was ended before one was made"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_comparison_without_a_ranking() {
        assert!(compare(&[json!({"kind": "turn"})]).is_some());
        assert!(compare(&[json!({"kind": "ranking"})]).is_none());
    }
}
