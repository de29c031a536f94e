//! [`Flaw`]: what the servers of a simulated store can get wrong, for the tests of the tests.

synod_core::mistakes! {
    /// A mistake of the servers themselves, or of the backend's side of the connection to them. Each needs
    /// one thing to go wrong before it shows.
    pub enum Flaw {
        CutMeansGone = "ends the session of a client that one server does not hear, whoever else does",
        DeadBeatAnswered = "answers the heartbeat of a session that somebody ended",
        ElectedRepeats = "does again under a new leader what waited for it",
        OutageKeepsSessions = "forgets in a long outage when sessions end",
        RefusedMeansUndone = "reports a write that was applied and refused as one without effect",
        AnswerIsReport =
            "takes the answer to a heartbeat for proof that a report of the session was on its way",
        BeatIsRead = "takes a server's answer from its own memory for a heartbeat of its leader",
    }
}
