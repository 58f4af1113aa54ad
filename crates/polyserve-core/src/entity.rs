//! The one thing that is stored.

/// An entity, owned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// Its key.
    pub id: i64,
    /// Free text.
    pub description: String,
    /// A number. JSON knows no NaN and no infinity, so none arrives over HTTP; one that Rust code stores is shown as `null`.
    pub value: f64,
}

impl Entity {
    /// An entity of these parts.
    pub fn new(id: i64, description: impl Into<String>, value: f64) -> Self {
        Self { id, description: description.into(), value }
    }

    /// A borrowed view.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef { id: self.id, description: &self.description, value: self.value }
    }
}

/// An entity, shown: a store that keeps entities packed can show one without building an [`Entity`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntityRef<'a> {
    /// Its key.
    pub id: i64,
    /// Free text.
    pub description: &'a str,
    /// A number.
    pub value: f64,
}

impl EntityRef<'_> {
    /// An owned copy.
    pub fn to_entity(self) -> Entity {
        Entity::new(self.id, self.description, self.value)
    }
}
