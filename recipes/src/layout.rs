//! The names under which recipes keep their nodes, for programs that recognise a recipe in a store.
//!
//! A recipe and those that look at it share these names; they change only together with the format
//! of the data. The names of tickets are recognised by [`is_ticket`](crate::lock::is_ticket).

/// The directories of a [`Queue`](crate::queue::Queue).
pub mod queue {
    /// The items that wait.
    pub const ITEMS: &str = "items";
    /// The items that a consumer has claimed.
    pub const CLAIMED: &str = "claimed";
    /// The ephemeral claims of these items.
    pub const CLAIMS: &str = "claims";
    /// The processes with claims.
    pub const CONSUMERS: &str = "consumers";
    /// The ids that applications chose.
    pub const IDS: &str = "ids";
    /// The slots of a bounded queue.
    pub const SLOTS: &str = "slots";
    /// The dead letters.
    pub const DEAD: &str = "dead";
    /// The failures of items and of dead letters.
    pub const FAILURES: &str = "failures";
    /// The write ids of the queue's clients.
    pub const MARKS: &str = "marks";
    /// All directories of a queue.
    pub const ALL: [&str; 9] =
        [ITEMS, CLAIMED, CLAIMS, CONSUMERS, IDS, SLOTS, DEAD, FAILURES, MARKS];
}

/// The nodes of a [`Crew`](crate::crew::Crew).
pub mod crew {
    /// The election of the master.
    pub const MASTER: &str = "master";
    /// The directory of the workers.
    pub const WORKERS: &str = "workers";
    /// The directory of the tasks.
    pub const TASKS: &str = "tasks";
    /// The directory of the waiting tasks.
    pub const UNASSIGNED: &str = "todo";
    /// The directory of the assigned tasks, by worker.
    pub const ASSIGNED: &str = "assigned";
    /// The directory of the finished tasks.
    pub const DONE: &str = "done";
    /// The directory of the histories of tasks.
    pub const ATTEMPTS: &str = "attempts";
    /// The node that says whether the crew is paused.
    pub const SWITCH: &str = "switch";
    /// All nodes of a crew.
    pub const ALL: [&str; 8] =
        [MASTER, WORKERS, TASKS, UNASSIGNED, ASSIGNED, DONE, ATTEMPTS, SWITCH];
}

/// The nodes of a [`Schedule`](crate::schedule::Schedule).
pub mod schedule {
    /// The node of the record of the last run.
    pub const STATE: &str = "state";
    /// The election of the process that runs it.
    pub const LEADER: &str = "leader";
}

/// The directories of a [`Partition`](crate::partition::Partition).
pub mod partition {
    /// The members.
    pub const MEMBERS: &str = "members";
    /// The items that members hold.
    pub const CLAIMS: &str = "claims";
}

/// The nodes of the barriers.
pub mod barrier {
    /// The start of the names of the parties of a [`CountDown`](crate::barrier::CountDown).
    pub const PARTY: &str = "party-";
    /// The start of the names of the members of a [`DoubleBarrier`](crate::barrier::DoubleBarrier).
    pub const MEMBER: &str = "member-";
    /// The node of a double barrier whose members may enter.
    pub const READY: &str = "ready";
}

/// The nodes of a [`Group`](crate::presence::Group).
pub mod group {
    /// The end of the name of a member without its own name, as in kazoo's parties.
    pub const UNNAMED: &str = "__party__";
}
