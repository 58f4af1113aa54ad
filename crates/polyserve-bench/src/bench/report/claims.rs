//! The verdicts on the claims of a definition.

use super::definition_key;
use crate::bench::derived;
use crate::bench::experiment::{BenchPlan, Key, Sample};
use crate::bench::figures;
use crate::bench::mode::ModeKind;
use crate::bench::published::PublishedFigures;
use crate::claim::{ClaimDefinition, ClaimRow, ClaimSet};
use crate::experiment::Records;
use crate::report::Claim;

/// The verdicts on the definition's claims. A run with too few rounds answers none: its answer says so. A bound of a page is a matter
/// of seconds, so one round decides a claim that needs no more.
pub(super) fn claims(plan: &BenchPlan, records: &Records, seed: u64) -> anyhow::Result<Vec<Claim>> {
    // A pattern that stands for no contestant of the run has no claim.
    let takes_part = |claim: &ClaimDefinition| plan.contestants.iter().any(|name| claim.left.match_name(name));
    let is_asked = |claim: &ClaimDefinition| claim.contestant_names().next().is_some() || takes_part(claim);
    let min_rounds = |claim: &ClaimDefinition| match (&claim.right, plan.mode) {
        _ if claim.rule.is_of_cells() => claim.min_rounds(),
        (None, ModeKind::Page) => claim.least.unwrap_or(1),
        _ => plan.mode.min_rounds(),
    };
    let mut claims: Vec<ClaimDefinition> = definition_key(plan, "claim")?;
    claims.retain(|claim| is_asked(claim) && plan.rounds >= min_rounds(claim).min(plan.mode.min_rounds()));
    if claims.is_empty() || plan.quick {
        return Ok(Vec::new());
    }
    let set = ClaimSet { name: plan.name.clone(), baseline: Some(plan.baseline.clone()), claims };
    let at_cell =
        |row: ClaimRow, key: &Key| key.cell.iter().fold(row, |row, (axis, value)| row.at(&axis.to_string(), value));
    let is_right = |(key, _): &(&Key, &Sample)| records.absence(key).is_none();
    let measured = records.samples().filter(is_right).map(|(key, sample)| {
        let row = ClaimRow { figures: figures::complete(&sample.figures), ..ClaimRow::new(&key.contestant, key.round) };
        at_cell(row, key)
    });
    let absent = records.absences();
    let absent = absent.map(|(key, absence)| at_cell(ClaimRow::absent(&key.contestant, &absence.why), key));
    let rows = derived::rows(plan.mode, measured.chain(absent).collect(), records)?;
    let verdicts = set.verdicts(&rows, seed);
    with_published_verdicts(verdicts, set, &definition_key(plan, "published")?)
}

/// The claims about many cells, with the verdicts on them by the published tables. These have one round and no noise, so every
/// difference in them counts.
fn with_published_verdicts(
    claims: Vec<Claim>,
    mut set: ClaimSet,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<Claim>> {
    let rows = published.iter().map(PublishedFigures::claim_rows).collect::<anyhow::Result<Vec<_>>>()?.concat();
    if !set.claims.iter().any(|claim| claim.rule.is_of_cells()) {
        return Ok(claims);
    }
    set.baseline = None;
    set.claims.iter_mut().filter(|claim| claim.rule.is_of_cells()).for_each(|claim| claim.least = Some(1));
    let is_judged = |definition: &ClaimDefinition| {
        let mut names = definition.contestant_names();
        definition.rule.is_of_cells() && names.any(|name| rows.iter().any(|row| row.contestant == *name))
    };
    let by_tables = set.verdicts(&rows, 0);
    let with = |((claim, by_tables), definition): ((Claim, Claim), &ClaimDefinition)| match is_judged(definition) {
        true => {
            let Claim { verdict, figure, .. } = by_tables;
            claim.with_published(format!("the article's tables, by the same test: {verdict}. {figure}"))
        }
        false => claim,
    };
    Ok(claims.into_iter().zip(by_tables).zip(&set.claims).map(with).collect())
}
