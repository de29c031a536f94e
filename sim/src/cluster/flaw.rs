//! [`Flaw`]: planted defects of the servers of a simulated store, to test the tests.

synod_core::mistakes! {
    /// A mistake of the servers themselves, or of the backend's side of the connection to them.
    /// Each becomes visible only after one fault.
    pub enum Flaw {
        CutMeansGone = "ends the session of a client that one server does not hear, even if another does",
        DeadBeatAnswered = "answers the heartbeat of a session that was killed",
        ElectedRepeats = "does again under a new leader what waited for it",
        OutageKeepsSessions = "forgets in a long outage when sessions end",
        RefusedMeansUndone = "reports a write that was applied and refused as one without effect",
        AnswerIsReport =
            "takes the answer to a heartbeat for proof that a report of the session was on its way",
        BeatIsRead = "takes a server's answer from its own memory for a heartbeat of its leader",
    }
}
