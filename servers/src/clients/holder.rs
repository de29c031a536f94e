//! The process of a contender that requests locks repeatedly, and reports the locks that it holds.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{Backend, Expect};
use synod_recipes::election::LeaderLatch;
use synod_recipes::lock::{Mutex, RwLock, Semaphore};
use synod_recipes::{Held, Release};
use tokio::time::sleep;

use crate::clients::crowd::Crowd;
use crate::clients::entry::{What, now};
use crate::clients::holding::{Ending, Holding, Room};
use crate::clients::report::{GLANCE, GLANCES, report};

/// The minimum time for which a lock is held, and the maximum additional time, in milliseconds.
const STAY: (u64, u64) = (150, 250);
/// The maximum pause before the next request, in milliseconds.
const REST: u64 = 60;

synod_core::mistakes! {
    /// A mistake of a client.
    pub enum Lapse {
        RemembersYes = "checks only once that it holds a lock",
        PutsAgain = "puts an item again when the effect of its put is unknown",
        WritesFirst = "writes the result of the work on an item, and then acknowledges it",
    }
}

/// All contenders of a process, with one client.
pub(crate) struct Holders {
    p: usize,
    lapse: Option<Lapse>,
    crowd: Crowd,
}

impl Holders {
    pub(crate) fn new(p: usize, backend: Arc<dyn Backend>, lapse: Option<Lapse>) -> Self {
        Self { p, lapse, crowd: Crowd::new(backend) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.crowd.is_empty()
    }

    /// Adds one more contender.
    pub(crate) async fn stand(
        &mut self,
        room: Room,
        path: Path,
        data: Path,
        ttl: Duration,
    ) -> Result<()> {
        let client = self.crowd.client(ttl).await?;
        let (p, lapse, random) = (self.p, self.lapse, Random::from_system());
        let holder = Holder { p, lapse, room, path, data, client, random };
        self.crowd.add(async move { holder.rounds().await });
        Ok(())
    }

    /// Stops all contenders, and closes the client.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        self.crowd.leave().await
    }
}

/// One contender.
struct Holder {
    p: usize,
    lapse: Option<Lapse>,
    room: Room,
    path: Path,
    data: Path,
    client: Client,
    random: Random,
}

impl Holder {
    async fn rounds(&self) {
        loop {
            // After any failure it tries again.
            let _held = self.round().await.is_ok();
            sleep(Duration::from_millis(self.random.below(REST))).await;
        }
    }

    async fn round(&self) -> Result<()> {
        let (client, path, all) = (&self.client, self.path.clone(), self.room.shares());
        match self.room {
            Room::Mutex => self.stay(Mutex::new(client, path).lock().await?, all).await,
            Room::RwLock if self.random.below(2) == 0 => {
                self.stay(RwLock::new(client, path).read().await?, 1).await
            }
            Room::RwLock => self.stay(RwLock::new(client, path).write().await?, all).await,
            Room::Semaphore => {
                let permits = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
                let wanted = permits(if self.random.below(2) == 0 { 1 } else { all });
                let pool = Semaphore::new(client, path, permits(all));
                self.stay(pool.acquire_many(wanted.get()).await?, wanted.get()).await
            }
            Room::Latch => {
                let candidacy = LeaderLatch::new(client, path).join().await?;
                let lead = candidacy.leading().await?;
                self.hold(&lead, all, || candidacy.is_leader()).await;
                drop(lead);
                candidacy.close().await
            }
        }
    }

    /// Holds for a while, and releases.
    async fn stay(&self, guard: impl Release, share: u32) -> Result<()> {
        self.hold(&guard, share, || guard.is_held()).await;
        guard.release().await
    }

    /// Holds for a while, and then until a server has answered; checks repeatedly that the lock is
    /// still held, and writes under the guard first and last.
    async fn hold(&self, held: &dyn Held, share: u32, is_held: impl Fn() -> bool) {
        let holding = Holding {
            room: self.room,
            path: self.path.to_string(),
            share,
            token: held.token().revision().get(),
            asked: 0,
            since: 0,
            certain: 0,
            end: None,
        };
        let writes = share == self.room.shares() || !self.room.writers_are_alone();
        let over = AtomicBool::new(false);
        let working = async {
            let refused = self.work(held, writes).await;
            over.store(true, Ordering::Relaxed);
            refused
        };
        let believing = self.believe(holding, is_held, &over);
        let (refused, (mut holding, lost)) = join(working, believing).await;
        holding.end = Some(match (lost, refused) {
            (_, true) => Ending::Refused,
            (true, false) => Ending::Lost,
            (false, false) => Ending::Over,
        });
        self.report(&holding);
    }

    /// Returns `true` if the last write was rejected. If that is uncertain because the session
    /// ended meanwhile, the next write shows it. A holder with the planted mistake ignores a
    /// missing answer, and tries again.
    async fn work(&self, held: &dyn Held, writes: bool) -> bool {
        let stay = sleep(Duration::from_millis(STAY.0 + self.random.below(STAY.1)));
        if writes {
            join(stay, self.write(held)).await;
            let tries = if self.lapse == Some(Lapse::RemembersYes) { usize::MAX } else { 2 };
            let mut written = self.write(held).await;
            for _ in 1..tries {
                if written.is_some() {
                    break;
                }
                sleep(GLANCE).await;
                written = self.write(held).await;
            }
            written == Some(false)
        } else {
            stay.await;
            let _answered = self.client.get(&self.data).await.is_ok();
            false
        }
    }

    /// Reports that the lock is held, until that ends. Returns `true` if it ended before the
    /// planned time.
    async fn believe(
        &self,
        mut holding: Holding,
        is_held: impl Fn() -> bool,
        over: &AtomicBool,
    ) -> (Holding, bool) {
        let (mut looks, mut believed, mut lost) = (0, false, false);
        loop {
            let asked = now();
            let remembered = believed && self.lapse == Some(Lapse::RemembersYes);
            let held = remembered || is_held();
            let answered = now();
            if held && !believed {
                (holding.asked, holding.since, holding.end) = (asked, answered, None);
            }
            if held {
                holding.certain = asked;
            } else {
                (lost, holding.end) = (true, Some(Ending::Lost));
            }
            looks += 1;
            if held != believed || held && looks >= GLANCES {
                looks = 0;
                self.report(&holding);
            }
            believed = held;
            // Checked until the end, so that it is not reported again.
            if over.load(Ordering::Relaxed) {
                return (holding, lost);
            }
            sleep(GLANCE).await;
        }
    }

    /// Writes the node that only the holder may write. `Some` with the success of the write.
    async fn write(&self, held: &dyn Held) -> Option<bool> {
        let token = held.token().revision().get().to_string();
        let write = held.txn().set(self.data.clone(), token, Expect::Any);
        let written = self.client.commit(write).await.ok()?;
        Some(written.is_committed())
    }

    fn report(&self, holding: &Holding) {
        // A lock that was never held is not reported.
        if holding.since > 0 {
            report(self.p, None, None, What::Holding { holding: holding.clone() });
        }
    }
}
