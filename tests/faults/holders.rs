//! Holders of locks, permits and the lead that are killed, paused or cut off, and faults of the
//! servers.

use std::sync::Arc;
use std::time::Duration;

use synod_conformance::harness::Link;
use synod_servers::clients::client::End;
use synod_servers::clients::entry::{Installed, Op, What, now};
use synod_servers::clients::holding::{Ending, Holding, Room};
use tokio::time::sleep;

use crate::scene::{Actor, Scene, TTL, at, eventually};

/// The number of processes in each wait queue.
const HOLDERS: usize = 3;

/// Processes that contend for a lock of each kind, and an observer.
pub(crate) struct Company {
    bob: Arc<Actor>,
    holders: Vec<Arc<Actor>>,
}

/// The name of a room, as a part of paths.
fn name(room: Room) -> String {
    format!("{room:?}").to_lowercase()
}

impl Company {
    pub(crate) async fn gather(scene: &mut Scene) -> Self {
        let bob = scene.client().await;
        for room in Room::ALL {
            bob.done(bob.create(&format!("data/{}", name(room)))).await;
        }
        let mut company = Self { bob, holders: Vec::new() };
        for _ in 0..HOLDERS {
            company.join(scene).await;
        }
        company.all_go_on(scene).await;
        company
    }

    /// The processes that contend.
    pub(crate) fn holders(&self) -> &[Arc<Actor>] {
        &self.holders
    }

    /// Adds a process.
    async fn join(&mut self, scene: &mut Scene) {
        let ann = scene.process();
        for room in Room::ALL {
            let ttl = u64::try_from(TTL.as_millis()).expect("short");
            let (path, data) = (line(room), at(&format!("data/{}", name(room))));
            ann.done(Op::Stand { room, path, data, ttl }).await;
        }
        self.holders.push(ann);
    }

    /// Waits until some process holds the lock, and has held it only for a short time.
    async fn holder(&self, scene: &Scene, room: Room) -> Arc<Actor> {
        let mut holder = None;
        eventually(&format!("a client holds the {room:?}"), async || {
            holder = self.holders.iter().find(|ann| has_just_entered(scene, ann, room)).cloned();
            holder.is_some()
        })
        .await;
        holder.expect("it was waited for")
    }

    /// Injects a fault into a process while it holds.
    pub(crate) async fn catch(
        &self,
        scene: &Scene,
        room: Room,
        catch: impl Fn(&Actor),
        spare: impl Fn(&Actor),
    ) -> Arc<Actor> {
        loop {
            let ann = self.holder(scene, room).await;
            catch(&ann);
            if was_caught(scene, &ann, room).await {
                return ann;
            }
            spare(&ann);
        }
    }

    /// Waits until the other processes have held every lock.
    async fn others_go_on(&self, scene: &Scene, without: &Actor) {
        let since = now();
        let others =
            || self.holders.iter().filter(|ann| ann.client.number() != without.client.number());
        for room in Room::ALL {
            eventually(&format!("others hold the {room:?}"), async || {
                others().any(|ann| entered(scene, ann, room, since))
            })
            .await;
        }
    }

    /// Waits until each process has held each lock once more.
    pub(crate) async fn all_go_on(&self, scene: &Scene) {
        let since = now();
        for ann in &self.holders {
            for room in Room::ALL {
                let what = format!("{} holds the {room:?}", ann.client.number());
                eventually(&what, async || entered(scene, ann, room, since)).await;
            }
        }
    }

    /// All processes leave; then no ticket must remain.
    pub(crate) async fn leave(&self) {
        for ann in &self.holders {
            match ann.call(Op::Close).await {
                End::Ok(_) => {}
                other => panic!("{other:?}"),
            }
        }
        for room in Room::ALL {
            let list = || Op::List { path: line(room), local: false };
            eventually(&format!("no client waits for the {room:?}"), async || {
                self.bob.insists(list).await.nodes.is_empty()
            })
            .await;
        }
    }
}

fn line(room: Room) -> String {
    at(&format!("lines/{}", name(room)))
}

/// Its last report.
fn last(scene: &Scene, ann: &Actor, room: Room) -> Option<Holding> {
    let number = ann.client.number();
    scene.book.last(|entry| match &entry.what {
        What::Holding { holding } if entry.p == number && holding.room == room => {
            Some(holding.clone())
        }
        _ => None,
    })
}

fn has_just_entered(scene: &Scene, ann: &Actor, room: Room) -> bool {
    /// A time shorter than the time for which a process holds, in nanoseconds.
    const SHORTLY: u64 = 60_000_000;

    let young = |holding: &Holding| holding.end.is_none() && now() - holding.since < SHORTLY;
    last(scene, ann, room).is_some_and(|holding| young(&holding))
}

/// Returns `true` if the fault took place while the process held, by its own reports until then.
async fn was_caught(scene: &Scene, ann: &Actor, room: Room) -> bool {
    sleep(Duration::from_millis(50)).await;
    last(scene, ann, room).is_some_and(|holding| holding.end.is_none())
}

fn entered(scene: &Scene, ann: &Actor, room: Room, since: u64) -> bool {
    last(scene, ann, room).is_some_and(|holding| holding.asked > since)
}

/// A process that was paused for longer than its session's TTL finds that it holds nothing, and its
/// write under the lost guard is rejected.
pub(crate) async fn stopped(scene: &mut Scene) {
    let company = Company::gather(scene).await;
    for room in Room::ALL {
        let stop = |ann: &Actor| ann.client.stop().expect("it runs");
        let go_on = |ann: &Actor| ann.client.go_on().expect("it stands still");
        let ann = company.catch(scene, room, stop, go_on).await;
        company.others_go_on(scene, &ann).await;
        go_on(&ann);
        company.all_go_on(scene).await;
    }
    let refused = scene.book.last(|entry| match &entry.what {
        What::Holding { holding } if holding.end == Some(Ending::Refused) => Some(()),
        _ => None,
    });
    assert!(refused.is_some(), "no write was refused that was made in the name of a lost hold");
    company.leave().await;
}

pub(crate) async fn killed(scene: &mut Scene) {
    let mut company = Company::gather(scene).await;
    let mut rooms = vec![Room::Latch, Room::Mutex];
    while let Some(room) = rooms.last() {
        let ann = company.holder(scene, *room).await;
        ann.client.kill().expect("it runs");
        if was_caught(scene, &ann, *room).await {
            rooms.pop();
        }
        company.holders.retain(|other| !Arc::ptr_eq(other, &ann));
        company.others_go_on(scene, &ann).await;
        company.join(scene).await;
        company.all_go_on(scene).await;
    }
    company.leave().await;
}

pub(crate) async fn cut_off(scene: &mut Scene) {
    let company = Company::gather(scene).await;
    for (room, link) in
        [(Room::Mutex, Link::Cut), (Room::Latch, Link::Deaf), (Room::Semaphore, Link::Cut)]
    {
        let ann = company
            .catch(scene, room, |ann| ann.pipe.set(link), |ann| ann.pipe.set(Link::Open))
            .await;
        let what = format!("{link:?} client {}", ann.client.number());
        scene.book.nemesis(what, Installed::Installed);
        company.others_go_on(scene, &ann).await;
        ann.pipe.set(Link::Open);
        company.all_go_on(scene).await;
    }
    company.leave().await;
}

pub(crate) async fn killed_server(scene: &mut Scene) {
    let company = Company::gather(scene).await;
    for _ in 0..2 {
        let leader = scene.leader().await;
        scene.kill(leader);
        sleep(TTL / 3).await;
        scene.restart(leader);
        scene.stand.servers.processes().await_ready().expect("it starts again");
        company.all_go_on(scene).await;
    }
    company.leave().await;
}

pub(crate) async fn paused_server(scene: &mut Scene) {
    let company = Company::gather(scene).await;
    // The sessions outlive the first pause, with their watches, and not the second.
    for lasts in [TTL / 3, TTL * 3 / 2] {
        let leader = scene.leader().await;
        scene.pause(leader);
        sleep(lasts).await;
        scene.resume(leader).await;
        company.all_go_on(scene).await;
    }
    company.leave().await;
}

/// The disk of the leader stalls for longer than the TTL of the sessions by its clock.
pub(crate) async fn stalled_server(scene: &mut Scene) {
    let company = Company::gather(scene).await;
    for _ in 0..2 {
        let leader = scene.leader().await;
        scene.stall(leader);
        sleep(TTL * 3 / 2).await;
        company.all_go_on(scene).await;
        scene.resume_disk(leader).await;
        company.all_go_on(scene).await;
    }
    company.leave().await;
}
