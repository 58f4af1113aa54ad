//! Conditions of a write, and the entity tags that they compare (RFC 9110, sections 8.8.3 and 13.1).

use std::fmt;

use crate::entity::Identifiable;
use crate::shown::Shown;
use crate::stack;

/// A strong entity tag: the first 128 bits of the BLAKE3 hash of the JSON that a GET shows.
///
/// Equal JSON has equal tags in every process and every release. The hash is cryptographic, so a client cannot make two
/// entities with the same tag.
///
/// [`Display`](fmt::Display) writes the text of the `ETag` header field: 32 hexadecimal digits between double quotes.
///
/// ```
/// use polyserve_core::{ETag, Entity};
///
/// let tag = ETag::of(br#"{"id":1,"description":"first","value":0.5}"#);
/// assert_eq!(ETag::of_entity(&Entity::new(1, "first", 0.5)), Some(tag));
/// assert_eq!(ETag::from_bits(tag.to_bits()), tag);
/// assert_eq!(tag.to_string().len(), ETag::TEXT);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ETag([u8; 16]);

impl ETag {
    /// The length of the text, with its quotes.
    pub const TEXT: usize = 34;

    /// Returns the tag of what a GET shows.
    pub fn of(json: &[u8]) -> Self {
        // In a debug build, the vectorised loops of the hash take more stack than some threads have.
        let hash = if cfg!(debug_assertions) && json.len() > blake3::CHUNK_LEN {
            stack::for_depth(stack::HASH_IN_DEBUG, || blake3::hash(json))
        } else {
            blake3::hash(json)
        };
        let hash = *hash.as_bytes();
        let (first, _) = hash.split_first_chunk().expect("a hash has 32 bytes");
        Self(*first)
    }

    /// Returns the tag of an entity, or `None` if the entity has no JSON form.
    ///
    /// Cost: writes the JSON into a buffer of its own.
    pub fn of_entity<E: Identifiable>(entity: &E) -> Option<Self> {
        Self::of_shown(Shown::from(entity))
    }

    fn of_shown<E: Identifiable>(shown: Shown<'_, E>) -> Option<Self> {
        let mut json = Vec::with_capacity(128);
        shown.write_json(&mut json).ok()?;
        Some(Self::of(&json))
    }

    /// Creates a tag from its 128 bits, for a repo that keeps tags.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }

    /// Returns the 128 bits.
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Returns the text with its quotes, as [`Display`](fmt::Display) writes it. Cost: no allocation.
    #[inline]
    pub fn text(self) -> [u8; Self::TEXT] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'"'; Self::TEXT];
        for (pair, byte) in text[1..].chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        text
    }

    /// Reads the text between the quotes. Returns `None` if this service never writes such a tag.
    pub(crate) fn parse(opaque: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if opaque.len() != 32 || !opaque.iter().all(is_digit) {
            return None;
        }
        u128::from_str_radix(str::from_utf8(opaque).ok()?, 16).ok().map(Self::from_bits)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:032x}\"", self.to_bits())
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({self})")
    }
}

/// What a condition compares the stored entity with.
///
/// ```
/// use polyserve_core::{Condition, ETag, Entity, Tags};
///
/// let (first, second) = (ETag::from_bits(1), ETag::from_bits(2));
/// let condition = Condition::new(Some(Tags::List(vec![first, second])), None);
/// assert!(!condition.allows(Some(&Entity::new(1, "of another tag", 0.5))));
/// assert_eq!(condition.if_none_match(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// Every stored entity: `*`.
    Any,
    /// The entities with one of these tags. A tag that no entity of this service can have is left out, so the list may be
    /// empty.
    List(Vec<ETag>),
}

impl Tags {
    /// Whether `current` is among them. It is called with `None` if no entity is stored.
    fn contain(&self, current: Option<ETag>) -> bool {
        match self {
            Self::Any => true,
            Self::List(tags) => current.is_some_and(|current| tags.contains(&current)),
        }
    }
}

/// The condition of a put or a remove. It is plain data, so a repo can send it to a remote store.
///
/// ```
/// use polyserve_core::{Condition, Entity, ETag};
///
/// let stored = Entity::new(1, "first", 60.750847);
/// let tag = ETag::of_entity(&stored).unwrap();
/// assert!(Condition::matches(tag).allows(Some(&stored)));
/// assert!(!Condition::matches(tag).allows::<Entity>(None));
/// assert!(Condition::absent().allows::<Entity>(None));
/// assert!(!Condition::absent().allows(Some(&stored)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

impl Condition {
    /// The condition that always holds.
    pub const ALWAYS: Self = Self { if_match: None, if_none_match: None };

    /// Creates the condition that no entity is stored: `If-None-Match: *`.
    pub const fn absent() -> Self {
        Self { if_match: None, if_none_match: Some(Tags::Any) }
    }

    /// Creates the condition that an entity is stored: `If-Match: *`.
    pub const fn present() -> Self {
        Self { if_match: Some(Tags::Any), if_none_match: None }
    }

    /// Creates the condition that the stored entity has this tag: `If-Match: "..."`.
    pub fn matches(tag: ETag) -> Self {
        Self { if_match: Some(Tags::List(vec![tag])), if_none_match: None }
    }

    /// Creates a condition of two parts. Both must hold; a part that is `None` holds.
    pub fn new(if_match: Option<Tags>, if_none_match: Option<Tags>) -> Self {
        Self { if_match, if_none_match }
    }

    /// The stored entity must be one of these.
    pub fn if_match(&self) -> Option<&Tags> {
        self.if_match.as_ref()
    }

    /// The stored entity must not be one of these.
    pub fn if_none_match(&self) -> Option<&Tags> {
        self.if_none_match.as_ref()
    }

    /// Whether the condition holds for every state of the store. A repo then needs no look at the stored entity.
    ///
    /// ```
    /// use polyserve_core::Condition;
    /// assert!(Condition::ALWAYS.is_always());
    /// assert!(!Condition::present().is_always() && Condition::present().if_match().is_some());
    /// ```
    #[inline]
    pub fn is_always(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Whether the condition depends on the tag of the stored entity, and not only on whether there is one.
    pub(crate) fn compares_tags(&self) -> bool {
        let has_list = |part: &Option<Tags>| matches!(part, Some(Tags::List(tags)) if !tags.is_empty());
        has_list(&self.if_match) || has_list(&self.if_none_match)
    }

    /// Whether the condition holds while `current` is stored, or nothing if it is `None`. A repo calls it under the lock of
    /// its write, or with the value that a compare-and-swap replaces.
    ///
    /// Cost: nothing if the condition always holds. If the condition has tags, the JSON of `current` is written and hashed.
    /// That runs code of the entity's type, which may panic.
    #[inline]
    pub fn allows<E: Identifiable>(&self, current: Option<&E>) -> bool {
        self.is_always() || self.allows_shown(current.map(Shown::from))
    }

    /// Does the same as [`allows`](Self::allows), for a repo that holds no entity but can show one.
    ///
    /// ```
    /// use polyserve_core::{Condition, Entity, Shown};
    /// let stored = Entity::new(1, "first", 0.5);
    /// assert!(Condition::present().allows_shown(Some(Shown::from(&stored))));
    /// assert!(!Condition::present().allows_shown::<Entity>(None));
    /// ```
    pub fn allows_shown<E: Identifiable>(&self, current: Option<Shown<'_, E>>) -> bool {
        let Some(shown) = current else { return self.if_match.is_none() };
        let tag = if self.compares_tags() { ETag::of_shown(shown) } else { None };
        self.if_match_holds(tag) && self.if_none_match_holds(tag)
    }

    /// Whether `If-Match` holds for a stored entity with this tag.
    pub(crate) fn if_match_holds(&self, tag: Option<ETag>) -> bool {
        self.if_match.as_ref().is_none_or(|tags| tags.contain(tag))
    }

    /// Whether `If-None-Match` holds for a stored entity with this tag.
    pub(crate) fn if_none_match_holds(&self, tag: Option<ETag>) -> bool {
        !self.if_none_match.as_ref().is_some_and(|tags| tags.contain(tag))
    }
}

/// The result of a write with a condition.
///
/// ```
/// use polyserve_core::{Conditional, Put};
/// assert_eq!(Conditional::Done(Put::Created).map(|put| put == Put::Created).done(), Some(true));
/// assert_eq!(Conditional::<Put>::Refused.done(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conditional<T> {
    /// The condition held, and the write was done.
    Done(T),
    /// The condition did not hold. Nothing was changed.
    Refused,
}

impl<T> Conditional<T> {
    /// Returns the result of the write, or `None` if it was refused.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(result) => Some(result),
            Self::Refused => None,
        }
    }

    /// Applies `change` to the result of the write.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Conditional<U> {
        match self {
            Self::Done(result) => Conditional::Done(change(result)),
            Self::Refused => Conditional::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::Entity;

    /// The tag is part of the interface: clients and other processes keep it. To change it is a breaking change.
    #[test]
    fn the_tag_of_an_entity_never_changes() {
        let entity = Entity::new(1, "first", 60.750847);
        let tag = ETag::of_entity(&entity).unwrap();
        assert_eq!(tag, ETag::of(br#"{"id":1,"description":"first","value":60.750847}"#));
        assert_eq!(tag.to_string(), "\"acea1b22ca40dd7232de3288e58c6307\"");
        // The form of a number and of a character is part of the tag.
        for (entity, json) in [
            (
                Entity::new(-1, "\u{1}\"\\/é\u{1f600}", 1e16),
                "{\"id\":-1,\"description\":\"\\u0001\\\"\\\\/é\u{1f600}\",\"value\":1e+16}",
            ),
            (Entity::new(0, "", -0.0), r#"{"id":0,"description":"","value":-0.0}"#),
            (Entity::new(2, "small", 1e-7), r#"{"id":2,"description":"small","value":1e-7}"#),
            (Entity::new(3, "smallest", 5e-324), r#"{"id":3,"description":"smallest","value":5e-324}"#),
            (Entity::new(4, "whole", 3.0), r#"{"id":4,"description":"whole","value":3.0}"#),
        ] {
            let mut written = Vec::new();
            entity.write_json(&mut written).unwrap();
            assert_eq!(str::from_utf8(&written).unwrap(), json);
            assert_eq!(ETag::of_entity(&entity).unwrap(), ETag::of(json.as_bytes()));
        }
        // The known hash of an empty input.
        assert_eq!(ETag::of(b"").to_string(), "\"af1349b9f5f9a1a6a0404dea36dcc949\"");
    }

    #[test]
    fn a_tag_round_trips_through_its_text() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0011_2233_4455_6677] {
            let tag = ETag::from_bits(bits);
            let text = tag.text();
            assert_eq!(str::from_utf8(&text).unwrap(), tag.to_string());
            assert_eq!(ETag::parse(&text[1..33]), Some(tag));
        }
        for other in ["", "x", "+123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789ABCDEF"] {
            assert_eq!(ETag::parse(other.as_bytes()), None);
        }
    }

    /// Every kind of condition, on every state: nothing stored, an entity that the tag names, another entity.
    #[test]
    fn a_condition_allows_what_it_names() {
        let (stored, other) = (Entity::new(1, "first", 1.0), Entity::new(1, "second", 1.0));
        let tag = ETag::of_entity(&stored).unwrap();
        let list = |tags: &[ETag]| Some(Tags::List(tags.to_vec()));
        for (condition, expected) in [
            (Condition::ALWAYS, [true, true, true]),
            (Condition::absent(), [true, false, false]),
            (Condition::present(), [false, true, true]),
            (Condition::matches(tag), [false, true, false]),
            (Condition::new(list(&[]), None), [false, false, false]),
            (Condition::new(list(&[ETag::from_bits(7), tag]), None), [false, true, false]),
            (Condition::new(None, list(&[tag])), [true, false, true]),
            (Condition::new(None, list(&[])), [true, true, true]),
            (Condition::new(Some(Tags::Any), list(&[tag])), [false, false, true]),
            (Condition::new(list(&[tag]), Some(Tags::Any)), [false, false, false]),
        ] {
            let allowed = [None, Some(&stored), Some(&other)].map(|current| condition.allows(current));
            assert_eq!(allowed, expected, "{condition:?}");
        }
    }
}
