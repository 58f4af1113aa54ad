//! What was published: four servers in one set-up, their figures, and which of ours stand for them.
//!
//! Invariant: the figures are the published file's own. Cost: a few lines are read.

use std::time::Duration;

use anyhow::Context as _;
use polyserve::catalog::{Catalog, ServerEntry, Tag};
use serde::{Deserialize, Serialize};

use crate::published::PAGE;

/// Connections at a time, each for one request.
pub const CONNECTIONS: usize = 100;
/// Requests.
pub const REQUESTS: u64 = 10_000;
/// Every how many requests the page waits.
pub const EVERY: u64 = 10;
/// How long it waits.
pub const WAIT: Duration = Duration::from_secs(2);

/// A published contestant.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name in the published figures.
    pub published_as: &'static str,
    /// Its workers, where they were chosen.
    pub workers: Option<usize>,
}

/// The four.
pub const SETUPS: [Setup; 4] = [
    Setup { published_as: "thread-pool-100", workers: Some(100) },
    Setup { published_as: "async-std", workers: None },
    Setup { published_as: "futures-thread-pool-100", workers: Some(100) },
    Setup { published_as: "tokio", workers: None },
];

impl Setup {
    /// Returns the server of `catalog` that stands for this contestant.
    pub fn server<'a>(&self, catalog: &'a Catalog) -> Option<&'a ServerEntry> {
        catalog.servers().iter().find(|entry| entry.has(Tag::PublishedTwin(self.published_as)))
    }
}

/// What was published of a server, and is measured again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The server's name.
    pub server: String,
    /// From the first request to the last answer, in seconds.
    pub total_s: f64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// The mean time of a request, in milliseconds; ours from its connection's first packet, as all that follow.
    pub mean_ms: f64,
    /// Half of the requests took at most so long; published in whole milliseconds, as all quantiles.
    pub p50_ms: f64,
    /// 66 %.
    pub p66_ms: f64,
    /// 75 %.
    pub p75_ms: f64,
    /// 80 %.
    pub p80_ms: f64,
    /// 90 %.
    pub p90_ms: f64,
    /// 95 %.
    pub p95_ms: f64,
    /// 98 %.
    pub p98_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// The published figures.
///
/// # Errors
///
/// Where the file that was built in is not what it should be.
pub fn figures() -> anyhow::Result<Vec<Figures>> {
    let rows = csv::Reader::from_reader(PAGE.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().context("the published figures of the page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_contestant_has_figures_and_one_of_ours() {
        let figures = figures().unwrap();
        let names: Vec<&str> = figures.iter().map(|row| row.server.as_str()).collect();
        assert_eq!(names, SETUPS.map(|setup| setup.published_as));
        assert_eq!((figures[0].requests_per_s, figures[3].total_s, figures[1].p90_ms), (495.72, 20.569, 2000.0));
        let catalog = Catalog::builtin();
        let servers = SETUPS.map(|setup| setup.server(&catalog).expect(setup.published_as).name.clone());
        assert_eq!(servers, ["pool_server/mpsc_pool", "smol", "futures_pool", "tokio_tcp"]);
    }
}
