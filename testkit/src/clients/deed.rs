//! [`Deed`]: the report of a process about its part in a queue, a crew or another recipe.

use serde::{Deserialize, Serialize};

use crate::history::Value;

/// The part of a process in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "clients and checks must know each of them")]
pub enum Part {
    /// It puts items into a queue.
    Producer,
    /// It claims items, and acknowledges most of them.
    Consumer,
    /// It takes items.
    Taker,
    /// It works in a crew, and stands for master.
    Member,
    /// A member that, as master, removes finished tasks at once.
    Remover,
    /// It submits tasks to a crew, and waits for their results.
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
    /// True if it is one of a crew.
    pub fn is_of_a_crew(self) -> bool {
        matches!(self, Self::Member | Self::Remover | Self::Submitter)
    }

    /// True if it is one of a queue.
    pub fn is_of_a_queue(self) -> bool {
        matches!(self, Self::Producer | Self::Consumer | Self::Taker)
    }
}

/// How a request ended, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "these are all the ways in which it can end")]
pub enum Effect {
    /// It was applied.
    Done,
    /// It certainly never is.
    None,
    /// Unknown.
    Unknown,
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "deed", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "clients and checks must know each of them")]
pub enum Deed {
    /// It begins to put this item.
    Puts {
        /// The item, which no other put has.
        item: Value,
    },
    /// The put has ended.
    Put {
        /// The item.
        item: Value,
        /// How.
        effect: Effect,
    },
    /// It begins to take an item.
    Takes,
    /// The take has ended.
    Took {
        /// The item, if one was returned.
        item: Option<Value>,
        /// How.
        effect: Effect,
    },
    /// It believes to hold an item. Reported again and again.
    Holds {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// When it checked, for the first time that the answer was yes.
        asked: u64,
        /// When it had that answer.
        since: u64,
        /// When it checked, for the last time that the answer was yes.
        certain: u64,
    },
    /// It begins to put an item back that it had claimed.
    Returns {
        /// The item.
        item: Value,
    },
    /// It begins to acknowledge an item.
    Acks {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// Whether an effect is written with it.
        with: bool,
    },
    /// The acknowledgement has ended.
    Acked {
        /// The item.
        item: Value,
        /// The revision of the delivery's token.
        token: u64,
        /// Whether an effect is written with it.
        with: bool,
        /// How.
        effect: Effect,
    },
    /// A submission has ended.
    Submitted {
        /// The task, which all submitters submit.
        task: Value,
        /// How.
        effect: Effect,
    },
    /// It begins with an attempt at a task.
    Runs {
        /// The task.
        task: Value,
        /// The result of this attempt, which no other has.
        run: Value,
    },
    /// It reports the end of an attempt.
    Ran {
        /// The task.
        task: Value,
        /// The result.
        run: Value,
    },
    /// A submitter has waited for a task to its end.
    Saw {
        /// The task.
        task: Value,
        /// The result, or `None` if there was no task or no result.
        run: Option<Value>,
    },
    /// The begin of an addition of one to a counter.
    Adds,
    /// The addition has ended.
    Added {
        /// How.
        effect: Effect,
    },
    /// The begin of a transaction that moves one unit.
    Moves,
    /// The transaction has ended.
    Moved {
        /// How.
        effect: Effect,
    },
    /// The members that its complete copies show.
    Sees {
        /// Their numbers, in order.
        who: Vec<Value>,
    },
    /// The belief to hold an item of a partition. Reported again and again.
    Shares {
        /// The item.
        item: Value,
        /// When it had that answer for the first time.
        since: u64,
        /// When it checked, for the last time that the answer was yes.
        certain: u64,
    },
    /// The begin of the release of an item of a partition, which was asked for.
    Releases {
        /// The item.
        item: Value,
    },
    /// The notice that an item of a partition is not its own any more.
    Loses {
        /// The item.
        item: Value,
    },
    /// The begin of an entry into a double barrier.
    Enters,
    /// The end of the entry: the process is inside.
    Entered,
    /// The begin of leaving.
    Leaves,
    /// It has done all that it was asked to do.
    Rests,
}
