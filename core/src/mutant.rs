//! Wrong variants of the code of this crate, which test the tests. The wrong variants of stores are
//! in `synod-conformance`, as wrappers around any store.
//!
//! A law proves little if no mistake was ever seen to break it. Each [`Mutant`] is a mistake that
//! was really made, planted by [`mistake!`] after the right code. A wrong algorithm of more than a
//! few lines is in a module of this folder. Without the feature `mutants` the program contains only
//! the list.

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
/// Without the feature `mutants` of the crate that plants it, it expands to nothing. With the
/// feature, and while the mistake is switched on,
///
/// - `mistake!(Name: let value = wrong)` replaces a value that was computed before;
/// - `mistake!(Name: return wrong)`, and any other statement, is executed.
///
/// The mistake is one of `crate::mutant::Mutant`, and `crate::mutant::is` returns whether it is
/// switched on: both of the crate that plants it.
#[macro_export]
#[doc(hidden)]
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

/// Defines a list of mistakes, each with a sentence that describes it.
///
/// The enum has `ALL`, `what`, and the names of its variants as `Display`.
#[macro_export]
#[doc(hidden)]
macro_rules! mistakes {
    ($(#[$about:meta])* pub enum $list:ident { $($name:ident = $what:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $list {
            $(#[doc = $what] $name,)*
        }

        impl $list {
            /// All mistakes of the list.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the description of the mistake.
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
            "removes a namespace's root from a path as text, so that /a matches /ab",
        NamespaceAddsTwice =
            "adds the namespace's root twice to the follow-up query of a transaction",
        NamespaceForgetsEvents = "delivers events with the paths of the underlying store",
        BlindRepeat = "retries a sequential create of unknown effect under a new name",
        ForeignAdopted = "accepts a node of its name as its own although another session owns it",
        LooksWithoutSync = "searches for its node with a read that may lag",
        AmbiguousRepeated = "retries a set that may have been applied",
        DroppedCreateStays = "leaves the node of a dropped create",
        DroppedWriteAborted = "abandons a write in flight when its caller is dropped",
        DeadlinePerAttempt = "gives each retry a deadline of its own",
        LostTakenBack = "treats a lost session as live when its store reports it so again",
        CertainUntilTold = "considers its session certain until a loss is reported",
        GivesUpAtOnce = "fails a call that certainly had no effect without a retry",
        PolicyIgnored = "retries without an end, whatever the policy",
        RetriesInAStorm = "retries without a delay",
        DeadlineIgnored = "waits for an answer without a limit",
        CallOutlivesSession = "lets a call wait when its session is over",
        LostAnswered = "returns an answer that arrived after its session was over",
        AnswerTrusted = "assumes that a store reports every operation",
        StaysWithLostSession =
            "fails a call that had no effect when its session turns out to be over",
        PathUntold = "omits the path from the errors of writes",
        AdoptsStranger = "accepts any node in the directory as its own",
        DroppedTicketForgotten =
            "does not search for the node of a dropped create of unknown effect",
        OneLateComerExpected =
            "removes the node of one request of a create, and not that of the next one",
        CloseNeedsItsCaller = "does not close when its caller does not wait for the close",
        RemovalNeedsItsCaller = "removes a node only while its caller waits for it",
        RemovesByPath = "removes any node at the path of its own node",
        RemovalGivesUp = "tries only once to remove an abandoned node",
        ClosesByForgetting = "drops a closed session, and does not end it at the store",
        LossIsEnd = "reports a session as closed which it lost, and which may live at the server",
        RefusalIsFinal = "opens no other session when one server rejects it once",
        LastDropForgotten = "leaves its session open when the last client is dropped",
        KeeperStays = "keeps its task running when it is closed",
        FirstTtlKept = "counts a session's life with the TTL of its first connection",
        SleepUncounted = "does not count the time in which the machine was suspended",
        ClosedClientWaits = "lets calls wait for a session when the client is closed",
        LossUntold = "does not report a session that was lost, but only the next one",
        StateNeverEnds = "keeps receivers of the state waiting after the end of the client",
        LateSubscriberUntold = "reports to a late receiver that nothing has changed yet",
        WatchEndsWithSession = "ends a client's watch with the session that it was created on",
        ObservesTwice = "observes twice for each watch, and leaks one of the two",
        ResyncSwallowed = "observes again in the next session, and does not report a resync",
        EndUntold = "ends a watch without an end event when the client is closed",
        NamespaceReplaces = "places a nested namespace at the store's own root",
        PutKeepsWhatIsThere = "treats the existing data as the data of the put",
        PutTakenBack = "removes the node of a dropped put, although others wrote to it since",
        PutLosesRace = "fails a put when a node is created or removed between its two requests",
        ValueWithoutVersion = "accepts any version instead of the one that a value was read in",
        HeardForgotten = "loses the change that a dropped call for the next value received",
        BadValueForgetsGood = "discards the last value when its replacement cannot be read",
        DataQuoted = "quotes unreadable data in its error",
        CorruptIsNone = "treats unreadable data as absent",

        TicketWithoutId = "creates tickets whose names others may get again",
        TicketPerSession = "has one ticket a session, for all tasks that lock in it",
        StrangersCount = "treats any node in the directory as a ticket",
        SinceUntold = "creates tickets whose names do not encode the time of their request",
        LookIgnored = "creates a ticket, then reads the queue in another call",
        TokenIsSequence = "uses a ticket's sequence as its token",
        NameFreedInDoubt = "reuses the name of a ticket that a request in flight may still remove",
        ToldNameUsedAgain = "reuses the name of a ticket that others may have seen",
        LateTwinTrusted = "takes the node of a delayed create for the ticket that was removed",
        TxnUnguarded = "omits the check from a guarded transaction",
        DroppedTicketStays = "leaves a ticket in the queue when its owner ends",
        SortsByName = "sorts tickets by their whole names",
        OldDatesIgnored = "ignores a ticket whose name shows a date of more than an hour ago",
        MissingIsFirst = "considers itself first when its ticket is not in the queue",
        WatchesFirst = "waits for the first ticket, and not for its predecessor",
        PredecessorGoneIsTurn = "considers itself first when its predecessor is removed",
        WaitsForTheAbsent = "waits for the deletion of a predecessor that was removed already",
        WatchesInTwoCalls = "reads that its predecessor exists, then watches",
        LostReadIsEmpty = "treats a queue that it could not read as empty",
        TriesByDrawing = "creates a ticket to find out whether a lock is free",
        WaitsInOneSession = "fails a wait when its session is lost",
        RemovalUnnoticed = "notices the loss of its session, and not that of its ticket",
        RefusalSwallowed = "creates again and again a ticket that the store rejects",
        TryUntold = "does not notify later waiters that it acquired permits by a try",
        ContainerIsTicket = "treats a container as a ticket that is never removed",
        CallUntold = "does not notify later waiters of its grant",
        DoubtUntold = "does not notify the waiters after a ticket that was created in doubt",
        ReaderPassesWriters = "grants a reader the lock before waiting writers",
        WriterPassesReaders = "grants a writer the lock when there is no earlier writer",
        WriterForEver = "treats a ticket as a writer's after its downgrade",
        DowngradeQueuesAnew = "creates a new ticket to continue reading",
        LabelIsMode = "treats the label of a writer as its downgrade",
        PermitsMiscounted = "counts the holders of permits, and not the permits",
        ImpossibleAwaited = "waits for more permits than there are",
        LimitChangeIgnored =
            "relies on tickets that are older than a change of the number of permits",
        PermitsBarge = "takes permits that are left, although an earlier request waits for more",
        LimitRemembered = "uses the first limit of permits for ever",
        OwnersMixedUp = "lets any owner acquire again through the same lock",
        ReentersLost = "lets an owner that has lost the lock acquire it again",
        LocksInAnyOrder = "takes several locks in the order in which they are named",
        QuestionUnheard = "does not check whether its lock is requested",
        UnfairUnlooked =
            "takes a lock that it created a ticket for, although there is an earlier ticket",
        TurnUncounted = "passes a lock on with the token of the previous holder",
        GrantsUncertain = "enters without a check that its session still lives",

        OldTicketTrusted = "uses a ticket of the previous session as its own",
        ReconnectResets = "leaves its place in an election whenever it reconnects",
        CloseForgetsDraw = "leaves an election without removing the ticket of a request in flight",
        LossUntoldToLatch = "does not report the end of a term",
        WorkOutlivesLead = "lets work continue when the lead is lost",
        RequeuesTwice = "campaigns again while it still has a ticket",
        InterruptByOldLook = "decides by an earlier read which term an interruption meets",
        LeadKeptAfterWork = "keeps the lead when its work is done",
        ProclaimsUnguarded = "proclaims although another candidate leads",
        OutageEndsIt = "stops observing or campaigning when the store does not answer for long",
        HeirByHope = "resigns without moving the successor that it names to the front",
        WatchesAgain = "watches again where it has a watch",
        DataWakes = "wakes a waiter when its predecessor writes to its ticket",
        LostAnswerIsLostRace =
            "applies a change again to the next value when the answer to a write was lost",
        WritesWithoutMark = "writes a value without the mark by which the write is recognized",
        CreatesWithoutMark = "makes a new value without the mark by which that is recognized",
        LossEndsChange = "fails a change of a value when its session is lost",
        LostRaceStarves = "never retries a change of a value when another client was faster",
        NeverPromoted = "continues without the lock, however many races a change lost",
        PromotedKeepsNobodyOut = "permits changes while another one is made under the lock",
        DoubtForgotten =
            "applies a change again in the next session, although it may have been applied",
        SharesOneAnswer = "decides all changes of one write on the value before the first of them",
        MemoryTrusted = "rejects a change because of a remembered value",
        ReadsFirst = "reads a value before each write, although it knows it",
        MarkStays = "leaves its mark below a value when its last user goes",
        SumWraps = "wraps a number that does not fit",
        CorruptIsZero = "reads data that is not a number as zero",

        NewerByVersion = "treats a version with a higher number as the newer one",
        OvertakenReadCounts =
            "treats the result of a read as the latest, although its own write was answered meanwhile",
        CopyIsNeverStale = "reports a copy as current in any state of the store",
        OutageUnread = "does not read a value again after an outage in which it may have changed",
        NumberIsVersion = "replaces another version that has the same number",
        ResyncOnlyAdds = "keeps nodes in a local copy that were deleted during an outage",
        ResyncUnread = "continues with a local copy as if no event had been missed",
        EventReadsAll = "reads a complete local copy again after each event",
        MissedEventsSkipped = "continues with the next event when a reader has missed some",
        TransactionMixesMoments = "continues a transaction although its reads have changed",
        TransactionRunsAgain = "runs a transaction again when the answer to its commit was lost",
        TransactionMarkStays = "leaves the mark of its transactions when its last user goes",
        OwnWriteIdIsOld = "removes its own mark in use when the wall clock is set to a later date",

        LeaseTakenEarly = "takes a lease from a holder whose term has not ended",
        BlockByGuess = "assigns the numbers of a block whose reservation is in doubt",
        CountsEachTry = "counts a party again each time that it counts down",
        WakeIsLift = "passes a barrier because of an event, without a read",
        LiftIsAnEvent = "waits for the event that a barrier was lifted, even after it missed one",
        EntersOnAnyEvent = "enters a double barrier on any event",
        ReadyIsForAll = "enters a double barrier by a round that began without it",
        GivenUpMemberStays = "leaves a node in a double barrier when a member cancels its entry",
        LeavesAlone = "leaves a double barrier without waiting for the others",

        ExistsIsMade = "treats a node of another session as the one that it was to create",
        SetWhileAwayForgotten = "forgets data that is set while its node does not exist",
        KeptRemovalUnnoticed = "does not notice that another client removed its node",
        ForeignDataKept = "keeps data that another client has written to its node",
        CreateInDoubtForgotten =
            "does not recognize its own node when the answer to its create was lost",
        CloseForgetsCreate = "ends without removing the node of an unanswered create",
        NeverWrittenAgain = "does not refresh a TTL node while its data stays the same",
        LastingMadeAnew = "creates a TTL node again when its session is lost",
        SameDataIsOwn = "treats a node with the requested data as its own",
        CloseForgetsNode = "leaves a TTL node when it is closed",

        RingByRemainder = "finds the member of a key by the remainder of its hash",

        GivenUnasked = "gives items of a partition away before their member has stopped",
        LateClaimsTrusted =
            "continues with the claims of a partition when a request may still arrive",
        DividesAnew = "divides all items of a partition again when a member joins or leaves",
        FailedWorkAcknowledged = "acknowledges an item although the work for it failed",
        ClaimsNeverEnd = "does not deliver an item again whose claim was removed",
        ClaimIgnored = "puts an item back into the queue that another consumer has claimed",
        QueueIgnoresOrder = "delivers items in the order of their names",
        DelayIgnored = "delivers an item before its time",
        DroppedTakeLost = "loses an item that it takes for a dropped caller",
        CapacityUnguarded =
            "puts an item into a bounded queue by an earlier listing, without a check",
        ConsumersHerd = "tries the first item, however often other consumers were faster",
        ResultUnguarded = "accepts a result of a worker from which the task was taken",
        AssignsInTwoCalls = "removes a task from the queue in one call and assigns it in the next",
        DrainIgnored = "assigns tasks to a worker that was drained",
        DrainForgotten = "registers a drained worker as not drained in its next session",
        ExpiresWithoutLead = "lets a replaced master expire tasks",
        ProgressUnguarded = "stores the progress of a worker from which the task was taken",
        AttemptsForgotten = "replaces the earlier attempts at a task when another one ends",
        CrewPolicyIgnored = "assigns to the first eligible worker, whatever the policy",
        DeadlineEndsWithTheWait = "lets a task continue after its deadline once a worker has it",
        PauseIgnored = "assigns tasks while the crew is paused",
        SnapshotMixesMoments =
            "reads the tasks of a crew first, and the state of its workers later",
        MadeAgainAtOnce = "creates the nodes of many owners again at the same time",
        BadInstanceEndsAll = "shows no instance of a service when one of them cannot be read",
        DownIsChosen = "selects an instance that is marked as down",

        VanishedIsError = "fails to list the candidates when one of them leaves",
    }
}
