//! Entity test data: a pure function of seed, id and version. So a client can compute the expected entity without storing it.
//!
//! The form is the published one: a description of 15 random alphanumeric characters, and a value u x 10^k with 6 decimals,
//! u in [0, 1), and k from 0, 1, 2 and 3.
//!
//! Invariant: the same arguments give the same row in every version and on every machine; tests pin some rows. Therefore
//! the module reads the ChaCha8 keystream by its own arithmetic: the ranges and seeds of a random-number library may
//! change with the library's version. Cost: one or two cipher blocks and one allocation a row.

use polyserve_core::Entity;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Rows of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    seed: u64,
    description: usize,
}

/// The rows of an id: every id has three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntityVersion {
    /// The row that creates the entity.
    New,
    /// The first update.
    FirstUpdate,
    /// The second update.
    SecondUpdate,
}

/// An entity, and the exact decimals of its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The entity.
    pub entity: Entity,
    millionths: u64,
}

const CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DESCRIPTION: usize = 15;
const MILLION: u64 = 1_000_000;

impl Data {
    /// Creates the rows of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, description: DESCRIPTION }
    }

    /// Returns these rows with descriptions of the given length. The published length is 15.
    #[must_use]
    pub fn with_description(self, characters: usize) -> Self {
        Self { description: characters, ..self }
    }

    /// Returns the number of characters of a description.
    pub fn description(&self) -> usize {
        self.description
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the row of `id`.
    pub fn row(&self, id: i64, version: EntityVersion) -> Row {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8] = version as u8;
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(id.cast_unsigned());
        let description =
            (0..self.description).map(|_| char::from(CHARACTERS[below(&mut random, 62) as usize])).collect();
        let power = u32::try_from(below(&mut random, 4)).expect("below 4");
        let millionths = below(&mut random, MILLION * 10_u64.pow(power));
        // Both are exact, so the quotient is the double nearest to the decimal: the same double as a parser returns.
        let value = millionths as f64 / MILLION as f64;
        Row { entity: Entity { id, description, value }, millionths }
    }
}

impl Row {
    /// Returns the value as text: `60.750847`.
    pub fn value_text(&self) -> String {
        format!("{}.{:06}", self.millionths / MILLION, self.millionths % MILLION)
    }

    /// Returns a line of CSV without the line break: `1,"aZ09...",60.750847`.
    pub fn to_csv(&self) -> String {
        format!("{},\"{}\",{}", self.entity.id, self.entity.description, self.value_text())
    }

    /// Returns the entity as JSON: `{"id":1,"description":"aZ09...","value":60.750847}`.
    pub fn to_json(&self) -> String {
        // Neither the description nor the decimals need escaping.
        let (Entity { id, description, .. }, value) = (&self.entity, self.value_text());
        format!(r#"{{"id":{id},"description":"{description}","value":{value}}}"#)
    }
}

/// Returns a number below `bound`. The bias is below 2^-40 for the bounds used here.
fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    let wide = u128::from(random.next_u64()) * u128::from(bound);
    (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: [EntityVersion; 3] = [EntityVersion::New, EntityVersion::FirstUpdate, EntityVersion::SecondUpdate];

    #[test]
    fn descriptions_are_as_long_as_they_are_asked_to_be() {
        let of = |length| Data::new(7).with_description(length).row(3, EntityVersion::New).entity.description;
        assert_eq!(of(15), Data::new(7).row(3, EntityVersion::New).entity.description);
        assert!(of(0).is_empty() && of(5000).len() == 5000 && of(5000).bytes().all(|b| b.is_ascii_alphanumeric()));
    }

    #[test]
    fn rows_are_of_the_published_form() {
        let data = Data::new(7);
        let mut largest = 0.0_f64;
        for id in 0..2_000 {
            for row in VERSIONS.map(|version| data.row(id, version)) {
                let Entity { id: row_id, description, value } = &row.entity;
                assert_eq!(*row_id, id);
                assert!(
                    description.len() == 15 && description.bytes().all(|b| b.is_ascii_alphanumeric()),
                    "{description}"
                );
                assert!((0.0..1000.0).contains(value), "{value}");
                assert_eq!(row.value_text().split_once('.').unwrap().1.len(), 6);
                assert_eq!(row.value_text().parse::<f64>().unwrap().to_bits(), value.to_bits(), "{row:?}");
                largest = largest.max(*value);
            }
        }
        assert!(largest > 100.0, "k reaches 3");
    }

    #[test]
    fn json_is_read_back_bit_for_bit() {
        let row = Data::new(1).row(-5, EntityVersion::New);
        let json: serde_json::Value = serde_json::from_str(&row.to_json()).unwrap();
        assert_eq!(json["id"], -5);
        assert_eq!(json["description"], row.entity.description.as_str());
        assert_eq!(json["value"].as_f64().unwrap().to_bits(), row.entity.value.to_bits());
    }

    #[test]
    fn seeds_ids_and_versions_differ() {
        let rows = |seed| {
            (0..50).flat_map(move |id| VERSIONS.map(|version| Data::new(seed).row(id, version).entity.description))
        };
        let all: std::collections::HashSet<String> = rows(0).chain(rows(1)).chain(rows(u64::MAX)).collect();
        assert_eq!(all.len(), 3 * 50 * 3);
    }

    /// Recorded data must stay reproducible: these lines never change. They were checked against a ChaCha8 written from
    /// the cipher's description.
    #[test]
    fn the_rows_are_pinned() {
        let lines: Vec<String> = [
            (0, 0, EntityVersion::New),
            (42, 1, EntityVersion::FirstUpdate),
            (42, i64::MAX, EntityVersion::SecondUpdate),
            (42, -1, EntityVersion::New),
        ]
        .map(|(seed, id, version)| Data::new(seed).row(id, version).to_csv())
        .into();
        let pinned = [
            r#"0,"pdE7F60GJgfQbOj",61.715406"#,
            r#"1,"Rmx2zOYhmGuo3MA",20.180633"#,
            r#"9223372036854775807,"BFUcwskhDDGQOTG",0.736021"#,
            r#"-1,"9yPd0qt6hDDGRpk",8.740574"#,
        ];
        assert_eq!(lines, pinned);
    }
}
