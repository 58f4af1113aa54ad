//! The verdicts on the published claims: `defs/ladder.toml`, judged by the figures of warp.

use crate::bench::figures::{CLIENT_BUSY, SERVER_BUSY};
use crate::claim::{ClaimRow, ClaimSet};
use crate::report::Claim;

use super::results::{PUBLISHED_CONNECTIONS, Results};

/// The claims, each with its verdict.
///
/// # Errors
///
/// Returns an error if the definition has one.
pub fn claims(results: &Results) -> anyhow::Result<Vec<Claim>> {
    let set = ClaimSet::parse("defs/ladder.toml", include_str!("../../defs/ladder.toml"))?;
    Ok(set.verdicts(&rows(results), results.seed()))
}

/// The samples, and the contestants without figures. Earlier records have no number of connections: it was the published one.
fn rows(results: &Results) -> Vec<ClaimRow> {
    let connections = results.connections.unwrap_or(PUBLISHED_CONNECTIONS) as f64;
    let samples = results.entries.iter().flat_map(|entry| {
        let name = entry.name.as_str();
        let (server_busy, client_busy) = (results.server_busy(name), results.client_busy(name));
        results.samples_by_round(name).map(move |(round, sample)| {
            ClaimRow::new(name, round)
                .at("connections", connections)
                .at("pipeline", results.pipeline as f64)
                .with("requests_per_s", sample.requests_per_s)
                .with(SERVER_BUSY, server_busy)
                .with(CLIENT_BUSY, client_busy)
        })
    });
    let failed = results.failed.iter().map(|failed| ClaimRow::absent(&failed.key.name, &failed.why));
    let not_run = results.not_run.iter().map(|absent| ClaimRow::absent(&absent.name, &absent.why));
    samples.chain(failed).chain(not_run).collect()
}

#[cfg(test)]
mod tests;
