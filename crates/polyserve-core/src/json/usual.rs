//! Reads an entity in the form in which most clients send it, which is the form in which it is written: the fields in order, without
//! white space, escapes, exponents or letters beyond ASCII.
//!
//! Invariant: an entity that is read here is the one that `serde_json` reads, to the bit of its value. All other bodies are left to
//! `serde_json`, which also names what is wrong with them. A value of at most 15 digits is the quotient of two whole numbers that a float
//! holds exactly, so one division rounds it correctly (Clinger, *How to read floating point numbers accurately*, 1990).
//!
//! Cost: a few instructions for each byte, and the allocation of the description unless the thread has a spare buffer for it.

use crate::Entity;
use crate::entity::spare_text;

/// Reads an entity in the usual form. Returns `None` for any other body.
pub(crate) fn read(body: &[u8]) -> Option<Entity> {
    let (id, rest) = id(body.strip_prefix(br#"{"id":"#)?)?;
    let rest = rest.strip_prefix(br#","description":""#)?;
    let (description, rest) = rest.split_at_checked(plain_length(rest))?;
    let (value, rest) = value(rest.strip_prefix(br#"","value":"#)?)?;
    if rest != b"}" {
        return None;
    }
    Some(Entity { id, description: owned(description)?, value })
}

/// Returns a copy of text without bytes beyond ASCII. Such a text is checked as UTF-8 two words at a time if it is aligned and fills
/// them, and else byte by byte, at about nine instructions each. So a short text is checked in a block with spaces at its end.
fn owned(text: &[u8]) -> Option<String> {
    let mut block = Block([b' '; BLOCK]);
    let Some(start) = block.0.get_mut(..text.len()) else { return Some(str::from_utf8(text).ok()?.to_owned()) };
    start.copy_from_slice(text);
    let checked = str::from_utf8(block.0.get(..text.len().next_multiple_of(2 * WORD))?).ok()?;
    Some(spare_text::owned(checked.get(..text.len())?))
}

/// The length of a [`Block`], in bytes.
const BLOCK: usize = 64;

#[repr(align(16))]
struct Block([u8; BLOCK]);

/// Reads a whole number of at most 18 digits. An i64 holds each of them.
fn id(text: &[u8]) -> Option<(i64, &[u8])> {
    let (is_negative, text) = sign(text);
    let (number, count, rest) = digits(text, 0);
    let is_usual = is_whole(text, count) && count <= 18 && !(is_negative && number == 0);
    let number = i64::try_from(number).ok()?;
    is_usual.then_some((if is_negative { -number } else { number }, rest))
}

/// Reads a decimal of at most 15 digits, without an exponent. `-0` is not usual.
fn value(text: &[u8]) -> Option<(f64, &[u8])> {
    let (is_negative, text) = sign(text);
    let (mut number, whole, mut rest) = digits(text, 0);
    let mut fraction = 0;
    if let [b'.', after @ ..] = rest {
        (number, fraction, rest) = digits(after, number);
        if fraction == 0 {
            return None;
        }
    }
    if !is_whole(text, whole) || whole + fraction > MAX_DIGITS || is_negative && number == 0 {
        return None;
    }
    let magnitude = number as f64 / POWERS_OF_TEN.get(fraction)?;
    Some((if is_negative { -magnitude } else { magnitude }, rest))
}

/// The number of digits of which a float holds each whole number.
const MAX_DIGITS: usize = 15;

const POWERS_OF_TEN: [f64; MAX_DIGITS + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    }
}

/// Whether the first `count` bytes of `text` are a whole number of JSON: digits, and no zero before others.
fn is_whole(text: &[u8], count: usize) -> bool {
    count == 1 || count > 1 && text.first() != Some(&b'0')
}

/// Reads digits that follow those of `number`. Returns the number, how many digits were read, and what follows. If they are many, the
/// number is wrong, and the caller looks at their count.
fn digits(text: &[u8], mut number: u64) -> (u64, usize, &[u8]) {
    let (mut rest, mut count) = (text, 0);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        (rest, count) = (after, count + 1);
    }
    (number, count, rest)
}

/// Returns the number of bytes before the first one that is not plain: that ends a text, begins an escape, or is no printable ASCII.
fn plain_length(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        let found = not_plain(u64::from_le_bytes(*word));
        if found != 0 {
            return WORD * index + found.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &u8| not_plain(u64::from(*byte) | PADDING) == 0;
    WORD * words.len() + rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len())
}

const WORD: usize = size_of::<u64>();

/// Seven spaces after a byte.
const PADDING: u64 = u64::from_le_bytes(*b"\0       ");

/// Returns a word with the highest bit of the first byte that is not plain. Later bytes may have theirs wrongly, because a subtraction
/// borrows from the next byte (Warren, *Hacker's Delight*, 6-1).
#[inline]
fn not_plain(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let is_below = |bytes: u64, limit: u8| bytes.wrapping_sub(ONES * u64::from(limit)) & !bytes;
    let is = |byte: u8| is_below(word ^ (ONES * u64::from(byte)), 1);
    (word | is_below(word, b' ') | is(b'"') | is(b'\\') | is(0x7f)) & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identifiable, json};

    /// Checks that a body that is read here is read in the same way by `serde_json`. Returns whether it is read here.
    fn agrees(body: &[u8]) -> bool {
        let Some(read) = read(body) else { return false };
        let known: Entity = json::read_flat(body).unwrap_or_else(|error| panic!("{}: {error}", body.escape_ascii()));
        assert_eq!((read.id, &read.description), (known.id, &known.description));
        assert_eq!(read.value.to_bits(), known.value.to_bits(), "{}", body.escape_ascii());
        true
    }

    fn random() -> impl FnMut(u64) -> u64 {
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        move |below| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            (bits >> 16) % below
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut random = random();
        for _ in 0..20_000 {
            let (size, length) = (random(18) as u32, random(70) as usize);
            let id = random(10_u64.pow(size)) as i64 * if random(2) == 0 { 1 } else { -1 };
            let description: String =
                (0..length).map(|_| char::from(b'#' + random(57) as u8)).filter(|letter| *letter != '\\').collect();
            let (units, places) = (random(10_u64.pow(15)) as f64, 10_f64.powi(random(7) as i32));
            let entity = Entity::new(id, description, (units / 1e6).trunc() / places);
            let mut body = Vec::new();
            entity.write_json(&mut body).unwrap();
            let text = String::from_utf8(body.clone()).unwrap();
            let has_usual_value =
                text.bytes().rev().take_while(|byte| *byte != b':').filter(u8::is_ascii_digit).count() <= 15;
            assert_eq!(agrees(&body), has_usual_value && !text.contains("e-") && !text.contains("e+"), "{text}");
            assert_eq!(Entity::read_json(&body).unwrap(), entity);
        }
    }

    #[test]
    fn text_of_any_length_is_checked() {
        let parts = ["a", " ", "\u{7f}", "\u{e9}", "\u{20ac}", "\u{1f600}"];
        let mut random = random();
        for length in (0..=2 * BLOCK).flat_map(|length| [length; 50]) {
            let mut text: Vec<u8> = Vec::new();
            while text.len() < length {
                text.extend_from_slice(parts[random(parts.len() as u64) as usize].as_bytes());
            }
            // May cut the last character. Some texts have a wrong byte.
            text.truncate(length);
            if let Some(byte) = text.get_mut(random(4 * BLOCK as u64) as usize) {
                *byte = random(256) as u8;
            }
            assert_eq!(owned(&text).as_deref(), str::from_utf8(&text).ok(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_read_to_the_bit() {
        let mut random = random();
        for _ in 0..20_000 {
            let (digits, places) = (random(16) as u32, random(16));
            let number = random(10_u64.pow(digits));
            let whole = number / 10_u64.pow(places as u32);
            let fraction = number % 10_u64.pow(places as u32);
            let text = match places {
                0 => number.to_string(),
                _ => format!("{whole}.{fraction:0width$}", width = places as usize),
            };
            agrees(format!(r#"{{"id":1,"description":"","value":{text}}}"#).as_bytes());
            agrees(format!(r#"{{"id":1,"description":"","value":-{text}}}"#).as_bytes());
        }
    }

    /// A body with a byte more, less or changed is read as `serde_json` reads it, or not here.
    #[test]
    fn what_is_not_usual_is_left_to_serde_json() {
        let usual = br#"{"id":-12,"description":"a first entity, 34 bytes","value":60.750847}"#;
        assert!(agrees(usual));
        for place in 0..usual.len() {
            for byte in 0..=u8::MAX {
                let mut changed = usual.to_vec();
                changed[place] = byte;
                agrees(&changed);
                changed.insert(place, usual[place]);
                agrees(&changed);
                changed[place + 1] = usual[place];
                changed.remove(place);
                assert_eq!(changed, usual);
            }
            let mut shorter = usual.to_vec();
            shorter.remove(place);
            agrees(&shorter);
            assert_eq!(read(&usual[..place]), None);
        }
        for value in
            ["-0", "-0.0", "01", "1.", ".5", "1e3", "1234567890123456", "0.1234567890123456", "", "-", "--1", "+1"]
        {
            let body = format!(r#"{{"id":1,"description":"","value":{value}}}"#);
            assert_eq!(read(body.as_bytes()), None, "{body}");
        }
        for id in ["-0", "01", "1234567890123456789", "1.0", "", "-"] {
            let body = format!(r#"{{"id":{id},"description":"","value":1}}"#);
            assert_eq!(read(body.as_bytes()), None, "{body}");
        }
    }
}
