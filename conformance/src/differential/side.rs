//! [`Side`]: one of the compared stores, and the execution of a program's calls on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{
    Backend, Expect, Lifetime, Op, Query, SessionId, SessionOptions, Status, Store, Txn, Version,
    Watch,
};
use tokio::time::timeout;

use crate::differential::model::{Model, bytes};
use crate::differential::neutral::{Told, Translate};
use crate::differential::program::{Act, Ask, Life, Reach, SESSIONS, Step, TICKET, Verb, Wish};
use crate::harness::{Harness, Profile};

/// The state of one store during a program.
#[derive(Debug)]
pub(crate) struct Side {
    number: usize,
    harness: Arc<dyn Harness>,
    backend: Arc<dyn Backend>,
    pub(crate) profile: Profile,
    /// The program's sessions, and a session that reads when they have ended.
    sessions: Vec<Arc<dyn Store>>,
    pub(crate) translate: Translate,
    pub(crate) watches: Vec<Watch>,
}

impl Side {
    pub(crate) async fn new(number: usize, harness: Arc<dyn Harness>) -> Self {
        let (backend, profile) = (harness.backend(), harness.profile());
        let translate = Translate::new(Path::root());
        let (sessions, watches) = (Vec::new(), Vec::new());
        let mut side = Self { number, harness, backend, profile, sessions, translate, watches };
        for _ in 0..=SESSIONS {
            let session = side.open().await;
            side.sessions.push(session);
        }
        side
    }

    async fn open(&self) -> Arc<dyn Store> {
        let options = SessionOptions::new(self.profile.ttl);
        let opened = self.in_time(self.backend.open(&options)).await;
        let store = opened.expect("a session is opened in time").expect("a session is opened");
        Arc::from(store)
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        timeout(self.profile.patience + self.profile.ttl, work).await.ok()
    }

    /// Prepares for a program: a new directory, and sessions that are alive.
    pub(crate) async fn begin(&mut self, random: &Random, afresh: bool) {
        for who in 0..self.sessions.len() {
            if afresh || self.sessions[who].status().borrow().is_lost() {
                if afresh {
                    let _ended = self.in_time(self.sessions[who].close()).await;
                }
                self.sessions[who] = self.open().await;
            }
        }
        let dir = format!("/synod-differential/{}", random.id());
        self.translate = Translate::new(Path::new(&dir).expect("valid"));
        self.translate.owners = self.owners();
        self.watches.clear();
    }

    fn owners(&self) -> BTreeMap<SessionId, usize> {
        let ids = self.sessions.iter().map(|session| session.session().id);
        ids.enumerate().map(|(who, id)| (id, who)).collect()
    }

    /// Performs a step, and returns its result.
    pub(crate) async fn perform(&mut self, step: &Step, model: &Model) -> Told {
        match self.answer(step, model).await {
            Some(told) => told,
            None => Told::Nothing { within: self.profile.patience + self.profile.ttl },
        }
    }

    async fn answer(&mut self, step: &Step, model: &Model) -> Option<Told> {
        let store = self.sessions[step.who()].clone();
        match step {
            Step::Commit { acts, look, .. } => {
                let txn = self.txn(acts, look.as_ref(), model);
                let outcome = self.in_time(store.commit(txn)).await?;
                Some(self.translate.outcome(outcome, acts))
            }
            Step::Read { ask, .. } => {
                let view = self.in_time(store.read(self.query(ask, model))).await?;
                Some(self.translate.view(view))
            }
            Step::Observe { ask, .. } => {
                let observed = self.in_time(store.watch(self.query(ask, model))).await?;
                Some(match observed {
                    Ok((view, watch)) => {
                        self.watches.push(watch);
                        self.translate.view(Ok(view))
                    }
                    Err(error) => Told::failed(&error),
                })
            }
            Step::Close { .. } => match self.in_time(store.close()).await? {
                Ok(()) => self.loss(&store).await,
                Err(error) => Some(Told::failed(&error)),
            },
            Step::Expire { .. } => {
                // A session that has ended cannot be expired.
                if !store.status().borrow().is_lost() {
                    self.in_time(self.harness.expire(store.session().id)).await?;
                }
                self.loss(&store).await
            }
        }
    }

    async fn loss(&self, store: &Arc<dyn Store>) -> Option<Told> {
        let mut status = store.status();
        let lost = async {
            loop {
                if let Status::Lost { reason } = *status.borrow_and_update() {
                    return Told::Over(reason);
                }
                if status.changed().await.is_err() {
                    return Told::Vanished;
                }
            }
        };
        self.in_time(lost).await
    }

    /// The remaining tree.
    pub(crate) async fn tree(&self) -> Told {
        let query = Query::subtree(self.translate.dir.clone());
        match self.in_time(self.sessions[SESSIONS].read(query)).await {
            Some(view) => self.translate.view(view),
            None => Told::Nothing { within: Duration::ZERO },
        }
    }

    fn txn(&self, acts: &[Act], look: Option<&Ask>, model: &Model) -> Txn {
        let txn = acts.iter().fold(Txn::new(), |txn, act| txn.op(self.op(act, model)));
        match look {
            Some(ask) => txn.look(self.query(ask, model)),
            None => txn,
        }
    }

    fn op(&self, act: &Act, model: &Model) -> Op {
        let path = match act.verb {
            // A path that no other call uses.
            Verb::Draw { .. } => self.translate.asked(&act.place),
            _ => self.translate.path(&act.place),
        };
        let expect = |wish| self.expect(&act.place, wish, model);
        match act.verb {
            Verb::Create { data, life } => {
                let (data, lifetime) = (bytes(data), lifetime(life));
                Op::Create { path, data, lifetime, sequential: false }
            }
            Verb::Draw { data, life } => {
                let (data, lifetime) = (bytes(data), lifetime(life));
                Op::Create { path, data, lifetime, sequential: true }
            }
            Verb::Set { data, wish } => Op::Set { path, data: bytes(data), expect: expect(wish) },
            Verb::Delete { wish } => Op::Delete { path, expect: expect(wish) },
            Verb::Check { wish } => Op::Check { path, expect: expect(wish) },
        }
    }

    fn expect(&self, place: &str, wish: Wish, model: &Model) -> Expect {
        let known = |back| model.version(place, back).map(|versions| versions[self.number]);
        let version = match wish {
            Wish::Any => return Expect::Any,
            Wish::Absent => return Expect::Absent,
            Wish::Known => known(0),
            Wish::Stale => known(1),
            Wish::Never => None,
        };
        Expect::Version(version.unwrap_or(Version::new(u64::MAX)))
    }

    fn query(&self, ask: &Ask, model: &Model) -> Query {
        let path = self.translate.path(&ask.place);
        let line = || Query::children(path.clone()).starting_with(TICKET);
        let query = match &ask.reach {
            Reach::Node => Query::node(path),
            Reach::Children { prefix } => Query::children(path).starting_with(*prefix),
            Reach::Subtree => Query::subtree(path),
            Reach::Oldest(count) => line().oldest(*count),
            Reach::Newest(count) => line().newest(*count),
            Reach::NewestBefore(count, ticket) => match model.sequences(ticket) {
                Some(sequences) => line().newest_before(*count, sequences[self.number]),
                None => line().newest(*count),
            },
        };
        let query = if ask.names_only { query.names_only() } else { query };
        if ask.local { query.local() } else { query }
    }
}

fn lifetime(life: Life) -> Lifetime {
    match life {
        Life::Persistent => Lifetime::Persistent,
        Life::Session => Lifetime::Session,
        Life::Container => Lifetime::Container,
        Life::Hour => Lifetime::Ttl(Duration::from_secs(3_600)),
    }
}
