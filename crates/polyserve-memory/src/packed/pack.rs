//! The packed form of an entity.

use std::str;

use polyserve_core::entity::NamedEntity;
use polyserve_core::{Entity, EntityRef, Identifiable};

/// An entity that [`Packed`](super::Packed) can hold as bytes. An empty implementation takes the compact form of
/// [postcard](https://docs.rs/postcard):
///
/// ```
/// # use polyserve_core::Identifiable;
/// # use serde::{Deserialize, Serialize};
/// use polyserve_memory::packed::{Pack, Packed};
///
/// # #[derive(Clone, Debug, Serialize, Deserialize)]
/// # struct Account { name: String }
/// # impl Identifiable for Account {
/// #     type Id = String;
/// #     type View<'a> = &'a Self;
/// #     fn id(&self) -> &String { &self.name }
/// #     fn view(&self) -> &Self { self }
/// #     fn from_view(view: &Self) -> Self { view.clone() }
/// # }
/// impl Pack for Account {}
///
/// let accounts = Packed::of::<Account>();
/// ```
///
/// The default form builds the entity for each get, and for most puts and removes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `Pack`, so `Packed` cannot hold it",
    note = "write `impl Pack for {Self} {{}}`, which takes the compact form of postcard; `use polyserve::memory::packed::Pack`"
)]
pub trait Pack: Identifiable {
    /// Appends the packed form. Returns `false` if there is none; the entity is then held as it is.
    ///
    /// By default, an entity has no packed form if postcard cannot express it, as with `#[serde(flatten)]`, or a field that is
    /// left out by `#[serde(skip_serializing_if)]`. Every entity is read back once to find that out: its packed form and its
    /// JSON must be the same again.
    fn pack(&self, out: &mut Vec<u8>) -> bool {
        let packed = postcard::to_extend(&self.view(), Vec::new());
        let Ok(packed) = packed else { return false };
        let Ok(read) = postcard::from_bytes::<Self>(&packed) else { return false };
        let repacked = postcard::to_extend(&read.view(), Vec::new());
        let json = |entity: &Self| {
            let mut json = Vec::new();
            Self::write_json(entity.view(), &mut json).ok().map(|()| json)
        };
        out.extend_from_slice(&packed);
        repacked.is_ok_and(|repacked| repacked == packed) && json(&read) == json(self)
    }

    /// Returns the id of a packed entity.
    fn packed_id(packed: &[u8]) -> Self::Id {
        unpack::<Self>(packed).id().clone()
    }

    /// Whether a packed entity has this id.
    fn has_packed_id(packed: &[u8], id: &Self::Id) -> bool {
        unpack::<Self>(packed).id() == id
    }

    /// Calls `visit` with a packed entity.
    fn show_packed(packed: &[u8], visit: impl FnOnce(Self::View<'_>)) {
        visit(unpack::<Self>(packed).view());
    }
}

/// The default form.
impl Pack for NamedEntity {}

/// Builds an entity that the default form has packed.
fn unpack<E: Identifiable>(packed: &[u8]) -> E {
    postcard::from_bytes(packed).expect("what was packed was read back once")
}

/// `id: i64` and `value: f64` in little-endian order, then the description.
impl Pack for Entity {
    #[inline]
    fn pack(&self, out: &mut Vec<u8>) -> bool {
        if self.description.len() > super::LONGEST_COPIED {
            return false;
        }
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.value.to_le_bytes());
        out.extend_from_slice(self.description.as_bytes());
        true
    }

    #[inline]
    fn packed_id(packed: &[u8]) -> i64 {
        i64::from_le_bytes(word(packed, 0))
    }

    #[inline]
    fn has_packed_id(packed: &[u8], id: &i64) -> bool {
        Self::packed_id(packed) == *id
    }

    #[inline]
    fn show_packed(packed: &[u8], visit: impl FnOnce(EntityRef<'_>)) {
        let description = str::from_utf8(&packed[16..]).expect("the bytes of a description are those of a str");
        visit(EntityRef { id: Self::packed_id(packed), description, value: f64::from_le_bytes(word(packed, 8)) });
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("a record is complete")
}
