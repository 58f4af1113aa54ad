//! The bytes that were exchanged on a connection, shortened.

use std::fmt;

/// The start of each part of an exchange. Its size is bounded, however long the exchange is.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    parts: Vec<TranscriptPart>,
    left_out: usize,
}

#[derive(Debug)]
struct TranscriptPart {
    /// What stands before it: `>>` if it was sent, `<<` if it was received, nothing if it is a note.
    mark: &'static str,
    start: Vec<u8>,
    total: usize,
}

/// The number of bytes that are kept of each part.
const MAX_SHOWN: usize = 400;
/// The number of parts that are kept: the latest ones.
const MAX_PARTS: usize = 12;

impl Transcript {
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        self.add(">>", bytes);
    }

    pub(super) fn received(&mut self, bytes: &[u8]) {
        self.add("<<", bytes);
    }

    pub(super) fn note(&mut self, note: &str) {
        self.add("  ", note.as_bytes());
    }

    fn add(&mut self, mark: &'static str, bytes: &[u8]) {
        let continues = self.parts.last().is_some_and(|last| last.mark == mark);
        if !continues {
            if self.parts.len() == MAX_PARTS {
                self.parts.remove(0);
                self.left_out += 1;
            }
            self.parts.push(TranscriptPart { mark, start: Vec::new(), total: 0 });
        }
        let Some(part) = self.parts.last_mut() else { return };
        let count = MAX_SHOWN.saturating_sub(part.start.len()).min(bytes.len());
        part.start.extend_from_slice(&bytes[..count]);
        part.total += bytes.len();
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_out > 0 {
            writeln!(f, "   ({} earlier parts)", self.left_out)?;
        }
        for TranscriptPart { mark, start, total } in &self.parts {
            write!(f, "{mark} {}", start.escape_ascii())?;
            match total - start.len() {
                0 => writeln!(f)?,
                more => writeln!(f, " ... and {more} bytes")?,
            }
        }
        Ok(())
    }
}

/// Escapes and shortens `bytes` for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let start = bytes.get(..MAX_SHOWN).unwrap_or(bytes);
    let more = if start.len() < bytes.len() { " ..." } else { "" };
    format!("{}{more}", start.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_conversation_stays_short() {
        let mut transcript = Transcript::default();
        for n in 0..1000_u32 {
            transcript.sent(&[b'a'; 1000]);
            transcript.received(format!("{n}").as_bytes());
        }
        let text = transcript.to_string();
        assert!(
            text.len() < 2 * MAX_PARTS * MAX_SHOWN && text.contains("and 600 bytes") && text.contains("<< 999"),
            "{text}"
        );
    }
}
