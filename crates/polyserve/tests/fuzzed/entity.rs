//! The body of a PUT as an entity, next to a reading by serde_json alone.

use polyserve::{Entity, Identifiable, InvalidEntity};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Nesting from which serde_json's values are not compared: they have a limit of their own.
const MAX_COMPARED: usize = 100;

pub(crate) fn check(input: &[u8]) {
    let openings = input.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    let value = serde_json::from_slice::<Value>(input);
    // It looks at the grammar alone: fields that are ignored may have numbers and texts that no value has.
    let is_json = str::from_utf8(input).is_ok() && serde_json::from_slice::<IgnoredAny>(input).is_ok();
    match Entity::read_json(input) {
        Ok(entity) => {
            assert!(is_json, "{entity:?}");
            if openings < MAX_COMPARED
                && let Ok(value) = value
            {
                assert_eq!(value["id"].as_f64(), Some(entity.id as f64), "{entity:?}");
                assert_eq!(value["description"].as_str(), Some(entity.description.as_str()));
                assert_eq!(value["value"].as_f64(), Some(entity.value));
            }
            assert!(entity.value.is_finite());
            let mut json = Vec::new();
            entity.write_json(&mut json).expect("a vector takes all");
            let again = Entity::read_json(&json).expect("what was written is an entity");
            assert_eq!((again.id, &again.description), (entity.id, &entity.description));
            assert_eq!(again.value.to_bits(), entity.value.to_bits(), "{entity:?}");
            serde_json::from_slice::<Value>(&json).expect("what was written is JSON");
        }
        Err(InvalidEntity::NotAnEntity(fault)) => {
            check_reason(&fault.to_string());
            assert!(is_json, "it is no JSON: {fault}");
        }
        Err(InvalidEntity::NotJson(fault)) => {
            check_reason(&fault.to_string());
            if openings < MAX_COMPARED {
                assert!(value.is_err(), "it is JSON: {fault}");
            }
        }
        Err(_) => {}
    }
}

/// A reason is one sentence, which quotes at most 100 bytes of the input.
fn check_reason(why: &str) {
    assert!(why.ends_with('.') && why.len() < 400, "{why}");
    assert!(!why.contains(char::is_control), "{why:?}");
}
