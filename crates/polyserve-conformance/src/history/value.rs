//! The value of an entity: its number, and the start of its description.

use polyserve_core::{Entity, EntityRef};

use super::WrongAnswer;

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
