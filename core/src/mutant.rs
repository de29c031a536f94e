//! Known-wrong variants of stores and of the door, for testing the tests.
//!
//! A law that nothing was ever seen to break proves little. Each variant here is a mistake that
//! somebody made in earnest; code that could make it asks [`is`] whether to. Without the feature
//! `mutants` the answer is a constant no, and nothing of this is in the program.

#[cfg(feature = "mutants")]
mod active;
#[cfg(not(feature = "mutants"))]
mod inactive;

#[cfg(feature = "mutants")]
use active as state;
#[cfg(feature = "mutants")]
pub use active::with;
#[cfg(not(feature = "mutants"))]
use inactive as state;

/// Whether this mistake is to be made now, on this thread.
#[inline]
pub fn is(mutant: Mutant) -> bool {
    state::is(mutant)
}

/// Lists the mutants, each with what it gets wrong.
macro_rules! mutants {
    ($($name:ident = $what:literal,)*) => {
        /// A mistake that somebody made in earnest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it gets wrong, in a sentence.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }
    };
}

mutants! {
    SequenceBeforeCommit = "hands out a sequence number in one step and creates the node in the next",
    NamespaceStripsByText = "takes a namespace's root off a path as text, so that /a matches /ab",
    NamespaceAddsTwice = "puts a transaction's look below the namespace's root twice",
    NamespaceForgetsEvents = "hands out events with the paths of the store below the namespace",
    BlindRepeat = "repeats a sequential create of unknown effect under a new name",
    ForeignAdopted = "takes a node of its name for its own though another session owns it",
    LooksWithoutSync = "looks for its node with a read that may lag",
    AmbiguousRepeated = "repeats a set that may have happened",
    DroppedCreateStays = "leaves what a dropped create made",
    DroppedWriteAborted = "abandons a write in flight when its caller goes",
    DeadlinePerAttempt = "gives every repetition a deadline of its own",
    LostTakenBack = "takes a lost session for alive when its store says so again",
    CertainUntilTold = "is certain of its session until told otherwise",
    GivesUpAtOnce = "fails a call that certainly did nothing without trying it again",
    PolicyIgnored = "repeats what failed for ever, whatever its policy says",
    RetriesInAStorm = "tries again at once, and again, what failed",
    DeadlineIgnored = "waits for an answer for as long as it takes",
    CallOutlivesSession = "lets a call wait on when its session is over",
    LostAnswered = "gives an answer that came after its session was over",
    StaysWithLostSession = "fails a call that did nothing when its session turns out to be over",
    PathUntold = "leaves the path out of the errors of writes",
    AdoptsStranger = "takes any node beside its ticket for it",
    DroppedTicketForgotten = "does not look for what a dropped create of unknown effect made",
    RemovesByPath = "removes whatever stands where its node was",
    RemovalGivesUp = "tries once to remove what was given up",
    ClosesByForgetting = "lets go of a session that is closed, and does not tell the store",
    LastDropForgotten = "leaves its session open when the last client is dropped",
    KeeperStays = "keeps its task running when it is closed",
    ClosedClientWaits = "lets calls wait for a session when it is closed",
    LossUntold = "tells nobody of a session that was lost, but only of the next one",
    LateSubscriberUntold = "tells who asks late that nothing happened yet",
    WatchEndsWithSession = "ends a client's watch with the session that it is made on",
    ResyncSwallowed = "observes again in the next session, and does not say so",
    EndUntold = "ends a watch without a word when the client is closed",
    NamespaceReplaces = "puts a namespace within a namespace at the store's own root",
    ValueWithoutVersion = "takes any version for the one that a value was read in",
    DataQuoted = "quotes data that cannot be read in its error",
    CorruptIsNone = "takes data that cannot be read for none",
    AnswerLeavesOutChecks = "answers a transaction with fewer entries than it has operations",
    AppliesHalf = "applies the operations before the one that fails, and rejects the transaction",
    AppliesOneByOne = "applies each operation of a transaction at a revision of its own",
    AppliesTwice = "applies a write that was answered once more",
    CallsHangWhenCut = "waits for ever for an answer that does not come",
    CasIgnoresVersion = "sets whatever version is expected",
    CasInTwoSteps = "compares the version in one step and sets in the next",
    CasNeverMatches = "rejects a write that expects the version that is there",
    CheckIgnoresVersion = "checks that a node exists, and not its version",
    CheckWrites = "gives a node a new version when it is checked",
    ChildrenIncludeGrandchildren = "lists what is deeper below among the children",
    CloseKeepsEphemerals = "leaves the ephemeral nodes of a closed session to its time to live",
    CloseLeavesWatches = "keeps the watches of a closed session",
    CloseTwiceFails = "fails when it is closed again",
    CloseUntold = "leaves the status of a closed session as it was",
    ClosedSessionAnswers = "goes on answering when the session is closed",
    ContainerDeletesItsChildren = "deletes a container with all that is below it",
    ContainerIsNode = "reads a container as a node without data",
    ContainerStays = "refuses to create a node where an empty container was left",
    CreateOverwrites = "creates a node that exists",
    CreateReplacesContainer = "creates a node where a container has children",
    DeleteIgnoresChildren = "deletes a node and leaves its children",
    DeleteIgnoresVersion = "deletes whatever version is expected",
    DeleteOfMissingSucceeds = "says that it deleted what was not there",
    DropEndsSession = "ends the session when its store is dropped",
    DropKeepsSessionAlive = "keeps the session alive when its store is dropped",
    DropLeavesWatch = "keeps a watch that was dropped",
    DropRemovesOtherWatches = "removes all watches of a session on a path when one of them is dropped",
    DroppedCallJams = "never answers again when a call was dropped in flight",
    EmptyIsAbsent = "reads a node without bytes as absent",
    EphemeralMayHaveChildren = "creates children of an ephemeral node",
    EphemeralMayHaveGrandchildren = "looks only at the parent for an ephemeral node above",
    ErrorWithoutPath = "leaves the path out of its errors",
    EventDropped = "tells of every change but the deletions of a burst",
    EventForWrongPath = "tells a watch of nodes whose path merely starts alike",
    EventTellsOldNode = "tells with an event the node from before the change",
    EventTwice = "tells the last change again after each one",
    EventsOutOfOrder = "tells two changes in the wrong order when they come close together",
    ExpiredSessionAnswers = "goes on answering when the session has expired",
    ExpiryDeletesByPath = "deletes at the end of a session every path that it ever made ephemeral",
    ExpiryKeepsOneEphemeral = "leaves one ephemeral node of an expired session behind",
    ExpiryOneByOne = "removes the ephemeral nodes of an expired session at one revision each",
    ExpiryTakesPersistent = "removes every node that an expired session created",
    ExpiryUntold = "leaves the status of an expired session as it was",
    ExpiryUntoldToWatchers = "removes the nodes of an expired session without telling watchers",
    FullChannelDropsEvent = "drops an event when nobody takes them, and does not say so",
    LateAfterRead = "lets a request that was held up overtake a later read of its session",
    LateWriteAfterSessionEnd = "applies a write that was in flight when its session ended",
    LatestLags = "answers a latest read of a node with the state before the last commit",
    LeaseExtendedByHope = "counts the life of a session from requests that were not answered",
    LeaseFromReply = "counts the life of a session from the answer",
    LimitsOffByOne = "takes one operation and one byte less than it says",
    ListingLags = "answers a latest listing with the state before the last commit",
    ListingLeavesOutContainers = "lists no containers",
    ListingMixesRevisions = "lists the first half of the children, and after a while the second",
    ListingTellsOtherSequence = "counts the sequences in a listing from the first child that is left",
    ListingTruncated = "lists at most 1,000 children",
    ListingUnsorted = "lists children in the order of their creation",
    LocalBehindEvents = "answers a local read with a state older than an event that was taken",
    LocalBehindLatest = "answers a local read with a state older than a latest read before it",
    LocalGoesBack = "answers local reads now from a newer, now from an older state",
    LocalGoesBackAfterOutage = "answers local reads after an outage from an older state",
    LocalLagsOwnWrites = "answers a local read without the session's own last write",
    LookBeforeCommit = "answers the look of a transaction as of before it",
    LookNotValidated = "takes a transaction whose look has no answer",
    LookShowsLater = "answers a look late, with tickets above the own one",
    LostReplyIsNone = "says of a write whose answer was lost that it did not happen",
    LostSessionRevived = "takes up a lost session again",
    MissingIsError = "fails to read what is missing",
    NamesCarryData = "answers with data who asked for names",
    NamesWatchIsSilent = "tells nothing to who asked for names",
    NeverLost = "says that it is suspended for as long as the store does not answer",
    NeverSuspended = "says that it is live until the session is lost",
    NewestFromTheWrongEnd = "answers a question for the newest with the oldest",
    NoHeartbeat = "sends nothing while nobody calls",
    NoImplicitParents = "refuses to create a node whose parent is missing",
    NoRateMargin = "leaves no margin for clocks that run at different rates",
    OneCallAtATime = "panics when two calls of a session meet",
    OpsBlindToEachOther = "judges every operation on the tree from before the transaction",
    OwnerUntold = "leaves the owner out of listings",
    ParentGoesWithLastChild = "takes a node for a container when its last child goes",
    PrefixIgnored = "lists all children whatever prefix is asked for",
    QueryNotValidated = "answers queries that have no answer",
    RangeEndIncludesSibling = "reads from /a as far as what merely starts with it, like /ab",
    RecreationUntold = "tells nothing of a node that was made again as it was",
    RejectedAppliesLater = "applies a rejected transaction after a while",
    RejectedNamesLast = "names the last operation that fails",
    RejectedWithoutPlace = "names the first operation, whichever failed",
    RetriesBlindly = "sends a write again when its answer is lost",
    RevisionAhead = "tells of a view a revision that it does not reflect",
    RevisionFalls = "counts revisions for each node on its own",
    SequenceAfterHighest = "takes the next sequence from the highest ticket that is left",
    SequenceByCount = "takes the next sequence from the number of tickets",
    SequenceFalls = "gives out sequences in pairs, the higher one first",
    SequenceFromName = "takes the last digits of a name for its sequence",
    SequenceTwice = "gives two tickets in a row one sequence",
    SequentialTwice = "makes two nodes for one ticket",
    SessionIdReused = "gives a new session the id of one that ended",
    SetCreates = "creates a node when it is set and missing",
    SizeUnchecked = "takes what is larger than it says that it takes",
    SlowWatcherBlocks = "waits to commit until there is room for its events",
    SpuriousChange = "tells of a change when a node was only checked",
    StatOfBefore = "answers a write with what the node was before",
    SuspendedForGood = "stays suspended when the store answers again",
    TextOnly = "keeps data as text, and loses what is none",
    TreeLeavesOutItsRoot = "leaves the node itself out of its tree",
    TtlDiesWithSession = "takes a node with a time to live for an ephemeral one",
    TtlIgnored = "fails to keep nodes with a time to live, and does not say so",
    TtlNeverExpires = "keeps a node with a time to live for ever",
    TtlNotClamped = "takes any time to live of a session as it is asked for",
    TtlNotRefreshedByWrite = "counts a node's time to live from its creation",
    TtlTooEarly = "removes a node after half its time to live",
    TtlUntoldToWatchers = "removes a node whose time is over without telling watchers",
    TtlZeroAccepted = "opens a session with no time to live",
    TwoNodesShareCreated = "gives a node that is made again the creation of the last",
    ValidateSkipped = "takes transactions that some store could not do",
    VersionStays = "keeps the version of the first write",
    WatchArmedAfterRead = "reads, and after a while begins to watch",
    WatchFiresOnce = "tells of the first change only",
    WatchHasNoEnd = "says nothing when the session of a watch is over",
    WatchIgnoresOwnWrites = "does not tell a session of its own writes",
    WatchIsShallow = "watches only the children of a tree",
    WatchMissesChildUpdate = "watches the children for coming and going only",
    WatchMissesDelete = "does not tell that a node was deleted",
    WatchMissesUpdate = "does not tell that a node was written",
    WatchNeedsNode = "does not watch a node that is missing",
    WatchSilentAfterOutage = "goes on watching after an outage as if nothing could have been missed",
    WindowIgnoresBefore = "answers a question for the newest before one with the newest of all",
    WindowNarrowsWatch = "watches only the children in the window that was asked for",
    WindowUnsorted = "sorts the children in a window by name",
    WriteDetachesEphemeral = "makes an ephemeral node persistent when it is written",
    WriteMovesCreated = "gives a node a new creation when it is written",
}
