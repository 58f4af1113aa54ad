//! What a comparison leaves behind, and goes on from: the lines of its journal.
//!
//! Beside the headers there is one for everybody who cannot take part (`refusal`), one for what each peer keeps of the
//! contract (`contract`), one a turn or failure; the last is the ranking.
//!
//! Invariant: a round counts where it is whole, with a turn or a failure for everybody who was not out before. Of two
//! lines about the same turn the later one counts: a round that was not whole was taken again. Cost: all turns in
//! memory, 50 KB each.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contestant::{Contestant, Role};
use super::contract::Contract;
use super::ranking::{Failed, Ranking};
use super::turn::Turn;
use crate::journal::{Header, Journal, of_kind};

/// The experiment's name, and its file's where no other was given.
pub const NAME: &str = "compare";

const TURN: &str = "turn";
const FAILURE: &str = "failure";
const REFUSAL: &str = "refusal";
const CONTRACT: &str = "contract";
const RANKING: &str = "ranking";

/// A turn of a round; those of round 0 only calibrate. The line's kind is `turn`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnLine {
    /// The round.
    pub round: usize,
    /// The contestant's name.
    pub name: String,
    /// As what it took part.
    pub role: Role,
    /// What it has shown.
    #[serde(flatten)]
    pub turn: Turn,
}

/// A turn that failed: `failure`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FailureLine {
    round: usize,
    name: String,
    role: Role,
    why: String,
}

/// Somebody who was to take part and was not started: `refusal`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RefusalLine {
    name: String,
    why: String,
}

/// Where lines go, and those that were there.
#[derive(Debug)]
pub struct Record {
    journal: Journal,
    before: Recorded,
}

/// What a record holds.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    turns: HashMap<(usize, String), Result<Turn, String>>,
    /// In their order.
    calibrating: Vec<TurnLine>,
    refused: Vec<String>,
    contracts: Vec<Contract>,
    ranking: Option<Ranking>,
}

impl Recorded {
    /// What these lines hold.
    ///
    /// # Errors
    ///
    /// Where one of them is of a kind of ours and not what that should be.
    pub fn of(lines: &[Value]) -> anyhow::Result<Self> {
        let mut recorded = Self::default();
        for line in lines {
            let line = std::slice::from_ref(line); // the order of turns and failures counts
            for turn in of_kind::<TurnLine>(line, TURN)? {
                if turn.round == 0 {
                    recorded.calibrating.push(turn.clone());
                }
                recorded.turns.insert((turn.round, turn.name), Ok(turn.turn));
            }
            for FailureLine { round, name, why, .. } in of_kind(line, FAILURE)? {
                recorded.turns.insert((round, name), Err(why));
            }
        }
        recorded.refused = of_kind::<RefusalLine>(lines, REFUSAL)?.into_iter().map(|line| line.name).collect();
        recorded.contracts = of_kind(lines, CONTRACT)?;
        recorded.ranking = of_kind(lines, RANKING)?.pop();
        Ok(recorded)
    }

    /// The last ranking, if there is one.
    pub fn ranking(&self) -> Option<&Ranking> {
        self.ranking.as_ref()
    }

    /// What `name` keeps of the contract, if that was looked at.
    pub(super) fn contract(&self, name: &str) -> Option<&Contract> {
        self.contracts.iter().find(|contract| contract.name == name)
    }

    /// The turns in which `name` calibrated.
    pub(super) fn calibrating<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Turn> {
        self.calibrating.iter().filter(move |line| line.name == name).map(|line| &line.turn)
    }

    /// The turns of the rounds that are whole, from the first on, and who is out by their end. One that failed as it
    /// calibrated is out before the first. One that was refused then and takes part now has no turns in them.
    pub(super) fn rounds(
        &self,
        contestants: &[Contestant],
        most: usize,
    ) -> (Vec<Vec<Option<Turn>>>, Vec<Option<Failed>>) {
        let mut failed: Vec<Option<Failed>> = vec![None; contestants.len()];
        let mut rounds = Vec::new();
        for round in 1..=most {
            let (mut turns, mut now) = (Vec::new(), failed.clone());
            for (Contestant { name, .. }, out) in contestants.iter().zip(&mut now) {
                let of = |round: usize| self.turns.get(&(round, name.clone()));
                let calibrated = || of(0).filter(|turn| round == 1 && turn.is_err()).map(|turn| (0, turn));
                turns.push(match of(round).map(|turn| (round, turn)).or_else(calibrated) {
                    _ if out.is_some() => None,
                    Some((_, Ok(turn))) => Some(turn.clone()),
                    Some((round, Err(why))) => {
                        *out = Some(Failed { name: name.clone(), round, why: why.clone() });
                        None
                    }
                    None if self.refused.contains(name) => None,
                    None => return (rounds, failed),
                });
            }
            failed = now;
            rounds.push(turns);
        }
        (rounds, failed)
    }
}

impl Record {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self { journal: Journal::none(), before: Recorded::default() }
    }

    /// `DIR/NAME.jsonl`: made if need be, or gone on with, as [`Journal::named`] says.
    ///
    /// # Errors
    ///
    /// As there; or where what is in it is no comparison's.
    pub fn open(dir: Option<&Path>, name: &str, header: &Header) -> anyhow::Result<Self> {
        let journal = Journal::named(dir, name, header)?;
        let before = Recorded::of(journal.lines_before())?;
        Ok(Self { journal, before })
    }

    /// What was there when it was opened.
    pub fn before(&self) -> &Recorded {
        &self.before
    }

    /// A turn of a round; those of round 0 only calibrate.
    ///
    /// # Errors
    ///
    /// Where it cannot be written; so with all others.
    pub fn turn(&mut self, round: usize, contestant: &Contestant, turn: &Turn) -> anyhow::Result<()> {
        let Contestant { name, role, .. } = contestant;
        self.journal.line(TURN, &TurnLine { round, name: name.clone(), role: *role, turn: turn.clone() })
    }

    /// A turn that failed.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn failure(&mut self, round: usize, contestant: &Contestant, why: &str) -> anyhow::Result<()> {
        let Contestant { name, role, .. } = contestant;
        self.journal.line(FAILURE, &FailureLine { round, name: name.clone(), role: *role, why: why.to_owned() })
    }

    /// Somebody who cannot take part, unless that is there already.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn refusal(&mut self, name: &str, why: &str) -> anyhow::Result<()> {
        if self.before.refused.iter().any(|refused| refused == name) {
            return Ok(());
        }
        self.journal.line(REFUSAL, &RefusalLine { name: name.to_owned(), why: why.to_owned() })
    }

    /// What a contestant that is not ours keeps of the contract.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn contract(&mut self, contract: &Contract) -> anyhow::Result<()> {
        self.journal.line(CONTRACT, contract)
    }

    /// The last line.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn ranking(&mut self, ranking: &Ranking) -> anyhow::Result<()> {
        self.journal.line(RANKING, ranking)
    }
}
