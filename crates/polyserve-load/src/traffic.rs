//! What is asked and what must be answered.
//!
//! Invariant: what a load may ask, and every answer that would be right, is fixed before it starts; which of it is
//! asked next is a function of the seed and the thread alone. Cost: the rows of all keys lie one after the other in one
//! buffer, about 65 bytes each; a request is drawn in about 10 ns.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::data::{Data, Draw};
use crate::dist::{Dist, Picker};
use crate::draws::{Entities, Rows};
use crate::error::LoadError;

/// Requests with the answers that they must get, and the order in which they are drawn. Clones share them.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub(crate) plan: Arc<Plan>,
    pub(crate) is_filling: bool,
}

#[derive(Debug)]
pub(crate) enum Plan {
    /// The entities of a server.
    Entities(Entities),
    /// Exchanges in turn.
    Exchanges(Vec<Exchange>),
    /// One request whose answer is not known yet.
    Unknown(Exchange),
}

/// A request, and what may be answered to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchange {
    /// The method.
    pub method: String,
    /// The request target: `/1`.
    pub target: String,
    /// Header fields, without `Host`, `Content-Length` and `Connection`.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
    /// The statuses that are right: any one of them.
    pub statuses: Vec<u16>,
    /// The answer's bodies that are right: any one of them, to the byte. 32 at most; empty for a HEAD.
    pub answers: Vec<Vec<u8>>,
}

/// Weights of reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Of GETs.
    pub get: u32,
    /// Of PUTs.
    pub put: u32,
}

/// How many answers may be right.
pub(crate) const MOST_ANSWERS: usize = 32;
/// The most rows that are kept: about 0.7 GB.
const MOST_ROWS: u64 = 10_000_000;
/// The most bytes of rows that are kept, and what a row has beside its description, at most.
const MOST_BYTES: u64 = 1_500_000_000;
const ROW: u64 = 85;

impl Traffic {
    /// GETs of the ids `0..keys` and PUTs to them. Every id must have been put once: [`prefill`](crate::prefill()).
    ///
    /// A PUT puts one of the id's two updates; a GET must find the row that the id was created with, or where there are
    /// PUTs one of the updates; it must be one of these where it is sent after a PUT of the id was acknowledged. `seed` decides the order; the rows are `data`'s.
    ///
    /// # Errors
    ///
    /// [`LoadError::Setting`] where there are no keys, too many, or no weight.
    pub fn entities(data: &Data, keys: u64, dist: Dist, mix: Mix, seed: u64) -> Result<Self, LoadError> {
        let draws: &[Draw] = match mix.put {
            0 => &[Draw::New],
            _ => &[Draw::New, Draw::FirstUpdate, Draw::SecondUpdate],
        };
        let most = MOST_ROWS.min(MOST_BYTES / (data.description() as u64 + ROW)) / draws.len() as u64;
        let bounded = u32::try_from(keys).ok().filter(|keys| *keys > 0 && u64::from(*keys) <= most);
        let keys = bounded.ok_or_else(|| LoadError::setting(format!("keys {keys} is not between 1 and {most}")))?;
        if u64::from(mix.get) + u64::from(mix.put) == 0 {
            return Err(LoadError::setting("a mix of no GETs and no PUTs asks for nothing"));
        }
        if !dist.is_valid() {
            return Err(LoadError::setting(format!("{dist}: the exponent is not above 0 and at most 10")));
        }
        let rows = Rows::new(data, keys, draws);
        Ok(Self::of(Plan::Entities(Entities { rows, picker: Picker::new(keys, dist), keys, mix, seed })))
    }

    /// One request over and over. Its answer is learned before the load from one request more: it must be a 2xx, and all
    /// others must be the same, but that a PUT may answer 200, 201 and 204 in turn.
    ///
    /// # Errors
    ///
    /// [`LoadError::Setting`] where it is no request.
    pub fn one(method: &str, target: &str, body: Option<&[u8]>, content_type: Option<&str>) -> Result<Self, LoadError> {
        let mut exchange = Exchange::new(method, target);
        exchange.headers.extend(content_type.map(|value| ("Content-Type".to_owned(), value.to_owned())));
        exchange.body = body.map(<[u8]>::to_vec);
        exchange.validate(true)?;
        Ok(Self::of(Plan::Unknown(exchange)))
    }

    /// These exchanges in turn; each thread begins at its share of the list.
    ///
    /// # Errors
    ///
    /// [`LoadError::Setting`] where there are none, or one is no request or has no right answer.
    pub fn expecting(exchanges: Vec<Exchange>) -> Result<Self, LoadError> {
        exchanges.iter().try_for_each(|exchange| exchange.validate(false))?;
        if exchanges.is_empty() || u32::try_from(exchanges.len()).is_err() {
            return Err(LoadError::setting("traffic of no exchanges asks for nothing"));
        }
        Ok(Self::of(Plan::Exchanges(exchanges)))
    }

    fn of(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), is_filling: false }
    }

    /// For entities: PUTs of every key's first row in turn, and how many there are.
    pub(crate) fn filling(&self) -> Option<(Self, u64)> {
        match &*self.plan {
            Plan::Entities(entities) => {
                Some((Self { plan: Arc::clone(&self.plan), is_filling: true }, u64::from(entities.keys)))
            }
            Plan::Exchanges(_) | Plan::Unknown(_) => None,
        }
    }

    /// Where the answer is not known yet: the request.
    pub(crate) fn unknown(&self) -> Option<&Exchange> {
        match &*self.plan {
            Plan::Unknown(exchange) => Some(exchange),
            Plan::Entities(_) | Plan::Exchanges(_) => None,
        }
    }
}

impl Exchange {
    /// A request without a body, to which a 200 without a body is right.
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

    /// This exchange, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn validate(&self, is_unknown: bool) -> Result<(), LoadError> {
        let Self { method, target, headers, statuses, answers, .. } = self;
        let no = |why: String| Err(LoadError::Setting(why));
        if !is_token(method) || method == "CONNECT" {
            return no(format!("{method:?} is no method"));
        }
        if !(target == "*" || target.starts_with('/')) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return no(format!("{target:?} is no path: it begins with a slash and has no blanks"));
        }
        let is_value = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        if let Some((name, value)) = headers.iter().find(|(name, value)| !is_token(name) || !is_value(value)) {
            return no(format!("{name:?}: {value:?} is no header field"));
        }
        let ours = |name: &str| ["host", "content-length", "connection"].contains(&name.to_ascii_lowercase().as_str());
        if let Some((name, _)) = headers.iter().find(|(name, _)| ours(name)) {
            return no(format!("the header field {name} is the load's own"));
        }
        if !is_unknown && (statuses.is_empty() || answers.is_empty() || answers.len() > MOST_ANSWERS) {
            return no(format!("{method} {target} needs a right status, and 1 to {MOST_ANSWERS} right bodies"));
        }
        Ok(())
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl FromStr for Mix {
    type Err = String;

    /// `get=95,put=5`; what is not named has no weight.
    fn from_str(text: &str) -> Result<Self, String> {
        let no = || format!("{text:?} is no mix like get=95,put=5");
        let (mut get, mut put) = (None, None);
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(no)?;
            let weight: u32 = weight.parse().map_err(|_| no())?;
            let place = match name {
                "get" => &mut get,
                "put" => &mut put,
                _ => return Err(no()),
            };
            if place.replace(weight).is_some() {
                return Err(no());
            }
        }
        let mix = Self { get: get.unwrap_or(0), put: put.unwrap_or(0) };
        if mix == (Self { get: 0, put: 0 }) { Err(no()) } else { Ok(mix) }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get={},put={}", self.get, self.put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Ask;
    use std::collections::HashMap;

    fn entities(keys: u64, mix: &str, seed: u64) -> Traffic {
        Traffic::entities(&Data::new(1), keys, Dist::Uniform, mix.parse().unwrap(), seed).unwrap()
    }

    fn drawn(traffic: &Traffic, thread: usize, count: usize) -> Vec<Ask> {
        let mut draws = traffic.draws(thread, 4);
        (0..count).map(|_| draws.next()).collect()
    }

    #[test]
    fn a_seed_and_a_thread_give_one_sequence() {
        let asks = |seed, thread| drawn(&entities(1_000, "get=1,put=1", seed), thread, 500);
        assert_eq!(asks(7, 0), asks(7, 0));
        assert!(asks(7, 0) != asks(8, 0) && asks(7, 0) != asks(7, 1));
    }

    /// Exact counts of one seed, within five standard deviations of the weights.
    #[test]
    fn a_mix_is_kept_to() {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for ask in drawn(&entities(10, "get=95,put=5", 0), 0, 100_000) {
            let name = match ask {
                Ask::Get(key) => {
                    assert!(key < 10);
                    "get"
                }
                Ask::Put(key, draw) => {
                    assert!(key < 10);
                    ["", "first", "second"][draw as usize]
                }
                Ask::GetUpdated(_) | Ask::Fixed(_) => panic!("neither is drawn"),
            };
            *counts.entry(name).or_default() += 1;
        }
        assert!(counts["get"].abs_diff(95_000) < 350, "{counts:?}");
        assert!(counts["first"].abs_diff(2_500) < 250 && counts["second"].abs_diff(2_500) < 250, "{counts:?}");
        let only = |mix| drawn(&entities(10, mix, 0), 0, 1_000).iter().all(|ask| matches!(ask, Ask::Get(_)));
        assert!(only("get=1") && !only("get=1,put=1"));
        assert!(drawn(&entities(10, "put=1", 0), 0, 1_000).iter().all(|ask| matches!(ask, Ask::Put(..))));
    }

    #[test]
    fn rows_are_the_datas_own() {
        let traffic = entities(3, "get=1,put=1", 0);
        let Plan::Entities(Entities { rows, .. }) = &*traffic.plan else { panic!("entities") };
        for (key, draw) in [(0, Draw::New), (1, Draw::FirstUpdate), (2, Draw::SecondUpdate)] {
            let row: serde_json::Value = serde_json::from_slice(rows.get(key, draw as u32).unwrap()).unwrap();
            let entity = Data::new(1).row(i64::from(key), draw).entity;
            assert_eq!(
                (row["id"].as_i64(), row["description"].as_str()),
                (Some(entity.id), Some(&*entity.description))
            );
            assert_eq!(row["value"].as_f64().unwrap().to_bits(), entity.value.to_bits());
        }
        assert!(rows.get(3, 0).is_none() && rows.get(0, 3).is_none());
    }

    #[test]
    fn exchanges_come_in_turn_and_threads_begin_apart() {
        let all = (0..8).map(|i| Exchange::new("GET", &format!("/{i}"))).collect();
        let traffic = Traffic::expecting(all).unwrap();
        let fixed = |asks: &[u32]| asks.iter().map(|at| Ask::Fixed(*at)).collect::<Vec<_>>();
        assert_eq!(drawn(&traffic, 0, 9), fixed(&[0, 1, 2, 3, 4, 5, 6, 7, 0]));
        assert_eq!(drawn(&traffic, 3, 3), fixed(&[6, 7, 0]));
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
        for no in ["", "get", "get=", "get=-1", "get=0", "get=1,get=2", "delete=1", "get=1,"] {
            assert!(no.parse::<Mix>().unwrap_err().contains("get=95,put=5"), "{no}");
        }
    }
}
