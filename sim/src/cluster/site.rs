//! [`Site`]: every place where the simulated world makes a decision.

use std::fmt;

use serde::{Deserialize, Serialize};
use synod_core::random::mix;
use synod_testkit::choice::Place;

/// A site in the code at which a fault can happen or another decision is made. Each fault belongs
/// to a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Site {
    /// Which task runs next.
    Turn,
    /// The time that a message takes without a fault.
    Delay,
    /// The server that a client connects to.
    Server,
    /// Which of several variants a fault takes.
    Way,
    /// The next step of a workload.
    Step,
    /// The part of the world that continues when the rest is frozen for ever.
    Core,
    /// The connection breaks before a request arrives.
    RequestLost,
    /// A request is applied, and the connection breaks before the answer arrives.
    ReplyLost,
    /// A request arrives after its call has failed because the connection broke.
    AppliedLate,
    /// A request is slow.
    RequestSlow,
    /// An answer is slow.
    ReplySlow,
    /// A heartbeat is lost, without an error.
    BeatLost,
    /// A heartbeat is slow.
    BeatSlow,
    /// The answer to a heartbeat is slow.
    BeatAnswerSlow,
    /// The server ends a session when a heartbeat arrives, before it extends the session.
    EndedBeforeBeat,
    /// The server ends a session just after it answered a heartbeat.
    EndedAfterBeat,
    /// An operator ends a session at the server.
    Killed,
    /// A client stops, and continues later as if nothing had happened.
    Paused,
    /// A client's clock runs fast or slow, within the allowed rate.
    ClockRate,
    /// A client's wall clock is a year off.
    WallClock,
    /// A client and one server have no connection.
    CutFromOne,
    /// A client and all servers have no connection.
    CutFromAll,
    /// A server lags.
    Behind,
    /// The leader is replaced.
    NewLeader,
    /// An event is late.
    EventLate,
    /// Several events are joined into one.
    EventsJoined,
    /// A watch reports a resync without need.
    ResyncForNothing,
    /// A watch cannot resume where it was.
    Compacted,
    /// A watch has room for one or two events.
    SmallBuffer,
    /// A stranger empties a directory.
    Emptied,
    /// A stranger writes, creates or deletes concurrently with the processes.
    Meddled,
    /// A call is dropped.
    CallDropped,
    /// A process dies, and starts again later.
    Crashed,
    /// The reader of a watch is busy for a while.
    SlowReader,
    /// The user's task dies, and the library's tasks continue.
    UserDied,
    /// The server rejects a write: it has no space, or does not know the user.
    Refused,
    /// A ready task is not run for a while.
    Starved,
    /// No client reaches any server for a long time, then all do at the same moment.
    Outage,
    /// Counters begin near their end.
    NearTheEnd,
    /// A heartbeat of a session that has ended is answered as if it were alive (etcd before
    /// 3.4.38).
    BeatOfTheDead,
    /// An event is delivered twice (etcd before 3.4.24).
    EventTwice,
    /// A latest read is answered by a server that lags (etcd before 3.4.42).
    StaleLatest,
    /// A leader that was replaced ends a session that is alive (most versions of etcd).
    EndedByOldLeader,
    /// No heartbeat of a client arrives for a while: for workloads that examine the consequences.
    BeatsCut,
    /// A server loses its leader and continues to answer from its own memory.
    CutOff,
    /// A server reports late to its leader which sessions sent heartbeats.
    ReportLate,
    /// A deposed leader continues to answer the requests that need no quorum.
    Deposed,
    /// A write is applied, but its answer is a rejection.
    RefusedDone,
    /// A request overtakes earlier requests of its client.
    RequestAhead,
    /// An answer overtakes earlier messages of the server.
    AnswerAhead,
    /// An event overtakes earlier answers of the server.
    EventAhead,
    /// The wall clock of a client is set to another date while the client runs.
    WallClockSet,
    /// The machine of a client is suspended: nothing runs, and the clock of its timers stands
    /// still.
    Asleep,
    /// A reconnect negotiates another time to live.
    OtherTtl,
}

/// A kind of fault of the world, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fault(u8);

/// A site, its fault, the rate at which it fires, in thousandths, and its description.
type Row = (Site, u8, u32, &'static str);

/// The number of the first fault that is a defect of old servers.
const DEFECTS: u8 = 30;

#[rustfmt::skip]
const TABLE: [Row; 54] = [
    (Site::Turn, 0, 0, "which task runs next"),
    (Site::Delay, 0, 0, "how long a message takes"),
    (Site::Server, 0, 0, "which server a client turns to"),
    (Site::Way, 0, 0, "how it goes on"),
    (Site::Step, 0, 0, "what a workload does next"),
    (Site::Core, 0, 0, "what is not frozen for ever"),
    (Site::RequestLost, 1, 20, "request lost"),
    (Site::ReplyLost, 2, 30, "reply lost"),
    (Site::AppliedLate, 3, 300, "request applied late"),
    (Site::RequestSlow, 4, 30, "slow request"),
    (Site::ReplySlow, 4, 30, "slow reply"),
    (Site::BeatLost, 5, 40, "heartbeat lost"),
    (Site::BeatSlow, 5, 60, "heartbeat slow to go"),
    (Site::BeatAnswerSlow, 5, 60, "heartbeat slow to come back"),
    (Site::EndedBeforeBeat, 6, 5, "session ended before a heartbeat counts"),
    (Site::EndedAfterBeat, 6, 5, "session ended right after a heartbeat"),
    (Site::Killed, 6, 4, "session ended by an operator"),
    (Site::Paused, 7, 3, "client paused"),
    (Site::ClockRate, 8, 1_000, "client clock at another rate"),
    (Site::WallClock, 9, 500, "client wall clock a year off"),
    (Site::CutFromOne, 10, 6, "cut off from one server"),
    (Site::CutFromAll, 11, 5, "cut off from all servers"),
    (Site::Behind, 12, 60, "server lags"),
    (Site::NewLeader, 13, 8, "leader changed"),
    (Site::EventLate, 14, 60, "event late"),
    (Site::EventsJoined, 14, 60, "events joined"),
    (Site::ResyncForNothing, 14, 20, "resync for nothing"),
    (Site::Compacted, 15, 300, "watch cannot resume"),
    (Site::SmallBuffer, 15, 100, "watch with a small buffer"),
    (Site::Emptied, 16, 10, "directory emptied by a stranger"),
    (Site::Meddled, 17, 15, "foreign write"),
    (Site::CallDropped, 18, 30, "call dropped"),
    (Site::Crashed, 19, 4, "process crashed"),
    (Site::SlowReader, 20, 60, "user slow"),
    (Site::UserDied, 20, 5, "user's task died"),
    (Site::Refused, 21, 10, "write refused"),
    (Site::Starved, 22, 4, "task starved"),
    (Site::Outage, 23, 2, "total outage"),
    (Site::NearTheEnd, 24, 300, "counters near their end"),
    (Site::BeatOfTheDead, DEFECTS, 500, "heartbeat of a dead session answered"),
    (Site::EventTwice, DEFECTS + 1, 50, "event delivered twice"),
    (Site::StaleLatest, DEFECTS + 2, 50, "stale latest read"),
    (Site::EndedByOldLeader, DEFECTS + 3, 300, "session ended by an old leader"),
    (Site::BeatsCut, 5, 200, "heartbeats cut for a while"),
    (Site::CutOff, 25, 5, "server without its leader goes on answering"),
    (Site::ReportLate, 25, 30, "server reports late which sessions it heard of"),
    (Site::Deposed, 25, 300, "deposed leader goes on answering"),
    (Site::RefusedDone, 26, 10, "write applied and refused"),
    (Site::RequestAhead, 29, 300, "request overtakes earlier requests"),
    (Site::AnswerAhead, 29, 300, "answer overtakes earlier answers and events"),
    (Site::EventAhead, 29, 300, "event overtakes earlier answers"),
    (Site::WallClockSet, 9, 20, "client wall clock set to another date"),
    (Site::Asleep, 27, 2, "machine of the client asleep"),
    (Site::OtherTtl, 28, 300, "reconnection with another time to live"),
];

impl Site {
    /// The number of sites.
    pub(super) const COUNT: usize = TABLE.len();

    /// Every site.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The fault of this site; `None` if its decision is not about a fault.
    pub fn fault(self) -> Option<Fault> {
        Some(self.row().1).filter(|number| *number > 0).map(Fault)
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        self.row().3
    }

    fn row(self) -> &'static Row {
        &TABLE[self.index()]
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

impl Place for Site {
    fn number(self) -> u64 {
        self as u64
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault() {
            Some(fault) => write!(f, "{fault} {}", self.about()),
            None => f.write_str(self.about()),
        }
    }
}

impl Fault {
    /// F1 to F29, then the defects of old servers.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..DEFECTS + 4).map(Self)
    }

    /// The fault with this number, if there is one.
    pub fn by_number(number: u8) -> Option<Self> {
        Self::all().find(|fault| fault.0 == number)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The sites that belong to it.
    pub fn sites(self) -> impl Iterator<Item = Site> {
        Site::all().filter(move |site| site.fault() == Some(self))
    }

    /// Returns `true` if it is a defect of old servers instead of a fault of the world.
    pub fn is_defect(self) -> bool {
        self.0 >= DEFECTS
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_defect() {
            write!(f, "D{}", self.0 - DEFECTS + 1)
        } else {
            write!(f, "F{}", self.0)
        }
    }
}

/// The rate of a fault, in thousandths, per site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates([u32; Site::COUNT]);

impl Rates {
    /// No faults.
    pub fn none() -> Self {
        Self([0; Site::COUNT])
    }

    /// Every fault at its default rate, except the defects of old servers.
    pub fn usual() -> Self {
        let mut rates = Self::none();
        for (site, fault, permille, _) in TABLE {
            rates.0[site.index()] = if fault < DEFECTS { permille } else { 0 };
        }
        rates
    }

    /// The rate at this site.
    pub fn of(&self, site: Site) -> u32 {
        self.0[site.index()]
    }

    /// Sets the rate at this site.
    pub fn set(mut self, site: Site, permille: u32) -> Self {
        self.0[site.index()] = permille;
        self
    }

    /// Switches a fault off.
    pub fn without(mut self, fault: Fault) -> Self {
        for site in fault.sites() {
            self.0[site.index()] = 0;
        }
        self
    }

    /// Switches a fault on, at its default rate.
    pub fn with(mut self, fault: Fault) -> Self {
        for site in fault.sites() {
            self.0[site.index()] = site.row().2;
        }
        self
    }

    /// A random subset of these faults, chosen by a seed, so that rare faults are not hidden by
    /// frequent ones. Each is off for two seeds out of five, and otherwise up to twice as frequent.
    pub fn swarm(mut self, seed: u64) -> Self {
        for fault in Fault::all() {
            let drawn = mix(mix(seed ^ 0x5742_524D) ^ mix(u64::from(fault.0)));
            let scale = if drawn % 5 < 2 { 0 } else { drawn / 5 % 2_001 };
            for site in fault.sites() {
                let scaled = u64::from(self.0[site.index()]) * scale / 1_000;
                self.0[site.index()] = u32::try_from(scaled.min(1_000)).unwrap_or(1_000);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_site_in_its_order() {
        assert!(Site::all().enumerate().all(|(index, site)| site.index() == index));
        let missing: Vec<_> = Fault::all().filter(|fault| fault.sites().next().is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(Fault::all().filter(|fault| !fault.is_defect()).count(), 29);
    }

    #[test]
    fn a_swarm_switches_two_faults_of_five_off_and_scales_the_rest() {
        let (mut off, mut most) = (0, 0);
        for seed in 0..1_000 {
            let rate = Rates::usual().swarm(seed).of(Site::ReplyLost);
            off += u32::from(rate == 0);
            most = most.max(rate);
        }
        assert!((360..450).contains(&off), "{off} of 1000 are off");
        assert!((50..=60).contains(&most), "{most}");
        assert_eq!(Rates::usual().swarm(7), Rates::usual().swarm(7));
    }
}
