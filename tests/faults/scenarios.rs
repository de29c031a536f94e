//! The scenarios, and the mistakes of clients that each must find.

use std::fmt;

use synod_conformance::wrong::Mistake::{
    self, CasIgnoresVersion, CloseKeepsEphemerals, EventDropped, ExpiredSessionAnswers,
    ExpiryOneByOne, GapUnreported, LatestLags, LeaseExtendedByHope, LocalGoesBack, LostReplyIsNone,
    LostSessionRevived, NeverLost, ParentGoesWithLastChild, RetriesBlindly, WatchSilentAfterOutage,
    WriteDetachesEphemeral,
};
use synod_core::mutant::Mutant::{
    self, AssignsInTwoCalls, CertainUntilTold, ClaimIgnored, ClaimsNeverEnd, EntersOnAnyEvent,
    GivenUnasked, PredecessorGoneIsTurn, ResultUnguarded, TransactionRunsAgain, TxnUnguarded,
};
use synod_servers::check::defect::{Defect, REVOKES_OF_A_DEPOSED_LEADER};
use synod_servers::clients::holder::Lapse;
use synod_servers::stall::Stall;

use crate::scene::Scene;
use crate::{crews, families, holders, lives, minority, moves, outages, queues, soak, writes};

pub(crate) type Act = for<'a> fn(&'a mut Scene) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A scenario, and the mistakes of clients that it must find.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) act: Act,
    pub(crate) catches: &'static [Mistake],
    /// Further mistakes of clients.
    pub(crate) more: &'static [Fault],
    /// The defects of servers that it may show.
    pub(crate) defects: &'static [Defect],
    /// The reason that it cannot run on this machine, if there is one.
    pub(crate) obstacle: fn() -> Option<&'static str>,
}

pub(crate) const fn scenario(
    name: &'static str,
    act: Act,
    catches: &'static [Mistake],
) -> Scenario {
    Scenario { name, act, catches, more: &[], defects: &[], obstacle: || None }
}

impl Scenario {
    pub(crate) const fn and(self, more: &'static [Fault]) -> Self {
        Self { more, ..self }
    }

    pub(crate) const fn may_show(self, defects: &'static [Defect]) -> Self {
        Self { defects, ..self }
    }

    pub(crate) const fn stalls(self) -> Self {
        Self { obstacle: Stall::missing, ..self }
    }
}

/// The mistake that every client of a run makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Store(Mistake),
    /// One of core or a recipe.
    Core(Mutant),
    /// One of the client's own.
    Client(Lapse),
}

impl Fault {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_stores = Mistake::ALL.iter().copied().map(Self::Store);
        let of_core = Mutant::ALL.iter().copied().map(Self::Core);
        of_stores.chain(of_core).chain(Lapse::ALL.iter().copied().map(Self::Client))
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Store(mistake) => mistake.what(),
            Self::Core(mutant) => mutant.what(),
            Self::Client(lapse) => lapse.what(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(mistake) => mistake.fmt(f),
            Self::Core(mutant) => mutant.fmt(f),
            Self::Client(lapse) => lapse.fmt(f),
        }
    }
}

/// Scenarios for both kinds of servers.
pub(crate) const BOTH: &[Scenario] = &[
    scenario(
        "a_write_whose_answer_is_lost_is_not_lost_itself",
        |s| Box::pin(writes::lost_answers(s)),
        &[RetriesBlindly, LostReplyIsNone],
    ),
    scenario(
        "a_request_that_is_lost_is_not_done_twice",
        |s| Box::pin(writes::lost_requests(s)),
        &[RetriesBlindly],
    ),
    scenario(
        "a_close_whose_answer_is_lost_leaves_nothing",
        |s| Box::pin(writes::lost_close(s)),
        &[CloseKeepsEphemerals],
    ),
    scenario(
        "a_server_that_is_killed_and_comes_back_lost_nothing",
        |s| Box::pin(outages::restart(s)),
        &[EventDropped],
    ),
    scenario(
        "a_leader_that_is_killed_lost_nothing",
        |s| Box::pin(outages::killed_leader(s)),
        &[CasIgnoresVersion],
    ),
    scenario(
        "a_leader_that_is_cut_off_answers_nothing_old",
        |s| Box::pin(outages::parted_leader(s)),
        &[EventDropped],
    ),
    scenario(
        "a_link_that_is_held_ends_the_session_in_time",
        |s| Box::pin(lives::held_link(s)),
        &[LeaseExtendedByHope, NeverLost, LostSessionRevived],
    ),
    scenario(
        "a_process_that_stood_still_knows_that_its_session_is_over",
        |s| Box::pin(lives::stopped(s)),
        &[ExpiredSessionAnswers],
    ),
    scenario(
        "a_process_that_is_killed_leaves_nothing",
        |s| Box::pin(lives::killed(s)),
        &[WriteDetachesEphemeral],
    ),
    scenario(
        "a_session_that_the_server_ends_is_over",
        |s| Box::pin(lives::expired(s)),
        &[ExpiredSessionAnswers, ExpiryOneByOne],
    ),
    scenario(
        "who_moves_to_a_server_that_lags_is_shown_nothing_older",
        |s| Box::pin(moves::lagging(s)),
        &[LocalGoesBack, LatestLags],
    ),
    scenario(
        "a_watch_that_moves_from_server_to_server_misses_nothing",
        |s| Box::pin(moves::watching(s)),
        &[EventDropped],
    ),
    scenario(
        "a_watch_that_is_cut_off_for_a_while_misses_nothing",
        |s| Box::pin(moves::cut_off(s)),
        &[EventDropped],
    ),
];

/// Scenarios in which clients reach one server only, and it is cut off from the others.
pub(crate) const MINORITY: &[Scenario] = &[
    scenario(
        "a_follower_that_is_cut_off_makes_no_session_certain",
        |s| Box::pin(minority::follower(s)),
        &[LeaseExtendedByHope],
    ),
    scenario(
        "a_leader_that_is_cut_off_makes_no_session_certain",
        |s| Box::pin(minority::leader(s)),
        &[LeaseExtendedByHope],
    ),
];

/// The same with ZooKeeper's stock settings. These take longer.
pub(crate) const STOCK: &[Scenario] = &[
    scenario(
        "a_follower_that_is_cut_off_makes_no_session_certain",
        |s| Box::pin(minority::stock_follower(s)),
        &[LeaseExtendedByHope],
    ),
    scenario(
        "a_leader_that_is_cut_off_makes_no_session_certain",
        |s| Box::pin(minority::stock_leader(s)),
        &[LeaseExtendedByHope],
    ),
];

/// Scenarios with holders of locks, on one server and on three.
pub(crate) const HOLDERS: &[Scenario] = &[
    scenario("a_holder_that_stood_still_holds_nothing", |s| Box::pin(holders::stopped(s)), &[])
        .and(&[
            Fault::Client(Lapse::RemembersYes),
            Fault::Core(CertainUntilTold),
            Fault::Core(TxnUnguarded),
        ]),
    scenario("a_holder_that_is_killed_holds_nothing", |s| Box::pin(holders::killed(s)), &[])
        .and(&[Fault::Core(PredecessorGoneIsTurn)]),
    scenario("a_holder_that_is_cut_off_holds_nothing", |s| Box::pin(holders::cut_off(s)), &[])
        .and(&[Fault::Client(Lapse::RemembersYes)]),
    scenario(
        "a_server_that_is_killed_lets_no_two_hold_anything",
        |s| Box::pin(holders::killed_server(s)),
        &[WatchSilentAfterOutage],
    ),
];

/// A leader under clients is paused: on etcd servers have a defect here.
pub(crate) const PAUSED_LEADER: Scenario = scenario(
    "a_leader_that_stands_still_answers_nothing_old",
    |s| Box::pin(outages::paused_leader(s)),
    &[CasIgnoresVersion],
);

/// A server under holders is paused: on etcd servers have a defect here.
pub(crate) const PAUSED: Scenario = scenario(
    "a_server_that_stands_still_lets_no_two_hold_anything",
    |s| Box::pin(holders::paused_server(s)),
    &[WatchSilentAfterOutage],
);

/// Scenarios for etcd only.
pub(crate) const ETCD: &[Scenario] = &[
    scenario(
        "what_is_compacted_under_a_watch_is_a_resync",
        |s| Box::pin(moves::compacted(s)),
        &[WatchSilentAfterOutage, GapUnreported],
    ),
    scenario(
        "a_leader_that_stood_still_ends_no_session_of_the_next",
        |s| Box::pin(lives::old_leader(s)),
        &[],
    )
    .may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
    scenario(
        "a_leader_whose_disk_stalls_makes_no_session_certain",
        |s| Box::pin(minority::stalled_leader(s)),
        &[LeaseExtendedByHope],
    )
    .stalls()
    .may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
    scenario(
        "a_leader_whose_disk_stalls_lets_no_two_hold_anything",
        |s| Box::pin(holders::stalled_server(s)),
        &[WatchSilentAfterOutage],
    )
    .stalls()
    .may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
    PAUSED.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
    PAUSED_LEADER.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
];

/// Scenarios for ZooKeeper only.
pub(crate) const ZOOKEEPER: &[Scenario] = &[
    scenario(
        "a_node_that_replaced_a_container_stays",
        |s| Box::pin(writes::replaced(s)),
        &[ParentGoesWithLastChild],
    ),
    PAUSED,
    PAUSED_LEADER,
];

/// Random faults, as long as `SYNOD_SOAK` says.
pub(crate) const SOAK: Scenario = scenario(
    "whatever_happens_no_law_is_broken",
    |s| Box::pin(soak::anything(s)),
    &[RetriesBlindly, LocalGoesBack],
)
.and(&[Fault::Client(Lapse::RemembersYes)]);

/// A short run of it, with a new seed each time. It is too short to find every mistake of a store.
pub(crate) const PIECE: Scenario =
    Scenario { act: |s| Box::pin(soak::a_piece(s)), catches: &[], ..SOAK };

/// Processes that share a recipe are killed, paused and cut off.
pub(crate) const TEAMS: &[Scenario] = &[
    scenario(
        "no_item_of_a_queue_is_missing_whichever_clients_are_killed",
        |s| Box::pin(queues::a_piece(s)),
        &[],
    )
    .and(QUEUE_FAULTS),
    scenario(
        "every_task_of_a_crew_has_one_result_whichever_clients_are_killed",
        |s| Box::pin(crews::a_piece(s)),
        &[],
    )
    .and(CREW_FAULTS),
    scenario(
        "counts_copies_shares_and_rounds_are_right_whichever_clients_are_killed",
        |s| Box::pin(families::a_piece(s)),
        &[],
    )
    .and(FAMILY_FAULTS),
];

/// The same for longer, with faults of servers.
pub(crate) const QUEUE_FOR_LONG: Scenario =
    Scenario { act: |s| Box::pin(queues::anything(s)), ..TEAMS[0] };
pub(crate) const CREW_FOR_LONG: Scenario =
    Scenario { act: |s| Box::pin(crews::anything(s)), ..TEAMS[1] };
pub(crate) const FAMILIES_FOR_LONG: Scenario =
    Scenario { act: |s| Box::pin(families::anything(s)), ..TEAMS[2] };

pub(crate) const QUEUE_FAULTS: &[Fault] = &[
    Fault::Client(Lapse::WritesFirst),
    Fault::Client(Lapse::PutsAgain),
    Fault::Client(Lapse::RemembersYes),
    Fault::Core(ClaimIgnored),
    Fault::Core(ClaimsNeverEnd),
];

pub(crate) const FAMILY_FAULTS: &[Fault] =
    &[Fault::Core(TransactionRunsAgain), Fault::Core(EntersOnAnyEvent), Fault::Core(GivenUnasked)];

pub(crate) const CREW_FAULTS: &[Fault] =
    &[Fault::Core(ResultUnguarded), Fault::Core(AssignsInTwoCalls)];
