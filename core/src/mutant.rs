//! Known-wrong variants of the code of this crate, for testing the tests. Those of stores are in
//! `synod-conformance`, which makes them around any store.
//!
//! A law that no mistake was ever seen to break proves little. Each [`Mutant`] is a mistake that was really made,
//! planted by [`mistake!`] after the right code. A wrong algorithm of more than a few lines is in a module of
//! this folder. Without the feature `mutants` nothing of this is in the program but the list.

#[cfg(feature = "mutants")]
mod active;
#[cfg(feature = "mutants")]
pub(crate) mod client;
#[cfg(feature = "mutants")]
pub(crate) mod session;

#[cfg(feature = "mutants")]
pub use active::{is, with};

/// Plants a mistake after the right code, in a statement of its own.
///
/// Without the feature `mutants` of the crate that plants it, it is nothing. With it, and while the mistake is switched on,
///
/// - `mistake!(Name: let value = wrong)` replaces a value that was computed before;
/// - `mistake!(Name: return wrong)`, and any other statement, is done.
///
/// The mistake is one of `crate::mutant::Mutant`, and `crate::mutant::is` returns whether it is switched on:
/// both of the crate that plants it.
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "each crate has a list of mistakes of its own")]
macro_rules! mistake {
    ($name:ident: let $value:ident = $wrong:expr) => {
        #[cfg(feature = "mutants")]
        let $value = if crate::mutant::is(crate::mutant::Mutant::$name) { $wrong } else { $value };
    };
    ($name:ident: $($wrong:tt)+) => {
        #[cfg(feature = "mutants")]
        if crate::mutant::is(crate::mutant::Mutant::$name) {
            $($wrong)+
        }
    };
}

pub use mistake;

/// Lists mistakes, each with what is wrong about it in a sentence.
///
/// The enum that it makes has `ALL`, `what`, and its names as `Display`.
#[macro_export]
macro_rules! mistakes {
    ($(#[$about:meta])* pub enum $list:ident { $($name:ident = $what:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $list {
            $(#[doc = $what] $name,)*
        }

        impl $list {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it gets wrong, in a sentence.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }

        impl ::std::fmt::Display for $list {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(self, f)
            }
        }
    };
}

mistakes! {
    /// A mistake of the code itself that was really made.
    pub enum Mutant {
        NamespaceStripsByText =
            "takes a namespace's root off a path as text, so that /a matches /ab",
        NamespaceAddsTwice = "puts a transaction's look below the namespace's root twice",
        NamespaceForgetsEvents =
            "hands out events with the paths of the store below the namespace",
        BlindRepeat = "repeats a sequential create of unknown effect under a new name",
        ForeignAdopted = "takes a node of its name for its own though another session owns it",
        LooksWithoutSync = "looks for its node with a read that may lag",
        AmbiguousRepeated = "repeats a set that may have happened",
        DroppedCreateStays = "leaves what a dropped create made",
        DroppedWriteAborted = "abandons a write in flight when its caller goes",
        DeadlinePerAttempt = "gives every repetition a deadline of its own",
        LostTakenBack = "takes a lost session for alive when its store says so again",
        CertainUntilTold = "is certain of its session until a loss is reported",
        GivesUpAtOnce = "fails a call that certainly did nothing without trying it again",
        PolicyIgnored = "repeats what failed for ever, whatever its policy says",
        RetriesInAStorm = "tries again at once, and again, what failed",
        DeadlineIgnored = "waits for an answer for as long as it takes",
        CallOutlivesSession = "lets a call wait on when its session is over",
        LostAnswered = "gives an answer that came after its session was over",
        AnswerTrusted = "assumes that a store reports every operation",
        StaysWithLostSession = "fails a call that did nothing when its session turns out to be over",
        PathUntold = "leaves the path out of the errors of writes",
        AdoptsStranger = "takes any node next to its ticket for it",
        DroppedTicketForgotten = "does not look for what a dropped create of unknown effect made",
        OneLateComerExpected =
            "takes back what one sending of a create made, and not what the next one makes then",
        CloseNeedsItsCaller = "does not close when its caller does not wait for it",
        RemovalNeedsItsCaller = "removes a node only while its caller waits for it",
        RemovesByPath = "removes whatever stands where its node was",
        RemovalGivesUp = "tries once to remove what was given up",
        ClosesByForgetting = "drops a session that is closed, and does not end it at the store",
        LossIsEnd = "says that a session is closed which it lost, and which may live at the server",
        RefusalIsFinal = "opens no other session when one server refuses it once",
        LastDropForgotten = "leaves its session open when the last client is dropped",
        KeeperStays = "keeps its task running when it is closed",
        FirstTtlKept = "counts a session's life with the time to live of its first connection",
        SleepUncounted = "does not count the time in which the machine slept",
        ClosedClientWaits = "lets calls wait for a session when it is closed",
        LossUntold = "does not report a session that was lost, but only the next one",
        StateNeverEnds = "keeps receivers of the state waiting after the end of the client",
        LateSubscriberUntold = "reports to a late receiver that nothing happened yet",
        WatchEndsWithSession = "ends a client's watch with the session that it is made on",
        ObservesTwice = "observes twice for each watch, and forgets one of the two",
        ResyncSwallowed = "observes again in the next session, and does not say so",
        EndUntold = "ends a watch without a word when the client is closed",
        NamespaceReplaces = "puts a namespace within a namespace at the store's own root",
        PutKeepsWhatIsThere = "takes what is there for what it was to put",
        PutTakenBack =
            "removes the node of a put whose caller is gone, although others wrote to it since",
        PutLosesRace = "fails a put when a node comes or goes between its two requests",
        ValueWithoutVersion = "takes any version for the one that a value was read in",
        HeardForgotten = "loses the change that a dropped call for the next value heard of",
        BadValueForgetsGood = "forgets the last value when what replaced it cannot be read",
        DataQuoted = "quotes data that cannot be read in its error",
        CorruptIsNone = "takes data that cannot be read for none",

        TicketWithoutId = "draws tickets whose names others may get again",
        TicketPerSession = "has one ticket a session, for all tasks that lock in it",
        StrangersCount = "takes whatever lies in the line for a ticket",
        SinceUntold = "draws tickets whose names do not encode when they were requested",
        LookIgnored = "draws a ticket, then looks at the line in another call",
        TokenIsSequence = "takes a ticket's sequence for its token",
        NameFreedInDoubt =
            "gives a ticket the name of one that a request may still be on its way to remove",
        ToldNameUsedAgain = "gives a ticket the name of one that others may have seen",
        LateTwinTrusted =
            "takes what a late sending of its draw made for the ticket that was removed",
        TxnUnguarded = "leaves the check out of a guarded transaction",
        DroppedTicketStays = "leaves a ticket in the line when its owner goes",
        SortsByName = "sorts tickets by their whole names",
        OldDatesIgnored = "ignores a ticket whose name shows a date of more than an hour ago",
        MissingIsFirst = "takes itself for the first when it is not in the line",
        WatchesFirst = "waits for the first in the line, not for its predecessor",
        PredecessorGoneIsTurn = "takes it for its turn when its predecessor goes",
        WaitsForTheAbsent = "waits for the deletion of a predecessor that is gone already",
        WatchesInTwoCalls = "sees that its predecessor is there, then watches",
        LostReadIsEmpty = "takes a line that it could not read for an empty one",
        TriesByDrawing = "draws a ticket to see whether a lock is free",
        WaitsInOneSession = "fails a wait when its session is lost",
        RemovalUnnoticed = "hears of the loss of its session, and not of that of its ticket",
        RefusalSwallowed = "draws again and again what the store refuses",
        TryUntold = "does not notify later waiters that it got permits by trying",
        ContainerIsTicket = "takes a place where no node is for a ticket that never goes",
        CallUntold = "does not notify later waiters that it was granted",
        DoubtUntold = "does not notify the waiters after a ticket that was drawn in doubt",
        ReaderPassesWriters = "lets a reader in past waiting writers",
        WriterPassesReaders = "lets a writer in when there is no earlier writer",
        WriterForEver = "takes a ticket for a writer's after its downgrade",
        DowngradeQueuesAnew = "takes a new place in the line to go on reading",
        LabelIsMode = "takes the label of a writer for its downgrade",
        PermitsMiscounted = "counts the holders of permits, and not the permits",
        ImpossibleAwaited = "waits for more permits than there are",
        LimitChangeIgnored =
            "relies on tickets that are older than a change of the number of permits",
        PermitsBarge = "takes permits that are left, although an earlier request waits for more",
        LimitRemembered = "goes by the number of permits that there were at first",
        OwnersMixedUp = "lets any owner acquire again through the same lock",
        ReentersLost = "lets an owner acquire again that has lost the lock",
        LocksInAnyOrder = "takes several locks in the order in which they are named",
        QuestionUnheard = "does not look whether what it holds is asked for",
        UnfairUnlooked =
            "takes a lock that it drew a ticket for, although there is an earlier ticket",
        TurnUncounted = "passes a lock on with the token of the previous holder",
        GrantsUncertain = "enters without asking whether its session still lives",

        OldTicketTrusted = "takes a ticket of the session before for its own",
        ReconnectResets = "gives up its place in an election whenever it is connected again",
        CloseForgetsDraw = "leaves an election without taking back what is under way",
        LossUntoldToLatch = "does not report the end of a term",
        WorkOutlivesLead = "lets work go on when the lead is lost",
        RequeuesTwice = "campaigns again while it still has a ticket",
        InterruptByOldLook = "decides which term an interruption meets by what it saw before",
        LeadKeptAfterWork = "goes on leading when its work is done",
        ProclaimsUnguarded = "proclaims although another candidate leads",
        OutageEndsIt = "stops observing or campaigning when the store does not answer for long",
        HeirByHope = "resigns without making room for the heir that it names",
        WatchesAgain = "watches anew what it has a watch on",
        DataWakes = "wakes a waiter when its predecessor writes to its ticket",
        LostAnswerIsLostRace =
            "makes a change again on the next value when the answer to a write was lost",
        WritesWithoutMark = "writes a value without the mark by which the write is recognized",
        CreatesWithoutMark = "makes a new value without the mark by which that is recognized",
        LossEndsChange = "fails a change of a value when its session is lost",
        LostRaceStarves = "never tries again to change a value when another client was faster",
        NeverPromoted = "goes on without the lock, however many tries a change lost",
        PromotedKeepsNobodyOut = "lets changes in while another one is under the lock",
        DoubtForgotten =
            "makes a change again in the next session, although it may have been applied",
        SharesOneAnswer = "decides all changes of one write on the value before the first of them",
        MemoryTrusted = "refuses a change because of a value that it remembers",
        ReadsFirst = "reads a value before each write, although it knows it",
        MarkStays = "leaves its mark below a value when its last user goes",
        SumWraps = "lets a number go on at the other end when it does not fit",
        CorruptIsZero = "takes bytes that are no number for zero",

        NewerByVersion = "takes a version with a higher number for the newer one",
        OvertakenReadCounts =
            "takes what a read found for the latest, although its own write was answered meanwhile",
        CopyIsNeverStale = "says that a copy is current, whatever is known of the store",
        OutageUnread = "does not read a value again after an outage in which it may have changed",
        NumberIsVersion = "replaces another version that has the same number",
        ResyncOnlyAdds = "keeps the nodes in a mirror that were deleted during an outage",
        ResyncUnread = "goes on with a mirror as if nothing had been missed",
        EventReadsAll = "reads the whole of a mirror again after each event",
        MissedEventsSkipped = "goes on with the next event when a reader has missed some",
        TransactionMixesMoments =
            "goes on with a transaction although what it has read has changed",
        TransactionRunsAgain = "runs a transaction again when the answer to its commit was lost",
        TransactionMarkStays = "leaves the mark of its transactions when its last user goes",

        BlockByGuess = "hands out the numbers of a block whose reservation is in doubt",
        CountsEachTry = "counts a party again each time that it counts down",
        WakeIsLift = "passes a barrier because of an event, and does not look at it",
        LiftIsAnEvent =
            "waits for the event that a barrier was lifted, and for nothing after it missed one",
        EntersOnAnyEvent = "enters a double barrier when anything happens there",
        ReadyIsForAll = "enters a double barrier by a round that began without it",
        GivenUpMemberStays = "leaves a node in a double barrier when a member gives up",
        LeavesAlone = "leaves a double barrier without waiting for the others",

        ExistsIsMade = "takes a node of another session for the one that it was to make",
        SetWhileAwayForgotten = "forgets the data that is set while its node is not there",
        KeptRemovalUnnoticed = "does not notice that another client removed its node",
        ForeignDataKept = "leaves what another client has written to its node",
        CreateInDoubtForgotten = "does not know its own node again when the answer to its create was lost",
        CloseForgetsCreate = "ends without removing what an unanswered create makes",
        NeverWrittenAgain = "does not write a node with a time to live while its data stays",
        LastingMadeAnew = "makes a node with a time to live anew when its session is lost",
        SameDataIsOwn = "takes a node with the data that is wanted for its own",
        CloseForgetsNode = "leaves a node with a time to live when it is closed",

        RingByRemainder = "finds the member of a key by the remainder of its hash",

        GivenUnasked = "gives items of a partition away before their member has stopped",
        LateClaimsTrusted = "goes on with the claims of a partition when a request may still arrive",
        DividesAnew = "divides all items of a partition anew when a member comes or goes",
        FailedWorkAcknowledged = "acknowledges an item although the work for it failed",
        ClaimsNeverEnd = "does not hand an item out again whose claim has gone",
        ClaimIgnored = "puts an item back into the queue that another consumer has claimed",
        QueueIgnoresOrder = "hands items out in the order of their names",
        DelayIgnored = "delivers an item before its time",
        DroppedTakeLost = "loses what it takes for a caller that is gone",
        CapacityUnguarded = "puts an item into a bounded queue by what it listed, without a check",
        ConsumersHerd = "tries the first item, however often other consumers were faster",
        ResultUnguarded = "accepts a result of a worker from which the task was taken",
        AssignsInTwoCalls = "takes a task off the queue in one call and assigns it in the next",
        DrainIgnored = "assigns tasks to a worker that was drained",
        DrainForgotten = "registers a drained worker in its next session as one that is not",
        ExpiresWithoutLead = "lets tasks expire as a master that was replaced",
        ProgressUnguarded = "stores the progress of a worker from which the task was taken",
        AttemptsForgotten = "replaces the earlier attempts at a task when another one ends",
        CrewPolicyIgnored = "assigns to the first worker that can have the task, whatever the policy",
        DeadlineEndsWithTheWait = "lets a task go on after its deadline once a worker has it",
        PauseIgnored = "assigns tasks while the crew is paused",
        SnapshotMixesMoments = "shows the tasks of a crew at one moment, and what its workers have later",
        MadeAgainAtOnce = "makes the nodes of many owners again at the same moment",
        BadInstanceEndsAll = "shows no instance of a service when one of them cannot be read",
        DownIsChosen = "chooses an instance that is marked down",

        VanishedIsError = "fails to list the candidates when one of them leaves",
    }
}
