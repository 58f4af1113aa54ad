//! The seats of a round: the processes of all who have a turn in it, there at once.
//!
//! Invariant: whoever has failed is not asked again. Cost: none of its own.

use super::measure::{Instrument, Seat};
use super::turn::Turn;
use crate::experiment::Absence;

/// One for everybody who has a turn. One that has failed is empty from then on.
#[derive(Debug)]
pub(super) struct Seats<'a> {
    seats: Vec<Option<Result<Seat<'a>, Absence>>>,
}

impl<'a> Seats<'a> {
    /// So many empty ones.
    pub(super) fn new(count: usize) -> Self {
        Self { seats: (0..count).map(|_| None).collect() }
    }

    /// Who sits there, or why nobody does.
    pub(super) fn seat(&mut self, place: usize, started: Result<Seat<'a>, Absence>) {
        self.seats[place] = Some(started);
    }

    /// What is done with who sits there, if somebody does.
    pub(super) fn each(&mut self, place: usize, mut act: impl FnMut(&mut Seat<'a>) -> Result<(), Absence>) {
        if let Some(Ok(seat)) = &mut self.seats[place]
            && let Err(absence) = act(seat)
        {
            self.seats[place] = Some(Err(absence));
        }
    }

    /// Ends the processes, in their places.
    pub(super) fn end(self, instrument: &Instrument) -> impl Iterator<Item = Option<Result<Turn, Absence>>> {
        self.seats.into_iter().map(|seat| seat.map(|seat| seat.and_then(|seat| instrument.end(seat))))
    }
}
