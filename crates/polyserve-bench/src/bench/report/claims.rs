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
use crate::report::figures::counted;

/// The verdicts on the definition's claims that the run can answer, and a sentence about the others, if there are any. The quick part,
/// too few rounds and contestants that were not asked for answer none. A bound of a page is a matter of seconds, so one round decides
/// a claim that needs no more.
pub(super) fn claims(plan: &BenchPlan, records: &Records, seed: u64) -> anyhow::Result<(Vec<Claim>, Option<String>)> {
    // A pattern that stands for no contestant of the run has no claim.
    let takes_part = |claim: &ClaimDefinition| plan.contestants.iter().any(|name| claim.left.match_name(name));
    let is_asked = |claim: &ClaimDefinition| claim.contestant_names().next().is_some() || takes_part(claim);
    let min_rounds = |claim: &ClaimDefinition| match (&claim.right, plan.mode) {
        _ if claim.rule.is_of_cells() => claim.min_rounds(),
        (None, ModeKind::Page) => claim.least.unwrap_or(1),
        _ => plan.mode.min_rounds(),
    };
    let mut claims: Vec<ClaimDefinition> = definition_key(plan, "claim")?;
    claims.retain(is_asked);
    let all = claims.len();
    let has_rounds = |claim: &ClaimDefinition| plan.rounds >= min_rounds(claim).min(plan.mode.min_rounds());
    // One that could not take part has an absence, which the verdict explains.
    let is_left_out =
        |name: &String| !plan.contestants.contains(name) && records.absences().all(|(key, _)| key.contestant != *name);
    claims.retain(|claim| !plan.quick && has_rounds(claim) && !claim.contestant_names().any(is_left_out));
    let unanswered = (claims.len() < all).then(|| unanswered(plan, claims.len(), all));
    if claims.is_empty() {
        return Ok((Vec::new(), unanswered));
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
    Ok((with_published_verdicts(verdicts, set, &definition_key(plan, "published")?)?, unanswered))
}

/// How many claims of the definition a run answers that cannot answer all.
fn unanswered(plan: &BenchPlan, judged: usize, all: usize) -> String {
    let part = match plan.rounds {
        _ if plan.quick => String::from("The quick part"),
        rounds => format!(
            "This run, of {} and {},",
            counted(rounds as u64, "round"),
            counted(plan.contestants.len() as u64, "contestant")
        ),
    };
    match judged {
        0 => format!("{part} answers none of the definition's claims."),
        _ => format!("{part} answers {judged} of the definition's {all} claims."),
    }
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
