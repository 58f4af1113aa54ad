//! Writes a published entity with short fields: the description has at most [`MAX_TEXT`] bytes and no escape, and the numbers are short.
//!
//! Invariant: the bytes are those that `write_any` appends. An entity that is not short leaves the output as it was.
//!
//! Cost: the output is made longer once, by the length of the longest such entity, and cut at the end. The fields are stored in what was
//! added, of which the length is known to the compiler. So it looks at the capacity once, and not for each field.

use super::number::{self, Digits};
use super::{has_escape, needs_escape};

/// The max length of a description, in bytes.
const MAX_TEXT: usize = 64;

/// The length of the longest entity, or more: the names, three numbers of at most eight digits, a sign, a point, and the description.
const ROOM: usize = 64 + MAX_TEXT;

/// Appends the entity with these fields if it is short. Returns whether it is.
#[allow(clippy::inline_always)] // called once
#[inline(always)]
pub(super) fn write(id: i64, description: &[u8], value: f64, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; ROOM]);
    let length = out.last_chunk_mut().and_then(|room| store_entity(room, id, description, value));
    out.truncate(start + length.unwrap_or(0));
    length.is_some()
}

/// Stores the entity at the start of `room`. Returns its length.
#[allow(clippy::inline_always)] // called once
#[inline(always)]
fn store_entity(room: &mut [u8; ROOM], id: i64, text: &[u8], value: f64) -> Option<usize> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let (id, value) = (number::short_integer(id)?, number::short_decimal(value)?);
    let at = store(room, 0, b"{\"id\":")?;
    let at = store_digits(room, at, id)?;
    let at = store(room, at, b",\"description\":\"")?;
    let end = at + text.len();
    if !copy_plain(text, room.get_mut(at..end)?) {
        return None;
    }
    let mut at = store(room, end, b"\",\"value\":")?;
    if value.is_negative {
        at = store(room, at, b"-")?;
    }
    let at = store_digits(room, at, value.whole)?;
    let at = store(room, at, b".")?;
    let at = store_digits(room, at, value.fraction)?;
    store(room, at, b"}")
}

/// Stores a part at an offset. Returns the offset after it.
#[allow(clippy::inline_always)] // each part has a length of its own
#[inline(always)]
fn store<const N: usize>(room: &mut [u8; ROOM], at: usize, part: &[u8; N]) -> Option<usize> {
    *room.get_mut(at..)?.first_chunk_mut()? = *part;
    Some(at + N)
}

/// Stores a number at an offset, with bytes after it that the next part replaces. Returns the offset after the number.
#[allow(clippy::inline_always)]
#[inline(always)]
fn store_digits(room: &mut [u8; ROOM], at: usize, digits: Digits) -> Option<usize> {
    store(room, at, &digits.text)?;
    Some(at + digits.count)
}

/// Copies a text to a place of the same length. Returns false if the text has an escape in JSON; then the place has any bytes.
#[allow(clippy::inline_always)]
#[inline(always)]
fn copy_plain(text: &[u8], place: &mut [u8]) -> bool {
    match text.len() {
        16.. => copy_blocks::<16>(text, place),
        8.. => copy_blocks::<8>(text, place),
        _ => {
            place.copy_from_slice(text);
            !needs_escape(text)
        }
    }
}

/// Does the same in blocks of `N` bytes. The last one overlaps the one before it.
#[allow(clippy::inline_always)]
#[inline(always)]
fn copy_blocks<const N: usize>(text: &[u8], place: &mut [u8]) -> bool {
    let mut found = false;
    for (block, place) in text.as_chunks::<N>().0.iter().zip(place.as_chunks_mut::<N>().0) {
        found |= has_escape(block);
        *place = *block;
    }
    if let (Some(block), Some(place)) = (text.last_chunk::<N>(), place.last_chunk_mut::<N>()) {
        found |= has_escape(block);
        *place = *block;
    }
    !found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::write_any;

    /// Checks the bytes, after others that are in the output already. Returns whether the entity is short.
    fn is_short(id: i64, description: &str, value: f64) -> bool {
        let mut expected = b"before".to_vec();
        write_any(id, description, value, &mut expected);
        // There may be room for all, for a part, or for nothing.
        let mut found = [expected.len() + ROOM, expected.len(), 6].map(Vec::with_capacity);
        let shorts = found.each_mut().map(|found| {
            found.extend_from_slice(b"before");
            write(id, description.as_bytes(), value, found)
        });
        for found in found {
            let expected = if shorts[0] { &expected[..] } else { b"before" };
            assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
        assert_eq!(shorts, [shorts[0]; 3]);
        shorts[0]
    }

    #[test]
    fn a_text_is_short_up_to_its_limit() {
        for length in 0..=2 * MAX_TEXT {
            let text = "x".repeat(length);
            assert_eq!(is_short(17, &text, 60.750847), length <= MAX_TEXT, "{length}");
            for at in 0..length {
                for escaped in ["\"", "\\", "\n", "\0", "\u{1f}"] {
                    let text = format!("{}{escaped}{}", &text[..at], &text[at + 1..]);
                    assert!(!is_short(17, &text, 0.5), "{text:?}");
                }
                let other = format!("{}\u{7f}\u{e9}\u{1f600}{}", &text[..at], &text[at + 1..]);
                assert_eq!(is_short(17, &other, 0.5), other.len() <= MAX_TEXT, "{other:?}");
            }
        }
    }

    #[test]
    fn the_longest_entity_has_room() {
        let text = "x".repeat(MAX_TEXT);
        for (id, value) in [(99_999_999, 99_999_999.999999), (99_999_999, -99_999_999.999999), (0, 0.001), (9, -1.0)] {
            assert!(is_short(id, &text, value), "{id} {value}");
        }
        for id in [-1, 100_000_000, i64::MIN, i64::MAX] {
            assert!(!is_short(id, &text, 0.5), "{id}");
        }
        for value in [0.0, -0.0, 1e8, 1.0 / 3.0, 0.000_999, 1e300, f64::NAN, f64::INFINITY] {
            assert!(!is_short(1, &text, value), "{value}");
        }
        for digits in 0..8 {
            assert!(is_short(10_i64.pow(digits), "a", 10_f64.powi(digits as i32) + 0.25));
            assert!(is_short(10_i64.pow(digits) - 1, "", -10_f64.powi(digits as i32)));
        }
    }
}
