//! The rows of the elections.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_recipes::election::{Candidacy, Election, LeaderLatch, LeaderSelector, Leadership, Term};
use tokio::sync::oneshot;

use crate::edges;
use crate::recipe::edge::Takes;
use crate::recipe::proof::{Proof, held};
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Call, LABEL, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[LEADER_LATCH, LEADER_SELECTOR, ELECTION],
    laws: &[
        (
            "L-EL-1",
            "no two candidates believe at the same time that they lead, and tokens increase from term to term",
        ),
        (
            "L-EL-2",
            "a leader that cannot be certain of its lead does not claim it, even if no loss was reported",
        ),
        (
            "L-EL-3",
            "a leader that is cut off keeps the lead while its session certainly lives, and no longer",
        ),
        ("L-EL-4", "terms begin and end alternately, and none begins after the candidate left"),
        ("L-EL-5", "while a connected candidate exists, a candidate eventually leads"),
        (
            "L-EL-6",
            "a candidate that leaves removes all its nodes, even those of requests in flight",
        ),
        (
            "L-EL-7",
            "work ends before the next term of the same candidate begins, and a candidate that campaigns again has one ticket",
        ),
        ("L-EL-8", "a query for the candidates does not fail because a candidate leaves"),
        ("L-EL-9", "an observer is notified of terms in order, and eventually of the latest"),
        ("L-EL-10", "a former leader writes nothing under the guard of its lead"),
        ("L-EL-11", "a candidate that reconnects causes few writes, and keeps its place"),
        ("L-EL-12", "the successor that a leader names is the next leader, or has left"),
    ],
    kept: &[
        ("a_use_dropped_at_any_await_leaves_nothing", "L-EL-6"),
        ("a_wait_dropped_at_any_await_leaves_nothing", "L-EL-6"),
        ("a_process_that_ends_at_any_call_is_outlived", "L-EL-5"),
        ("what_a_lost_session_held_is_granted_to_the_next", "L-EL-5 L-EL-10"),
        ("a_wait_goes_on_in_the_next_session", "L-EL-5"),
        ("a_wait_whose_way_was_cleared_while_it_had_no_session_ends", "L-EL-5"),
        ("a_wait_ends_when_its_client_is_closed", "L-EL-6"),
        ("a_foreign_node_next_to_it_is_ignored", "L-EL-5"),
    ],
};

/// The common parts of recipes with candidates in one directory.
const LINE: Row = Row {
    name: "",
    module: "",
    cases: "",
    stair: Some("line"),
    make: |_, _| made(()),
    shown: "",
    leaves: Leaves::Nothing,
    dirs: &[""],
    takes: Takes::NONE,
    uses: &[],
    workloads: Part::Has(&[]),
    faults: Part::None("its tickets are those of `LeaderLatch`"),
    interop: Part::Has(&[]),
    bench: Part::None("its calls are those of `Election`"),
    family: Some("elections"),
};

const fn exclusive(name: &'static str, take: Call<Box<dyn Proof>>, outlasts: bool) -> Use {
    Use { name, act: Act::Hold { take, rival: take, measured: true }, outlasts }
}

const ELECTION: Row = Row {
    name: "Election",
    module: "election",
    cases: "election",
    make: |client, path| made(Election::new(&client, path)),
    shown: "Election { line: /shown }",
    takes: edges::lead::ELECTION,
    uses: &[exclusive(
        "election",
        |client, path| held(async move { Election::new(&client, path).campaign(LABEL).await }),
        false,
    )],
    workloads: Part::Has(&["election"]),
    interop: Part::Has(&[
        "an_election_is_shared_in_order",
        "a_leader_that_dies_is_succeeded",
        "a_leader_of_ours_that_is_gone_is_succeeded",
    ]),
    bench: Part::Has(&["Resign", "ResignLate", "Lead"]),
    ..LINE
};

const LEADER_LATCH: Row = Row {
    name: "LeaderLatch",
    module: "leader_latch",
    cases: "leader_latch",
    make: |client, path| made(latch(&client, &path)),
    shown: "LeaderLatch { line: /shown }",
    takes: edges::lead::LEADER_LATCH,
    uses: &[exclusive(
        "leader_latch",
        |client, path| {
            async move {
                let candidacy = latch(&client, &path).join().await?;
                let lead = candidacy.leading().await?;
                Ok(Box::new(Latched { candidacy, lead }) as Box<dyn Proof>)
            }
            .boxed()
        },
        true,
    )],
    workloads: Part::Has(&["latch"]),
    faults: Part::Has(&["Latch"]),
    interop: Part::Has(&["a_latch_is_shared"]),
    ..LINE
};

fn latch(client: &Client, path: &Path) -> LeaderLatch {
    LeaderLatch::new(client, path).label(LABEL)
}

/// The lead of a candidate.
#[derive(Debug)]
struct Latched {
    candidacy: Candidacy,
    lead: Leadership,
}

impl Proof for Latched {
    fn guard(&self) -> &dyn Held {
        &self.lead
    }

    fn work(&mut self) -> BoxFuture<'_, Result<()>> {
        self.lead.run(pending()).boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.candidacy.close().boxed()
    }
}

const LEADER_SELECTOR: Row = Row {
    name: "LeaderSelector",
    module: "leader_selector",
    cases: "leader_selector",
    make: |client, path| made(selector(&client, &path)),
    shown: "LeaderSelector { line: /shown, interrupts: 0 }",
    takes: edges::lead::LEADER_SELECTOR,
    uses: &[exclusive("leader_selector", |client, path| lead(client, path).boxed(), false)],
    workloads: Part::Has(&["selector"]),
    interop: Part::Has(&["a_selector_is_shared"]),
    ..LINE
};

fn selector(client: &Client, path: &Path) -> LeaderSelector {
    LeaderSelector::new(client, path).label(LABEL)
}

/// Leads, with work that runs until it is stopped.
async fn lead(client: Client, path: Path) -> Result<Box<dyn Proof>> {
    let ((sender, started), (stop, stopped)) = (oneshot::channel(), oneshot::channel::<()>());
    let selector = selector(&client, &path);
    let leading: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
        let work = async |lead| {
            let _heard = sender.send(lead).is_ok();
            let _stops = stopped.await;
        };
        selector.lead(work).await
    });
    match select(started, leading).await {
        Either::Left((lead, leading)) => {
            let lead = lead.expect("the work begins before it ends");
            Ok(Box::new(Selected { lead, stop, leading: Mutex::new(Some(leading)) }))
        }
        Either::Right((term, _)) => panic!("it ended before it began: {:?}", term?),
    }
}

/// The lead of a selector, whose work continues while this exists.
struct Selected {
    lead: Leadership,
    stop: oneshot::Sender<()>,
    /// Ends with the lead. The mutex is never locked: it only makes this `Sync`.
    leading: Mutex<Option<BoxFuture<'static, Result<Term<()>>>>>,
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected").field("lead", &self.lead).finish_non_exhaustive()
    }
}

impl Proof for Selected {
    fn guard(&self) -> &dyn Held {
        &self.lead
    }

    fn work(&mut self) -> BoxFuture<'_, Result<()>> {
        let leading = self.leading.get_mut().unwrap_or_else(PoisonError::into_inner);
        async {
            let term = leading.as_mut().expect("its term ends once").await?;
            *leading = None;
            assert_eq!(term, Term::Lost, "the work was not stopped");
            self.lead.run(pending()).await
        }
        .boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let leading = self.leading.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _stops = self.stop.send(()).is_ok();
        async {
            match leading {
                Some(leading) => leading.await.map(drop),
                None => Ok(()),
            }
        }
        .boxed()
    }
}
