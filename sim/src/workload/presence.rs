//! Three processes that keep nodes, ephemeral ones or with a time to live, and query their
//! presence. Some nodes have several owners, in one process and in two.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{By, Site};
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{self, Change, Node, Revision, SessionId};
use synod_recipes::presence::{KeptNode, PersistentNode, Presence};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes keep nodes, set their data, and remove them. Some of the nodes are wanted by
/// several owners.
pub(super) struct Keepers {
    name: &'static str,
    about: &'static str,
    laws: &'static [&'static str],
    kind: Kind,
}

/// The kind of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ephemeral,
    /// Nodes with this part of the sessions' time to live.
    Lasting,
}

pub(super) const EPHEMERAL: Keepers = Keepers {
    name: "presence",
    about: "three processes keep nodes, set their data, and remove them",
    laws: &["L-PE-1", "L-PE-2", "L-PE-3", "L-PE-4", "L-PE-5"],
    kind: Kind::Ephemeral,
};

pub(super) const LASTING: Keepers = Keepers {
    name: "presence_ttl",
    about: "three processes keep nodes with a time to live, set their data, and remove them",
    laws: &["L-PE-1", "L-PE-2", "L-PE-3", "L-PE-4", "L-PE-5", "L-PE-7"],
    kind: Kind::Lasting,
};

const ROUNDS: u64 = 3;

const DOUBT: &str = "an end was reported with an unknown effect";
const GONE: &str = "a node was absent for its owner";
const CALM: &str = "an owner had kept a node, and nothing had happened to it";
const COMPARED: &str = "a node was compared with what its owner had set";

const REFUSED: &str = "a second owner was refused";
const REPLACED: &str = "a second owner had the node after the first one";

/// The prefix of the names of nodes that several owners want.
const SHARED: &str = "shared-";

/// An observation of an owner, with the number of commits at that time.
#[derive(Clone, Debug)]
struct Noted {
    process: u64,
    /// The number of the owner: a process may have two of one path.
    owner: usize,
    path: Path,
    at: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The node was kept from then on.
    Begun,
    /// The node that was created at this revision existed.
    There(Revision),
    /// Its owner had suffered no fault so far.
    Calm,
    /// From then on the node had to be removed.
    Ending,
    /// The node was permanently gone.
    Ended,
}

/// The observations of all owners. Clones share it.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Noted>>>, Arc<AtomicUsize>);

impl Workload for Keepers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn laws(&self) -> &'static [&'static str] {
        self.laws
    }

    fn marks(&self) -> &'static [&'static str] {
        self.kind.marks()
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (book, kind) = (Book::default(), self.kind);
        let [written, owned, ended, lasted] = [(); 4].map(|()| book.clone());
        sim.processes(3, move |me| work(me, written.clone(), kind))
            .must_end("L-OUT-5")
            .eventually("L-PE-4", move |me| is_left(me, dir(), kind.leaves()))
            .check("L-PE-1", move |truth| book.check_beliefs(truth))
            .check("L-PE-5", move |_| owned.check_owners())
            .check("L-PE-7", move |truth| lasted.check_wishes(truth))
            .check("L-PE-4", move |truth| ended.check_ends(truth))
    }
}

impl Kind {
    fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Ephemeral => &[DROPPED, DOUBT, GONE, COMPARED, REFUSED, REPLACED],
            Self::Lasting => &[DROPPED, DOUBT, GONE, COMPARED, REFUSED, REPLACED, CALM],
        }
    }

    /// Returns a function that is true for nodes that must not exist at the end.
    fn leaves(self) -> fn(&Node) -> bool {
        match self {
            Self::Ephemeral => is_owned,
            // Strangers also put nodes there.
            Self::Lasting => |node| node.stat.is_some() && !node.path.name().starts_with("foreign"),
        }
    }
}

async fn work(me: Process, book: Book, kind: Kind) {
    let Ok(client) = me.impatient_client().await else { return };
    let owner = Owner { me, client, book, kind };
    let rounds = owner.me.rounds(ROUNDS);
    for round in 0..rounds {
        let is_last = round + 1 == rounds;
        if !is_last && owner.me.pick(3) == 0 {
            Box::pin(owner.contends()).await;
        } else {
            Box::pin(owner.round(round, is_last)).await;
        }
    }
}

/// Records, when this is dropped, that the node must be removed: at the latest with the task of its
/// owner.
struct Ending<'a>(&'a Owner, Path, usize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.note(&self.1, self.2, What::Ending);
    }
}

struct Owner {
    me: Process,
    client: Client,
    book: Book,
    kind: Kind,
}

impl Owner {
    fn node(&self, name: &str) -> PersistentNode {
        let path = dir().join(name).expect("it is valid");
        let node = PersistentNode::new(&self.client, path);
        if self.kind == Kind::Lasting { node.ttl(self.me.ttl()) } else { node }
    }

    /// The number of another owner.
    fn next_owner(&self) -> usize {
        self.book.1.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a node that other owners may want, twice at the same time.
    async fn contends(&self) {
        let name = format!("{SHARED}{}", self.me.pick(2));
        let (first, second) = Box::pin(join(self.keeps(&name), self.keeps(&name))).await;
        self.me.sometimes(REPLACED, first && second);
    }

    /// Keeps a node that other owners may want. Returns `true` if it had the node.
    async fn keeps(&self, name: &str) -> bool {
        let (me, owner) = (&self.me, self.next_owner());
        me.rest(me.ttl() / 2).await;
        let node = self.node(name);
        let node = if me.pick(4) == 0 { node.take_over() } else { node };
        // The data of two owners may be the same: the data does not identify the owner.
        let data = if me.pick(2) == 0 { name.to_owned() } else { format!("{name}.{owner}") };
        let kept = match me.perhaps(node.keep(data)).await {
            Some(Ok(kept)) => kept,
            Some(Err(error)) => {
                me.sometimes(REFUSED, error.kind() == ErrorKind::Refused);
                return false;
            }
            None => return false,
        };
        for _ in 0..2 {
            self.queries(&kept, owner);
            me.rest(me.ttl() / 2).await;
        }
        self.queries(&kept, owner);
        if me.pick(2) == 0 {
            drop(me.perhaps(kept.close()).await);
        }
        true
    }

    async fn round(&self, round: u64, is_last: bool) {
        let (me, owner) = (&self.me, self.next_owner());
        let name = format!("{}-{}-{round}", me.name(), me.life());
        let node = self.node(&name);
        let mut data = format!("{name}.first");
        let Some(Ok(kept)) = me.perhaps(node.keep(data.clone())).await else { return };
        self.note(kept.path(), owner, What::Begun);
        let ending = Ending(self, kept.path().clone(), owner);
        for number in 0..me.rounds(ROUNDS) {
            self.queries(&kept, owner);
            me.rest(me.ttl() / 2).await;
            self.queries(&kept, owner);
            if me.pick(2) == 0 {
                data = format!("{name}.{number}");
                drop(me.perhaps(kept.set(data.clone())).await);
            }
        }
        // The effect of earlier faults may last.
        if self.kind == Kind::Lasting && me.harmed() == 0 {
            me.sometimes(CALM, true);
            self.note(kept.path(), owner, What::Calm);
        }
        if is_last {
            self.compares(&kept, &data).await;
        }
        drop(ending);
        if me.pick(4) == 0 {
            return drop(kept);
        }
        let path = kept.path().clone();
        match me.perhaps(kept.close()).await {
            Some(Ok(())) => self.note(&path, owner, What::Ended),
            Some(Err(error)) => me.sometimes(DOUBT, error.has_unknown_effect()),
            None => {}
        }
        me.rest(me.ttl() / 4).await;
    }

    /// L-PE-1: a node exists if its owner reports that it does.
    fn queries(&self, kept: &KeptNode, owner: usize) {
        let presence = kept.presence();
        self.me.sometimes(GONE, !presence.is_there());
        if let Presence::There(created) = presence
            && kept.is_there()
        {
            self.note(kept.path(), owner, What::There(created));
        }
    }

    fn note(&self, path: &Path, owner: usize, what: What) {
        let (process, path, at) = (self.me.number(), path.clone(), self.me.committed());
        let noted = Noted { process, owner, path, at, what };
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
    }

    /// L-PE-1, L-PE-3: once everything is repaired, the node exists in the live session, with the
    /// last data.
    async fn compares(&self, kept: &KeptNode, data: &str) {
        const TIMES: u32 = 100;
        let me = &self.me;
        me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            match self.is_right(kept, data).await {
                Ok(None) => return me.sometimes(COMPARED, true),
                Ok(wrong) => different = wrong,
                Err(error) if error.kind() == ErrorKind::SessionLost && self.client.is_closed() => {
                    return;
                }
                Err(_unreachable) => {}
            }
            clock::sleep(me.ttl() / 4).await;
        }
        if let Some(different) = different {
            me.wrong("L-PE-1", || format!("{different}, instead of {data}: {kept:?}"));
        }
    }

    /// The error in the state of the node, if there is one.
    async fn is_right(&self, kept: &KeptNode, data: &str) -> Result<Option<String>, Error> {
        let session = self.client.session().await?.info().id;
        let node = self.client.get(kept.path()).await?;
        // Writes that the store has refused are not stored.
        let any = self.me.suffered(&[Site::Refused]) > 0;
        let is_right = node.as_ref().is_some_and(|node| {
            let owner = node.stat.and_then(|stat| stat.owner);
            let expected = (self.kind == Kind::Ephemeral).then_some(session);
            owner == expected && (any || node.data == data)
        });
        Ok((!is_right || !kept.is_there()).then(|| format!("there is {node:?}")))
    }
}

/// L-PE-4: at the end no owner has a node.
pub(super) async fn nothing_is_left(me: Process, dir: Path) -> Result<(), String> {
    is_left(me, dir, is_owned).await
}

fn is_owned(node: &Node) -> bool {
    node.stat.is_some_and(|stat| stat.owner.is_some())
}

async fn is_left(me: Process, dir: Path, is_left: fn(&Node) -> bool) -> Result<(), String> {
    let mut left = None;
    for _ in 0..100 {
        // Some servers may be unreachable for ever.
        if let Ok(client) = me.client().await
            && let Ok(nodes) = client.children(&dir).await
        {
            left = nodes.into_iter().find(is_left);
            if left.is_none() {
                break;
            }
        }
        clock::sleep(me.ttl() / 4).await;
    }
    left.map_or(Ok(()), |left| Err(format!("{left:?} is left")))
}

/// A change of a node, with the number of commits before it, and its author.
struct Step<'a>(usize, By, &'a Change);

/// The changes of one path.
fn steps<'a>(truth: &'a Truth, path: &'a Path) -> impl Iterator<Item = Step<'a>> {
    truth.log.iter().enumerate().flat_map(move |(at, entry)| {
        let of_path = entry.changes.iter().filter(move |change| change.path == *path);
        of_path.map(move |change| Step(at, entry.by, change))
    })
}

impl Book {
    /// L-PE-1: a node that its owner reports as existing was created and not removed, unless
    /// another client removed it, or an operator ended its session.
    fn check_beliefs(&self, truth: &Truth) -> Result<(), String> {
        for noted in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let What::There(created) = noted.what else { continue };
            // The node, and its owner if it has one.
            let mut there: Option<Option<SessionId>> = None;
            let mut wrong = Some("was never made".to_owned());
            for Step(at, by, change) in steps(truth, &noted.path) {
                if at >= noted.at {
                    break;
                }
                let stat = change.node.as_ref().and_then(|node| node.stat);
                match stat {
                    Some(stat) if stat.created == created => {
                        (there, wrong) = (Some(stat.owner), None);
                    }
                    _ if change.kind == store::Kind::Deleted => {
                        let Some(owner) = there.take() else { continue };
                        let silent = truth
                            .deaths
                            .iter()
                            .any(|death| Some(death.session) == owner && death.silent);
                        // A shared node may have been removed by another owner of this process.
                        let own = by == By::Process(noted.process) && !is_shared(&noted.path);
                        if own || by == By::Store && (silent || owner.is_none()) {
                            wrong = Some(format!("was removed by {by:?}"));
                        }
                    }
                    _ => {}
                }
            }
            if let Some(wrong) = wrong {
                return Err(format!("{noted:?} {wrong}"));
            }
        }
        Ok(())
    }

    /// L-PE-5: a node has one owner at a time. An owner whose create has an unknown effect may take
    /// the node of another owner in its session that has just released it; then that other owner no
    /// longer has it.
    fn check_owners(&self) -> Result<(), String> {
        let mut owners: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for noted in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let What::There(created) = noted.what else { continue };
            let owners = owners.entry((&noted.path, created)).or_default();
            if owners.last() == Some(&noted.owner) {
                continue;
            }
            if owners.contains(&noted.owner) {
                return Err(format!("{noted:?}, and another owner had it since: {owners:?}"));
            }
            owners.push(noted.owner);
        }
        Ok(())
    }

    /// L-PE-7: an owner removes no node with a time to live that it should keep, and the store
    /// removes none whose owner had no fault.
    fn check_wishes(&self, truth: &Truth) -> Result<(), String> {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let time_of = |path: &Path, is_it: fn(What) -> bool| {
            notes.iter().find(|it| it.path == *path && is_it(it.what)).map(|it| it.at)
        };
        for begun in notes.iter().filter(|it| matches!(it.what, What::Begun)) {
            let calm = time_of(&begun.path, |it| matches!(it, What::Calm)).unwrap_or(begun.at);
            let ending =
                time_of(&begun.path, |it| matches!(it, What::Ending)).unwrap_or(usize::MAX);
            let mut is_lasting = false;
            for Step(at, by, change) in steps(truth, &begun.path) {
                let end = match by {
                    By::Process(process) if process == begun.process => ending,
                    By::Store => calm,
                    _ => begun.at,
                };
                let is_removed = change.kind == store::Kind::Deleted;
                if is_lasting && is_removed && (begun.at..end).contains(&at) {
                    return Err(format!("{begun:?}, and {by:?} removed it in commit {at}"));
                }
                let stat = change.node.as_ref().and_then(|node| node.stat);
                is_lasting = !is_removed && stat.is_some_and(|stat| stat.owner.is_none());
            }
        }
        Ok(())
    }

    /// L-PE-4: after an end that was reported without an error, there is no node, and no node is
    /// created.
    fn check_ends(&self, truth: &Truth) -> Result<(), String> {
        for noted in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let What::Ended = noted.what else { continue };
            let mut is_there = None;
            for Step(at, by, change) in steps(truth, &noted.path) {
                let is_ours = by == By::Process(noted.process);
                if change.kind == store::Kind::Deleted {
                    is_there = None;
                } else if is_ours && change.kind == store::Kind::Created {
                    is_there = Some(at);
                }
                if at >= noted.at && is_there.is_some() {
                    return Err(format!("{noted:?}, and it was made in commit {at}"));
                }
            }
            if is_there.is_some() {
                return Err(format!("{noted:?}, and it stays"));
            }
        }
        Ok(())
    }
}

fn is_shared(path: &Path) -> bool {
    path.name().starts_with(SHARED)
}

fn dir() -> Path {
    Path::new("/presence").expect("it is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_owner_at_a_time() {
        let judge = |notes: &[(usize, u64)]| {
            let book = Book::default();
            let noted = notes.iter().map(|(owner, created)| Noted {
                process: 1,
                owner: *owner,
                path: dir(),
                at: 9,
                what: What::There(Revision::new(*created)),
            });
            book.0.lock().unwrap_or_else(PoisonError::into_inner).extend(noted);
            book.check_owners().is_ok()
        };
        assert!(judge(&[(1, 5), (1, 5)]) && judge(&[(1, 5), (2, 6), (1, 5)]));
        assert!(judge(&[(1, 5), (2, 5), (2, 5)]), "the first one has given it up");
        assert!(!judge(&[(1, 5), (2, 5), (1, 5)]), "two owners in one process have it");
    }
}
