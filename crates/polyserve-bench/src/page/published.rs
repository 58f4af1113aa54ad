//! The published figures: four servers in one set-up, and the catalog's servers that represent them.
//!
//! Invariant: the figures are those of the published file. Cost: a few lines are read.

use std::time::Duration;

use polyserve::catalog::{Catalog, ServerEntry};
use serde::Deserialize;

use super::record::{PageFigures, PhaseFigures};
use crate::published::{self, PAGE, PAGE_BYTES, PAGE_ROWS};

/// The number of concurrent connections, each for one request.
pub const CONNECTIONS: usize = 100;
/// The number of requests.
pub const REQUESTS: u64 = 10_000;
/// The page waits on one request in this number of requests.
pub const REQUESTS_PER_WAIT: u64 = 10;
/// The length of a wait.
pub const WAIT: Duration = Duration::from_secs(2);

/// A published contestant.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name in the published figures.
    pub published_as: &'static str,
    /// The server of the catalog that represents it.
    pub server: &'static str,
    /// Its number of workers, if it was chosen.
    pub workers: Option<usize>,
}

/// The four contestants.
pub const SETUPS: [Setup; 4] = [
    Setup { published_as: "thread-pool-100", server: "pool_server/mpsc_pool", workers: Some(100) },
    // async-std is discontinued; smol is its named successor.
    Setup { published_as: "async-std", server: "smol", workers: None },
    Setup { published_as: "futures-thread-pool-100", server: "futures_pool", workers: Some(100) },
    Setup { published_as: "tokio", server: "tokio_tcp", workers: None },
];

impl Setup {
    /// Returns the server of `catalog` that represents this contestant, if the catalog has it.
    pub fn server<'a>(&self, catalog: &'a Catalog) -> Option<&'a ServerEntry> {
        catalog.server(self.server).ok()
    }
}

/// The published figures of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedServer {
    /// The server's name.
    pub server: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: PageFigures,
}

/// The published figures.
///
/// # Errors
///
/// Returns an error if the built-in file does not have these columns.
pub fn figures() -> anyhow::Result<Vec<PublishedServer>> {
    published::rows(PAGE)
}

/// A published row: a phase of the requests of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedPhase {
    /// The server's name.
    pub server: String,
    /// The phase: `connect`, `processing`, `waiting` (for the first byte, without the connect), `total`.
    pub row: String,
    /// Its times, in whole milliseconds but for the standard deviation.
    #[serde(flatten)]
    pub figures: PhaseFigures,
}

/// The published bytes of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedBytes {
    /// The server's name.
    pub server: String,
    /// The length of the page.
    pub document_bytes: u64,
    /// All bytes that the client received.
    pub total_bytes: u64,
    /// The bytes of the pages.
    pub html_bytes: u64,
    /// The transfer rate in units of 1,024 bytes a second.
    #[serde(rename = "received_kB_s")]
    pub received_kib_s: f64,
}

/// The published phases of the requests.
///
/// # Errors
///
/// Returns an error if the built-in file does not have these columns.
pub fn phases() -> anyhow::Result<Vec<PublishedPhase>> {
    published::rows(PAGE_ROWS)
}

/// The published bytes.
///
/// # Errors
///
/// Returns an error if the built-in file does not have these columns.
pub fn bytes() -> anyhow::Result<Vec<PublishedBytes>> {
    published::rows(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_contestant_has_figures_and_one_of_ours() {
        let figures = figures().unwrap();
        let names: Vec<&str> = figures.iter().map(|row| row.server.as_str()).collect();
        assert_eq!(names, SETUPS.map(|setup| setup.published_as));
        let figures = figures.iter().map(|row| &row.figures).collect::<Vec<_>>();
        assert_eq!((figures[0].requests_per_s, figures[3].total_s, figures[1].p90_ms), (495.72, 20.569, 2000.0));
        let catalog = Catalog::builtin();
        let servers = SETUPS.map(|setup| setup.server(&catalog).expect(setup.published_as).name.clone());
        assert_eq!(servers, ["pool_server/mpsc_pool", "smol", "futures_pool", "tokio_tcp"]);
    }

    #[test]
    fn the_published_page_has_as_many_bytes_as_ours() {
        let bytes = bytes().unwrap();
        let names: Vec<&str> = bytes.iter().map(|row| row.server.as_str()).collect();
        assert_eq!(names, SETUPS.map(|setup| setup.published_as));
        let length = crate::services::Page::BODY.len() as u64;
        assert!(
            bytes.iter().all(|row| (row.document_bytes, row.html_bytes) == (length, length * REQUESTS)),
            "{bytes:?}"
        );
        let phases = phases().unwrap();
        assert_eq!(phases.len(), SETUPS.len() * 4);
        let tokio = phases.iter().find(|row| row.server == "tokio" && row.row == "connect").unwrap();
        assert_eq!((tokio.figures.sd_ms, tokio.figures.max_ms), (2.4, 22.0));
    }
}
