//! [`Process`]: what the function of a process is given.

use std::sync::Arc;
use std::time::Duration;

use synod_core::chance::Chance;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock;
use synod_core::error::Result;
use synod_core::store::{Backend, SessionOptions};
use synod_core::sweep::stop_at;
use synod_mem::cluster::{Cluster, Site, What};

use crate::findings::Findings;

/// A process of a simulation, as its own function has it. Clones are the same process.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) actor: u64,
    pub(crate) name: Arc<str>,
    pub(crate) life: u32,
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    pub(crate) cluster: Cluster,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) findings: Findings,
}

impl Process {
    /// Opens a client on the simulated store.
    ///
    /// # Errors
    ///
    /// As [`Client::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::open`].
    pub async fn client(&self) -> Result<Client> {
        Client::open(self.backend(), self.options()).await
    }

    /// The options of [`Process::client`], for whoever wants others.
    pub fn options(&self) -> ClientOptions {
        let lives = u64::from(self.life) << 32;
        ClientOptions::default()
            .session(SessionOptions::new(self.ttl))
            .deadline(self.ttl * 3)
            .connect_deadline(self.ttl * 5)
            .chance(Chance::seeded(self.seed).fork(self.actor ^ lives))
    }

    /// The simulated store, as this process reaches it.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of the processes it is, from 1.
    pub fn number(&self) -> u64 {
        self.actor
    }

    /// How often it died and was started again.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The time to live of its sessions.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A number below `n`: the same for the same seed.
    pub fn pick(&self, n: u64) -> u64 {
        self.cluster.with_dice(|dice| dice.pick(Site::Step, self.actor, n))
    }

    /// Does nothing for up to so long.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn rest(&self, most: Duration) {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        clock::sleep(Duration::from_millis(self.pick(millis.saturating_add(1)))).await;
    }

    /// Runs a call, or drops it at one of its awaits if that is what goes wrong. `None` if it was
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the call.
    pub async fn perhaps<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let k = self.cluster.with_dice(|dice| dice.fires(Site::CallDropped, self.actor, 8));
        match k {
            Some(k) => {
                self.cluster.tell(self.actor, What::Fault, 0, || Site::CallDropped.to_string());
                stop_at(usize::try_from(k).unwrap_or(1), call).await
            }
            None => Some(call.await),
        }
    }

    /// Does something else for a while, if that is what goes wrong.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn dawdle(&self) {
        let slow = |dice: &mut synod_mem::cluster::Dice| {
            dice.lasting(Site::SlowReader, self.actor, self.ttl * 2)
        };
        if let Some(slow) = self.cluster.with_dice(slow) {
            self.cluster.tell(self.actor, What::Fault, 0, || Site::SlowReader.to_string());
            clock::sleep(slow).await;
        }
    }

    /// What must be true now, and always.
    pub fn always(&self, sentence: &str, is: bool) {
        if !is {
            self.wrong(sentence, || "it was not so".to_owned());
        }
    }

    /// What should be true now in some histories: otherwise they test less than they seem to.
    pub fn sometimes(&self, mark: &'static str, is: bool) {
        self.findings.mark(mark, is);
    }

    /// A law, by its id or in words, is broken.
    pub fn wrong(&self, law: &str, what: impl FnOnce() -> String) {
        let what = what();
        self.note(|| format!("WRONG: {what}"));
        self.findings.wrong(law, what, self.cluster.age(), self.actor);
    }

    /// Says something in the trace.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.cluster.tell(self.actor, What::Note, 0, text);
    }

    /// How long the simulation runs, by a clock that is right.
    pub fn age(&self) -> Duration {
        self.cluster.age()
    }
}
