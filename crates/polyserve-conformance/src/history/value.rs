//! How an entity carries a value: as its number, and at the start of its description.

use polyserve_core::{Entity, EntityRef};

use super::WrongAnswer;

/// The entity that a put of `value` under `key` stores: it carries the value in both its parts, and values that follow each
/// other differ in the description's length.
pub fn entity(key: i64, value: u64) -> Entity {
    let filler = "-".repeat(value as usize % 3 * 40);
    Entity::new(key, format!("{value}{filler}"), value as f64)
}

/// The value that an entity carries, which was read under `key`.
///
/// # Errors
///
/// Where it has another id, or was put together from two entities.
pub fn value_of(key: i64, shown: EntityRef<'_>) -> Result<u64, WrongAnswer> {
    let EntityRef { id, description, value: number } = shown;
    if id != key {
        return Err(WrongAnswer(format!("the entity read under {key} has the id {id}")));
    }
    let value = number as u64;
    let filler = value as usize % 3 * 40;
    let digits = description.len().checked_sub(filler).and_then(|length| description.split_at_checked(length));
    let is_whole = digits.is_some_and(|(digits, rest)| {
        // As many digits as it has: none is a sign or a nought before it.
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
