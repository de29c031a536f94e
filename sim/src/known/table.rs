//! The known mistakes that the workloads must find, each with the law that must find it.

use synod_conformance::wrong::Mistake;
use synod_core::mutant::Mutant;

use crate::known::Known;

/// A mistake, and who finds it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The mistake.
    pub known: Known,
    /// The workload that finds it.
    pub workload: &'static str,
    /// The law that finds it.
    pub law: &'static str,
    /// Whose habits the store has.
    pub personality: &'static str,
}

const fn door(mutant: Mutant, workload: &'static str, law: &'static str) -> Row {
    Row { known: Known::Door(mutant), workload, law, personality: "zk" }
}

const fn store(mistake: Mistake, workload: &'static str, law: &'static str) -> Row {
    Row { known: Known::Store(mistake), workload, law, personality: "zk" }
}

impl Row {
    const fn on(mut self, personality: &'static str) -> Self {
        self.personality = personality;
        self
    }
}

/// Every mistake that a workload must find.
pub const TABLE: &[Row] = &[
    door(Mutant::AmbiguousRepeated, "registers", "L-OUT-3"),
    store(Mistake::CasIgnoresVersion, "registers", "L-KV-1").on("etcd"),
];
