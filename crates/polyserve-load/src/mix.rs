//! The weights of reading and writing.

use std::fmt;
use std::str::FromStr;

/// Weights of reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The weight of GETs.
    pub get: u32,
    /// The weight of PUTs.
    pub put: u32,
}

impl Mix {
    /// Returns the percentage of GETs, rounded down.
    pub fn reads_pct(self) -> u32 {
        let (get, put) = (u64::from(self.get), u64::from(self.put));
        (get * 100).checked_div(get + put).unwrap_or(0) as u32
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `get=95,put=5`. A method that is not named has weight 0.
    fn from_str(text: &str) -> Result<Self, String> {
        let message = || format!("{text:?} is no mix like get=95,put=5");
        let (mut get, mut put) = (None, None);
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(message)?;
            let weight: u32 = weight.parse().map_err(|_| message())?;
            let slot = match name {
                "get" => &mut get,
                "put" => &mut put,
                _ => return Err(message()),
            };
            if slot.replace(weight).is_some() {
                return Err(message());
            }
        }
        let mix = Self { get: get.unwrap_or(0), put: put.unwrap_or(0) };
        if mix == (Self { get: 0, put: 0 }) { Err(message()) } else { Ok(mix) }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get={},put={}", self.get, self.put)
    }
}
