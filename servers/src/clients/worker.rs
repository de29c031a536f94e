//! The process of a client: executes its input, line by line, and reports the results.

use std::io::{self, BufRead as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};
use synod_core::error::{Effect, Error, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Change, Commit, End, Event, Expect, Lifetime, Node, Outcome, Query, SessionOptions,
    Status, Store, Txn, Version, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::clients::entry::{Answer, Kind, Op, Seen, Told, What, now};
use crate::clients::holder::{Holders, Lapse};
use crate::clients::posts::Posts;
use crate::clients::report::{GLANCE, GLANCES, ends_with_a_panic, report};

#[cfg(test)]
mod tests;

/// The input of a process: a call, and its number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "both sides are here")]
pub struct Order {
    /// Identifies its answer.
    pub id: u64,
    /// The operation.
    #[serde(flatten)]
    pub op: Op,
}

/// The maximum number of creates of a ticket when answers are lost.
const DRAWS: usize = 5;

/// Executes the input until it ends, as process number `p`. The process makes this mistake in locks
/// and recipes.
///
/// # Errors
///
/// If no runtime can be made.
pub fn run(p: usize, backend: Arc<dyn Backend>, lapse: Option<Lapse>) -> io::Result<()> {
    ends_with_a_panic(p);
    let (orders, incoming) = mpsc::unbounded_channel();
    let _reading = std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            let Ok(order) = serde_json::from_str::<Order>(&line) else { return };
            if orders.send(order).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let holders = Holders::new(p, backend.clone(), lapse);
    let posts = Posts::new(p, backend.clone(), lapse);
    let worker = Worker { p, backend, session: None, holders, posts, tasks: Vec::new() };
    runtime.block_on(worker.work(incoming));
    runtime.shutdown_background();
    Ok(())
}

struct Worker {
    p: usize,
    backend: Arc<dyn Backend>,
    session: Option<Session>,
    holders: Holders,
    posts: Posts,
    tasks: Vec<Task>,
}

/// A session, and the origin of its reports.
#[derive(Clone)]
struct Session {
    p: usize,
    id: u64,
    store: Arc<dyn Store>,
}

impl Worker {
    async fn work(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(Order { id, op }) = orders.recv().await {
            self.tasks.retain(|task| !task.is_finished());
            match op {
                Op::Exit => return,
                Op::Ping => report(self.p, None, Some(id), What::Ok { answer: Answer::default() }),
                Op::Open { ttl } => self.open(id, ttl).await,
                Op::Stand { room, path, data, ttl } => {
                    let op = Op::Stand { room, path: path.clone(), data: data.clone(), ttl };
                    report(self.p, None, Some(id), What::Inv { op });
                    let (path, data, ttl) = (at(&path), at(&data), Duration::from_millis(ttl));
                    let stands = self.holders.stand(room, path, data, ttl).await;
                    self.end(id, stands);
                }
                Op::Serve { part, path, first, count, ttl } => {
                    let op = Op::Serve { part, path: path.clone(), first, count, ttl };
                    report(self.p, None, Some(id), What::Inv { op });
                    let ttl = Duration::from_millis(ttl);
                    let serves = self.posts.add(part, at(&path), (first, count), ttl).await;
                    self.end(id, serves);
                }
                Op::Close if !self.posts.is_empty() => {
                    report(self.p, None, Some(id), What::Inv { op: Op::Close });
                    let left = self.posts.leave().await;
                    self.end(id, left);
                }
                Op::Close if !self.holders.is_empty() => {
                    let left = self.holders.leave().await;
                    self.end(id, left);
                }
                op => {
                    if let Some(session) = &self.session {
                        self.tasks.push(spawn(session.clone().call(id, op)));
                    } else {
                        let why = "no session was opened".to_owned();
                        report(self.p, None, Some(id), What::Fail { why });
                    }
                }
            }
        }
    }

    fn end(&self, id: u64, result: Result<()>) {
        let what = match result {
            Ok(()) => What::Ok { answer: Answer::default() },
            Err(error) => failed(&error),
        };
        report(self.p, None, Some(id), what);
    }

    async fn open(&mut self, id: u64, ttl: u64) {
        report(self.p, None, Some(id), What::Inv { op: Op::Open { ttl } });
        let options = SessionOptions::new(Duration::from_millis(ttl));
        match self.backend.open(&options).await {
            Ok(store) => {
                let session =
                    Session { p: self.p, id: store.session().id.get(), store: Arc::from(store) };
                let ttl = u64::try_from(session.store.session().ttl.as_millis()).ok();
                let answer = Answer { ttl, ..Answer::default() };
                report(self.p, Some(session.id), Some(id), What::Ok { answer });
                let status = session.store.status();
                self.tasks.push(spawn(believe(self.p, session.id, status)));
                self.session = Some(session);
            }
            Err(error) => report(self.p, None, Some(id), failed(&error)),
        }
    }
}

impl Session {
    async fn call(self, id: u64, op: Op) {
        self.report(id, What::Inv { op: op.clone() });
        let what = match self.answer(id, &op).await {
            Ok(answer) => What::Ok { answer },
            Err(error) => failed(&error),
        };
        self.report(id, what);
    }

    fn report(&self, id: u64, what: What) {
        report(self.p, Some(self.id), Some(id), what);
    }

    async fn answer(&self, id: u64, op: &Op) -> Result<Answer> {
        match op {
            Op::Close => self.store.close().await.map(|()| Answer::default()),
            Op::Create { path, value, ephemeral } => {
                let txn = Txn::new().create(at(path), value.to_string(), lifetime(*ephemeral));
                self.write(txn).await
            }
            Op::Ticket { path, value, ephemeral } => {
                let txn = || {
                    let (path, value) = (at(path), value.to_string());
                    Txn::new().create_sequential(path, value, lifetime(*ephemeral))
                };
                self.draw(&at(path), txn).await
            }
            Op::Set { path, value } => {
                self.write(Txn::new().set(at(path), value.to_string(), Expect::Any)).await
            }
            Op::Cas { path, version, value, .. } => {
                let expect = Expect::Version(Version::new(*version));
                self.write(Txn::new().set(at(path), value.to_string(), expect)).await
            }
            Op::Delete { path } => self.write(Txn::new().delete(at(path), Expect::Any)).await,
            Op::Read { path, local } => self.read(Query::node(at(path)), *local).await,
            Op::List { path, local } => self.read(Query::children(at(path)), *local).await,
            Op::Observe { path } => {
                let query = Query::children(at(path));
                let (view, watch) = self.store.watch(query.clone()).await?;
                spawn(self.clone().listen(id, query, watch)).let_go();
                Ok(shown(&view))
            }
            Op::Open { .. } | Op::Stand { .. } | Op::Serve { .. } | Op::Exit | Op::Ping => {
                unreachable!("these are for the process")
            }
        }
    }

    async fn read(&self, query: Query, local: bool) -> Result<Answer> {
        let query = if local { query.local() } else { query };
        self.store.read(query).await.map(|view| shown(&view))
    }

    async fn write(&self, txn: Txn) -> Result<Answer> {
        Ok(match self.store.commit(txn).await? {
            Outcome::Committed(commit) => done(&commit),
            Outcome::Rejected(no) => {
                Answer { refused: Some(format!("{:?}", no.reason)), ..Answer::default() }
            }
        })
    }

    /// As the contract requires, searches for the node of an unanswered create before the create is
    /// repeated.
    async fn draw(&self, path: &Path, txn: impl Fn() -> Txn) -> Result<Answer> {
        let mut unsure = match self.write(txn()).await {
            Err(error) if error.effect() == Effect::Unknown => error,
            certain => return certain,
        };
        for _ in 1..DRAWS {
            // Without an answer to the read, the effect is still unknown.
            let Ok(found) = self.drawn_at(path).await else { break };
            if let Some(found) = found {
                return Ok(found);
            }
            match self.write(txn()).await {
                // Possibly by the node that the previous create made after the read.
                Ok(answer) if answer.refused.is_some() => {
                    let Ok(found) = self.drawn_at(path).await else { break };
                    return Ok(found.unwrap_or(answer));
                }
                Ok(answer) => return Ok(answer),
                // This create had no effect. The previous one may still be applied.
                Err(error) if error.effect() == Effect::None => {
                    return Err(error.with_unknown_effect());
                }
                Err(error) => unsure = error,
            }
        }
        Err(unsure)
    }

    /// Returns the ticket of this path, if it exists.
    async fn drawn_at(&self, path: &Path) -> Result<Option<Answer>> {
        let directory = path.parent().expect("a ticket is in a directory");
        let there = self.read(Query::children(&directory), false).await?.nodes;
        let own = there.into_iter().find(|node| node.path.starts_with(path.as_str()));
        Ok(own.map(|node| Answer { nodes: vec![node], ..Answer::default() }))
    }

    /// Reports the events of a watch, and the result of a read when it may have missed an event.
    async fn listen(self, id: u64, query: Query, mut watch: Watch) {
        while let Some(event) = watch.next().await {
            let told = match event {
                Event::Changed(change) => match changed(&change) {
                    Some(told) => told,
                    None => Told::Resync,
                },
                Event::Resync => Told::Resync,
                Event::Ended(End::Failed(_)) => Told::Failed,
                Event::Ended(_) => Told::Ended,
            };
            let again = told == Told::Resync;
            self.report(id, What::Event { told });
            while again && !self.store.status().borrow().is_lost() {
                if let Ok(view) = self.store.read(query.clone()).await {
                    let nodes = shown(&view).nodes;
                    self.report(id, What::Event { told: Told::View { nodes } });
                    break;
                }
                sleep(GLANCE * GLANCES).await;
            }
        }
    }
}

/// Checks the status of the session repeatedly, and reports it.
async fn believe(p: usize, session: u64, mut status: watch::Receiver<Status>) {
    let (mut reported, mut looks, mut certain) = (String::new(), 0, None);
    loop {
        let (t, status_now) = (now(), *status.borrow_and_update());
        let sure = status_now.is_certain();
        if sure {
            certain = Some(t);
        }
        let name = match status_now {
            Status::Live { .. } => "live",
            Status::Suspended { .. } => "suspended",
            Status::Lost { .. } => "lost",
        };
        looks += 1;
        if name != reported || looks >= GLANCES {
            (reported, looks) = (name.to_owned(), 0);
            let what = What::Belief { status: reported.clone(), certain };
            report(p, Some(session), None, what);
        }
        let lost = status_now.is_lost();
        // It must stay lost, which is checked from time to time.
        let pause = if lost { GLANCE * GLANCES } else { GLANCE };
        match select(pin!(sleep(pause)), pin!(status.changed())).await {
            // The sender is gone.
            Either::Right((Err(_), _)) => return,
            _ => looks = if lost { 0 } else { looks },
        }
    }
}

fn failed(error: &Error) -> What {
    let why = format!("{:?}: {error}", error.kind());
    match error.effect() {
        Effect::None => What::Fail { why },
        Effect::Unknown => What::Info { why },
    }
}

fn at(path: &str) -> Path {
    Path::new(path).expect("orders name valid paths")
}

fn lifetime(ephemeral: bool) -> Lifetime {
    if ephemeral { Lifetime::Session } else { Lifetime::Persistent }
}

fn done(commit: &Commit) -> Answer {
    let nodes = commit.results.iter().map(|done| {
        let mut node = Node::new(done.path.clone()).with_sequence(done.sequence);
        node.stat = done.stat;
        seen_of(&node)
    });
    let stat = commit.results.first().and_then(|done| done.stat);
    let revision = commit.revision.or(stat.map(|stat| stat.modified));
    Answer {
        revision: revision.map(synod_core::store::Revision::get),
        nodes: nodes.collect(),
        ..Answer::default()
    }
}

fn shown(view: &View) -> Answer {
    let nodes = view.nodes.iter().filter(|node| node.stat.is_some());
    Answer { nodes: nodes.map(seen_of).collect(), ..Answer::default() }
}

fn seen_of(node: &Node) -> Seen {
    let stat = node.stat;
    Seen {
        path: node.path.to_string(),
        value: std::str::from_utf8(&node.data).ok().and_then(|text| text.parse().ok()),
        version: stat.map_or(0, |stat| stat.version.get()),
        created: stat.map_or(0, |stat| stat.created.get()),
        modified: stat.map_or(0, |stat| stat.modified.get()),
        sequence: node.sequence.map(synod_core::store::Sequence::get),
        owner: stat.and_then(|stat| stat.owner).map(synod_core::store::SessionId::get),
    }
}

/// Returns `None` for an event that only reports that a change happened.
fn changed(change: &Change) -> Option<Told> {
    let kind = match change.kind {
        synod_core::store::Kind::Created => Kind::Created,
        synod_core::store::Kind::Updated => Kind::Updated,
        synod_core::store::Kind::Deleted => Kind::Deleted,
        _ => return None,
    };
    let revision = change.revision.map(synod_core::store::Revision::get);
    Some(Told::Changed { path: change.path.to_string(), kind, revision })
}
