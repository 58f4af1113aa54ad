//! The requests: the published scenario, as a function from a number to a request.
//!
//! There are `n` GETs of existing ids, `n` PUTs of new ids, and two PUTs to each of `n` existing ids. Existing ids are `0..n`, new ids are `n..2n`. If the groups run at once, a GET can race with an update of its id.

use std::net::SocketAddr;

use crate::data::{Data, EntityVersion};

/// The groups of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestGroup {
    /// PUTs of new ids.
    PutNew,
    /// GETs of existing ids, each once.
    Get,
    /// PUTs to existing ids, each twice.
    PutUpdate,
}

impl RequestGroup {
    /// All groups, in the order of the published table.
    pub(crate) const ALL: [Self; 3] = [Self::PutNew, Self::Get, Self::PutUpdate];

    /// The group's name in the published table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PutNew => "put-new",
            Self::Get => "get",
            Self::PutUpdate => "put-update",
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StressRequest {
    /// The group.
    pub phase: RequestGroup,
    /// The id.
    pub id: i64,
    /// The value of a PUT. A GET ignores it.
    pub version: EntityVersion,
}

/// The scenario, with a number of ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// The number of existing ids, and of new ids.
    pub ids: u64,
    /// The values.
    pub data: Data,
    /// Whether an answer may lack a `Date`: a published listing sends none.
    pub without_date: bool,
}

impl Scenario {
    /// The scenario with this number of existing ids, and of new ids. Published were 10 000.
    pub(crate) fn new(ids: u64, data: Data) -> Self {
        Self { ids, data, without_date: false }
    }

    /// The number of requests of `phase`.
    pub(crate) fn samples(&self, phase: RequestGroup) -> u64 {
        match phase {
            RequestGroup::PutNew | RequestGroup::Get => self.ids,
            RequestGroup::PutUpdate => self.ids * 2,
        }
    }

    /// The `index`-th request of `phase`. The two updates of an id follow each other, so that they race.
    pub(crate) fn planned(&self, phase: RequestGroup, index: u64) -> StressRequest {
        let (id, version) = match phase {
            RequestGroup::PutNew => (self.ids + index, EntityVersion::New),
            RequestGroup::Get => (index, EntityVersion::New),
            RequestGroup::PutUpdate if index.is_multiple_of(2) => (index / 2, EntityVersion::FirstUpdate),
            RequestGroup::PutUpdate => (index / 2, EntityVersion::SecondUpdate),
        };
        StressRequest { phase, id: id.cast_signed(), version }
    }

    /// The bytes of `planned`.
    pub(crate) fn request(&self, planned: &StressRequest, host: SocketAddr, keep_alive: bool) -> Vec<u8> {
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let id = planned.id;
        match planned.phase {
            RequestGroup::Get => format!("GET /{id} HTTP/1.1\r\nHost: {host}\r\n{connection}\r\n"),
            RequestGroup::PutNew | RequestGroup::PutUpdate => {
                let (body, json) = (self.data.row(id, planned.version).to_json(), "Content-Type: application/json");
                let length = body.len();
                format!(
                    "PUT / HTTP/1.1\r\nHost: {host}\r\n{json}\r\nContent-Length: {length}\r\n{connection}\r\n{body}"
                )
            }
        }
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// GETs and new ids once, updates twice.
    #[test]
    fn every_request_is_asked_once() {
        let scenario = Scenario::new(10, Data::new(0));
        assert_eq!((scenario.ids, RequestGroup::ALL.map(|phase| scenario.samples(phase)).iter().sum()), (10, 40));
        let requests = RequestGroup::ALL
            .into_iter()
            .flat_map(|phase| (0..scenario.samples(phase)).map(move |index| scenario.planned(phase, index)));
        let mut seen: HashMap<_, u32> = HashMap::new();
        for planned in requests {
            *seen.entry((planned.phase, planned.id, planned.version)).or_default() += 1;
        }
        assert!(seen.len() == 40 && seen.values().all(|times| *times == 1));
        assert!(seen.keys().all(|(phase, id, _)| (*id >= 10) == (*phase == RequestGroup::PutNew) && *id < 20));
    }

    #[test]
    fn requests_are_what_the_contract_takes() {
        let (scenario, host) = (Scenario::new(10_000, Data::new(0)), "127.0.0.1:80".parse().unwrap());
        let get = scenario.request(&scenario.planned(RequestGroup::Get, 3), host, false);
        assert_eq!(get, b"GET /3 HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\r\n");
        let put = String::from_utf8(scenario.request(&scenario.planned(RequestGroup::PutNew, 0), host, true)).unwrap();
        let (head, body) = put.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && !head.contains("Connection"), "{head}");
        assert_eq!(body, scenario.data.row(10_000, EntityVersion::New).to_json());
    }
}
