//! The packed form of an entity: a form of its own for the published one, and the compact form of
//! [postcard](https://docs.rs/postcard) for every other type.
//!
//! Invariant: the functions agree on the form of a type. Which form a type has is known when its store is compiled.

use std::any::{Any, TypeId};
use std::error::Error;
use std::str;

use polyserve_core::{Entity, EntityRef, Identifiable, Shown, StoredForm};

/// Appends the packed form. Returns `false` if there is none; the entity is then held as it is.
///
/// An entity has no packed form if postcard cannot express it, as with `#[serde(flatten)]`, or a field that is left out by
/// `#[serde(skip_serializing_if)]`. Every entity is read back once to find that out: its packed form and its JSON must be the
/// same again.
pub(super) fn pack<E: Identifiable>(entity: &E, out: &mut Vec<u8>) -> bool {
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
pub(super) fn packed_id<E: Identifiable>(packed: &[u8]) -> E::Id {
    match is_published::<E>() {
        true => same_type(published_id(packed)),
        false => unpack::<E>(packed).id().clone(),
    }
}

/// Whether a packed entity has this id.
#[inline]
pub(super) fn has_packed_id<E: Identifiable>(packed: &[u8], id: &E::Id) -> bool {
    match (id as &dyn Any).downcast_ref::<i64>() {
        Some(id) if is_published::<E>() => published_id(packed) == *id,
        _ => unpack::<E>(packed).id() == id,
    }
}

/// Calls `show` with a packed entity. A published one is shown without being built.
#[inline]
pub(super) fn show_packed<E: Identifiable, T>(packed: &[u8], show: impl FnOnce(Shown<'_, E>) -> T) -> T {
    match is_published::<E>() {
        true => show(Shown::stored(&PackedEntity(published_fields(packed)))),
        false => show(Shown::from(&unpack::<E>(packed))),
    }
}

/// The published entity in a page. No other type has this form.
struct PackedEntity<'a>(EntityRef<'a>);

impl<E: Identifiable> StoredForm<E> for PackedEntity<'_> {
    fn to_entity(&self) -> E {
        same_type(self.0.to_entity())
    }

    #[inline]
    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.write_json(out);
        Ok(())
    }

    #[inline]
    fn fields(&self) -> Option<EntityRef<'_>> {
        Some(self.0)
    }
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
    if entity.description.len() > super::LONGEST_COPIED {
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
    let description = str::from_utf8(&packed[16..]).expect("the bytes of a description are those of a str");
    EntityRef { id: published_id(packed), description, value: f64::from_le_bytes(word(packed, 8)) }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("a record is complete")
}
