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
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use probe::Probe;
use serde::{Deserialize, Serialize};

use crate::wire::{CaseScope, properties_of};

/// The subject of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The entity service: statuses and bodies.
    Entity,
    /// Keeping, closing, pipelining.
    Connection,
    /// Request lines and fields.
    Head,
    /// The end of a message, as RFC 9112 requires it. A server that fails one of these can be made to answer a request
    /// that no client sent.
    Framing,
    /// The end of a message, in cases in which the RFC leaves a choice and the contract is strict: a bare LF, a length
    /// together with `chunked`.
    FramingLenient,
}

impl Group {
    const ALL: [Self; 5] = [Self::Entity, Self::Connection, Self::Head, Self::Framing, Self::FramingLenient];

    /// Returns the group with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entity => "entity",
            Self::Connection => "connection",
            Self::Head => "head",
            Self::Framing => "framing",
            Self::FramingLenient => "framing, by choice",
        }
    }
}

/// A named property of a server at an address.
#[derive(Clone, Copy, Debug)]
pub struct AddressProperty {
    /// Its name: `two_hosts_are_refused`.
    pub name: &'static str,
    /// The subject of the property.
    pub group: Group,
    /// Tests it. `None` if its cases are in the wire corpus.
    exchange: Option<ExchangeCheck>,
}

type ExchangeCheck = fn(&Probe) -> Result<(), String>;

/// Every property, in the order in which they run: by group.
pub static PROPERTIES: LazyLock<Vec<AddressProperty>> = LazyLock::new(|| {
    let mut properties = exchanges::PROPERTIES.to_vec();
    let of_corpus = properties_of(CaseScope::Address).into_iter().filter_map(|(name, group)| Some((name, group?)));
    properties.extend(of_corpus.map(|(name, group)| AddressProperty { name, group, exchange: None }));
    properties.sort_by_key(|property| property.group);
    properties
});

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
    for &AddressProperty { name, group, exchange } in PROPERTIES.iter() {
        if Instant::now() >= deadline {
            report.not_run.push(Cow::Borrowed(name));
            continue;
        }
        let probe = Probe::new(addr, max_wait);
        match exchange.map_or_else(|| corpus::check(&probe, name), |exchange| exchange(&probe)) {
            Ok(()) => report.held.push(Cow::Borrowed(name)),
            Err(why) => report.failed.push(FailedProperty { property: Cow::Borrowed(name), group, why }),
        }
    }
    report
}
