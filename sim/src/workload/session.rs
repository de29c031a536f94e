//! Ephemeral nodes, and sessions that test how long they live.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::cluster::{By, Death, Site};
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Kind, Lifetime, Query, SessionId, Txn};
use synod_testkit::cancel::stop_at;

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::user_mistake::UserMistake;
use crate::workload::{WATCHED, Workload};

/// Three clients hold ephemeral nodes, write each other's, and are certain of their sessions only
/// while those are alive.
pub(super) struct Sessions;

const ROUNDS: u64 = 3;

impl Workload for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn about(&self) -> &'static str {
        "three clients hold ephemeral nodes, write each other's, and ask whether their sessions live"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-OUT-1", "L-OUT-2", "L-OUT-3", "L-OUT-6", "L-SES-1", "L-SES-2", "L-SES-3", "L-SES-5",
            "L-SES-6", "L-SES-7", "L-SES-10", "L-SES-13", "L-SES-15", "L-SES-16", "L-SES-17",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            "a session wrote another's node",
            "a session was closed",
            "a close was dropped",
            "a session that was over was asked",
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        // No recipe creates tickets, whose names contain a date.
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn has_small_world(&self) -> bool {
        false
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let ledger = Ledger::default();
        let books = ledger.clone();
        sim.processes(3, move |me| work(me, ledger.clone()))
            .ledger(&books)
            .check("L-SES-5", nothing_outlives_its_session)
            .check("L-SES-13", only_owners_remove_ephemeral_nodes)
    }
}

async fn work(me: Process, ledger: Ledger) {
    let Ok(client) = me.client().await else { return };
    for round in 0..me.rounds(ROUNDS) {
        let Ok(session) = client.session().await else { return };
        hold(&me, &session, &ledger, round).await;
        probe(&me, &session).await;
        meddle(&me, &session, &ledger, round).await;
        if me.pick(6) == 0 {
            close(&me, &session).await;
        }
        if session.is_lost() {
            over(&me, &session).await;
        }
    }
}

/// Creates an ephemeral node, and reads it.
async fn hold(me: &Process, session: &Session, ledger: &Ledger, round: u64) {
    let mut data = format!("{}.{}.{round}", me.name(), me.life());
    if me.makes(UserMistake::WallClockTrusted) {
        data = format!("{data}@{}", me.wall_clock().as_secs());
    }
    let path = own(me.number());
    if me.makes(UserMistake::WallClockTrusted) {
        remove_what_looks_left(me, session).await;
    }
    let txn = Txn::new().create(path.clone(), data.clone(), Lifetime::Session);
    drop(ledger.write(me, &data, session.commit(txn)).await);
    let Ok(view) = session.read(Query::node(path)).await else { return };
    let node = view.into_node();
    let mine = node.as_ref().filter(|node| node.data == data.as_bytes());
    let owner = mine.and_then(|node| node.stat).and_then(|stat| stat.owner);
    if mine.is_some() && owner != Some(session.info().id) {
        me.wrong("L-SES-10", || format!("what this session made is owned by {owner:?}"));
    }
}

/// L-SES-2: checks repeatedly whether the session is certain, up to its end and beyond.
async fn probe(me: &Process, session: &Session) {
    let lost_before = session.is_lost();
    for _ in 0..me.pick(30) {
        let id = session.info().id;
        // The client cannot notice the end of a session by force before an unanswered heartbeat is
        // due. A session that ended in silence is also checked elsewhere.
        let certain = seems_certain(me, session).await;
        let known = me.ended_in_silence(id) || me.over_for(id).is_some_and(|it| it > me.ttl());
        if certain && known {
            me.wrong("L-SES-2", || {
                format!("session {id} is over, and its process is certain of it")
            });
        }
        if lost_before && !session.is_lost() {
            me.wrong("L-SES-3", || format!("session {id} was lost, and lives again"));
        }
        clock::sleep(me.ttl() / 25).await;
    }
}

/// Writes the node of another session: the owner stays the same.
async fn meddle(me: &Process, session: &Session, ledger: &Ledger, round: u64) {
    let other = own(1 + me.pick(3));
    let data = format!("{}.{}.{round}+", me.name(), me.life());
    let txn = Txn::new().set(other, data.clone(), Expect::Any);
    let set = ledger.write(me, &data, session.commit(txn)).await;
    me.sometimes(
        "a session wrote another's node",
        matches!(set, Some(Ok(outcome)) if outcome.rejected().is_none()),
    );
}

/// L-SES-7: the nodes of a session are gone when closing it returns. L-SES-3: the session is over
/// once `close` is called.
async fn close(me: &Process, session: &Session) {
    let id = session.info().id;
    // The store may keep a session for a while after the session's own clock has ended it.
    let held = !session.is_lost();
    let closed = match me.pick(4) {
        0 => stop_at(1, session.close()).await,
        _ => me.perhaps(session.close()).await,
    };
    me.sometimes("a session was closed", matches!(closed, Some(Ok(()))));
    me.sometimes("a close was dropped", closed.is_none());
    if held && matches!(closed, Some(Ok(()))) && me.lives(id) {
        me.wrong("L-SES-7", || format!("session {id} was closed, and lives"));
    }
    if !session.is_lost() {
        me.wrong("L-SES-3", || format!("session {id} was closed, and says that it lives"));
    }
}

/// L-OUT-6: no call succeeds on a session that has ended.
async fn over(me: &Process, session: &Session) {
    me.sometimes("a session that was over was asked", true);
    let limit = me.ttl() * 8;
    let read = clock::timeout(limit, session.read(Query::node(own(1)))).await;
    match read {
        Ok(Err(error)) if error.kind() == ErrorKind::SessionLost => {}
        Ok(other) => me.wrong("L-OUT-6", || format!("a lost session answered {other:?}")),
        Err(_) => me.wrong("L-OUT-6", || "a call on a lost session hangs".to_owned()),
    }
}

/// The mistake of comparing wall clocks: removes the nodes of others that look old.
async fn remove_what_looks_left(me: &Process, session: &Session) {
    let path = own(1 + me.pick(3));
    let Ok(view) = session.read(Query::node(path.clone())).await else { return };
    let Some(node) = view.into_node() else { return };
    let text = String::from_utf8_lossy(&node.data).into_owned();
    let written = text.split_once('@').and_then(|(_, at)| at.parse::<u64>().ok());
    if written.is_some_and(|at| at + 600 < me.wall_clock().as_secs()) {
        let txn = Txn::new().delete(path, Expect::Any);
        let _either_way = session.commit(txn).await.is_ok();
    }
}

/// Returns `true` if a session is alive, as its process sees it.
async fn seems_certain(me: &Process, session: &Session) -> bool {
    if me.makes(UserMistake::WatchdogTrusted) {
        ran_on(me).await;
        return !session.is_lost();
    }
    let certain = session.is_certain();
    if me.makes(UserMistake::OldCheckTrusted) {
        yield_once().await;
    }
    certain
}

/// Waits until the whole process ran without a pause for a moment.
async fn ran_on(me: &Process) {
    let milli = Duration::from_millis(1);
    loop {
        let before = me.age();
        clock::sleep(milli).await;
        if me.age().saturating_sub(before) < milli * 5 {
            return;
        }
    }
}

/// Lets other tasks run.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// L-SES-5, L-SES-6, L-SES-13: the nodes of a session are deleted with it, at one revision, and
/// none appears later; a write by another session does not change the owner.
fn nothing_outlives_its_session(truth: &Truth) -> Result<(), String> {
    let mut owners: BTreeMap<Path, SessionId> = BTreeMap::new();
    let mut deaths = truth.deaths.iter().peekable();
    let mut dead: BTreeSet<SessionId> = BTreeSet::new();
    for entry in &truth.log {
        while let Some(death) = deaths.next_if(|death| death.at < entry.at) {
            let left = owners.iter().find(|(_, owner)| **owner == death.session);
            if let Some((path, owner)) = left {
                return Err(format!("{path} outlives {owner}, which is over"));
            }
            dead.insert(death.session);
        }
        for change in &entry.changes {
            let owner = change.node.as_ref().and_then(|node| node.stat).and_then(|it| it.owner);
            if let Some(owner) = owner.filter(|owner| dead.contains(owner)) {
                return Err(format!("{} of {owner} appears after its end", change.path));
            }
            let was = owners.get(&change.path);
            if change.kind == Kind::Updated && was != owner.as_ref() {
                return Err(format!(
                    "{} of {was:?} is {owner:?}'s once it is written",
                    change.path
                ));
            }
            match owner {
                Some(owner) => drop(owners.insert(change.path.clone(), owner)),
                None => drop(owners.remove(&change.path)),
            }
        }
    }
    Ok(())
}

/// L-SES-13: while its session is alive, only its owner or a stranger removes a node.
fn only_owners_remove_ephemeral_nodes(truth: &Truth) -> Result<(), String> {
    let mut owners: BTreeMap<&Path, SessionId> = BTreeMap::new();
    for entry in &truth.log {
        for change in &entry.changes {
            let owner = change.node.as_ref().and_then(|node| node.stat).and_then(|it| it.owner);
            let was = match owner {
                Some(owner) => owners.insert(&change.path, owner),
                None => owners.remove(&change.path),
            };
            let (Kind::Deleted, By::Process(actor)) = (change.kind, entry.by) else { continue };
            let over = |it: &Death| Some(it.session) == was && it.at <= entry.at;
            if change.path != own(actor) && !truth.deaths.iter().any(over) {
                return Err(format!("process {actor} removed {}, which is another's", change.path));
            }
        }
    }
    Ok(())
}

fn own(number: u64) -> Path {
    Path::new(&format!("/e/{number}")).expect("it is one")
}
