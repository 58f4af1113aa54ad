//! An entity of another type than the published one, for tests of repos and servers.

use polyserve_core::Identifiable;
use serde::{Deserialize, Serialize};

/// An entity with a text as its id and a nested field. The conformance kit tests repos and servers with it, next to
/// [`Entity`](polyserve_core::Entity).
///
/// ```
/// use polyserve_conformance::NamedEntity;
/// assert_eq!(NamedEntity::new("a", "first", 0.5).content.description, "first");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedEntity {
    /// The key.
    pub name: String,
    /// The other fields.
    pub content: Content,
}

/// The nested field of a [`NamedEntity`].
///
/// ```
/// use polyserve_conformance::{Content, NamedEntity};
/// let content = Content { description: "first".into(), value: 0.5 };
/// assert_eq!(NamedEntity::new("a", "first", 0.5).content, content);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// Free text.
    pub description: String,
    /// A number.
    pub value: f64,
}

impl NamedEntity {
    /// Creates an entity.
    pub fn new(name: impl Into<String>, description: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), content: Content { description: description.into(), value } }
    }
}

impl Identifiable for NamedEntity {
    type Id = String;

    fn id(&self) -> &String {
        &self.name
    }
}
