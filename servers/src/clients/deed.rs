//! The report of a process about its part in a queue, a crew or another recipe: [`Deed`].

use serde::{Deserialize, Serialize};

use synod_testkit::history::Value;

/// The part of a process in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "clients and checks must know each of them")]
pub enum Part {
    /// Puts items into a queue.
    Producer,
    /// Claims items, and acknowledges most of them.
    Consumer,
    /// Takes items.
    Taker,
    /// Works in a crew, and takes part in the election of its master.
    Member,
    /// A member that, as master, removes finished tasks immediately.
    Remover,
    /// Submits tasks to a crew, and waits for their results.
    Submitter,
    /// Adds to a counter, and moves units between two nodes by transactions.
    Adder,
    /// A member of a group and instance of a service, with a copy of both.
    Resident,
    /// A member of a partition.
    Sharer,
    /// Enters and leaves a double barrier, round after round.
    Party,
}

impl Part {
    /// Returns `true` for a part in a crew.
    pub fn is_of_a_crew(self) -> bool {
        matches!(self, Self::Member | Self::Remover | Self::Submitter)
    }

    /// Returns `true` for a part in a queue.
    pub fn is_of_a_queue(self) -> bool {
        matches!(self, Self::Producer | Self::Consumer | Self::Taker)
    }
}

/// The result of a request, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "these are all the ways in which it can end")]
pub enum Effect {
    /// The request was applied.
    Done,
    /// The request certainly never is applied.
    None,
    /// Unknown.
    Unknown,
}

/// An action of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "deed", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "clients and checks must know each of them")]
pub enum Deed {
    /// The start of a put.
    Puts {
        /// The item, which no other put has.
        item: Value,
    },
    /// The end of a put.
    Put {
        /// The item.
        item: Value,
        /// The result.
        effect: Effect,
    },
    /// The start of a take.
    Takes,
    /// The end of a take.
    Took {
        /// The item, if one was returned.
        item: Option<Value>,
        /// The result.
        effect: Effect,
    },
    /// The report that an item is held, sent repeatedly.
    Holds {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// The time of the question, for the first positive answer.
        asked: u64,
        /// The time of that answer.
        since: u64,
        /// The time of the question, for the last positive answer.
        certain: u64,
    },
    /// The start of putting back a claimed item.
    Returns {
        /// The item.
        item: Value,
    },
    /// The start of an acknowledgement.
    Acks {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// `true` if an effect is written with it.
        with: bool,
    },
    /// The end of an acknowledgement.
    Acked {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// `true` if an effect is written with it.
        with: bool,
        /// The result.
        effect: Effect,
    },
    /// The end of a submission.
    Submitted {
        /// The task, which all submitters submit.
        task: Value,
        /// The result.
        effect: Effect,
    },
    /// The start of an attempt at a task.
    Runs {
        /// The task.
        task: Value,
        /// The result of this attempt, which no other has.
        run: Value,
    },
    /// The report of the end of an attempt.
    Ran {
        /// The task.
        task: Value,
        /// The result.
        run: Value,
    },
    /// The end of waiting for a task.
    Saw {
        /// The task.
        task: Value,
        /// The result, or `None` if there was no task or no result.
        run: Option<Value>,
    },
    /// The start of an addition of one to a counter.
    Adds,
    /// The addition has ended.
    Added {
        /// The result.
        effect: Effect,
    },
    /// The start of a transaction that moves one unit.
    Moves,
    /// The transaction has ended.
    Moved {
        /// The result.
        effect: Effect,
    },
    /// The members that its complete copies show.
    Sees {
        /// Their numbers, in order.
        who: Vec<Value>,
    },
    /// The report that an item of a partition is held, sent repeatedly.
    Shares {
        /// The item.
        item: Value,
        /// The time of the first positive answer.
        since: u64,
        /// The time of the question, for the last positive answer.
        certain: u64,
    },
    /// The start of the requested release of an item of a partition.
    Releases {
        /// The item.
        item: Value,
    },
    /// The notice that an item of a partition was lost.
    Loses {
        /// The item.
        item: Value,
    },
    /// The start of an entry into a double barrier.
    Enters,
    /// The end of the entry: the process is inside.
    Entered,
    /// The start of leaving.
    Leaves,
    /// All requested work is done.
    Rests,
}
