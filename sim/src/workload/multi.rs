//! Several locks at once, named in any order.

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Query, Txn};
use synod_recipes::lock::{MultiGuard, MultiLock, Mutex, MutexGuard};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LOCK};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes lock two of three locks, each in its own order, and some lock a single one.
pub(super) struct MultiLocks;

const ROUNDS: u64 = 3;
const LOCKS: [&str; 3] = ["/locks/a", "/locks/b", "/locks/c"];

const ALL: &str = "two locks were had at once";
const TRIED: &str = "a try found both locks free";
const NONE: &str = "a try found one of two locks taken";

impl Workload for MultiLocks {
    fn name(&self) -> &'static str {
        "multi"
    }

    fn about(&self) -> &'static str {
        "three processes lock two of three locks at once, in any order"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-X-3", "L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-8", "L-MX-9", "L-MX-11", "L-MX-15"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, ALL, TRIED, NONE]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, mut sim: Sim) -> Sim {
        let rooms = LOCKS.map(Room::new);
        for room in &rooms {
            sim = room.grants.watch(sim.given(room.data(), "0").aged(room.dir()));
            let data = room.data();
            sim = sim.check("L-MX-5", move |truth| holding::writes_rise(truth, &data));
        }
        sim.processes(3, move |me| work(me, rooms.clone()))
            .must_end("L-X-3")
            .check("L-MX-11", holding::only_owners_remove_tickets)
    }
}

/// One of the locks, with its checks.
#[derive(Clone)]
struct Room {
    beliefs: Beliefs,
    grants: Grants,
}

impl Room {
    fn new(path: &str) -> Self {
        let dir = Path::new(path).expect("it is one");
        Self { beliefs: Beliefs::new(LOCK), grants: Grants::of(dir) }
    }

    fn dir(&self) -> Path {
        self.grants.dir().clone()
    }

    /// The node that its holder writes.
    fn data(&self) -> Path {
        Path::new(&format!("/data-{}", self.dir().name())).expect("it is one")
    }
}

async fn work(me: Process, rooms: [Room; 3]) {
    let Ok(client) = me.client().await else { return };
    let worker = Worker { me, client, rooms };
    worker.rounds().await;
    for room in &worker.rooms {
        holding::leaves_nothing(&worker.me, &worker.client, &room.grants, "L-MX-9").await;
    }
}

struct Worker {
    me: Process,
    client: Client,
    rooms: [Room; 3],
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            let first = self.pick();
            let other = (first + 1 + usize::from(self.me.pick(2) == 1)) % LOCKS.len();
            let names = [first, other].map(|place| self.rooms[place].dir());
            let lock = MultiLock::new(&self.client, names);
            let both = [first, other];
            match self.me.pick(4) {
                0 => self.one(&self.rooms[first]).await,
                1 => match self.me.perhaps(lock.try_lock()).await {
                    Some(Ok(Some(guard))) => {
                        self.me.sometimes(TRIED, true);
                        self.hold(guard).await;
                    }
                    Some(Ok(None)) => self.check_has_none(both).await,
                    _ => {}
                },
                _ => {
                    if let Some(Ok(guard)) = self.me.perhaps(lock.lock()).await {
                        self.hold(guard).await;
                    }
                }
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    /// Locks a single one, like a client that needs no other.
    async fn one(&self, room: &Room) {
        let (me, client) = (&self.me, &self.client);
        let Some(Ok(guard)) = me.perhaps(Mutex::new(client, room.dir()).lock()).await else {
            return;
        };
        room.beliefs.entered(me, &guard, Among::Nobody);
        room.grants.note(me, &guard, Wants::All);
        Holding { me, client, judge: &room.beliefs, among: Among::Nobody }.linger(&guard).await;
        room.grants.returns(&guard);
        drop(me.perhaps(guard.release()).await);
    }

    async fn hold(&self, guard: MultiGuard) {
        let (me, client) = (&self.me, &self.client);
        me.sometimes(ALL, true);
        for hold in guard.guards() {
            let room = self.room(hold);
            room.beliefs.entered(me, hold, Among::Nobody);
            room.grants.note(me, hold, Wants::All);
        }
        for hold in guard.guards() {
            let judge = &self.room(hold).beliefs;
            Holding { me, client, judge, among: Among::Nobody }.linger(hold).await;
        }
        let write = |txn: Txn, hold: &MutexGuard| {
            txn.set(self.room(hold).data(), hold.token().to_string(), Expect::Any)
        };
        let writes = guard.guards().iter().fold(guard.txn(), write);
        let written = me.perhaps(client.commit(writes)).await;
        me.sometimes(holding::LATE, matches!(&written, Some(Ok(it)) if it.rejected().is_some()));
        if me.pick(3) == 0 {
            return drop(guard);
        }
        for hold in guard.guards() {
            self.room(hold).grants.returns(hold);
        }
        drop(me.perhaps(guard.release()).await);
    }

    /// L-X-3: a process that did not get all locks holds none after a short time.
    async fn check_has_none(&self, both: [usize; 2]) {
        self.me.sometimes(NONE, true);
        let before = self.me.harmed();
        let Ok(session) = self.client.session().await else { return };
        for place in both {
            let Ok(view) = session.read(Query::children(self.rooms[place].dir())).await else {
                return;
            };
            let own =
                |node: &Node| node.stat.and_then(|stat| stat.owner) == Some(session.info().id);
            // A ticket that was held before, and whose guard was dropped, may still exist.
            let grants = &self.rooms[place].grants;
            let some = view.nodes.iter().any(|node| own(node) && !grants.was_in(node));
            // After a fault a ticket may be removed later.
            if some && before == 0 {
                let dir = self.rooms[place].dir();
                self.me.wrong("L-X-3", || format!("a try got not all, and has something in {dir}"));
            }
        }
    }

    fn room(&self, hold: &MutexGuard) -> &Room {
        let dir = hold.path().parent();
        self.rooms.iter().find(|room| Some(room.dir()) == dir).expect("it is one of these")
    }

    fn pick(&self) -> usize {
        usize::try_from(self.me.pick(LOCKS.len() as u64)).unwrap_or(0)
    }
}
