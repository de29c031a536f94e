//! [`Flaw`]: what the servers of a simulated store can get wrong, for the tests of the tests.

synod_core::mistakes! {
    /// A mistake of the servers themselves. Each needs one thing to go wrong before it shows.
    pub enum Flaw {
        CutMeansGone = "ends the session of a client that one server does not hear, whoever else does",
        DeadBeatAnswered = "answers the heartbeat of a session that somebody ended",
        ElectedRepeats = "does again under a new leader what waited for it",
        OutageKeepsSessions = "forgets in a long outage when sessions end",
    }
}
