//! The laws, each in a sentence, and the list of laws that no case checks yet.
//!
//! The laws of stores and of the client are here; the laws of a recipe are in the table of the
//! recipes ([`recipe`]), next to its row.

use std::fmt;

use crate::recipe;

/// A sentence that a store, the client on top of it, or a recipe keeps or breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Law {
    /// Its id. `L-` are the laws; `C-` the sentences of the contract of a store, in the
    /// documentation of `synod_core::store`; `D-` the further promises of the client, in the
    /// documentation of `synod_core::client` and `synod_core::session`.
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
pub fn by_id(id: &str) -> Option<Law> {
    laws().find(|law| law.id == id)
}

/// Every law about stores, the client, and the recipes.
pub fn laws() -> impl Iterator<Item = Law> {
    LAWS.iter().copied().chain(recipe::laws().map(|(id, sentence)| law(id, sentence)))
}

/// Lists the laws in force.
const fn law(id: &'static str, sentence: &'static str) -> Law {
    Law { id, sentence }
}

/// The laws that are not promises of a single recipe.
const LAWS: &[Law] = &[
    law("L-OUT-1", "a write that certainly failed is never applied"),
    law("L-OUT-2", "an answered write was applied exactly once, during the call"),
    law("L-OUT-3", "a write whose effect is unknown is applied at most once"),
    law("L-OUT-4", "the library retries an ambiguous call only if a second effect is impossible"),
    law("L-OUT-5", "every call returns within its deadline, whatever the network does"),
    law("L-OUT-6", "once a session is over, no call on it succeeds or hangs"),
    law("L-OUT-7", "an error names the failure and the path, and contains no secret"),
    law("L-OUT-8", "no answer of a server causes a panic or leaves a task running"),
    law("L-KV-1", "writes are linearizable"),
    law("L-KV-2", "a latest read is not older than any answer before its call"),
    law("L-KV-3", "the views of a session never go back"),
    law("L-KV-4", "a session reads its own writes, or newer ones"),
    law("L-KV-5", "a write that expects another version changes nothing"),
    law(
        "L-KV-6",
        "each write of an incarnation has its own version, and no incarnation is mistaken for another",
    ),
    law("L-KV-7", "of many concurrent creates of one path exactly one succeeds"),
    law("L-KV-8", "a delete that names an incarnation removes no other"),
    law("L-KV-9", "a transaction is applied completely, at one revision, for every reader"),
    law(
        "L-KV-10",
        "a rejected transaction names the first operation that failed, and changes nothing",
    ),
    law(
        "L-KV-11",
        "the operations of one transaction on one node have the same effect on every store",
    ),
    law("L-KV-12", "a listing is a consistent snapshot, sorted, complete, and has no other nodes"),
    law("L-KV-13", "a listing of more than 65,536 children is complete, or fails as too large"),
    law("L-KV-14", "data is read as it was written, and empty data is not absent data"),
    law("L-KV-15", "a sequential program has the same outcomes on every store"),
    law("L-KV-16", "a create never fails because of a parent that is missing, or is being removed"),
    law(
        "L-KV-17",
        "a follow-up query shows at least the state that the commit left, or that caused the rejection",
    ),
    law("L-KV-18", "a read of several nodes is a consistent snapshot"),
    law("L-SEQ-1", "among siblings, names are unique"),
    law("L-SEQ-2", "the order of sequences is the order of creation"),
    law("L-SEQ-3", "once a sequence was seen, no lower one appears"),
    law("L-SEQ-4", "sequences may have gaps"),
    law("L-SEQ-5", "two incarnations of a directory are distinguished"),
    law("L-SEQ-6", "the order does not depend on the spelling of names"),
    law("L-SEQ-7", "a directory without sequences left rejects every create as exhausted"),
    law("L-SEQ-8", "a sequential create that is repeated as documented creates no second node"),
    law("L-SEQ-9", "a sequential node names the session that owns it"),
    law("L-SEQ-10", "a sequential create that is dropped leaves no node"),
    law("L-WAT-1", "every change after the view is reported"),
    law("L-WAT-2", "a watch begins where its view ends"),
    law("L-WAT-3", "events of one path are in the order of the changes"),
    law("L-WAT-4", "no change is reported twice"),
    law("L-WAT-5", "the events of one revision arrive together"),
    law("L-WAT-6", "between two resyncs the events explain every change"),
    law(
        "L-WAT-7",
        "after a disconnection a watch continues, or reports that it may have missed events",
    ),
    law("L-WAT-8", "a change that did not happen is not reported"),
    law("L-WAT-9", "a session is notified of a change before it reads it"),
    law(
        "L-WAT-10",
        "a change that is undone during a disconnection still wakes the watches that wait for it",
    ),
    law("L-WAT-11", "a node that was created again is recognized as another one"),
    law("L-WAT-12", "a watch ends with one reason, and then reports nothing"),
    law(
        "L-WAT-13",
        "a slow reader of events costs bounded memory, is notified of the overflow, and delays no other reader",
    ),
    law("L-WAT-14", "a dropped watch uses no resources of the server"),
    law("L-WAT-15", "of two watches on one path, one ends without the other"),
    law("L-WAT-16", "more than 10,000 watches survive a reconnection"),
    law(
        "L-SES-1",
        "the life of a session is counted from the sending of the answered request, with a margin",
    ),
    law("L-SES-2", "a session that certainly lives exists at the server"),
    law(
        "L-SES-3",
        "a session that is cut off is suspended, is lost in time, and never becomes live again",
    ),
    law("L-SES-4", "a late subscriber gets the latest status"),
    law("L-SES-5", "when a session ends all its ephemeral nodes are removed, at one revision"),
    law("L-SES-6", "no node of an ended session appears"),
    law("L-SES-7", "the close of a session removes its nodes without a delay"),
    law("L-SES-8", "the nodes of a process that died are removed within the TTL"),
    law("L-SES-9", "heartbeats do not depend on the other requests of the session"),
    law("L-SES-10", "a new session inherits nothing"),
    law("L-SES-11", "the negotiated TTL is the one that applies"),
    law("L-SES-12", "a TTL of any size is negotiated, or rejected"),
    law("L-SES-13", "an ephemeral node keeps its owner, whichever session writes it"),
    law("L-SES-14", "two clients with one session do not disconnect each other without an end"),
    law(
        "L-SES-15",
        "the life of a session is counted from the last extension by the store's leader, and not from the answer of a server without one",
    ),
    law("L-SES-16", "the TTL that was negotiated last applies"),
    law("L-SES-17", "the time of a suspension of the machine counts"),
    law(
        "L-SES-18",
        "calls and tasks work on one thread and on many: nothing is polled or awaited under a lock",
    ),
    law(
        "L-SES-19",
        "a session that is handed over is lost for its client before, and one other client resumes it",
    ),
    law(
        "L-SES-20",
        "a client that resumes a session gets the lock or the lead of the former client, with its token",
    ),
    law("L-X-1", "a call may be dropped at any await, and no law is broken"),
    law("L-X-2", "a process may end at any call to the store, and no law is broken"),
    law("L-X-3", "several locks are taken all or none, and two orders never deadlock"),
    law("L-X-4", "a call yields to other tasks"),
    law("L-X-5", "a dropped value leaves no task running"),
    law("L-X-6", "a jump of the wall clock changes nothing but reported dates"),
    law("L-X-7", "a frequent operation costs the least possible number of requests"),
    law("L-X-8", "an outage causes no storm of retries"),
    law("L-X-9", "a path is not a prefix: no node of /ab shows in /a"),
    law("L-X-10", "a store rejects the features that it lacks"),
    law(
        "L-X-11",
        "every argument is accepted, or rejected before anything is sent, and affects no other caller",
    ),
    law(
        "L-X-12",
        "a call that is not polled, and a runtime that ends, block no other call, nor a second instance",
    ),
    law("B-PATH", "a path that no store accepts is rejected before anything is sent"),
    law(
        "B-SIZE",
        "data that is too large is rejected before anything is sent, and the session lives on",
    ),
    law("C-TREE-1", "a node has a path, data and a stat, and may have children"),
    law("C-TREE-2", "ancestors always exist: a create also creates them, as containers"),
    law("C-TREE-3", "a node with children cannot be deleted"),
    law("C-TREE-4", "nothing can be created below an ephemeral node"),
    law("C-TREE-5", "a TTL node is removed once it has not been written for its TTL, or later"),
    law("C-TREE-6", "data of zero bytes is data"),
    law("C-READ-1", "a latest read reflects every write that was answered before"),
    law("C-READ-2", "a local read may lag, but never goes back"),
    law("C-READ-3", "a view is a consistent snapshot, complete and sorted"),
    law(
        "C-READ-4",
        "the reported progress of a read never decreases, and never exceeds the number of nodes",
    ),
    law(
        "C-WRITE-1",
        "a transaction is applied completely or not at all; operations see the effects of earlier ones",
    ),
    law("C-WRITE-2", "a rejection names the first operation that failed, and the reason"),
    law("C-WRITE-3", "an error tells whether the write may have been applied"),
    law("C-WRITE-4", "sequences increase, with gaps, while the directory exists"),
    law("C-WRITE-5", "a repeated sequential create creates no second node"),
    law("C-WRITE-6", "a write to an ephemeral node does not change its owner"),
    law("C-WRITE-7", "a call that the validation rejects is not sent"),
    law("C-WRITE-8", "a follow-up query is answered as of the commit, or of the rejection"),
    law("C-OBS-1", "an observation reads and watches in one step"),
    law("C-OBS-2", "events may be merged and delayed; none is invented"),
    law("C-OBS-3", "revisions of one path do not decrease, and no change is reported twice"),
    law("C-OBS-4", "a watch ends with exactly one end, and then reports nothing"),
    law("C-OBS-5", "a read may show a change before a watch reports it"),
    law("C-OBS-6", "dropping a watch frees its resources at the server"),
    law("C-OBS-7", "a watch for one event delivers it before it ends"),
    law("C-OBS-8", "a watch until a node is deleted reports only that"),
    law(
        "C-OBS-9",
        "a reader that follows hints and reads after them knows the current state, and affects no other reader",
    ),
    law("C-SES-1", "a live session has the instant until which it certainly lives"),
    law("C-SES-2", "a lost session stays lost"),
    law("C-SES-3", "ephemeral nodes are removed with their session, all at one revision"),
    law(
        "C-SES-4",
        "close ends the session; its ephemeral nodes are gone when it returns without an error",
    ),
    law("C-SES-5", "the session of a dropped store expires after its TTL"),
    law("C-SES-6", "no call waits longer than the TTL"),
    law("C-SES-7", "a dropped call has no effect on other calls"),
    law(
        "D-REPEAT",
        "calls that are safe to retry are retried according to the policy, and no others are",
    ),
    law("D-DROP", "a write completes even if its caller is dropped"),
    law(
        "D-NEXT",
        "a call that had no effect because its session was over continues in the next session",
    ),
    law(
        "D-STATE",
        "a lost session is reported before the next one, and before a rejection of the next one",
    ),
    law("D-STATE-2", "the state of a client ends with the client, for early and late receivers"),
    law(
        "D-PUT",
        "a put stores its data whatever other clients create and remove meanwhile, and is never undone",
    ),
    law(
        "D-ONCE",
        "an exactly-once write is applied once or never, as reported, however late a request arrives",
    ),
    law(
        "D-TREE",
        "a recursive delete ends when no node is left, and counts the nodes that it removed",
    ),
    law("D-LAZY", "a lazy client has no session at first, and waits for it as for any later one"),
    law(
        "D-FOLLOW",
        "a follower of a value gets the last one, and keeps it while its replacement cannot be read",
    ),
    law("D-VALUE", "a value is read as it was written, or reported as unreadable"),
];

/// Laws that no case checks yet, each with the reason.
pub const UNCHECKED: &[(&str, &str)] = &[
    ("L-KV-15", "needs two stores at once: the differential, in tests/differential.rs"),
    ("L-WAT-5", "the contract does not mark the last event of a revision"),
    ("L-WAT-9", "only ZooKeeper can promise it, so the contract does not"),
    (
        "L-WAT-16",
        "needs a server that dies: the quirks of both servers have 10,000 watches that survive it",
    ),
    ("L-SES-8", "needs processes that can be killed: tests/faults does that"),
    ("L-SES-14", "the contract does not permit sharing a session"),
    ("L-MX-17", "needs the other programs: tests/interop has them"),
    ("C-OBS-5", "it permits behaviour, and forbids none"),
];

/// Laws that no case checks, but the workloads of the simulator: they need servers that lose their
/// leader, or clocks with faults.
pub const SIMULATED: &[(&str, &str)] = &[
    ("L-SES-15", "F25: servers that lost their leader, in every workload"),
    ("L-SES-16", "F28: a reconnection may grant another TTL"),
    ("L-SES-17", "F27: the machine of a process may be suspended"),
    ("L-X-6", "F9: the wall clock of every process may be set to another date"),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_law_has_an_id_of_its_own() {
        let ids: BTreeSet<_> = laws().map(|law| law.id).collect();
        assert_eq!(ids.len(), laws().count());
    }

    #[test]
    fn no_law_about_stores_is_left_out() {
        for (family, last) in [("OUT", 8), ("KV", 18), ("SEQ", 10), ("WAT", 16), ("SES", 20)] {
            let id = format!("L-{family}-{last}");
            assert!(by_id(&id).is_some(), "{id} is not in the list");
        }
    }

    #[test]
    fn no_number_of_a_family_is_left_out() {
        let numbered = laws().filter_map(|law| {
            let (family, number) = law.id.rsplit_once('-')?;
            Some((family, number.parse::<u32>().ok()?))
        });
        let mut families: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        for (family, number) in numbered.filter(|(family, _)| family.starts_with("L-")) {
            families.entry(family).or_default().insert(number);
        }
        assert!(families.len() > 20, "{} families are too few: this test is blind", families.len());
        for (family, numbers) in families {
            let missing = (1..).zip(&numbers).find(|(expected, number)| expected != *number);
            assert_eq!(missing, None, "of {family}");
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
