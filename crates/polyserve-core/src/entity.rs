//! The entity: the value that a repo stores.

/// An entity, owned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// The key.
    pub id: i64,
    /// Free text.
    pub description: String,
    /// A number. JSON has neither NaN nor infinity, so neither arrives over HTTP. If Rust code stores one, HTTP clients
    /// get `null`.
    pub value: f64,
}

impl Entity {
    /// Creates an entity.
    pub fn new(id: i64, description: impl Into<String>, value: f64) -> Self {
        Self { id, description: description.into(), value }
    }

    /// Returns a borrowed view.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef { id: self.id, description: &self.description, value: self.value }
    }
}

/// A borrowed view of an entity. A store that packs its entities can show one without building an [`Entity`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntityRef<'a> {
    /// The key.
    pub id: i64,
    /// Free text.
    pub description: &'a str,
    /// A number.
    pub value: f64,
}

impl EntityRef<'_> {
    /// Returns an owned copy.
    pub fn to_entity(self) -> Entity {
        Entity::new(self.id, self.description, self.value)
    }
}
