//! The published entity in serde's data model, written out: a derive would make every program build a parser of Rust.
//!
//! Invariant: the forms are those of serde's derive. An unknown field is ignored, and a field that is missing or that comes twice is an
//! error.

use std::fmt;

use serde_core::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_core::ser::{Serialize, SerializeStruct as _, Serializer};

use super::{Entity, EntityRef};

const NAMES: &[&str] = &["id", "description", "value"];

impl Serialize for EntityRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Entity", NAMES.len())?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("description", self.description)?;
        fields.serialize_field("value", &self.value)?;
        fields.end()
    }
}

impl Serialize for Entity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Entity", NAMES, EntityVisitor)
    }
}

enum FieldName {
    Id,
    Description,
    Value,
    Other,
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(FieldNameVisitor)
    }
}

struct FieldNameVisitor;

impl Visitor<'_> for FieldNameVisitor {
    type Value = FieldName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_u64<E: Error>(self, index: u64) -> Result<FieldName, E> {
        Ok(match index {
            0 => FieldName::Id,
            1 => FieldName::Description,
            2 => FieldName::Value,
            _ => FieldName::Other,
        })
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<FieldName, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<FieldName, E> {
        Ok(match name {
            b"id" => FieldName::Id,
            b"description" => FieldName::Description,
            b"value" => FieldName::Value,
            _ => FieldName::Other,
        })
    }
}

struct EntityVisitor;

impl<'de> Visitor<'de> for EntityVisitor {
    type Value = Entity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct Entity")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Entity, A::Error> {
        let missing = |count| <A::Error as Error>::invalid_length(count, &"struct Entity with 3 elements");
        let id = fields.next_element()?.ok_or_else(|| missing(0))?;
        let description = fields.next_element()?.ok_or_else(|| missing(1))?;
        let value = fields.next_element()?.ok_or_else(|| missing(2))?;
        Ok(Entity { id, description, value })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Entity, A::Error> {
        let (mut id, mut description, mut value) = (None, None, None);
        while let Some(name) = fields.next_key()? {
            match name {
                FieldName::Id if id.is_some() => return Err(Error::duplicate_field("id")),
                FieldName::Id => id = Some(fields.next_value()?),
                FieldName::Description if description.is_some() => return Err(Error::duplicate_field("description")),
                FieldName::Description => description = Some(fields.next_value()?),
                FieldName::Value if value.is_some() => return Err(Error::duplicate_field("value")),
                FieldName::Value => value = Some(fields.next_value()?),
                FieldName::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Entity {
            id: id.ok_or_else(|| Error::missing_field("id"))?,
            description: description.ok_or_else(|| Error::missing_field("description"))?,
            value: value.ok_or_else(|| Error::missing_field("value"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_are_those_of_a_derive() {
        let entity = Entity::new(1, "a", 0.5);
        let read = |json: &str| serde_json::from_str::<Entity>(json).map_err(|error| error.to_string());
        for json in [
            r#"{"id":1,"description":"a","value":0.5}"#,
            r#"{"other":[{}],"value":0.5,"description":"a","id":1}"#,
            r#"[1,"a",0.5]"#,
        ] {
            assert_eq!(read(json), Ok(entity.clone()), "{json}");
        }
        assert_eq!(serde_json::to_string(&entity).unwrap(), r#"{"id":1,"description":"a","value":0.5}"#);
        for (json, why) in [
            (r#"{"id":1,"value":0.5}"#, "missing field `description`"),
            (r#"{"id":1,"id":1,"description":"a","value":0.5}"#, "duplicate field `id`"),
            (r#"[1,"a"]"#, "invalid length 2, expected struct Entity with 3 elements"),
            ("1", "expected struct Entity"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
