//! Verifies answers, and the final state of the store.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::data::{Data, EntityVersion};
use polyserve_conformance::client::Response;
use serde::Deserialize;

use super::requests::{RequestGroup, Scenario, StressRequest};

/// The fate of a request, by its right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The request was carried out.
    Done,
    /// The request was rejected by a 503 with a `Retry-After`, and had no effect.
    Refused,
}

/// Checks every part of an answer to `planned`. Returns the reason if the answer is wrong.
pub(crate) fn answer(scenario: &Scenario, planned: &StressRequest, response: &Response) -> Result<Fate, String> {
    check_date(scenario, response)?;
    let (status, id) = (response.status, planned.id);
    if status == 503 {
        return match field(response, "retry-after")? {
            Some(after) if after.parse::<u32>().is_ok() => Ok(Fate::Refused),
            other => Err(format!("a 503 with the Retry-After {other:?}")),
        };
    }
    let expected = match planned.phase {
        RequestGroup::PutNew => 201,
        RequestGroup::Get | RequestGroup::PutUpdate => 200,
    };
    if status != expected {
        return Err(format!("status {status} in place of {expected}: {}", response.text()));
    }
    match planned.phase {
        RequestGroup::Get => shown_version(scenario.data, id, &ALL_VERSIONS, response).map(drop)?,
        RequestGroup::PutNew | RequestGroup::PutUpdate if !response.body.is_empty() => {
            return Err("a PUT's answer has a body".into());
        }
        RequestGroup::PutNew => {
            let location = field(response, "location")?;
            if location != Some(format!("/{id}").as_str()) {
                return Err(format!("the Location of the new id {id} is {location:?}"));
            }
        }
        RequestGroup::PutUpdate => {}
    }
    Ok(Fate::Done)
}

/// The values that a GET can see while updates run.
const ALL_VERSIONS: [EntityVersion; 3] = [EntityVersion::New, EntityVersion::FirstUpdate, EntityVersion::SecondUpdate];

/// The value of a field, which may not occur twice.
fn field<'a>(response: &'a Response, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = response.all(name);
    let value = values.next();
    if values.next().is_some() { Err(format!("the header {name} occurs twice")) } else { Ok(value) }
}

fn check_date(scenario: &Scenario, response: &Response) -> Result<(), String> {
    match field(response, "date")? {
        None if scenario.without_date => Ok(()),
        Some(_) if response.date().is_some() => Ok(()),
        other => Err(format!("the answer's Date is {other:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShownEntity {
    id: i64,
    description: String,
    value: f64,
}

/// Returns which of the `allowed` rows of `id` the answer shows. The row must be equal bit for bit.
fn shown_version(data: Data, id: i64, allowed: &[EntityVersion], response: &Response) -> Result<EntityVersion, String> {
    let media_type = field(response, "content-type")?;
    if media_type != Some("application/json") {
        return Err(format!("the entity's Content-Type is {media_type:?}"));
    }
    let body = || response.text();
    let shown: ShownEntity = serde_json::from_slice(&response.body).map_err(|error| format!("{error}: {}", body()))?;
    let found = allowed.iter().find(|version| {
        let row = data.row(id, **version).entity;
        (shown.id, shown.description.as_str(), shown.value.to_bits())
            == (row.id, row.description.as_str(), row.value.to_bits())
    });
    found.copied().ok_or_else(|| format!("{} is not a possible value of {id}", body()))
}

/// The fate of every PUT, for the check of the final state.
#[derive(Debug)]
pub(crate) struct Ledger {
    new: Vec<AtomicU8>,
    updates: Vec<AtomicU8>,
}

const UNKNOWN: u8 = 0;
const DONE: u8 = 1;
const REFUSED: u8 = 2;

impl Ledger {
    /// A ledger in which every fate is unknown. Cost: three bytes for each id.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let unknown = |count| std::iter::repeat_with(|| AtomicU8::new(UNKNOWN)).take(count as usize).collect();
        Self { new: unknown(scenario.ids), updates: unknown(scenario.ids * 2) }
    }

    /// Notes the fate of `planned`.
    pub(crate) fn note(&self, scenario: &Scenario, planned: &StressRequest, fate: Fate) {
        let id = planned.id as usize;
        let entry = match (planned.phase, planned.version) {
            (RequestGroup::Get, _) => return,
            (RequestGroup::PutNew, _) => &self.new[id - scenario.ids as usize],
            (RequestGroup::PutUpdate, EntityVersion::SecondUpdate) => &self.updates[id * 2 + 1],
            (RequestGroup::PutUpdate, _) => &self.updates[id * 2],
        };
        entry.store(if fate == Fate::Done { DONE } else { REFUSED }, Ordering::Relaxed);
    }

    /// The values that can be stored under `id` in the end, and whether it can be absent.
    fn allowed(&self, scenario: &Scenario, id: i64) -> (Vec<EntityVersion>, bool) {
        let (id, ids) = (id as usize, scenario.ids as usize);
        let fate = |entry: &AtomicU8| entry.load(Ordering::Relaxed);
        if id >= ids {
            return match fate(&self.new[id - ids]) {
                DONE => (vec![EntityVersion::New], false),
                REFUSED => (vec![], true),
                _ => (vec![EntityVersion::New], true),
            };
        }
        let (first, second) = (fate(&self.updates[id * 2]), fate(&self.updates[id * 2 + 1]));
        let rows = [
            (EntityVersion::New, first != DONE && second != DONE),
            (EntityVersion::FirstUpdate, first != REFUSED),
            (EntityVersion::SecondUpdate, second != REFUSED),
        ];
        (rows.into_iter().filter(|(_, may)| *may).map(|(version, _)| version).collect(), false)
    }

    /// Checks the answer to a GET of `id` after the last PUT. Returns true if the id is present. Returns an error if the value
    /// is not of a last PUT, or if the id is absent and must be present.
    pub(crate) fn check(&self, scenario: &Scenario, id: i64, response: &Response) -> Result<bool, String> {
        check_date(scenario, response)?;
        let (allowed, may_be_absent) = self.allowed(scenario, id);
        match response.status {
            200 => shown_version(scenario.data, id, &allowed, response).map(|_| true),
            404 if may_be_absent => Ok(false),
            404 => Err(format!("{id} was lost")),
            status => Err(format!("status {status}: {}", response.text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn verified(planned: &StressRequest, scenario: &Scenario, head: &str, body: &str) -> Result<Fate, String> {
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let (status, reason) = lines.next().unwrap().split_once(' ').unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap()).map(|(name, value)| (name.into(), value.into()));
        let (status, headers, body) = (status.parse().unwrap(), headers.collect(), body.into());
        let reason = reason.into();
        let response = Response { minor: 1, status, reason, headers, body, length: 0, lasts_to_end: false };
        answer(scenario, planned, &response)
    }

    #[test]
    fn a_get_shows_one_whole_row() {
        let scenario = Scenario::new(10_000, Data::new(3));
        let planned = scenario.planned(RequestGroup::Get, 5);
        let head = format!("200 OK\r\n{DATE}Content-Type: application/json");
        let [new, first, second] = ALL_VERSIONS.map(|version| scenario.data.row(5, version));
        for row in [&new, &first, &second] {
            assert_eq!(verified(&planned, &scenario, &head, &row.to_json()), Ok(Fate::Done));
        }
        let torn = new.to_json().replace(&new.value_text(), &first.value_text());
        let next = f64::from_bits(new.entity.value.to_bits() + 1);
        let off_by_a_bit = new.to_json().replace(&new.value_text(), &format!("{next:?}"));
        let another = scenario.data.row(6, EntityVersion::New).to_json();
        let longer = new.to_json().replace('}', ",\"more\":1}");
        for wrong in [torn, off_by_a_bit, another, longer, String::from("{"), String::new()] {
            assert!(verified(&planned, &scenario, &head, &wrong).is_err(), "{wrong}");
        }
        let untyped = format!("200 OK\r\n{DATE}Content-Type: text/plain");
        assert!(verified(&planned, &scenario, &untyped, &new.to_json()).unwrap_err().contains("Content-Type"));
        assert!(
            verified(&planned, &scenario, "200 OK\r\nContent-Type: application/json", &new.to_json()).is_err(),
            "no Date"
        );
        let mut listing = scenario;
        listing.without_date = true;
        let undated = "200 OK\r\nContent-Type: application/json";
        assert_eq!(verified(&planned, &listing, undated, &new.to_json()), Ok(Fate::Done), "a published listing");
        assert!(verified(&planned, &listing, &format!("{undated}\r\nDate: now"), &new.to_json()).is_err());
    }

    #[test]
    fn a_put_says_what_it_did() {
        let scenario = Scenario::new(10_000, Data::new(3));
        let (new, update) = (scenario.planned(RequestGroup::PutNew, 0), scenario.planned(RequestGroup::PutUpdate, 0));
        let created = format!("201 Created\r\n{DATE}Location: /10000");
        let replaced = format!("200 OK\r\n{DATE}");
        assert_eq!(verified(&new, &scenario, &created, ""), Ok(Fate::Done));
        assert_eq!(verified(&update, &scenario, &replaced, ""), Ok(Fate::Done));
        let elsewhere = created.replace("10000", "10001");
        for (planned, head, body) in
            [(&new, &replaced, ""), (&update, &created, ""), (&new, &created, "x"), (&new, &elsewhere, "")]
        {
            assert!(verified(planned, &scenario, head, body).is_err(), "{head}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let scenario = Scenario::new(10_000, Data::new(3));
        let planned = scenario.planned(RequestGroup::Get, 0);
        let refused = format!("503 Service Unavailable\r\n{DATE}");
        assert_eq!(verified(&planned, &scenario, &format!("{refused}Retry-After: 1"), "{}"), Ok(Fate::Refused));
        assert!(verified(&planned, &scenario, &refused, "{}").is_err());
        assert!(verified(&planned, &scenario, &format!("500 Oh\r\n{DATE}"), "oh").unwrap_err().contains("oh"));
    }

    #[test]
    fn what_may_be_left_follows_from_the_answers() {
        use EntityVersion::{FirstUpdate, New, SecondUpdate};
        use Fate::{Done, Refused};
        let scenario = Scenario::new(1, Data::new(0));
        let left = |first: Option<Fate>, second: Option<Fate>| {
            let ledger = Ledger::new(&scenario);
            for (index, fate) in [first, second].into_iter().enumerate() {
                let planned = scenario.planned(RequestGroup::PutUpdate, index as u64);
                fate.map(|fate| ledger.note(&scenario, &planned, fate)).unwrap_or_default();
            }
            ledger.allowed(&scenario, 0).0
        };
        assert_eq!(left(Some(Done), Some(Done)), [FirstUpdate, SecondUpdate]);
        assert_eq!(left(Some(Done), Some(Refused)), [FirstUpdate]);
        assert_eq!(left(Some(Refused), Some(Refused)), [New]);
        assert_eq!(left(None, Some(Refused)), [New, FirstUpdate]);
        assert_eq!(left(None, Some(Done)), [FirstUpdate, SecondUpdate]);

        let created = |fate: Option<Fate>| {
            let ledger = Ledger::new(&scenario);
            fate.map(|fate| ledger.note(&scenario, &scenario.planned(RequestGroup::PutNew, 0), fate))
                .unwrap_or_default();
            ledger.allowed(&scenario, 1)
        };
        assert_eq!(created(Some(Done)), (vec![New], false));
        assert_eq!(created(Some(Refused)), (vec![], true));
        assert_eq!(created(None), (vec![New], true));
    }
}
