//! Header fields that outlive the head that they came in.
//!
//! Invariant: each place is within the text. Cost: nothing is allocated if neither the text nor the list of fields is longer than all
//! before.

use std::ops::Range;

use super::request::name_length_bit;

/// Header fields with the text that they are in. A server that keeps those of a head passes them to the service with each later head
/// that has the same text: [`Headers::kept`](super::Headers::kept).
///
/// ```
/// use polyserve_core::{Headers, KeptFields};
///
/// let mut fields = KeptFields::default();
/// assert!(fields.set("Host: a\r\nAccept: b\r\n", [[0..4, 6..7], [9..15, 17..18]]));
/// assert_eq!(Headers::kept(&fields).get("accept"), Some(&b"b"[..]));
/// assert!(fields.replace_end(17, "c\r\n") && !fields.replace_end(17, "cd\r\n") && !fields.replace_end(21, ""));
/// assert_eq!(Headers::kept(&fields).get("accept"), Some(&b"c"[..]));
/// assert!(!fields.set("Host: a", [[0..4, 6..8]]));
/// assert_eq!((fields.text(), fields.count()), ("", 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeptFields {
    text: String,
    /// Where the name and the value of each field are.
    places: Vec<[Range<usize>; 2]>,
    /// See [`Headers::name_lengths`](super::Headers::name_lengths).
    pub(super) name_lengths: u64,
}

impl KeptFields {
    /// Keeps a text, and the fields with names and values at these places. Returns false if one is not within the text; then nothing
    /// is kept.
    pub fn set(&mut self, text: &str, places: impl IntoIterator<Item = [Range<usize>; 2]>) -> bool {
        self.clear();
        for [name, value] in places {
            let (Some(known), Some(_)) = (text.get(name.clone()), text.get(value.clone())) else {
                self.clear();
                return false;
            };
            self.name_lengths |= name_length_bit(known);
            self.places.push([name, value]);
        }
        self.text.push_str(text);
        true
    }

    /// Replaces the text from `start` on by another of the same length: the fields keep their places. Returns false, and changes nothing,
    /// if the lengths differ, or if `start` is not within the text.
    pub fn replace_end(&mut self, start: usize, end: &str) -> bool {
        let fits = self.text.get(start..).is_some_and(|old| old.len() == end.len());
        if fits {
            self.text.truncate(start);
            self.text.push_str(end);
        }
        fits
    }

    /// Keeps nothing any more.
    pub fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.name_lengths = 0;
    }

    /// Returns the text. It is empty if nothing is kept.
    #[inline]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of fields.
    #[inline]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let part = |place: &Range<usize>| self.text.get(place.clone()).unwrap_or_default();
        self.places.iter().map(move |[name, value]| (part(name), part(value).as_bytes()))
    }
}
