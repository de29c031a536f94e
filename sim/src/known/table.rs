//! The known mistakes that the workloads must find, each with the law that must find it.

use crate::cluster::Flaw;
use synod_conformance::wrong::Mistake;
use synod_core::mutant::Mutant;

use crate::known::Known;
use crate::user_mistake::UserMistake;

/// A mistake, and the workload and the law that find it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The mistake.
    pub known: Known,
    /// The workload that finds it.
    pub workload: &'static str,
    /// The law that finds it.
    pub law: &'static str,
    /// The personality of the store.
    pub personality: &'static str,
    /// Its number among the mistakes that every simulation of locks and elections must find, M1 to
    /// M27 and M32 to M37; empty for other mistakes.
    pub number: &'static str,
}

const fn row(known: Known, workload: &'static str, law: &'static str) -> Row {
    Row { known, workload, law, personality: "zk", number: "" }
}

const fn door(mutant: Mutant, workload: &'static str, law: &'static str) -> Row {
    row(Known::Door(mutant), workload, law)
}

const fn store(mistake: Mistake, workload: &'static str, law: &'static str) -> Row {
    row(Known::Store(mistake), workload, law)
}

const fn server(flaw: Flaw, workload: &'static str, law: &'static str) -> Row {
    row(Known::Server(flaw), workload, law)
}

const fn user(user_mistake: UserMistake, workload: &'static str, law: &'static str) -> Row {
    row(Known::User(user_mistake), workload, law)
}

impl Row {
    const fn on(mut self, personality: &'static str) -> Self {
        self.personality = personality;
        self
    }

    const fn as_number(mut self, number: &'static str) -> Self {
        self.number = number;
        self
    }
}

/// Every mistake that a workload must find.
pub const TABLE: &[Row] = &[
    door(Mutant::AmbiguousRepeated, "registers", "L-KV-1"),
    door(Mutant::BlindRepeat, "tickets", "L-OUT-2"),
    door(Mutant::ForeignAdopted, "tickets", "L-SEQ-9"),
    door(Mutant::LooksWithoutSync, "tickets", "L-OUT-2"),
    door(Mutant::DroppedCreateStays, "tickets", "L-SEQ-10"),
    door(Mutant::DroppedWriteAborted, "tickets", "L-SEQ-10"),
    door(Mutant::DroppedTicketForgotten, "tickets", "L-SEQ-10").on("etcd"),
    door(Mutant::RemovalGivesUp, "tickets", "L-SEQ-10"),
    door(Mutant::AdoptsStranger, "mutex", "L-MX-8").on("etcd").as_number("M3"),
    door(Mutant::CertainUntilTold, "mutex", "L-MX-1").as_number("M8"),
    door(Mutant::ClosesByForgetting, "sessions", "L-SES-7"),
    door(Mutant::KeeperStays, "registers", "L-X-5"),
    door(Mutant::LastDropForgotten, "registers", "L-X-5"),
    door(Mutant::TicketWithoutId, "mutex", "L-MX-11").on("etcd").as_number("M18"),
    door(Mutant::TicketPerSession, "mutex", "L-MX-12").as_number("M19"),
    door(Mutant::TokenIsSequence, "mutex", "L-MX-3").as_number("M10"),
    door(Mutant::TxnUnguarded, "mutex", "L-MX-5"),
    door(Mutant::ToldNameUsedAgain, "mutex", "L-MX-5").on("etcd"),
    door(Mutant::NameFreedInDoubt, "mutex", "L-MX-1").on("etcd"),
    door(Mutant::DroppedTicketStays, "mutex", "L-MX-9").as_number("M12"),
    door(Mutant::SortsByName, "mutex", "L-MX-8").as_number("M4"),
    door(Mutant::OldDatesIgnored, "mutex", "L-MX-8"),
    door(Mutant::MissingIsFirst, "mutex", "L-MX-1").on("etcd").as_number("M15"),
    door(Mutant::PredecessorGoneIsTurn, "mutex", "L-MX-1").as_number("M5"),
    door(Mutant::WaitsForTheAbsent, "mutex", "L-MX-7").on("etcd").as_number("M6"),
    door(Mutant::WatchesInTwoCalls, "mutex", "L-MX-7").as_number("M7"),
    door(Mutant::GrantsUncertain, "mutex", "L-MX-2").as_number("M16"),
    door(Mutant::LostReadIsEmpty, "mutex", "L-MX-1").as_number("M13"),
    door(Mutant::FirstTtlKept, "sessions", "L-SES-2"),
    door(Mutant::SleepUncounted, "sessions", "L-SES-2"),
    door(Mutant::LostTakenBack, "sessions", "L-SES-3"),
    door(Mutant::WatchesFirst, "mutex", "L-MX-14").as_number("M17"),
    door(Mutant::BlindRepeat, "mutex", "L-MX-7").as_number("M1"),
    door(Mutant::LooksWithoutSync, "mutex", "L-MX-7").as_number("M2"),
    door(Mutant::RemovalGivesUp, "mutex", "L-MX-15").as_number("M11"),
    door(Mutant::DowngradeQueuesAnew, "rwlock", "L-RW-4").as_number("M20"),
    door(Mutant::PredecessorGoneIsTurn, "rwlock", "L-RW-1").as_number("M21"),
    door(Mutant::ReaderPassesWriters, "rwlock", "L-RW-3"),
    door(Mutant::WriterPassesReaders, "rwlock", "L-RW-1"),
    door(Mutant::BlindRepeat, "semaphore", "L-SEM-4").as_number("M22"),
    door(Mutant::PermitsMiscounted, "semaphore", "L-SEM-1"),
    door(Mutant::PermitsBarge, "semaphore", "L-SEM-6"),
    door(Mutant::LimitRemembered, "semaphore", "L-SEM-1"),
    door(Mutant::ImpossibleAwaited, "semaphore", "L-SEM-7"),
    door(Mutant::LocksInAnyOrder, "multi", "L-X-3"),
    door(Mutant::OwnersMixedUp, "reentrant", "L-MX-13"),
    door(Mutant::ReentersLost, "reentrant", "L-MX-13"),
    door(Mutant::TurnUncounted, "passing", "L-MX-3"),
    door(Mutant::UnfairUnlooked, "unfair", "L-MX-1"),
    door(Mutant::QuestionUnheard, "revocable", "a holder that is asked back is notified"),
    door(Mutant::OldTicketTrusted, "latch", "L-EL-1").as_number("M35"),
    door(Mutant::ReconnectResets, "latch", "L-EL-11").as_number("M36"),
    door(Mutant::CloseForgetsDraw, "latch", "L-EL-6").as_number("M37"),
    door(Mutant::LossUntoldToLatch, "latch", "L-EL-4"),
    door(Mutant::WorkOutlivesLead, "selector", "L-EL-7"),
    door(Mutant::RequeuesTwice, "selector", "L-EL-7"),
    door(Mutant::LeadKeptAfterWork, "selector", "L-EL-6"),
    door(Mutant::ProclaimsUnguarded, "election", "L-EL-10"),
    door(Mutant::HeirByHope, "election", "L-EL-12"),
    door(Mutant::VanishedIsError, "election", "L-EL-8"),
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
    store(Mistake::GapUnreported, "watchers", "L-WAT-6"),
    store(Mistake::WatchHasNoEnd, "watchers", "L-WAT-6"),
    store(Mistake::EventDropped, "watchers", "L-WAT-6"),
    store(Mistake::EventTwice, "watchers", "L-WAT-4"),
    store(Mistake::EventsOutOfOrder, "watchers", "L-WAT-3"),
    store(Mistake::RecreationUntold, "watchers", "L-WAT-6").on("etcd"),
    store(Mistake::ExpiryUntoldToWatchers, "watchers", "L-WAT-6"),
    store(Mistake::NoRateMargin, "mutex", "L-SES-2").on("etcd").as_number("M14"),
    store(Mistake::LeaseFromReply, "mutex", "L-SES-2").as_number("M9"),
    store(Mistake::LeaseExtendedByHope, "tickets", "L-SES-2"),
    store(Mistake::LostSessionRevived, "sessions", "L-SES-2"),
    store(Mistake::CloseKeepsEphemerals, "sessions", "L-SES-7"),
    store(Mistake::TtlTooEarly, "presence_ttl", "L-PE-1"),
    server(Flaw::CutMeansGone, "sessions", "L-SES-2").on("etcd"),
    server(Flaw::DeadBeatAnswered, "sessions", "L-SES-2"),
    server(Flaw::ElectedRepeats, "sessions", "L-OUT-2").on("etcd"),
    server(Flaw::OutageKeepsSessions, "sessions", "L-X-5").on("etcd"),
    server(Flaw::RefusedMeansUndone, "transfers", "L-OUT-1").on("etcd"),
    server(Flaw::AnswerIsReport, "sessions", "L-SES-2"),
    server(Flaw::BeatIsRead, "sessions", "L-SES-2"),
    server(Flaw::BeatIsRead, "mutex", "L-SES-2"),
    user(UserMistake::BreakMeansUnsent, "transfers", "L-OUT-1"),
    user(UserMistake::AbsentMeansUnsent, "transfers", "L-OUT-1").on("etcd"),
    user(UserMistake::StuckMeansUnsent, "transfers", "L-OUT-1").on("etcd"),
    user(UserMistake::DropMeansUnsent, "transfers", "L-OUT-1"),
    user(UserMistake::AloneMeansOutage, "registers", "L-SES-2").on("etcd"),
    user(UserMistake::ResyncUntold, "watchers", "L-WAT-6").on("etcd"),
    user(UserMistake::RefusedMeansOutrun, "registers", "L-KV-1"),
    user(UserMistake::NameEndTrusted, "tickets", "L-SEQ-2"),
    user(UserMistake::SameIdsAgain, "tickets", "L-SEQ-8"),
    user(UserMistake::KindTrusted, "watchers", "L-WAT-6").on("etcd"),
    user(UserMistake::LastAnswerIsNewest, "watchers", "L-KV-3").on("etcd"),
    user(UserMistake::OldCheckTrusted, "sessions", "L-SES-2"),
    user(UserMistake::WatchdogTrusted, "sessions", "L-SES-2").on("etcd"),
    user(UserMistake::ClosesAtItsEnd, "registers", "L-X-5"),
    user(UserMistake::WallClockTrusted, "sessions", "L-SES-13"),
    door(Mutant::LostAnswerIsLostRace, "counter", "L-CNT-1").as_number("M25"),
    door(Mutant::WritesWithoutMark, "counter", "L-CNT-1"),
    door(Mutant::DoubtForgotten, "counter", "L-CNT-1"),
    door(Mutant::SharesOneAnswer, "counter", "L-CNT-1"),
    door(Mutant::MemoryTrusted, "counter", "L-CNT-1"),
    door(Mutant::NeverPromoted, "promotion", "L-CNT-7"),
    door(Mutant::PromotedKeepsNobodyOut, "promotion", "L-CNT-7"),
    door(Mutant::NewerByVersion, "shared_value", "L-SV-1"),
    door(Mutant::OvertakenReadCounts, "shared_value", "L-SV-1"),
    door(Mutant::CopyIsNeverStale, "shared_value", "L-SV-1"),
    door(Mutant::OutageUnread, "shared_value", "L-SV-1"),
    door(Mutant::NumberIsVersion, "shared_value", "L-SV-2"),
    door(Mutant::NewerByVersion, "cache", "L-CA-1"),
    door(Mutant::OutageUnread, "cache", "L-CA-1"),
    door(Mutant::ResyncUnread, "cache", "L-CA-1"),
    door(Mutant::ResyncOnlyAdds, "cache", "L-CA-1"),
    door(Mutant::CopyIsNeverStale, "cache", "L-CA-5"),
    door(Mutant::ResyncUnread, "hash_ring", "L-HR-1"),
    door(Mutant::CopyIsNeverStale, "hash_ring", "L-HR-3"),
    door(Mutant::GivenUnasked, "partition", "L-SP-3").as_number("M32"),
    door(Mutant::LateClaimsTrusted, "partition", "L-SP-3"),
    door(Mutant::BadInstanceEndsAll, "discovery", "L-SD-1"),
    door(Mutant::DownIsChosen, "discovery", "L-SD-4"),
    door(Mutant::TransactionMixesMoments, "transaction", "L-STM-2"),
    door(Mutant::TransactionRunsAgain, "transaction", "L-OUT-2"),
    door(Mutant::TransactionRunsAgain, "queue", "L-Q-1").as_number("M26"),
    door(Mutant::TransactionRunsAgain, "queue", "L-Q-3").as_number("M27"),
    door(Mutant::CapacityUnguarded, "queue", "L-Q-10"),
    door(Mutant::DroppedTakeLost, "queue", "L-Q-1"),
    door(Mutant::FailedWorkAcknowledged, "queue", "L-Q-1"),
    door(Mutant::DroppedTakeLost, "compat_queue", "L-Q-1"),
    door(Mutant::DelayIgnored, "queue", "L-Q-9"),
    door(Mutant::ClaimIgnored, "queue", "L-Q-5"),
    door(Mutant::ClaimsNeverEnd, "queue", "L-Q-4"),
    door(Mutant::ExistsIsMade, "presence", "L-PE-5"),
    door(Mutant::GivenUpMemberStays, "double_barrier", "L-DB-4"),
    door(Mutant::BlockByGuess, "ids", "L-ID-1"),
    door(Mutant::LeaseTakenEarly, "lease", "L-LS-1"),
    door(Mutant::CountsEachTry, "count_down", "L-CD-3"),
    door(Mutant::EntersOnAnyEvent, "double_barrier", "L-DB-1").as_number("M24"),
    door(Mutant::ReadyIsForAll, "double_barrier", "L-DB-1"),
    door(Mutant::LeavesAlone, "double_barrier", "L-DB-2"),
    door(Mutant::WakeIsLift, "barrier", "L-BAR-1"),
    door(Mutant::LiftIsAnEvent, "barrier", "L-BAR-2").as_number("M23"),
    door(Mutant::ResultUnguarded, "crew", "L-MW-2").as_number("M33"),
    door(Mutant::AssignsInTwoCalls, "crew", "L-MW-4").as_number("M34"),
    door(Mutant::DrainIgnored, "crew", "L-MW-12"),
    door(Mutant::DrainForgotten, "crew", "L-MW-12"),
    door(Mutant::PauseIgnored, "crew", "L-MW-13"),
    door(Mutant::AttemptsForgotten, "crew", "L-MW-18"),
    door(Mutant::RemovalNeedsItsCaller, "tickets", "L-SEQ-10"),
];

/// The laws for the mistake of this number, one of which must find it: in its workload, or in a
/// failing case of the conformance suite. If the mistake makes a process wait for ever, a history
/// shows only that.
pub const NUMBERED: &[(&str, &str)] = &[
    ("M1", "L-SEQ-8 L-MX-7"),
    ("M2", "L-SEQ-8 L-MX-7"),
    ("M3", "L-SEQ-9 L-MX-1 L-MX-3"),
    ("M4", "L-SEQ-6 L-MX-8"),
    ("M5", "L-MX-1"),
    ("M6", "L-WAT-1 L-MX-6"),
    ("M7", "L-WAT-2"),
    ("M8", "L-MX-1"),
    ("M9", "L-SES-1"),
    ("M10", "L-MX-3"),
    ("M11", "L-MX-15"),
    ("M12", "L-MX-9"),
    ("M13", "L-MX-1"),
    ("M14", "L-SES-1"),
    ("M15", "L-MX-1"),
    ("M16", "L-MX-2"),
    ("M17", "L-MX-14"),
    ("M18", "L-MX-11"),
    ("M19", "L-MX-12"),
    ("M20", "L-RW-4"),
    ("M21", "L-RW-1 L-RW-6"),
    ("M22", "L-SEM-4"),
    ("M23", "L-BAR-2"),
    ("M24", "L-DB-1"),
    ("M25", "L-CNT-1"),
    ("M26", "L-Q-1"),
    ("M27", "L-Q-3"),
    ("M32", "L-SP-1 L-SP-3"),
    ("M33", "L-MW-2"),
    ("M34", "L-MW-4"),
    ("M35", "L-EL-1"),
    ("M36", "L-EL-11"),
    ("M37", "L-EL-6"),
];
