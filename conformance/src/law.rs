//! The laws, each in a sentence, and those that no case checks yet.

use std::fmt;

/// A sentence that a store, the client on top of it, or a recipe keeps or breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Law {
    /// Its id. `L-` are the laws; `C-` the lines of the contract of a store, in the documentation
    /// of `synod_core::store`; `D-` the further promises of the client, in the documentation of
    /// `synod_core::client` and `synod_core::session`.
    pub id: &'static str,
    /// The sentence.
    pub sentence: &'static str,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.sentence)
    }
}

/// The law with this id.
pub fn by_id(id: &str) -> Option<&'static Law> {
    LAWS.iter().find(|law| law.id == id)
}

/// Lists the laws in force.
const fn law(id: &'static str, sentence: &'static str) -> Law {
    Law { id, sentence }
}

/// Every law about stores, the client, and the recipes.
pub const LAWS: &[Law] = &[
    law("L-OUT-1", "a write that failed for certain never happens"),
    law("L-OUT-2", "a write that is answered happened exactly once, during the call"),
    law("L-OUT-3", "a write whose effect is unknown happens at most once"),
    law("L-OUT-4", "the library itself repeats an ambiguous call only where that changes nothing"),
    law("L-OUT-5", "every call returns within its deadline, whatever the network does"),
    law("L-OUT-6", "once a session is over, no call on it succeeds or hangs"),
    law("L-OUT-7", "an error says what failed and on which path, and never a secret"),
    law("L-OUT-8", "whatever the server answers, nothing panics and no task is left running"),
    law("L-KV-1", "writes are linearizable"),
    law("L-KV-2", "a latest read is not older than anything answered before it was called"),
    law("L-KV-3", "what a session is shown never goes back"),
    law("L-KV-4", "a session reads its own writes, or something newer"),
    law("L-KV-5", "a write that expects another version changes nothing"),
    law(
        "L-KV-6",
        "each write of an incarnation has a version of its own, and no incarnation is taken for another",
    ),
    law("L-KV-7", "of many concurrent creates of one path exactly one succeeds"),
    law("L-KV-8", "a delete that names an incarnation removes no other"),
    law("L-KV-9", "a transaction happens whole, at one revision, for every reader"),
    law(
        "L-KV-10",
        "a rejected transaction names the first operation that failed, and changes nothing",
    ),
    law("L-KV-11", "what one transaction may do to one node is the same on every store"),
    law("L-KV-12", "a listing is of one moment, sorted, complete, and of nothing else"),
    law("L-KV-13", "a listing of more than 65,536 children is complete, or said to be too large"),
    law("L-KV-14", "bytes come out as they went in, and none is not absent"),
    law("L-KV-15", "a sequential program has the same outcomes on every store"),
    law("L-KV-16", "a create never fails for a parent that is missing, or that goes just then"),
    law("L-KV-17", "a look shows at least what the commit left, or what led to the rejection"),
    law("L-KV-18", "several nodes are read as of one moment"),
    law("L-SEQ-1", "among siblings, names are unique"),
    law("L-SEQ-2", "the order of sequences is the order of creation"),
    law("L-SEQ-3", "once a sequence was seen, no lower one appears"),
    law("L-SEQ-4", "sequences may have gaps"),
    law("L-SEQ-5", "two incarnations of a directory are distinguished"),
    law("L-SEQ-6", "the order does not depend on how names are spelled"),
    law("L-SEQ-7", "a directory that is out of sequences says so, for ever"),
    law("L-SEQ-8", "a sequential create that is repeated as documented makes no second node"),
    law("L-SEQ-9", "a sequential node names the session that owns it"),
    law("L-SEQ-10", "a sequential create that is dropped leaves no node"),
    law("L-WAT-1", "every change after the view is reported"),
    law("L-WAT-2", "a watch begins where its view ends"),
    law("L-WAT-3", "events of one path come in the order of the changes"),
    law("L-WAT-4", "no change is reported twice"),
    law("L-WAT-5", "the events of one revision come together"),
    law("L-WAT-6", "between two resyncs the events explain every change"),
    law(
        "L-WAT-7",
        "after a disconnection a watch continues, or says that it may have missed something",
    ),
    law("L-WAT-8", "a change that did not happen is not reported"),
    law("L-WAT-9", "a session is notified of a change before it reads it"),
    law(
        "L-WAT-10",
        "a change that is undone during a disconnection still wakes the watches that wait for it",
    ),
    law("L-WAT-11", "a node that was made again is seen to be another"),
    law("L-WAT-12", "a watch ends with one reason, and then nothing"),
    law(
        "L-WAT-13",
        "a slow reader of events costs bounded memory, is notified of the overflow, and delays nothing else",
    ),
    law("L-WAT-14", "a watch that is dropped costs the server nothing"),
    law("L-WAT-15", "of two watches on one path, one ends without the other"),
    law("L-WAT-16", "more than 10,000 watches survive a reconnection"),
    law(
        "L-SES-1",
        "a session counts its life from the sending of what was answered, with a margin",
    ),
    law("L-SES-2", "a session that is certain to live, lives"),
    law("L-SES-3", "a session that is cut off says so, is lost in time, and never comes back"),
    law("L-SES-4", "a late subscriber gets the latest status"),
    law("L-SES-5", "when a session ends all its ephemeral nodes go, at one revision"),
    law("L-SES-6", "nothing of an ended session appears"),
    law("L-SES-7", "a session that is closed releases at once"),
    law("L-SES-8", "the death of a process releases within the time to live"),
    law("L-SES-9", "heartbeats do not depend on what else the session does"),
    law("L-SES-10", "a new session inherits nothing"),
    law("L-SES-11", "what counts is the time to live that was negotiated"),
    law("L-SES-12", "a time to live of any size is negotiated, or refused"),
    law("L-SES-13", "an ephemeral node stays with its owner, whichever session writes it"),
    law("L-SES-14", "two clients with one session do not fight for ever"),
    law(
        "L-SES-15",
        "a session counts its life from what its store's leader certainly extended, and not from the answer of \
         a server without one",
    ),
    law("L-SES-16", "the time to live that counts is the one that was negotiated last"),
    law("L-SES-17", "time in which the machine sleeps counts"),
    law(
        "L-SES-18",
        "calls and tasks work on one thread and on many: nothing is polled or awaited under a lock",
    ),
    law("L-MX-1", "no two contenders believe at one moment that they hold the lock"),
    law(
        "L-MX-2",
        "the lock is granted to the first only, by a fresh read, in a session that certainly lives",
    ),
    law("L-MX-3", "tokens rise in the order of grants, whatever happens to the directory"),
    law("L-MX-4", "a system that refuses lower tokens sees the writes of each holder together"),
    law(
        "L-MX-5",
        "a guarded transaction happens only while its guard holds, whatever the clocks do",
    ),
    law("L-MX-6", "when the session of a holder is lost, a waiter is granted the lock"),
    law("L-MX-7", "every waiter that waits long enough is granted the lock"),
    law("L-MX-8", "the lock is granted in the order of the requests"),
    law("L-MX-9", "a contender that is gone leaves nothing in the line"),
    law("L-MX-10", "a waiter that times out returns in time, and is not granted the lock later"),
    law("L-MX-11", "a release removes its own ticket and no other"),
    law("L-MX-12", "two tasks of one process exclude each other"),
    law(
        "L-MX-13",
        "an owner may acquire again, until all of its grants are released; no other owner may",
    ),
    law("L-MX-14", "a release wakes few, however many wait"),
    law("L-MX-15", "a release that fails goes on until the ticket is gone"),
    law("L-MX-16", "a guard that is dropped gives back what it held"),
    law(
        "L-MX-17",
        "locks of other programs on the same path exclude ours, and ours theirs, in order",
    ),
    law("L-MX-18", "foreign nodes in the line are neither granted the lock nor waited for"),
    law("L-RW-1", "a writer holds the lock alone; a reader shares it with readers only"),
    law("L-RW-2", "a reader waits for all earlier writers, a writer for all earlier contenders"),
    law("L-RW-3", "a reader waits for an earlier writer that waits"),
    law("L-RW-4", "during a downgrade no other writer is granted the lock in between"),
    law("L-RW-5", "a reader that asks to write is refused"),
    law("L-RW-6", "a writer is granted the lock when the last earlier reader is gone"),
    law("L-RW-7", "whether a ticket reads or writes is not taken from its label"),
    law("L-RW-8", "the token of a writer is larger than all before it"),
    law("L-SEM-1", "no more permits are held than there are"),
    law("L-SEM-2", "a new number of permits counts for every grant after it"),
    law("L-SEM-3", "a request for several permits gets all or none"),
    law("L-SEM-4", "a request that failed holds no permit"),
    law("L-SEM-5", "the permits of a session that is lost are free"),
    law("L-SEM-6", "a request for many permits is not overtaken by later requests for few"),
    law("L-SEM-7", "more permits than there are, are refused at once"),
    law(
        "L-EL-1",
        "no two candidates believe at one moment that they lead, and tokens rise from term to term",
    ),
    law(
        "L-EL-2",
        "a leader that cannot be certain of its lead does not claim it, although no loss was reported",
    ),
    law(
        "L-EL-3",
        "a leader that is cut off keeps the lead while its session certainly lives, and no longer",
    ),
    law("L-EL-4", "terms are gained and lost in turn, and none is gained after leaving"),
    law("L-EL-5", "while a connected candidate exists, a candidate leads in the end"),
    law("L-EL-6", "a candidate that leaves removes all its nodes, whatever is under way"),
    law(
        "L-EL-7",
        "work is over before the next term begins here, and a candidate that campaigns again has one ticket",
    ),
    law("L-EL-8", "a query for the candidates does not fail because a candidate leaves"),
    law("L-EL-9", "an observer is notified of terms in their order, and of the latest in the end"),
    law("L-EL-10", "a former leader writes nothing in the name of the lead"),
    law("L-EL-11", "a candidate that reconnects causes few writes, and keeps its place"),
    law("L-EL-12", "the heir that a leader names is the next leader, or gone"),
    law("L-BAR-1", "no waiter passes a barrier that is set during all of its wait"),
    law("L-BAR-2", "every waiter passes a barrier that is lifted and stays so"),
    law("L-CD-1", "no waiter passes a count-down before all parties have counted"),
    law("L-CD-2", "every waiter passes a count-down when all parties have counted"),
    law("L-CD-3", "a party counts once, however often it counts down"),
    law(
        "L-DB-1",
        "no member enters a double barrier before all members of its round were there at one moment",
    ),
    law("L-DB-2", "no member leaves a double barrier before all that are alive leave"),
    law("L-DB-3", "a round of a double barrier is for those that were there when it began"),
    law("L-DB-4", "a member of a double barrier that dies is not waited for"),
    law("L-DB-5", "a member that comes to a double barrier in addition waits for the next round"),
    law("L-DB-6", "a member that gave up entering a double barrier does not count"),
    law(
        "L-CNT-1",
        "a number is what it was at first and the sum of exactly the changes that happened",
    ),
    law(
        "L-CNT-2",
        "every change returns the value before and after it, in one order of all changes",
    ),
    law(
        "L-CNT-3",
        "a change whose answer is lost is made once, or its effect is said to be unknown",
    ),
    law("L-CNT-4", "a sum that does not fit is an error and changes nothing"),
    law("L-CNT-5", "bytes that are no number are an error, and not zero"),
    law("L-CNT-6", "contenders that change one value all come to their end"),
    law(
        "L-CNT-7",
        "a change that lost the given number of tries has its turn, and later ones stand back",
    ),
    law("L-SV-1", "a copy of a shared value never goes back, and is the last value in the end"),
    law(
        "L-SV-2",
        "a conditional write of a shared value fails if, and only if, the value was written since",
    ),
    law(
        "L-SV-3",
        "a copy that may be out of date says so, and keeps the last value that could be read",
    ),
    law(
        "L-CA-1",
        "a cache has what the store has, some time after the last change and the last outage",
    ),
    law("L-CA-2", "what a cache shows of a path is never older than what it has shown before"),
    law(
        "L-CA-3",
        "the events of a cache make its content from an empty map on, and each fits those before it",
    ),
    law(
        "L-CA-4",
        "a cache says that it is complete once after its start and after each outage, and then is",
    ),
    law("L-CA-5", "a cache that may miss changes says so, and keeps what it has"),
    law(
        "L-CA-6",
        "a slow reader of a cache needs limited memory, has the content in the end, and makes none wait",
    ),
    law(
        "L-CA-7",
        "a watched value is the last one that can be read, and says whether the store still has it",
    ),
    law(
        "L-CA-8",
        "while a cache reads the whole, it shows how many nodes were read, and of how many",
    ),
    law(
        "L-ID-1",
        "numbers are unique over all clients, restarts and lost answers, and rise for each client",
    ),
    law(
        "L-PE-1",
        "a node that is kept is there again after any fault, owned by the session that lives, with the last data",
    ),
    law("L-PE-2", "an owner has one node at most, and a path one owner"),
    law("L-PE-3", "what is set while there is no session is the data of the next one"),
    law("L-PE-4", "when the end of a node that was kept is reported, it does not come back"),
    law("L-PE-5", "an owner removes no node of another client, unless it takes over"),
    law("L-PE-6", "an outage that the session outlives changes nothing that others see"),
    law(
        "L-PE-7",
        "a node that is kept with a time to live outlives its owner's sessions, and goes after its owner was silent for so long",
    ),
    law("L-GM-1", "after any fault every client lists the members of a group that there are"),
    law("L-GM-2", "a program takes itself for a member only while the store lists it"),
    law("L-GM-3", "joins and leaves of a member are reported in turn, by its incarnations"),
    law(
        "L-HR-1",
        "after any fault every client finds the member of a key as the members that there are say",
    ),
    law("L-HR-2", "only keys of a member that came or went change their owner"),
    law("L-HR-3", "a ring whose group may have changed says so, and keeps the last members"),
    law("L-HR-4", "keys are shared out by the weights that the data of the members says"),
    law("L-SP-1", "no two members hold one item of a partition at the same time"),
    law("L-SP-2", "after the last change and the last fault every item has a member"),
    law("L-SP-3", "a live member is asked for an item, and has stopped before another one gets it"),
    law("L-SP-4", "no member has a whole item more or less than its weight says"),
    law("L-SP-5", "when a member comes or goes, no more items move than it gets or had"),
    law("L-SP-6", "a member without a certain session holds no item, and is notified of the loss"),
    law(
        "L-SP-7",
        "a member that left has nothing in the store, whatever was under way when it did",
    ),
    law(
        "L-Q-1",
        "an item that was put is taken or acknowledged by a consumer, or is still in the queue",
    ),
    law("L-Q-2", "what is delivered was put"),
    law("L-Q-3", "a put makes one item, also when its answer is lost, and of one id there is one"),
    law("L-Q-4", "an item whose consumer died is delivered again"),
    law("L-Q-5", "an item that was taken is never delivered again"),
    law(
        "L-Q-6",
        "while a delivery is held no other consumer has the item, and a stale one acknowledges nothing",
    ),
    law("L-Q-7", "one consumer gets items in the order of their puts"),
    law("L-Q-8", "an item of a higher priority is delivered earlier"),
    law("L-Q-9", "an item is not delivered before its time, and is in no other's way until then"),
    law("L-Q-10", "a producer puts no item into a bounded queue that has as many as its capacity"),
    law(
        "L-Q-11",
        "an item that is rejected, delivered too often, or cannot be read is a dead letter, and in no other's way",
    ),
    law(
        "L-Q-12",
        "a consumer gets what was put while it was cut off, or between two of its sessions",
    ),
    law(
        "L-Q-13",
        "an item costs a bounded number of requests, however many items or consumers wait",
    ),
    law("L-MW-1", "every task that was submitted gets exactly one accepted result"),
    law("L-MW-2", "a result is accepted only from the worker that has the task"),
    law(
        "L-MW-3",
        "the tasks of a lost worker are assigned again, and those of a living one are not",
    ),
    law("L-MW-4", "no task is lost when a master ends between two steps"),
    law("L-MW-5", "a master that was replaced assigns nothing more, and ends nothing"),
    law("L-MW-6", "a task that is submitted again under its id is the same task"),
    law("L-MW-7", "the result of a task reaches all that wait for it"),
    law(
        "L-MW-8",
        "after a task was cancelled no result is accepted, or the earlier one is returned",
    ),
    law("L-MW-9", "nothing is left of a finished task after its retention"),
    law(
        "L-MW-10",
        "tasks are assigned by their priority, to workers that have what they need and are not full",
    ),
    law("L-MW-11", "a failed attempt is repeated as often as its submitter allows"),
    law(
        "L-MW-12",
        "a worker that was drained gets no new task, in its next sessions too, and keeps those that it has",
    ),
    law("L-MW-13", "while a crew is paused nothing is assigned"),
    law("L-MW-14", "a snapshot of a crew is of one moment"),
    law(
        "L-MW-15",
        "a task goes to the worker that the policy of the master chooses, of those that can have it",
    ),
    law(
        "L-MW-16",
        "a task that is not over by its deadline expires, and no result of it is accepted afterwards",
    ),
    law(
        "L-MW-17",
        "progress is accepted only from the worker that has the task, and reaches all that follow it",
    ),
    law(
        "L-MW-18",
        "each attempt that has ended is in the history of its task, with its worker and how it ended",
    ),
    law(
        "L-SD-1",
        "what is shown of an instance is one version of it, and never one that is older than the one before",
    ),
    law("L-SD-2", "an instance that cannot be read is reported, and leaves the others"),
    law("L-SD-3", "an outage removes no instance of a view, and the view says that it may be old"),
    law(
        "L-SD-4",
        "a provider chooses by its strategy among the instances that there are, and none that is marked down",
    ),
    law("L-SD-5", "what many owners make again after a loss is spread over time"),
    law("L-STM-1", "what transactions commit is as if one had run after the other"),
    law("L-STM-2", "no run goes on with a mixture of two moments, at the levels that promise it"),
    law("L-STM-3", "a transaction is committed once, or fails with an unknown effect"),
    law("L-STM-4", "each level of isolation checks what it promises to, and no more"),
    law("L-STM-5", "a transaction that only reads writes nothing"),
    law("L-STM-6", "what is never taken is an error, and a failed transaction writes nothing"),
    law("L-STM-7", "transactions leave nothing in the store but what they write"),
    law("L-X-1", "a call may be dropped at any await, and no law is broken"),
    law("L-X-2", "a process may end at any call to the store, and no law is broken"),
    law("L-X-3", "several locks are taken all or none, and no two orders wait for each other"),
    law("L-X-4", "a call lets others run"),
    law("L-X-5", "what is dropped leaves nothing running"),
    law("L-X-6", "a jump of the wall clock changes nothing but reported dates"),
    law("L-X-7", "what is done often costs as few calls as it can"),
    law("L-X-8", "an outage is not met with a storm of repetitions"),
    law("L-X-9", "a path is not a prefix: nothing of /ab shows in /a"),
    law("L-X-10", "what a store cannot do it refuses"),
    law("B-PATH", "what no store could hold is refused before anything is sent"),
    law("B-SIZE", "what is too large is refused before anything is sent, and the session lives on"),
    law("C-TREE-1", "a node has a path, data and a stat, and may have children"),
    law("C-TREE-2", "ancestors are never missing: a create makes them as containers"),
    law("C-TREE-3", "a node with children is not deleted"),
    law("C-TREE-4", "nothing is created below an ephemeral node"),
    law(
        "C-TREE-5",
        "a node with a time to live is gone when it was not written for its time, or later",
    ),
    law("C-TREE-6", "data of zero bytes is data"),
    law("C-READ-1", "a latest read reflects every write that was answered before"),
    law("C-READ-2", "a local read may lag, but never goes back"),
    law("C-READ-3", "a view is of one moment, complete and sorted"),
    law(
        "C-READ-4",
        "the progress that a store reports of a read never falls, and is never more than there is",
    ),
    law("C-WRITE-1", "a transaction applies whole or not at all; operations see those before them"),
    law("C-WRITE-2", "a rejection names the first operation that could not be done, and why"),
    law("C-WRITE-3", "an error distinguishes whether the write may have happened"),
    law("C-WRITE-4", "sequences rise, with gaps, while the directory lives"),
    law("C-WRITE-5", "a repeated sequential create makes no second node"),
    law("C-WRITE-6", "writing to an ephemeral node leaves it with its owner"),
    law("C-WRITE-7", "what validation refuses is refused before anything is sent"),
    law("C-WRITE-8", "a look is answered as of the commit, or of the rejection"),
    law("C-OBS-1", "to observe is to read and to watch as one step"),
    law("C-OBS-2", "events may join and come late; none is invented"),
    law("C-OBS-3", "revisions of one path do not fall, and no change is reported twice"),
    law("C-OBS-4", "a watch ends with exactly one end, then nothing"),
    law("C-OBS-5", "a read may show a change before a watch reports it"),
    law("C-OBS-6", "dropping a watch frees what the server keeps for it"),
    law("C-OBS-7", "a watch for one event delivers it before it ends"),
    law("C-OBS-8", "a watch until a node goes reports nothing else"),
    law(
        "C-OBS-9",
        "a reader that follows hints and reads after them knows what is there, and changes nothing for others",
    ),
    law("C-SES-1", "a live session has the instant until which it certainly lives"),
    law("C-SES-2", "a lost session stays lost"),
    law("C-SES-3", "ephemeral nodes go with their session, all at one revision"),
    law(
        "C-SES-4",
        "close ends the session; its ephemeral nodes are gone when it returns without an error",
    ),
    law("C-SES-5", "a store that is dropped leaves its session to its time to live"),
    law("C-SES-6", "no call waits longer than the time to live"),
    law("C-SES-7", "a dropped call breaks nothing else"),
    law("D-REPEAT", "what is safe to repeat is repeated, as the policy says, and nothing else is"),
    law("D-DROP", "a write is driven to its end though its caller is gone"),
    law("D-NEXT", "what did nothing because its session was over goes on in the next one"),
    law(
        "D-STATE",
        "a lost session is reported before the next one, and before a refusal of the next one",
    ),
    law("D-STATE-2", "the state of a client ends with the client, for early and late receivers"),
    law(
        "D-PUT",
        "a put leaves its data there, whatever comes and goes meanwhile, and is never taken back",
    ),
    law(
        "D-FOLLOW",
        "a follower of a value gets the last one, and keeps it while its replacement cannot be read",
    ),
    law("D-VALUE", "a value is read as it was written, or said to be unreadable"),
];

/// Laws that no case checks yet, each with the reason.
pub const UNCHECKED: &[(&str, &str)] = &[
    ("L-KV-15", "needs two stores at once: the differential, in tests/differential.rs"),
    ("L-WAT-5", "the floor does not mark where the events of a revision end"),
    ("L-WAT-9", "only ZooKeeper can promise it, so the floor does not"),
    (
        "L-WAT-16",
        "needs a server that dies: the quirks of both servers have ten thousand watches that outlive it",
    ),
    ("L-SES-8", "needs processes that can be killed: tests/faults does that"),
    ("L-SES-14", "no session can be shared through the floor"),
    ("L-MX-17", "needs the other programs: tests/interop has them"),
    ("C-OBS-5", "it allows, and forbids nothing"),
];

/// Laws that no case checks and the workloads of the simulator do: they need servers that lose
/// their leader, or clocks with faults.
pub const SIMULATED: &[(&str, &str)] = &[
    ("L-SES-15", "F25: servers that lost their leader, in every workload"),
    ("L-SES-16", "F28: a reconnection may grant another time to live"),
    ("L-SES-17", "F27: the machine of a process may sleep"),
    ("L-X-6", "F9: the wall clock of every process may be set to another date"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_law_has_an_id_of_its_own() {
        let ids: BTreeSet<_> = LAWS.iter().map(|law| law.id).collect();
        assert_eq!(ids.len(), LAWS.len());
    }

    #[test]
    fn no_law_about_stores_or_locks_is_left_out() {
        let stores = [("OUT", 8), ("KV", 18), ("SEQ", 10), ("WAT", 16), ("SES", 17)];
        let recipes = [
            ("MX", 18),
            ("RW", 8),
            ("SEM", 7),
            ("EL", 12),
            ("BAR", 2),
            ("CD", 3),
            ("DB", 6),
            ("CNT", 6),
            ("ID", 1),
            ("PE", 6),
            ("GM", 3),
            ("HR", 4),
            ("SP", 7),
            ("MW", 14),
            ("SD", 5),
            ("STM", 7),
            ("X", 10),
        ];
        for (family, last) in stores.into_iter().chain(recipes) {
            for number in 1..=last {
                let id = format!("L-{family}-{number}");
                assert!(by_id(&id).is_some(), "{id} is not in the list");
            }
        }
    }

    #[test]
    fn the_contract_has_as_many_lines_here_as_in_its_own_words() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/store.rs");
        let source = std::fs::read_to_string(file).expect("the core is next to this crate");
        let lines = source.lines().filter(|line| line.starts_with("//! - ")).count();
        assert_eq!(LAWS.iter().filter(|law| law.id.starts_with("C-")).count(), lines);
    }
}
