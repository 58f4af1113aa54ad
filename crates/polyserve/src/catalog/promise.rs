//! The promises of strategies, as values.

use std::fmt;

use polyserve_core::Shape;

/// A promise of a strategy. Its text is the one that `polyserve list` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// A server's shape. Entries have the shape that their servers declare.
    Shape(Shape),
    /// A server blocks a worker for each deferred answer: at most as many deferred answers are pending as there are workers.
    LaterHoldsWorker,
    /// A server blocks no thread for a deferred answer.
    LaterHoldsNoThread,
    /// The queue of a server or an executor has a limit, which the configuration sets.
    BoundedQueue,
    /// A server answers every request that has begun before it stops.
    Drains,
    /// An executor starts jobs in the order in which it received them.
    RunsInOrder,
    /// An executor runs the next job after a job that panics.
    SurvivesPanics,
    /// The operations of a repo are linearizable.
    Linearizable,
    /// A repo or a service defers no answer.
    AnswersNow,
    /// A repo defers every answer.
    AnswersLater,
    /// A service defers the answers that its repo defers.
    AnswersAsRepo,
    /// A repo or a service defers some answers.
    AnswersNowOrLater,
    /// The mailboxes of a repo have limits. A full mailbox refuses an operation.
    BoundedMailboxes,
    /// A repo can be scanned: its entities can be read in pages.
    Scans,
    /// A repo can be scanned if the repo below it can: a kind of repo that stands on others. Its entries promise [`Scans`](Self::Scans)
    /// or nothing.
    ScansAsRepo,
    /// A repo loses its entities when the process ends.
    Volatile,
    /// A repo answers a write after it is on the disk. No crash takes back an answered write, or a value that a read has shown.
    Durable,
    /// Several processes, on several machines, serve the entities of one repo.
    Shared,
    /// A reference sends the same answer to every request.
    FixedAnswer,
    /// A reference closes the connection after an answer.
    ClosesAfterAnswer,
    /// A promise of a program's own strategy, in a few words. No command depends on it.
    Other(&'static str),
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape(Shape::Multiplexed) => "multiplexed connections",
            Self::Shape(Shape::OnePerThread) => "one connection a thread",
            Self::Shape(Shape::One) => "one connection at a time",
            Self::LaterHoldsWorker => "later answers hold a worker",
            Self::LaterHoldsNoThread => "later answers hold no thread",
            Self::BoundedQueue => "bounded queue",
            Self::Drains => "drains",
            Self::RunsInOrder => "runs in order",
            Self::SurvivesPanics => "survives panics",
            Self::Linearizable => "linearizable",
            Self::AnswersNow => "answers now",
            Self::AnswersLater => "answers later",
            Self::AnswersAsRepo => "answers as its repo does",
            Self::AnswersNowOrLater => "answers now, or later",
            Self::BoundedMailboxes => "bounded mailboxes",
            Self::Scans => "scans",
            Self::ScansAsRepo => "scans if its repo does",
            Self::Volatile => "volatile",
            Self::Durable => "durable",
            Self::Shared => "shared by processes",
            Self::FixedAnswer => "a fixed answer",
            Self::ClosesAfterAnswer => "closes after it",
            Self::Other(words) => words,
        })
    }
}
