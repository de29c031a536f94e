//! Sequential nodes that are created, dropped and released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Kind, Lifetime, OpResult, Outcome, Query, Revision, Sequence, SessionId, Txn,
};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::user_mistake::UserMistake;
use crate::workload::{WATCHED, Workload};

/// Clients create tickets in one directory, drop some calls before their end, and release others.
pub(super) struct Tickets;

const ROUNDS: u64 = 3;

const DIR: &str = "/q";

/// The tickets that were seen: the sequence of each, by its revision of creation.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<BTreeMap<Revision, Sequence>>>);

/// The names that processes reuse: the last one that each certainly created and still has, with its
/// session. In its next session, or after a restart, it creates a node under that name again.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    kept: BTreeMap<u64, (Path, SessionId)>,
    /// The names that were reused.
    again: BTreeSet<Path>,
}

impl Workload for Tickets {
    fn name(&self) -> &'static str {
        "tickets"
    }

    fn about(&self) -> &'static str {
        "clients draw sequential nodes in one directory, drop some calls, and give some back"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-OUT-1", "L-OUT-2", "L-OUT-3", "L-SEQ-2", "L-SEQ-3", "L-SEQ-8", "L-SEQ-9", "L-SEQ-10"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            "a draw was dropped",
            "request lost on a draw, and drawn all the same",
            "reply lost on a draw, and the ticket found again",
            "a name was drawn under again in another session",
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        // No recipe creates tickets, whose names contain a date.
        [WATCHED, &[Site::SlowReader, Site::BeatsCut, Site::WallClockSet]].concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (ledger, seen, names) = (Ledger::default(), Seen::default(), Names::default());
        let (books, eyes, known) = (ledger.clone(), seen.clone(), names.clone());
        sim.aged(dir())
            .processes(3, move |me| work(me, ledger.clone(), seen.clone(), names.clone()))
            .ledger(&books)
            .check("L-SEQ-2", move |truth| eyes.check_order(truth))
            .check("L-SEQ-8", move |truth| known.one_node_a_ticket(truth))
    }
}

async fn work(me: Process, ledger: Ledger, seen: Seen, names: Names) {
    let Ok(client) = me.client().await else { return };
    let rounds = me.rounds(ROUNDS);
    let mut drawer = Drawer { me, client, ledger, seen, names, gone: Vec::new() };
    for round in 0..rounds {
        drawer.round(round).await;
    }
    drawer.nothing_is_left().await;
}

struct Drawer {
    me: Process,
    client: Client,
    ledger: Ledger,
    seen: Seen,
    names: Names,
    /// The tickets that were dropped, failed or released, and in which session.
    gone: Vec<(String, SessionId)>,
}

impl Drawer {
    async fn round(&mut self, round: u64) {
        let Ok(session) = self.client.session().await else { return };
        let data = format!("{}.{}.{round}", self.me.name(), self.me.life());
        let prefix = Path::new(&format!("{DIR}/t-")).expect("it is one");
        let lost = |site| self.me.suffered(&[site]);
        let before = [lost(Site::RequestLost), lost(Site::ReplyLost)];
        let (me, id) = (self.me.number(), session.info().id);
        let again = self.names.of_before(me, id);
        let Ok(path) = again.clone().map_or_else(|| session.unique(&prefix), Ok) else { return };
        let draw = Txn::new().create_sequential(path.clone(), data.clone(), Lifetime::Session);
        match self.ledger.write(&self.me, &data, session.commit(draw)).await {
            Some(Ok(Outcome::Committed(commit))) => {
                let Some(done) = commit.results.into_iter().next() else { return };
                let request = lost(Site::RequestLost) > before[0];
                let reply = lost(Site::ReplyLost) > before[1];
                self.me.sometimes("request lost on a draw, and drawn all the same", request);
                self.me.sometimes("reply lost on a draw, and the ticket found again", reply);
                let another = "a name was drawn under again in another session";
                self.me.sometimes(another, again.is_some());
                if self.drawn(&session, &done).await {
                    self.gone.push((data, id));
                } else if !request && !reply {
                    self.names.keep(me, (path, id));
                }
            }
            given_up => {
                self.me.sometimes("a draw was dropped", given_up.is_none());
                self.gone.push((data, id));
            }
        }
        self.me.rest(Duration::from_millis(300)).await;
    }

    /// Checks a ticket that was created. Returns `true` if it was released.
    async fn drawn(&self, session: &Session, done: &OpResult) -> bool {
        let id = session.info().id;
        if done.owner() != Some(id) {
            self.me.wrong("L-SEQ-9", || format!("{} is owned by {:?}", done.path, done.owner()));
        }
        self.seen.note(done.stat.map(|stat| stat.created), done.sequence);
        if let Some(Ok(view)) = self.me.perhaps(session.read(Query::children(dir()))).await {
            for node in &view.nodes {
                let end = || node.path.name().rsplit('-').next()?.parse().ok().map(Sequence::new);
                let trusted = self.me.makes(UserMistake::NameEndTrusted);
                let sequence = if trusted { end() } else { node.sequence };
                self.seen.note(node.stat.map(|stat| stat.created), sequence);
            }
        }
        let way = self.me.pick(3);
        match way {
            0 => session.remove_in_background(done),
            1 => drop(self.me.perhaps(session.remove(done)).await),
            _ => {}
        }
        way < 2
    }

    /// L-SEQ-10: no node of an abandoned call is left once everything works again.
    async fn nothing_is_left(&self) {
        self.me.mended().await;
        if self.gone.is_empty() {
            return;
        }
        // Abandoned nodes are removed within a few times to live.
        clock::sleep(self.me.ttl() * 12).await;
        let Ok(session) = self.client.session().await else { return };
        let Ok(view) = session.read(Query::children(dir())).await else { return };
        for (data, owner) in &self.gone {
            let left = view.nodes.iter().find(|node| node.data == data.as_bytes());
            if let Some(node) = left.filter(|_| *owner == session.info().id) {
                let what = || format!("{data} was given up, and is there as {}", node.path);
                self.me.wrong("L-SEQ-10", what);
            }
        }
    }
}

impl Seen {
    fn note(&self, created: Option<Revision>, sequence: Option<Sequence>) {
        if let (Some(created), Some(sequence)) = (created, sequence) {
            self.lock().insert(created, sequence);
        }
    }

    /// L-SEQ-2, L-SEQ-3: sequences increase with the revisions, while the directory exists.
    fn check_order(&self, truth: &Truth) -> Result<(), String> {
        let seen = self.lock();
        let (mut live, mut highest) = (BTreeSet::new(), None);
        for change in truth.log.iter().flat_map(|entry| &entry.changes) {
            if change.path.parent().is_none_or(|parent| parent != dir()) {
                continue;
            }
            match change.kind {
                Kind::Deleted => drop(live.remove(&change.path)),
                _ => drop(live.insert(change.path.clone())),
            }
            if live.is_empty() {
                highest = None;
            }
            let Some(at) = change.revision.filter(|_| change.kind == Kind::Created) else {
                continue;
            };
            let Some(sequence) = seen.get(&at).copied() else { continue };
            if highest.is_some_and(|(highest, _)| highest >= sequence) {
                return Err(format!("at revision {at} sequence {sequence} after {highest:?}"));
            }
            highest = Some((sequence, at));
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Revision, Sequence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// The name that this process reuses, if it belongs to another session.
    fn of_before(&self, process: u64, session: SessionId) -> Option<Path> {
        let mut known = self.lock();
        let (path, _) = known.kept.get(&process).filter(|(_, of)| *of != session)?.clone();
        known.kept.remove(&process);
        known.again.insert(path.clone());
        Some(path)
    }

    fn keep(&self, process: u64, name: (Path, SessionId)) {
        self.lock().kept.insert(process, name);
    }

    /// L-SEQ-8: for each ticket (each id), at most one node exists at a time. For a reused name,
    /// the node of the earlier session may also exist until that session expires.
    fn one_node_a_ticket(&self, truth: &Truth) -> Result<(), String> {
        let known = self.lock();
        let mut live: BTreeMap<String, BTreeSet<Path>> = BTreeMap::new();
        for change in truth.log.iter().flat_map(|entry| &entry.changes) {
            let Some(id) = change.path.name().strip_prefix("t-").and_then(|rest| rest.get(..32))
            else {
                continue;
            };
            if known.again.iter().any(|path| change.path.as_str().starts_with(path.as_str())) {
                continue;
            }
            let nodes = live.entry(id.to_owned()).or_default();
            match change.kind {
                Kind::Deleted => drop(nodes.remove(&change.path)),
                _ => drop(nodes.insert(change.path.clone())),
            }
            if nodes.len() > 1 {
                return Err(format!("one create made {nodes:?}"));
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dir() -> Path {
    Path::new(DIR).expect("it is one")
}
