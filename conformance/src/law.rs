//! The laws, each in a sentence, and those that no case checks yet.
//!
//! Those of stores and of the client are here, those of a recipe in the table of the recipes
//! ([`synod_testkit::recipe`]), next to its row.

use std::fmt;

use synod_testkit::recipe;

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

/// Those that are no promise of a single recipe.
const LAWS: &[Law] = &[
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
    law(
        "L-X-11",
        "whatever a caller passes is taken, or refused before anything is sent, and is in no other's way",
    ),
    law(
        "L-X-12",
        "a call that is not polled, and a runtime that ends, hold up no other call, nor a second instance",
    ),
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
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_law_has_an_id_of_its_own() {
        let ids: BTreeSet<_> = laws().map(|law| law.id).collect();
        assert_eq!(ids.len(), laws().count());
    }

    #[test]
    fn no_law_about_stores_is_left_out() {
        for (family, last) in [("OUT", 8), ("KV", 18), ("SEQ", 10), ("WAT", 16), ("SES", 18)] {
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
