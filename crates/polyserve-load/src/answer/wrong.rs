//! A wrong answer.

/// The max number of bytes of a wrong answer in an error message.
pub(super) const MAX_EXCERPT: usize = 200;

/// Why an answer is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    pub(super) fn at(what: &str, bytes: &[u8]) -> Self {
        Self(format!("{what}: {}", excerpt(bytes)))
    }
}

/// Returns the first [`MAX_EXCERPT`] bytes in printable form.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_EXCERPT).unwrap_or(bytes);
    let rest = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}\"{rest}", shown.escape_ascii())
}
