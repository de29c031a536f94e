//! The known mistakes that the workloads must find, each with the law that must find it.

use synod_conformance::wrong::Mistake;
use synod_core::mutant::Mutant;
use synod_mem::cluster::Flaw;

use crate::known::Known;
use crate::slip::Slip;

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

const fn server(flaw: Flaw, workload: &'static str, law: &'static str) -> Row {
    Row { known: Known::Server(flaw), workload, law, personality: "zk" }
}

const fn user(slip: Slip, workload: &'static str, law: &'static str) -> Row {
    Row { known: Known::User(slip), workload, law, personality: "zk" }
}

impl Row {
    const fn on(mut self, personality: &'static str) -> Self {
        self.personality = personality;
        self
    }
}

/// Every mistake that a workload must find.
pub const TABLE: &[Row] = &[
    door(Mutant::AmbiguousRepeated, "registers", "L-KV-1"),
    door(Mutant::BlindRepeat, "tickets", "L-OUT-2"),
    door(Mutant::LooksWithoutSync, "tickets", "L-OUT-2"),
    door(Mutant::DroppedCreateStays, "tickets", "L-SEQ-10"),
    door(Mutant::DroppedWriteAborted, "tickets", "L-SEQ-10"),
    door(Mutant::DroppedTicketForgotten, "tickets", "L-SEQ-10").on("etcd"),
    door(Mutant::RemovalGivesUp, "tickets", "L-SEQ-10"),
    door(Mutant::AdoptsStranger, "mutex", "L-MX-8").on("etcd"),
    door(Mutant::CertainUntilTold, "mutex", "L-MX-1"),
    door(Mutant::ClosesByForgetting, "sessions", "L-SES-7"),
    door(Mutant::KeeperStays, "registers", "L-X-5"),
    door(Mutant::LastDropForgotten, "registers", "L-X-5"),
    door(Mutant::TicketWithoutId, "mutex", "L-MX-11").on("etcd"),
    door(Mutant::TicketPerSession, "mutex", "L-MX-8"),
    door(Mutant::TokenIsSequence, "mutex", "L-MX-3"),
    door(Mutant::TxnUnguarded, "mutex", "L-MX-5"),
    door(Mutant::DroppedTicketStays, "mutex", "L-MX-9"),
    door(Mutant::SortsByName, "mutex", "L-MX-8"),
    door(Mutant::MissingIsFirst, "mutex", "L-MX-1").on("etcd"),
    door(Mutant::PredecessorGoneIsTurn, "mutex", "L-MX-1"),
    door(Mutant::WaitsForTheAbsent, "mutex", "L-MX-7").on("etcd"),
    door(Mutant::WatchesInTwoCalls, "mutex", "L-MX-7"),
    door(Mutant::GrantsUncertain, "mutex", "L-MX-2"),
    door(Mutant::LostReadIsEmpty, "mutex", "L-MX-1"),
    door(Mutant::LostTakenBack, "sessions", "L-SES-3"),
    store(Mistake::CasIgnoresVersion, "registers", "L-KV-1"),
    store(Mistake::CasInTwoSteps, "registers", "L-KV-1"),
    store(Mistake::LatestLags, "registers", "L-KV-2"),
    store(Mistake::AppliesOneByOne, "transfers", "L-KV-9"),
    store(Mistake::AppliesTwice, "sessions", "L-OUT-2"),
    store(Mistake::RetriesBlindly, "tickets", "L-SEQ-9"),
    store(Mistake::LostReplyIsNone, "tickets", "L-OUT-1").on("etcd"),
    store(Mistake::LateAfterRead, "tickets", "L-SEQ-10"),
    store(Mistake::LateWriteAfterSessionEnd, "sessions", "L-OUT-1"),
    store(Mistake::SequenceBeforeCommit, "tickets", "L-SEQ-2").on("etcd"),
    store(Mistake::SequenceWraps, "tickets", "L-SEQ-2"),
    store(Mistake::SequentialTwice, "tickets", "L-SEQ-10"),
    store(Mistake::LocalGoesBack, "watchers", "L-KV-4"),
    store(Mistake::LocalGoesBackAfterOutage, "watchers", "L-KV-4"),
    store(Mistake::WatchArmedAfterRead, "watchers", "L-WAT-6"),
    store(Mistake::WatchFiresOnce, "watchers", "L-WAT-6"),
    store(Mistake::WatchSilentAfterOutage, "watchers", "L-WAT-6"),
    store(Mistake::WatchHasNoEnd, "watchers", "L-WAT-6"),
    store(Mistake::EventDropped, "watchers", "L-WAT-6"),
    store(Mistake::EventTwice, "watchers", "L-WAT-4"),
    store(Mistake::EventsOutOfOrder, "watchers", "L-WAT-3"),
    store(Mistake::RecreationUntold, "watchers", "L-WAT-6").on("etcd"),
    store(Mistake::ExpiryUntoldToWatchers, "watchers", "L-WAT-6"),
    store(Mistake::NoRateMargin, "mutex", "L-SES-2").on("etcd"),
    store(Mistake::LeaseFromReply, "mutex", "L-SES-2"),
    store(Mistake::LeaseExtendedByHope, "tickets", "L-SES-2"),
    store(Mistake::LostSessionRevived, "sessions", "L-SES-2"),
    store(Mistake::CloseKeepsEphemerals, "sessions", "L-SES-7"),
    server(Flaw::CutMeansGone, "sessions", "L-SES-2").on("etcd"),
    server(Flaw::DeadBeatAnswered, "sessions", "L-SES-2"),
    server(Flaw::ElectedRepeats, "sessions", "L-OUT-2").on("etcd"),
    server(Flaw::OutageKeepsSessions, "sessions", "L-X-5").on("etcd"),
    user(Slip::BreakMeansUnsent, "transfers", "L-OUT-1"),
    user(Slip::AbsentMeansUnsent, "transfers", "L-OUT-1").on("etcd"),
    user(Slip::ResyncUntold, "watchers", "L-WAT-6").on("etcd"),
    user(Slip::RefusedMeansOutrun, "registers", "L-KV-1"),
    user(Slip::SameIdsAgain, "tickets", "L-SEQ-8"),
    user(Slip::KindTrusted, "watchers", "L-WAT-6").on("etcd"),
    user(Slip::OldCheckTrusted, "sessions", "L-SES-2"),
    user(Slip::WatchdogTrusted, "sessions", "L-SES-2").on("etcd"),
    user(Slip::ClosesAtItsEnd, "registers", "L-X-5"),
    user(Slip::WallClockTrusted, "sessions", "L-SES-13"),
    door(Mutant::RemovalNeedsItsCaller, "tickets", "L-SEQ-10"),
];
