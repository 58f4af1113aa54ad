//! The requests of a load, and the right answers.
//!
//! Invariant: the possible requests and all right answers are fixed before the load starts. The order is a function of
//! the seed, the part and the thread. Cost: the rows of all keys are in one buffer, about 65 bytes each.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::data::{Data, EntityVersion};
use crate::dist::{Dist, Picker};
use crate::error::LoadError;
use crate::mix::Mix;
use crate::rows::{Entities, Rows};

use serde::Serialize;

/// Requests, their right answers, and their order. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub(crate) plan: Arc<TrafficPlan>,
    pub(crate) part: u64,
    pub(crate) seed: u64,
    pub(crate) is_filling: bool,
    /// The header fields of each request for an entity, as they are sent.
    pub(crate) fields: Arc<str>,
}

#[derive(Debug)]
pub(crate) enum TrafficPlan {
    /// The entities of a server.
    Entities(Entities),
    /// Exchanges in turn.
    Exchanges(Exchanges),
}

/// Exchanges, and their order.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// One exchange for each id of a group.
    pub(crate) all: Vec<Exchange>,
    pub(crate) groups: Arc<[ExchangeGroup]>,
    /// One round: indexes into `groups`, each as often as its weight.
    pub(crate) order: Arc<[u32]>,
    /// Whether the right answers are known. If not, they are discovered before the load.
    pub(crate) is_known: bool,
}

/// An exchange as it was given: its place in [`Exchanges::all`], and the number of its ids, or 1.
#[derive(Debug)]
pub(crate) struct ExchangeGroup {
    /// The method and the target, which may have [`ID`].
    pub(crate) name: String,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) weight: u32,
}

impl ExchangeGroup {
    /// The places of its exchanges.
    pub(crate) fn places(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The part of a target or a body that an id replaces.
const ID: &str = "{id}";
/// The max number of exchanges, with one for each id.
const MAX_EXCHANGES: u64 = 100_000;

/// A request, and its right answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchange {
    /// The method.
    pub method: String,
    /// The request target: `/1`.
    pub target: String,
    /// Header fields, without `Content-Length`, `Transfer-Encoding` and `Connection`. A `Host` replaces the load's.
    pub headers: Vec<(String, String)>,
    /// The body, if any.
    pub body: Option<Vec<u8>>,
    /// The ids of the request, if it has several. Each replaces `{id}` in the target and in the body. They are drawn evenly.
    pub ids: Option<RangeInclusive<u64>>,
    /// The right statuses. An answer has one of these.
    pub statuses: Vec<u16>,
    /// Whether the statuses count in [`Traffic::discovering`] too. Default false: they are discovered.
    pub has_given_status: bool,
    /// The right bodies, at most 32. An answer has exactly one of these; the body of a HEAD is empty.
    pub answers: Vec<Vec<u8>>,
    /// What of an answer is compared. Default: status and body.
    pub judged: AnswerCheck,
    /// How often the request is sent, in relation to the others of the traffic. Default 1.
    pub weight: u32,
}

/// What of an answer is compared with the right ones. The framing is always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum AnswerCheck {
    /// The status and the whole body.
    #[default]
    #[serde(rename = "status and body")]
    Body,
    /// The status and the length of the body: the body changes.
    #[serde(rename = "status and length")]
    Length,
    /// The status only: the length of the body changes too.
    #[serde(rename = "status")]
    Status,
}

/// The max sum of the weights: the order takes 4 bytes for each.
const MAX_WEIGHT: u64 = 1_000_000;

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
        let entities = Entities { rows, picker: Picker::new(keys, dist), keys, mix };
        Ok(Self::of(TrafficPlan::Entities(entities)).seed(seed))
    }

    /// One request, repeated. Its answer is discovered as by [`discovering`](Self::discovering).
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the request is not valid.
    pub fn one(method: &str, target: &str, body: Option<&[u8]>, content_type: Option<&str>) -> Result<Self, LoadError> {
        let mut exchange = Exchange::new(method, target);
        exchange.headers.extend(content_type.map(|value| ("Content-Type".to_owned(), value.to_owned())));
        exchange.body = body.map(<[u8]>::to_vec);
        Self::discovering(vec![exchange])
    }

    /// These requests, by their weights. Their statuses and answers are discovered: before the load, all requests are sent, and then
    /// sent once more. They must be answered by a 2xx or a 304, unless a request has statuses of its own.
    ///
    /// All later answers must be the same, as far as [`Exchange::judged`] compares them. If the two bodies differ, only the status and the length are judged; if their lengths
    /// differ too, only the status, see [`Report::changing`](crate::Report::changing). If a body shows the present time, it is asked
    /// for once more, a second later. The statuses of a PUT may be any of 200, 201 and 204.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the list is empty, or if a request is not valid.
    pub fn discovering(requests: Vec<Exchange>) -> Result<Self, LoadError> {
        Self::in_turn(requests, false)
    }

    /// These exchanges, in turn, by their weights. Each thread starts at its share of the order.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if the list is empty, or if an exchange is not valid or has no right answer.
    pub fn expecting(exchanges: Vec<Exchange>) -> Result<Self, LoadError> {
        Self::in_turn(exchanges, true)
    }

    fn in_turn(given: Vec<Exchange>, is_known: bool) -> Result<Self, LoadError> {
        given.iter().try_for_each(|exchange| exchange.validate(is_known))?;
        if given.is_empty() {
            return Err(LoadError::setting("traffic of no exchanges asks for nothing"));
        }
        let sum: u64 = given.iter().map(|exchange| u64::from(exchange.weight)).sum();
        if sum > MAX_WEIGHT {
            return Err(LoadError::setting(format!("the weights are {sum} together, more than {MAX_WEIGHT}")));
        }
        let count: u64 = given.iter().map(Exchange::count).fold(0, u64::saturating_add);
        if count > MAX_EXCHANGES {
            return Err(LoadError::setting(format!(
                "the requests have {count} ids together, more than {MAX_EXCHANGES}"
            )));
        }
        let (mut all, mut groups) = (Vec::new(), Vec::new());
        for exchange in given {
            let Exchange { method, target, weight, .. } = &exchange;
            let (name, first, count) = (format!("{method} {target}"), all.len() as u32, exchange.count() as u32);
            groups.push(ExchangeGroup { name, first, count, weight: *weight });
            all.extend(exchange.of_ids());
        }
        let order = order(&groups).into();
        Ok(Self::of(TrafficPlan::Exchanges(Exchanges { all, groups: groups.into(), order, is_known })))
    }

    /// Returns these requests, which are `exchanges`, with the discovered answers.
    pub(crate) fn with_answers(&self, Exchanges { groups, order, .. }: &Exchanges, all: Vec<Exchange>) -> Self {
        let (groups, order) = (Arc::clone(groups), Arc::clone(order));
        Self {
            plan: Arc::new(TrafficPlan::Exchanges(Exchanges { all, groups, order, is_known: true })),
            ..self.clone()
        }
    }

    fn of(plan: TrafficPlan) -> Self {
        Self { plan: Arc::new(plan), part: 0, seed: 0, is_filling: false, fields: Arc::from("") }
    }

    /// Returns the same entities in the order of another part of the random sequence; part 0 by default. Each load begins at
    /// the start of its part, so a measurement in slices needs a part for each slice. Otherwise all slices request the same
    /// first entities, and most of many entities are never requested. Exchanges in turn begin anywhere in their order, except in part 0.
    #[must_use]
    pub fn part(&self, part: u64) -> Self {
        Self { part, ..self.clone() }
    }

    /// Returns the same requests with this seed of their random numbers: the ids, and the times at a fixed rate. Default 0.
    #[must_use]
    pub fn seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    /// Adds header fields to each request for an entity, such as a token. An exchange has fields of its own.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if a field is malformed, or is one of the load's own: `Content-Length`, `Content-Type`,
    /// `Transfer-Encoding`, `Connection` or `Host`.
    pub fn with_entity_fields(self, fields: &[(String, String)]) -> Result<Self, LoadError> {
        if let Some((name, _)) = fields.iter().find(|(name, _)| is_one_of(name, &["host", "content-type"])) {
            return Err(LoadError::setting(format!("the header field {name} is the load's own")));
        }
        Exchange::new("GET", "/").with(|request| request.headers = fields.to_vec()).validate(false)?;
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Ok(Self { fields: fields.into(), ..self })
    }

    /// For entities: returns PUTs of the first row of every key, in turn, and the number of keys.
    pub(crate) fn filling(&self) -> Option<(Self, u64)> {
        match &*self.plan {
            TrafficPlan::Entities(entities) => {
                Some((Self { part: 0, is_filling: true, ..self.clone() }, u64::from(entities.keys)))
            }
            TrafficPlan::Exchanges(_) => None,
        }
    }

    /// Returns the requests if their answers are not known yet.
    pub(crate) fn unknown(&self) -> Option<&Exchanges> {
        match &*self.plan {
            TrafficPlan::Exchanges(exchanges @ Exchanges { is_known: false, .. }) => Some(exchanges),
            TrafficPlan::Entities(_) | TrafficPlan::Exchanges(_) => None,
        }
    }
}

/// Returns one round of the groups: each as often as its weight, and evenly spread.
fn order(groups: &[ExchangeGroup]) -> Vec<u32> {
    let mut places = Vec::new();
    for (group, index) in groups.iter().zip(0..) {
        let weight = f64::from(group.weight);
        places.extend((0..group.weight).map(|nth| ((f64::from(nth) + 0.5) / weight, index)));
    }
    places.sort_by(|(left, _), (right, _)| left.total_cmp(right)); // stable: equal places keep the order of the list
    places.into_iter().map(|(_, index)| index).collect()
}

impl Exchange {
    /// Creates a request without a body. The right answer is a 200 without a body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            headers: Vec::new(),
            body: None,
            ids: None,
            statuses: vec![200],
            has_given_status: false,
            answers: vec![Vec::new()],
            judged: AnswerCheck::default(),
            weight: 1,
        }
    }

    /// Returns this exchange, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The number of its ids; 1 without any.
    fn count(&self) -> u64 {
        self.ids.as_ref().map_or(1, |ids| (ids.end() - ids.start()).saturating_add(1))
    }

    /// The exchange for each id.
    fn of_ids(self) -> impl Iterator<Item = Self> {
        let own = self.ids.clone();
        let of_id = move |exchange: &Self, id: u64| {
            let id = id.to_string();
            let body = |body: &Vec<u8>| with_id(body, id.as_bytes());
            let (target, body) = (exchange.target.replace(ID, &id), exchange.body.as_ref().map(body));
            Self { target, body, ids: None, ..exchange.clone() }
        };
        let without_ids = own.is_none().then(|| self.clone());
        without_ids.into_iter().chain(own.into_iter().flatten().map(move |id| of_id(&self, id)))
    }

    fn validate(&self, is_known: bool) -> Result<(), LoadError> {
        let Self { method, target, headers, statuses, answers, .. } = self;
        let reject = |why: String| Err(LoadError::Setting(why));
        if !is_token(method) || method == "CONNECT" {
            return reject(format!("{method:?} is no method"));
        }
        if let Some(letter) = target.chars().find(|letter| !letter.is_ascii()) {
            return reject(format!("{target:?}: {letter:?} is not ASCII, and must be percent-encoded"));
        }
        if !(target == "*" || target.starts_with('/')) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return reject(format!("{target:?} is no path: it begins with a slash and has no blanks"));
        }
        let is_value = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        if let Some((name, value)) = headers.iter().find(|(name, value)| !is_token(name) || !is_value(value)) {
            return reject(format!("{name:?}: {value:?} is no header field"));
        }
        const RESERVED: [&str; 3] = ["content-length", "transfer-encoding", "connection"];
        if let Some((name, _)) = headers.iter().find(|(name, _)| is_one_of(name, &RESERVED)) {
            return reject(format!("the header field {name} is the load's own"));
        }
        let hosts: Vec<&str> =
            headers.iter().filter(|(name, _)| is_one_of(name, &["host"])).map(|(_, value)| value.trim()).collect();
        if hosts.len() > 1 || hosts.iter().any(|host| !host.bytes().all(|byte| byte.is_ascii_graphic())) {
            return reject(format!("{} is not one host", hosts.join(", ")));
        }
        if self.weight == 0 {
            return reject(format!("{method} {target} has the weight 0"));
        }
        let is_in_body = || self.body.as_ref().is_some_and(|body| memchr::memmem::find(body, ID.as_bytes()).is_some());
        match &self.ids {
            Some(ids) if ids.is_empty() => return reject(format!("the ids {}-{} are none", ids.start(), ids.end())),
            Some(_) if !target.contains(ID) && !is_in_body() => {
                return reject(format!("{method} {target} has ids, and no {ID} in its target or body"));
            }
            _ => {}
        }
        if is_known && (statuses.is_empty() || answers.is_empty() || answers.len() > MAX_ANSWERS) {
            return reject(format!("{method} {target} needs a right status, and 1 to {MAX_ANSWERS} right bodies"));
        }
        Ok(())
    }
}

/// Returns `bytes` with `id` in the place of [`ID`].
fn with_id(bytes: &[u8], id: &[u8]) -> Vec<u8> {
    let (mut replaced, mut done) = (Vec::with_capacity(bytes.len()), 0);
    for at in memchr::memmem::find_iter(bytes, ID) {
        replaced.extend_from_slice(&bytes[done..at]);
        replaced.extend_from_slice(id);
        done = at + ID.len();
    }
    replaced.extend_from_slice(&bytes[done..]);
    replaced
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(polyserve_core::is_token)
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
        refused(Traffic::one("GET", "/\u{e9}", None, None), "'\u{e9}' is not ASCII");
        refused(Traffic::one("PUT", "/", None, Some("a\r\nb: c")), "header");
        refused(Traffic::expecting(Vec::new()), "no exchanges");
        let exchange = |change: fn(&mut Exchange)| Traffic::expecting(vec![Exchange::new("GET", "/").with(change)]);
        refused(exchange(|e| e.statuses.clear()), "right status");
        refused(exchange(|e| e.answers.clear()), "right bodies");
        for own in ["CONTENT-LENGTH", "Transfer-Encoding", "connection"] {
            let named = Exchange::new("GET", "/").with(|e| e.headers.push((own.into(), "1".into())));
            refused(Traffic::expecting(vec![named]), "own");
        }
        refused(exchange(|e| e.headers.push(("Host".into(), "a b".into()))), "host");
        refused(exchange(|e| e.headers.extend([("Host".into(), "a".into()), ("host".into(), "a".into())])), "host");
        refused(exchange(|e| e.headers.push(("X".into(), "a\r\nY: b".into()))), "header");
        refused(exchange(|e| e.headers.push(("X: b\r\nY".into(), "a".into()))), "header");
        refused(exchange(|e| e.target = "/ HTTP/1.1\r\nX: a".into()), "path");
        refused(exchange(|e| e.weight = 0), "weight 0");
        refused(exchange(|e| e.ids = Some(1..=9)), "no {id}");
        refused(exchange(|e| (e.target, e.ids) = ("/{id}".into(), Some(RangeInclusive::new(9, 1)))), "9-1 are none");
        refused(exchange(|e| (e.target, e.ids) = ("/{id}".into(), Some(0..=100_000))), "100001 ids together");
        refused(exchange(|e| e.weight = 1_000_001), "weights");
        refused(Traffic::discovering(Vec::new()), "no exchanges");
        for invalid in ["", "get", "get=", "get=-1", "get=0", "get=1,get=2", "delete=1", "get=1,"] {
            assert!(invalid.parse::<Mix>().unwrap_err().contains("get=95,put=5"), "{invalid}");
        }
    }
}
