//! The packed form of an entity: a form of its own for the published one, and the compact form of
//! [postcard](https://docs.rs/postcard) for every other type.
//!
//! Invariant: the functions agree on the form of a type. Which form a type has is known when its store is compiled.
//!
//! `packed` and `seqlock` hold entities in this form.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::{mem, str};

use polyserve_core::{Entity, EntityRef, Identifiable, Shown};
#[cfg(feature = "seqlock")]
use polyserve_sys::WordBytes;
use polyserve_sys::ascii_text;

/// The maximum length, in bytes, of a published entity's description that is packed.
pub(crate) const LONGEST_PACKED: usize = 512;

/// The largest buffer that a thread keeps, in bytes.
const KEPT_BUFFER: usize = 4096;

thread_local! {
    /// The buffer in which a thread packs entities. It keeps at most [`KEPT_BUFFER`] bytes.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's buffer, with the packed form of an entity if it has one.
pub(crate) struct PackBuffer {
    bytes: Vec<u8>,
    is_packed: bool,
}

impl PackBuffer {
    /// Packs an entity into the thread's buffer.
    pub(crate) fn of<E: Identifiable>(entity: &E) -> Self {
        let mut bytes = BUFFER.take();
        bytes.clear();
        let is_packed = pack(entity, &mut bytes);
        Self { bytes, is_packed }
    }

    /// Returns the packed form, if there is one of at most `longest` bytes.
    pub(crate) fn packed(&self, longest: usize) -> Option<&[u8]> {
        (self.is_packed && self.bytes.len() <= longest).then_some(&self.bytes)
    }
}

impl Drop for PackBuffer {
    fn drop(&mut self) {
        if self.bytes.capacity() <= KEPT_BUFFER {
            BUFFER.set(mem::take(&mut self.bytes));
        }
    }
}

/// An entity to store, and its packed form if it has one.
pub(crate) struct ToStore<'a, E> {
    /// It is taken if it is stored whole.
    pub(crate) entity: &'a mut Option<E>,
    pub(crate) packed: Option<&'a [u8]>,
}

/// Appends the packed form. Returns `false` if there is none; the entity is then held as it is.
///
/// An entity has no packed form if postcard cannot express it, as with `#[serde(flatten)]`, or a field that is left out by
/// `#[serde(skip_serializing_if)]`. Every entity is read back once to find that out: its packed form and its JSON must be the
/// same again.
pub(crate) fn pack<E: Identifiable>(entity: &E, out: &mut Vec<u8>) -> bool {
    if let Some(published) = (entity as &dyn Any).downcast_ref::<Entity>() {
        return pack_published(published, out);
    }
    let Ok(packed) = postcard::to_extend(entity, Vec::new()) else { return false };
    let Ok(read) = postcard::from_bytes::<E>(&packed) else { return false };
    let repacked = postcard::to_extend(&read, Vec::new());
    let json = |entity: &E| {
        let mut json = Vec::new();
        entity.write_json(&mut json).ok().map(|()| json)
    };
    out.extend_from_slice(&packed);
    repacked.is_ok_and(|repacked| repacked == packed) && json(&read) == json(entity)
}

/// Returns the id of a packed entity.
#[inline]
pub(crate) fn packed_id<E: Identifiable>(packed: &[u8]) -> E::Id {
    match is_published::<E>() {
        true => same_type(published_id(packed)),
        false => unpack::<E>(packed).id().clone(),
    }
}

/// Whether a packed entity has this id.
#[inline]
pub(crate) fn has_packed_id<E: Identifiable>(packed: &[u8], id: &E::Id) -> bool {
    match (id as &dyn Any).downcast_ref::<i64>() {
        Some(id) if is_published::<E>() => published_id(packed) == *id,
        _ => unpack::<E>(packed).id() == id,
    }
}

/// Calls `show` with a packed entity. A published one is shown without being built.
#[inline]
pub(crate) fn show_packed<E: Identifiable, T>(packed: &[u8], show: impl FnOnce(Shown<'_, E>) -> T) -> T {
    match is_published::<E>() {
        true => show(published(published_fields(packed))),
        false => show(Shown::from(&unpack::<E>(packed))),
    }
}

/// The copy of a packed entity. The description of a published one begins at the third word.
#[cfg(feature = "seqlock")]
pub(crate) type CopiedWords<const N: usize> = WordBytes<N, 2>;

/// Whether the packed entity of `length` of the bytes that are copied has this id.
#[cfg(feature = "seqlock")]
#[inline]
pub(crate) fn has_copied_id<E: Identifiable, const N: usize>(
    copied: &CopiedWords<N>,
    length: usize,
    id: &E::Id,
) -> bool {
    match (id as &dyn Any).downcast_ref::<i64>() {
        Some(id) if is_published::<E>() => copied.word(0) == Some(id.cast_unsigned()),
        _ => unpack::<E>(&copied.bytes()[..length]).id() == id,
    }
}

/// Calls `show` with the packed entity of this id, which has `length` of the bytes that are copied.
#[cfg(feature = "seqlock")]
#[allow(clippy::inline_always)] // as the get of the repo
#[inline(always)]
pub(crate) fn show_copied<E: Identifiable, const N: usize, T>(
    id: &E::Id,
    copied: &CopiedWords<N>,
    length: usize,
    show: impl FnOnce(Shown<'_, E>) -> T,
) -> T {
    match (id as &dyn Any).downcast_ref::<i64>() {
        Some(&id) if is_published::<E>() => {
            let description = copied.text(length - 16).expect("the bytes of a description are those of a str");
            let value = f64::from_bits(copied.word(1).expect("a record is complete"));
            show(published(EntityRef { id, description, value }))
        }
        _ => show(Shown::from(&unpack::<E>(&copied.bytes()[..length]))),
    }
}

/// Returns the published entity, which is an `E`, as a repo shows it.
#[inline]
fn published<E: Identifiable>(fields: EntityRef<'_>) -> Shown<'_, E> {
    Shown::of_fields(fields).expect("the published entity has this type")
}

#[inline]
fn is_published<E: 'static>() -> bool {
    TypeId::of::<E>() == TypeId::of::<Entity>()
}

/// Returns `value` as the type `T`, which is its type.
#[inline]
fn same_type<S: 'static, T: 'static>(value: S) -> T {
    let mut value = Some(value);
    let value = (&mut value as &mut dyn Any).downcast_mut::<Option<T>>().and_then(Option::take);
    value.expect("the published entity has this type")
}

/// Builds an entity that is packed by postcard.
fn unpack<E: Identifiable>(packed: &[u8]) -> E {
    postcard::from_bytes(packed).expect("what was packed was read back once")
}

/// `id: i64` and `value: f64` in little-endian order, then the description.
fn pack_published(entity: &Entity, out: &mut Vec<u8>) -> bool {
    if entity.description.len() > LONGEST_PACKED {
        return false;
    }
    out.extend_from_slice(&entity.id.to_le_bytes());
    out.extend_from_slice(&entity.value.to_le_bytes());
    out.extend_from_slice(entity.description.as_bytes());
    true
}

#[inline]
fn published_id(packed: &[u8]) -> i64 {
    i64::from_le_bytes(word(packed, 0))
}

#[inline]
fn published_fields(packed: &[u8]) -> EntityRef<'_> {
    let text = &packed[16..];
    let description = ascii_text(text).or_else(|| str::from_utf8(text).ok());
    let description = description.expect("the bytes of a description are those of a str");
    EntityRef { id: published_id(packed), description, value: f64::from_le_bytes(word(packed, 8)) }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("a record is complete")
}
