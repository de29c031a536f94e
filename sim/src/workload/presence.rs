//! Three processes that keep nodes, and ask whether they are there.

use std::sync::{Arc, Mutex, PoisonError};

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{Change, Kind, Node, Revision, SessionId};
use synod_mem::cluster::{By, Site};
use synod_recipes::{KeptNode, PersistentNode, Presence};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes keep a node each, one after the other, set its data, and remove it.
pub(super) struct Keepers;

const ROUNDS: u64 = 3;

const DOUBT: &str = "an end was reported with an unknown effect";
const GONE: &str = "a node was absent for its owner";
const COMPARED: &str = "a node was compared with what its owner had set";

/// What an owner knew at a moment, by the number of commits then.
#[derive(Clone, Debug)]
struct Noted {
    process: u64,
    path: Path,
    at: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// That this node was there.
    There(Revision),
    /// That the node was gone for good.
    Ended,
}

/// What all owners knew. Clones share it.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Noted>>>);

impl Workload for Keepers {
    fn name(&self) -> &'static str {
        "presence"
    }

    fn about(&self) -> &'static str {
        "three processes keep nodes, set their data, and remove them"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-PE-1", "L-PE-2", "L-PE-3", "L-PE-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, DOUBT, GONE, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let [written, ended] = [(); 2].map(|()| book.clone());
        sim.processes(3, move |me| work(me, written.clone()))
            .must_end("L-OUT-5")
            .eventually("L-PE-4", |me| nothing_is_left(me, dir()))
            .check("L-PE-1", move |truth| book.check_beliefs(truth))
            .check("L-PE-4", move |truth| ended.check_ends(truth))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.impatient_client().await else { return };
    let owner = Owner { me, client, book };
    let rounds = owner.me.rounds(ROUNDS);
    for round in 0..rounds {
        Box::pin(owner.round(round, round + 1 == rounds)).await;
    }
}

struct Owner {
    me: Process,
    client: Client,
    book: Book,
}

impl Owner {
    async fn round(&self, round: u64, is_last: bool) {
        let me = &self.me;
        let name = format!("{}-{}-{round}", me.name(), me.life());
        let path = dir().join(&name).expect("it is valid");
        let node = PersistentNode::new(&self.client, path);
        let mut data = format!("{name}.first");
        let Some(Ok(kept)) = me.perhaps(node.keep(data.clone())).await else { return };
        for number in 0..me.rounds(ROUNDS) {
            self.asks(&kept);
            me.rest(me.ttl() / 2).await;
            self.asks(&kept);
            if me.pick(2) == 0 {
                data = format!("{name}.{number}");
                drop(me.perhaps(kept.set(data.clone())).await);
            }
        }
        if is_last {
            self.compares(&kept, &data).await;
        }
        if me.pick(4) == 0 {
            return drop(kept);
        }
        let path = kept.path().clone();
        match me.perhaps(kept.close()).await {
            Some(Ok(())) => self.note(path, What::Ended),
            Some(Err(error)) => me.sometimes(DOUBT, error.is_ambiguous()),
            None => {}
        }
        me.rest(me.ttl() / 4).await;
    }

    /// L-PE-1: what an owner takes for there is there.
    fn asks(&self, kept: &KeptNode) {
        let presence = kept.presence();
        self.me.sometimes(GONE, !presence.is_there());
        if let Presence::There(created) = presence
            && kept.is_there()
        {
            self.note(kept.path().clone(), What::There(created));
        }
    }

    fn note(&self, path: Path, what: What) {
        let (process, at) = (self.me.number(), self.me.committed());
        let noted = Noted { process, path, at, what };
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
    }

    /// L-PE-1, L-PE-3: when all is repaired, the node is there, in the session that lives, with the last data.
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

    /// What is wrong about the node, if anything is.
    async fn is_right(&self, kept: &KeptNode, data: &str) -> Result<Option<String>, Error> {
        let session = self.client.session().await?.info().id;
        let node = self.client.get(kept.path()).await?;
        // What the store has refused is not stored.
        let any = self.me.suffered(&[Site::Refused]) > 0;
        let is_right = node.as_ref().is_some_and(|node| {
            let owner = node.stat.and_then(|stat| stat.owner);
            owner == Some(session) && (any || node.data == data)
        });
        Ok((!is_right || !kept.is_there()).then(|| format!("there is {node:?}")))
    }
}

/// L-PE-4: in the end there is no node of an owner.
pub(super) async fn nothing_is_left(me: Process, dir: Path) -> Result<(), String> {
    let mut left = None;
    for _ in 0..100 {
        // A part of the servers may be out of reach for ever.
        if let Ok(client) = me.client().await
            && let Ok(nodes) = client.children(&dir).await
        {
            let is_owned = |node: &Node| node.stat.is_some_and(|stat| stat.owner.is_some());
            left = nodes.into_iter().find(is_owned);
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
    /// L-PE-1: a node that its owner takes for there was made, and is not gone, unless another client removed it, or an
    /// operator ended its session.
    fn check_beliefs(&self, truth: &Truth) -> Result<(), String> {
        for noted in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let What::There(created) = noted.what else { continue };
            let mut owner: Option<SessionId> = None;
            let mut wrong = Some("was never made".to_owned());
            for Step(at, by, change) in steps(truth, &noted.path) {
                if at >= noted.at {
                    break;
                }
                let stat = change.node.as_ref().and_then(|node| node.stat);
                match stat {
                    Some(stat) if stat.created == created => {
                        (owner, wrong) = (stat.owner, None);
                    }
                    _ if change.kind == Kind::Deleted && owner.is_some() => {
                        let silent = truth
                            .deaths
                            .iter()
                            .any(|death| Some(death.session) == owner && death.silent);
                        let own = by == By::Process(noted.process);
                        if own || by == By::Store && silent {
                            wrong = Some(format!("was removed by {by:?}"));
                        }
                        owner = None;
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

    /// L-PE-4: after an end that was reported without an error, there is no node, and none is made.
    fn check_ends(&self, truth: &Truth) -> Result<(), String> {
        for noted in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let What::Ended = noted.what else { continue };
            let mut is_there = None;
            for Step(at, by, change) in steps(truth, &noted.path) {
                let is_ours = by == By::Process(noted.process);
                if change.kind == Kind::Deleted {
                    is_there = None;
                } else if is_ours && change.kind == Kind::Created {
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

fn dir() -> Path {
    Path::new("/presence").expect("it is one")
}
