//! The entities of a recording: their values, and over HTTP their paths and their JSON.

use polyserve_core::{Entity, EntityRef};

use super::WrongAnswer;
use crate::NamedEntity;
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

/// The entity that a put of `value` under `key` stores. Its value and its description both contain `value`. The descriptions
/// of successive values differ in length.
pub fn entity(key: i64, value: u64) -> Entity {
    let filler = "-".repeat(value as usize % 3 * 40);
    Entity::new(key, format!("{value}{filler}"), value as f64)
}

/// The value of an entity that was read under `key`.
///
/// # Errors
///
/// Returns an error if it has another id, or has parts of two entities.
pub fn value_of(key: i64, shown: EntityRef<'_>) -> Result<u64, WrongAnswer> {
    let EntityRef { id, description, value: number } = shown;
    if id != key {
        return Err(WrongAnswer(format!("the entity read under {key} has the id {id}")));
    }
    let value = number as u64;
    let filler = value as usize % 3 * 40;
    let digits = description.len().checked_sub(filler).and_then(|length| description.split_at_checked(length));
    let is_whole = digits.is_some_and(|(digits, rest)| {
        // The number of digits is exact, so there is no sign and no leading zero.
        let is_number = digits.len() as u32 == value.checked_ilog10().unwrap_or(0) + 1 && digits.parse() == Ok(value);
        is_number && number == value as f64 && rest.bytes().all(|byte| byte == b'-')
    });
    if is_whole {
        return Ok(value);
    }
    let start: String = description.chars().take(40).collect();
    Err(WrongAnswer(format!(
        "torn: under {key} is a value of {number} with the description {start:?}, of two puts or of none"
    )))
}
