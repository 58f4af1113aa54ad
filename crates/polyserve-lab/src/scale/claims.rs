//! Nobody has published claims of this one: what article A says of growth is judged by its own matrix, which has its
//! parameters.

use serde_json::Value;

use crate::claims::Claim;

/// None, whatever was measured.
///
/// # Errors
///
/// Never.
pub fn claims(_lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    Ok(Vec::new())
}
