//! What a visit sees: [`Shown`].

use std::any::{Any, TypeId};
use std::error::Error;
use std::fmt;

use crate::entity::{Entity, EntityRef, Identifiable};

/// A stored entity, as a repo shows it to a [`Visit`](crate::Visit): the entity itself, or the form in which the repo holds
/// it.
///
/// ```
/// use polyserve_core::{Entity, Shown};
///
/// let stored = Entity::new(1, "first", 0.5);
/// let shown = Shown::from(&stored);
/// assert_eq!(shown.entity(), Some(&stored));
/// assert_eq!(shown.to_owned(), stored);
/// ```
pub struct Shown<'a, E: Identifiable = Entity>(Form<'a, E>);

enum Form<'a, E> {
    Entity(&'a E),
    /// Only of the published entity.
    Fields(EntityRef<'a>),
    Stored(&'a dyn StoredForm<E>),
}

/// The form in which a repo holds an entity, if it does not hold the entity itself: for example packed bytes.
pub trait StoredForm<E: Identifiable> {
    /// Builds the entity.
    fn to_entity(&self) -> E;

    /// Appends the JSON of the entity: the bytes that [`Identifiable::write_json`] of the built entity appends.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Identifiable::write_json`].
    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Returns the fields, if this is a form of the published [`Entity`] that has them.
    fn fields(&self) -> Option<EntityRef<'_>> {
        None
    }
}

impl<'a, E: Identifiable> Shown<'a, E> {
    /// Shows the form in which a repo holds an entity.
    #[inline]
    pub fn stored(form: &'a dyn StoredForm<E>) -> Self {
        Self(Form::Stored(form))
    }

    /// Shows the published entity with these fields; `None` if `E` is another type. It costs less than a [`StoredForm`].
    #[inline]
    pub fn of_fields(fields: EntityRef<'a>) -> Option<Self> {
        (TypeId::of::<E>() == TypeId::of::<Entity>()).then_some(Self(Form::Fields(fields)))
    }

    /// Returns the entity, if the repo holds it as it is.
    #[inline]
    pub fn entity(&self) -> Option<&'a E> {
        match self.0 {
            Form::Entity(entity) => Some(entity),
            Form::Fields(_) | Form::Stored(_) => None,
        }
    }

    /// Returns a copy of the entity.
    ///
    /// Cost: a clone, or the entity is built from its stored form.
    pub fn to_owned(&self) -> E {
        match self.0 {
            Form::Entity(entity) => entity.clone(),
            Form::Fields(fields) => built(fields),
            Form::Stored(form) => form.to_entity(),
        }
    }

    /// Appends the JSON of the entity.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Identifiable::write_json`].
    #[inline]
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.0 {
            Form::Entity(entity) => entity.write_json(out),
            Form::Fields(fields) => {
                fields.write_json(out);
                Ok(())
            }
            Form::Stored(form) => form.write_json(out),
        }
    }
}

/// Builds the published entity, which is an `E`.
fn built<E: Identifiable>(fields: EntityRef<'_>) -> E {
    let mut entity = Some(fields.to_entity());
    let entity = (&mut entity as &mut dyn Any).downcast_mut::<Option<E>>().and_then(Option::take);
    entity.expect("only a shown published entity is made of fields")
}

impl<'a> Shown<'a> {
    /// Returns the fields of a published entity, without building it. `None` if the repo's form of the entity does not have
    /// them; all repos of this project have them.
    #[inline]
    pub fn fields(&self) -> Option<EntityRef<'a>> {
        match self.0 {
            Form::Entity(entity) => Some(entity.as_ref()),
            Form::Fields(fields) => Some(fields),
            Form::Stored(form) => form.fields(),
        }
    }
}

impl<'a, E: Identifiable> From<&'a E> for Shown<'a, E> {
    #[inline]
    fn from(entity: &'a E) -> Self {
        Self(Form::Entity(entity))
    }
}

impl<E: Identifiable> Clone for Shown<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Identifiable> Copy for Shown<'_, E> {}

impl<E> Clone for Form<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Form<'_, E> {}

impl<E: Identifiable> fmt::Debug for Shown<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Form::Entity(entity) => f.debug_tuple("Shown").field(entity).finish(),
            Form::Fields(fields) => f.debug_tuple("Shown").field(&fields.to_entity()).finish(),
            Form::Stored(form) => f.debug_tuple("Shown").field(&form.to_entity()).finish(),
        }
    }
}
