//! The fields of a request that name its client's program and the page that it comes from, for the report of its answer.

use polyserve_core::AnswerReport;
use polyserve_core::http::header::{HeaderName, REFERER, USER_AGENT};

/// The room that an idle connection keeps for the next request, in bytes. It suffices for a usual browser.
const KEPT_ROOM: usize = 512;

/// The values of `Referer` and `User-Agent` of a request. The head that they stand in is gone when a deferred answer arrives, so they
/// are copied. Cost: no allocation if an earlier request of the connection had as long fields.
#[derive(Debug, Default)]
pub struct AgentFields {
    /// One value after the other.
    bytes: Vec<u8>,
    /// The length of the value of `Referer`.
    referer: Option<usize>,
    has_user_agent: bool,
}

impl AgentFields {
    /// Copies the values, which `first` returns for the name of a field.
    pub fn set<'v>(&mut self, first: impl Fn(&HeaderName) -> Option<&'v [u8]>) {
        let (referer, user_agent) = (first(&REFERER), first(&USER_AGENT));
        self.bytes.clear();
        for value in [referer, user_agent].into_iter().flatten() {
            self.bytes.extend_from_slice(value);
        }
        (self.referer, self.has_user_agent) = (referer.map(<[u8]>::len), user_agent.is_some());
    }

    /// Adds the values to a report.
    pub fn report<'a>(&'a self, report: &mut AnswerReport<'a>) {
        let (referer, user_agent) = self.bytes.split_at_checked(self.referer.unwrap_or_default()).unwrap_or_default();
        report.referer = self.referer.map(|_| referer);
        report.user_agent = self.has_user_agent.then_some(user_agent);
    }

    /// Forgets the values: the answer is made.
    pub fn clear(&mut self) {
        (self.referer, self.has_user_agent) = (None, false);
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_ROOM {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::http::StatusCode;

    use super::*;

    #[test]
    fn a_report_has_the_fields_of_its_request() {
        let mut fields = AgentFields::default();
        let long = [b'x'; KEPT_ROOM + 1];
        let values: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a\xff\""), Some(&long)];
        for referer in values {
            for user_agent in values {
                fields.set(|name| if *name == REFERER { referer } else { user_agent });
                let mut report = AnswerReport::new(StatusCode::OK, 0, None, None);
                fields.report(&mut report);
                assert_eq!((report.referer, report.user_agent), (referer, user_agent));
                fields.clear();
                let mut report = AnswerReport::new(StatusCode::OK, 0, None, None);
                fields.report(&mut report);
                assert_eq!((report.referer, report.user_agent), (None, None));
                assert!(fields.bytes.capacity() <= KEPT_ROOM);
            }
        }
    }
}
