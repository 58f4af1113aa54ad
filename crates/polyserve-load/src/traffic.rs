//! The requests of a load, and the right answers.
//!
//! Invariant: the possible requests and all right answers are fixed before the load starts. The order is a function of
//! the seed, the part and the thread. Cost: the rows of all keys are in one buffer, about 65 bytes each.

use std::sync::Arc;

use crate::data::{Data, EntityVersion};
use crate::dist::{Dist, Picker};
use crate::error::LoadError;
use crate::mix::Mix;
use crate::rows::{Entities, Rows};

/// Requests, their right answers, and their order. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub(crate) plan: Arc<TrafficPlan>,
    pub(crate) part: u64,
    pub(crate) is_filling: bool,
}

#[derive(Debug)]
pub(crate) enum TrafficPlan {
    /// The entities of a server.
    Entities(Entities),
    /// Exchanges in turn.
    Exchanges(Vec<Exchange>),
    /// One request. Its answer is not known yet.
    Unknown(Exchange),
}

/// A request, and its right answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchange {
    /// The method.
    pub method: String,
    /// The request target: `/1`.
    pub target: String,
    /// Header fields, without `Host`, `Content-Length` and `Connection`.
    pub headers: Vec<(String, String)>,
    /// The body, if any.
    pub body: Option<Vec<u8>>,
    /// The right statuses. An answer has one of these.
    pub statuses: Vec<u16>,
    /// The right bodies, at most 32. An answer has exactly one of these; the body of a HEAD is empty.
    pub answers: Vec<Vec<u8>>,
}

/// The max number of right bodies.
pub(crate) const MAX_ANSWERS: usize = 32;
/// The max number of rows: about 0.7 GB.
const MAX_ROWS: u64 = 10_000_000;
/// The max total size of the rows, and the max size of a row without its description, in bytes.
const MAX_BYTES: u64 = 1_500_000_000;
const ROW_BYTES: u64 = 85;

impl Traffic {
    /// GETs and PUTs of the ids `0..keys`. Every id must be stored before: [`prefill`](crate::prefill()).
    ///
    /// A PUT stores one of the two updates of the id. A GET must return the first row, or an update if the mix has PUTs. A
    /// GET that is sent after an acknowledged PUT of the id must return an update. `seed` decides the order. The rows are
    /// those of `data`.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the number of keys is 0 or too large, if both weights are 0, or if the
    /// distribution is invalid.
    pub fn entities(data: &Data, keys: u64, dist: Dist, mix: Mix, seed: u64) -> Result<Self, LoadError> {
        let versions: &[EntityVersion] = match mix.put {
            0 => &[EntityVersion::New],
            _ => &[EntityVersion::New, EntityVersion::FirstUpdate, EntityVersion::SecondUpdate],
        };
        let max_keys = MAX_ROWS.min(MAX_BYTES / (data.description() as u64 + ROW_BYTES)) / versions.len() as u64;
        let bounded = u32::try_from(keys).ok().filter(|keys| *keys > 0 && u64::from(*keys) <= max_keys);
        let keys = bounded.ok_or_else(|| LoadError::setting(format!("keys {keys} is not between 1 and {max_keys}")))?;
        if u64::from(mix.get) + u64::from(mix.put) == 0 {
            return Err(LoadError::setting("a mix of no GETs and no PUTs asks for nothing"));
        }
        if !dist.is_valid() {
            return Err(LoadError::setting(format!("{dist}: the exponent is not above 0 and at most 10")));
        }
        let rows = Rows::new(data, keys, versions);
        Ok(Self::of(TrafficPlan::Entities(Entities { rows, picker: Picker::new(keys, dist), keys, mix, seed })))
    }

    /// One request, repeated. One more request before the load discovers the answer, which must be a 2xx. All other answers
    /// must be the same, except that the statuses of a PUT may be any of 200, 201 and 204.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the request is not valid.
    pub fn one(method: &str, target: &str, body: Option<&[u8]>, content_type: Option<&str>) -> Result<Self, LoadError> {
        let mut exchange = Exchange::new(method, target);
        exchange.headers.extend(content_type.map(|value| ("Content-Type".to_owned(), value.to_owned())));
        exchange.body = body.map(<[u8]>::to_vec);
        exchange.validate(true)?;
        Ok(Self::of(TrafficPlan::Unknown(exchange)))
    }

    /// These exchanges, in turn. Each thread starts at its share of the list.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the list is empty, or if an exchange is not valid or has no right answer.
    pub fn expecting(exchanges: Vec<Exchange>) -> Result<Self, LoadError> {
        exchanges.iter().try_for_each(|exchange| exchange.validate(false))?;
        if exchanges.is_empty() || u32::try_from(exchanges.len()).is_err() {
            return Err(LoadError::setting("traffic of no exchanges asks for nothing"));
        }
        Ok(Self::of(TrafficPlan::Exchanges(exchanges)))
    }

    fn of(plan: TrafficPlan) -> Self {
        Self { plan: Arc::new(plan), part: 0, is_filling: false }
    }

    /// Returns the same entities in the order of another part of the random sequence; part 0 by default. Each load begins at
    /// the start of its part, so a measurement in slices needs a part for each slice. Otherwise all slices request the same
    /// first entities, and most of many entities are never requested. Exchanges in turn have one order.
    #[must_use]
    pub fn part(&self, part: u64) -> Self {
        Self { part, ..self.clone() }
    }

    /// For entities: returns PUTs of the first row of every key, in turn, and the number of keys.
    pub(crate) fn filling(&self) -> Option<(Self, u64)> {
        match &*self.plan {
            TrafficPlan::Entities(entities) => {
                Some((Self { plan: Arc::clone(&self.plan), part: 0, is_filling: true }, u64::from(entities.keys)))
            }
            TrafficPlan::Exchanges(_) | TrafficPlan::Unknown(_) => None,
        }
    }

    /// Returns the request if its answer is not known yet.
    pub(crate) fn unknown(&self) -> Option<&Exchange> {
        match &*self.plan {
            TrafficPlan::Unknown(exchange) => Some(exchange),
            TrafficPlan::Entities(_) | TrafficPlan::Exchanges(_) => None,
        }
    }
}

impl Exchange {
    /// Creates a request without a body. The right answer is a 200 without a body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            headers: Vec::new(),
            body: None,
            statuses: vec![200],
            answers: vec![Vec::new()],
        }
    }

    /// Returns this exchange, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn validate(&self, is_unknown: bool) -> Result<(), LoadError> {
        let Self { method, target, headers, statuses, answers, .. } = self;
        let reject = |why: String| Err(LoadError::Setting(why));
        if !is_token(method) || method == "CONNECT" {
            return reject(format!("{method:?} is no method"));
        }
        if !(target == "*" || target.starts_with('/')) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return reject(format!("{target:?} is no path: it begins with a slash and has no blanks"));
        }
        let is_value = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        if let Some((name, value)) = headers.iter().find(|(name, value)| !is_token(name) || !is_value(value)) {
            return reject(format!("{name:?}: {value:?} is no header field"));
        }
        let is_reserved =
            |name: &str| ["host", "content-length", "connection"].contains(&name.to_ascii_lowercase().as_str());
        if let Some((name, _)) = headers.iter().find(|(name, _)| is_reserved(name)) {
            return reject(format!("the header field {name} is the load's own"));
        }
        if !is_unknown && (statuses.is_empty() || answers.is_empty() || answers.len() > MAX_ANSWERS) {
            return reject(format!("{method} {target} needs a right status, and 1 to {MAX_ANSWERS} right bodies"));
        }
        Ok(())
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entities(keys: u64, mix: &str, seed: u64) -> Traffic {
        Traffic::entities(&Data::new(1), keys, Dist::Uniform, mix.parse().unwrap(), seed).unwrap()
    }

    #[test]
    fn rows_are_the_datas_own() {
        let traffic = entities(3, "get=1,put=1", 0);
        let TrafficPlan::Entities(Entities { rows, .. }) = &*traffic.plan else { panic!("entities") };
        for (key, version) in
            [(0, EntityVersion::New), (1, EntityVersion::FirstUpdate), (2, EntityVersion::SecondUpdate)]
        {
            let row: serde_json::Value = serde_json::from_slice(rows.get(key, version as u32).unwrap()).unwrap();
            let entity = Data::new(1).row(i64::from(key), version).entity;
            assert_eq!(
                (row["id"].as_i64(), row["description"].as_str()),
                (Some(entity.id), Some(&*entity.description))
            );
            assert_eq!(row["value"].as_f64().unwrap().to_bits(), entity.value.to_bits());
        }
        assert!(rows.get(3, 0).is_none() && rows.get(0, 3).is_none());
    }

    #[test]
    fn what_is_no_traffic_is_refused() {
        let refused = |result: Result<Traffic, LoadError>, what: &str| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(what), "{what}: {text}");
        };
        let (data, mix) = (Data::new(0), Mix { get: 1, put: 0 });
        refused(Traffic::entities(&data, 0, Dist::Uniform, mix, 0), "keys 0");
        refused(Traffic::entities(&data, 10_000_001, Dist::Uniform, mix, 0), "10000000");
        refused(Traffic::entities(&data, 3_333_334, Dist::Uniform, Mix { get: 1, put: 1 }, 0), "3333333");
        refused(Traffic::entities(&data.with_description(1_000_000), 1500, Dist::Uniform, mix, 0), "1499");
        refused(Traffic::entities(&data, 1, Dist::Uniform, Mix { get: 0, put: 0 }, 0), "mix");
        refused(Traffic::entities(&data, 1, Dist::Zipf(f64::NAN), mix, 0), "exponent");
        refused(Traffic::one("G T", "/", None, None), "method");
        refused(Traffic::one("GET", "nonsense", None, None), "path");
        refused(Traffic::one("GET", "/a b", None, None), "path");
        refused(Traffic::one("PUT", "/", None, Some("a\r\nb: c")), "header");
        refused(Traffic::expecting(Vec::new()), "no exchanges");
        let exchange = |change: fn(&mut Exchange)| Traffic::expecting(vec![Exchange::new("GET", "/").with(change)]);
        refused(exchange(|e| e.statuses.clear()), "right status");
        refused(exchange(|e| e.answers.clear()), "right bodies");
        refused(exchange(|e| e.headers.push(("HOST".into(), "x".into()))), "own");
        for invalid in ["", "get", "get=", "get=-1", "get=0", "get=1,get=2", "delete=1", "get=1,"] {
            assert!(invalid.parse::<Mix>().unwrap_err().contains("get=95,put=5"), "{invalid}");
        }
    }
}
