//! The JSON rows of the entities that a load uses.
//!
//! Cost: the rows of all keys are in one buffer; the rows of a key are neighbours.

use std::fmt;

use crate::data::{Data, EntityVersion};
use crate::dist::Picker;
use crate::mix::Mix;

/// The rows of all entities, and the distribution of keys.
#[derive(Debug)]
pub(crate) struct Entities {
    pub(crate) rows: Rows,
    pub(crate) picker: Picker,
    pub(crate) keys: u32,
    pub(crate) mix: Mix,
}

/// JSON rows in one buffer.
pub(crate) struct Rows {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    per_key: u32,
}

impl Rows {
    pub(crate) fn new(data: &Data, keys: u32, versions: &[EntityVersion]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(keys as usize * versions.len() + 1));
        ends.push(0);
        for id in 0..i64::from(keys) {
            for version in versions {
                let entity = data.row(id, *version).entity;
                let parts = (serde_json::to_string(&entity.description), serde_json::to_string(&entity.value));
                let (description, value) = (parts.0.unwrap_or_default(), parts.1.unwrap_or_default());
                // The form that servers return, so a PUT and a GET have the same bytes.
                bytes.extend_from_slice(
                    format!(r#"{{"id":{id},"description":{description},"value":{value}}}"#).as_bytes(),
                );
                // Within bounds: checked by `Traffic::entities`.
                ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
        }
        Self { bytes, ends, per_key: versions.len() as u32 }
    }

    /// Returns the number of rows of a key.
    pub(crate) fn per_key(&self) -> u32 {
        self.per_key
    }

    /// Returns row number `version` of `key`; both start at 0.
    pub(crate) fn get(&self, key: u32, version: u32) -> Option<&[u8]> {
        let at = (key * self.per_key + version) as usize;
        let (start, end) = (*self.ends.get(at)?, *self.ends.get(at + 1)?);
        if version < self.per_key { self.bytes.get(start as usize..end as usize) } else { None }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("rows", &(self.ends.len() - 1)).finish_non_exhaustive()
    }
}
