//! The address kit: checks the contract of the entity service over HTTP/1.1, for any running server at an address.
//!
//! The [server kit](crate::server) starts its subjects with its own configurations, services and repos. These
//! properties only send requests, so they are fewer, and none waits for a timeout. They separate what an RFC requires
//! from what it leaves to the server ([`Group`]).
//!
//! Invariant: a verdict depends only on what was seen on the wire, and no answer of the server causes a panic.
//!
//! Cost: each property opens a few connections, stops at the first failure, and waits at most the given time for a
//! byte. The whole list ends within 15 s, and properties that did not run by then are listed. It stores a few entities
//! with ids near -7000.
//!
//! ```no_run
//! use polyserve_conformance::address;
//! use std::time::Duration;
//!
//! let report = address::check("127.0.0.1:8001".parse()?, Duration::from_secs(2));
//! println!("{report}");
//! assert!(report.keeps_framing());
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! # Layout
//!
//! `probe` sends requests. Most properties are cases of the [wire corpus](crate::wire), which `corpus` sends. `exchanges` has the
//! others.

mod corpus;
mod exchanges;
mod probe;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use probe::Probe;
use serde::{Deserialize, Serialize};

/// The subject of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The end of a message, as RFC 9112 requires it. A server that fails one of these can be made to answer a request
    /// that no client sent.
    Framing,
    /// The end of a message, in cases in which the RFC leaves a choice and the contract is strict: a bare LF, a length
    /// together with `chunked`.
    FramingLenient,
    /// Request lines and fields.
    Head,
    /// The entity service: statuses and bodies.
    Entity,
    /// Keeping, closing, pipelining.
    Connection,
}

impl Group {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Framing => "framing",
            Self::FramingLenient => "framing, by choice",
            Self::Head => "head",
            Self::Entity => "entity",
            Self::Connection => "connection",
        }
    }
}

/// A named property of a server at an address.
#[derive(Debug)]
pub struct AddressProperty {
    /// Its name: `two_hosts_are_refused`.
    pub name: &'static str,
    /// The subject of the property.
    pub group: Group,
    run: fn(&Probe) -> Result<(), String>,
}

/// Lists the properties of each group: functions of `exchanges`, and properties of the wire corpus.
macro_rules! properties {
    ($($group:ident { exchanges { $($name:ident,)* } corpus { $($case:ident,)* } })*) => {
        /// Every property, in the order in which they run.
        pub const PROPERTIES: &[AddressProperty] = &[$(
            $(AddressProperty { name: stringify!($name), group: Group::$group, run: exchanges::$name },)*
            $(AddressProperty {
                name: stringify!($case),
                group: Group::$group,
                run: |probe| corpus::check(probe, stringify!($case)),
            },)*
        )*];
    };
}

properties! {
    Entity {
        exchanges {
            put_creates_and_replaces,
        }
        corpus {
            get_shows_the_entity,
            absent_entities_are_not_found,
            head_is_get_without_the_body,
            a_path_that_is_no_id_is_a_bad_request,
            other_methods_are_not_allowed,
            a_body_that_is_not_json_is_a_bad_request,
            json_that_is_no_entity_is_unprocessable,
        }
    }
    Connection {
        exchanges {
            pipelined_requests_are_answered_in_order,
            a_request_may_arrive_byte_by_byte,
            a_half_closed_client_gets_its_answer,
        }
        corpus {
            an_answer_arrives_though_what_follows_is_refused,
            an_expected_continue_comes_before_the_body,
            a_connection_is_kept_by_default,
            a_client_may_ask_to_close,
            a_connection_of_1_0_closes_by_default,
            a_connection_of_1_0_is_kept_on_request,
        }
    }
    Head {
        exchanges {
            the_date_is_the_time,
            half_a_head_is_no_request,
        }
        corpus {
            a_request_without_a_host_is_refused,
            two_hosts_are_refused,
            an_invalid_host_is_refused,
            a_head_that_is_too_large_is_refused,
            unknown_methods_are_not_implemented,
            the_preface_of_http_2_is_refused,
            garbage_is_answered_with_400,
        }
    }
    Framing {
        exchanges {
            a_length_never_overrides_chunked,
            a_bare_cr_makes_no_field,
            a_folded_line_makes_no_field,
            chunked_in_1_0_is_the_last,
        }
        corpus {
            a_length_is_digits,
            lengths_that_differ_are_refused,
            codings_that_do_not_end_with_chunked_are_refused,
            a_space_before_the_colon_is_refused,
            broken_chunks_are_refused,
        }
    }
    FramingLenient {
        exchanges {}
        corpus {
            a_length_with_chunked_is_refused,
            chunked_is_the_only_coding,
            a_bare_lf_ends_no_line,
            bare_cr_and_control_bytes_are_refused,
            folded_lines_are_refused,
        }
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedProperty {
    /// The property's name.
    pub property: Cow<'static, str>,
    /// The subject of the property.
    pub group: Group,
    /// What was seen, in one line.
    pub why: String,
}

/// The results of all properties at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReport {
    /// The properties that hold, by name.
    pub held: Vec<Cow<'static, str>>,
    /// The properties that do not hold.
    pub failed: Vec<FailedProperty>,
    /// The properties that did not run because the time was over. A silent server uses up the time.
    pub not_run: Vec<Cow<'static, str>>,
}

impl AddressReport {
    /// Whether every property of [`Group::Framing`] ran and holds.
    pub fn keeps_framing(&self) -> bool {
        PROPERTIES
            .iter()
            .filter(|property| property.group == Group::Framing)
            .all(|it| self.held.iter().any(|held| held == it.name))
    }

    /// The number of properties that ran.
    pub fn ran(&self) -> usize {
        self.held.len() + self.failed.len()
    }
}

impl fmt::Display for AddressReport {
    /// One line: `fails 3 of 40; head: two_hosts_are_refused; framing, by choice: a_bare_lf_ends_no_line, ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.ran();
        match self.failed.len() {
            0 => write!(f, "holds all {total}")?,
            failed => write!(f, "fails {failed} of {total}")?,
        }
        let mut group = None;
        for failed in &self.failed {
            let is_new_group = group.replace(failed.group) != Some(failed.group);
            match is_new_group {
                true => write!(f, "; {}: {}", failed.group.name(), failed.property)?,
                false => write!(f, ", {}", failed.property)?,
            }
        }
        match self.not_run.len() {
            0 => Ok(()),
            count => write!(f, "; {count} more were not run, because the time was over"),
        }
    }
}

/// The longest wait for a byte.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// No property of a check begins after this time. One property takes at most three times the max wait.
const MAX_TOTAL: Duration = Duration::from_secs(9);

/// Runs every property on the server at `addr`. Waits at most `max_wait`, and never more than 2 s, for a byte. After 9 s no further
/// property begins.
pub fn check(addr: SocketAddr, max_wait: Duration) -> AddressReport {
    check_within(addr, max_wait.min(LONGEST_WAIT), MAX_TOTAL)
}

/// Runs every property on the server at `addr`. Waits at most `max_wait` for a byte. After `total` no further property begins.
///
/// Unlike [`check`], it can wait for a server on a machine that is busy with other work.
pub fn check_within(addr: SocketAddr, max_wait: Duration, total: Duration) -> AddressReport {
    let deadline = Instant::now() + total;
    let mut report = AddressReport::default();
    for AddressProperty { name, group, run } in PROPERTIES {
        if Instant::now() >= deadline {
            report.not_run.push(Cow::Borrowed(name));
            continue;
        }
        match run(&Probe::new(addr, max_wait)) {
            Ok(()) => report.held.push(Cow::Borrowed(name)),
            Err(why) => report.failed.push(FailedProperty { property: Cow::Borrowed(name), group: *group, why }),
        }
    }
    report
}
