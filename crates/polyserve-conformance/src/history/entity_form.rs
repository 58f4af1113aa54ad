//! The entities of a recording over HTTP: their paths and their JSON.

use crate::NamedEntity;
use polyserve_core::Entity;

use super::value::{entity, value_of};
use crate::repo::{id_of, name};

/// The type of the entities of a recording over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntityForm {
    /// [`Entity`]: at `/{id}`, with a number as its id.
    #[default]
    Published,
    /// [`NamedEntity`]: at `/named/{id}`, with a nested field and a text as its id. Paths have to encode the text.
    Named,
}

impl EntityForm {
    /// The prefix of the paths of this form, as [`EntityService::at`](polyserve_core::EntityService::at) takes it.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Published => "",
            Self::Named => "/named",
        }
    }

    /// The path of a key.
    pub(super) fn path(self, key: i64) -> String {
        match self {
            Self::Published => format!("/{key}"),
            Self::Named => {
                let encoded: String = name(key).bytes().map(|byte| format!("%{byte:02x}")).collect();
                format!("{}/{encoded}", self.prefix())
            }
        }
    }

    /// The body of a put.
    pub(super) fn json(self, key: i64, value: u64) -> String {
        let Entity { id, description, value } = entity(key, value);
        let json = match self {
            // Digits and dashes need no escape. The value is sent as an integer.
            Self::Published => Ok(format!(r#"{{"id":{id},"description":"{description}","value":{value}}}"#)),
            Self::Named => serde_json::to_string(&NamedEntity::new(name(id), description, value)),
        };
        json.expect("strings and finite numbers have a JSON form")
    }

    /// Returns the value in the answer to a get of `key`.
    pub(super) fn value(self, key: i64, body: &[u8]) -> Result<u64, String> {
        let no_entity = |error: serde_json::Error| format!("a GET shows no entity: {error}");
        let shown: Entity = match self {
            Self::Published => serde_json::from_slice(body).map_err(no_entity)?,
            Self::Named => {
                let NamedEntity { name, content } = serde_json::from_slice(body).map_err(no_entity)?;
                let id = id_of(&name).ok_or_else(|| format!("a GET of {key} shows the name {name:?}"))?;
                Entity::new(id, content.description, content.value)
            }
        };
        value_of(key, shown.as_ref()).map_err(|wrong| wrong.0)
    }
}
