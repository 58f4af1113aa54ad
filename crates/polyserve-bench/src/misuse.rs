//! A request that cannot be carried out.

use std::fmt;

/// A request that cannot be carried out, as opposed to one that failed. The text says why.
#[derive(Debug)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}
