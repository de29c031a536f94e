//! [`Election`]: leaders with something to say, those who listen, and heirs.

use std::fmt;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::pending;
use futures_util::stream::unfold;

use crate::client::{Client, ClientWatch};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::line::hold::Hold;
use crate::line::order::{Queue, Standing};
use crate::line::standing::Contender;
use crate::line::{Form, Line};
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::store::{End, Event, Expect, Kind, Outcome, Query, Txn};

/// An election in which whoever leads proclaims a value, and everybody can observe the values.
///
/// At most one believes at any time that he leads, on the assumption of
/// [`Mutex`](crate::recipe::mutex::Mutex): no two clocks differ in rate by more than 1 %, and nobody acts on a check
/// that he made before he was paused. Who campaigned first leads first, unless a leader resigns in favour of
/// another; who observes is told of leaders in the order of their terms, and of the latest in the end.
///
/// *Not promised* is that an observer sees every value or every term, nor that a leader who was observed still
/// leads; nor that nobody acts too late: for that there are [`Hold::txn`] and [`Hold::token`].
///
/// # Others on the same path
///
/// On etcd, `etcdctl elect`; on ZooKeeper, Curator's `LeaderLatch`, whose values are its ids.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use std::pin::pin;
///
/// use futures_util::StreamExt as _;
/// use synod_core::recipe::election::Election;
///
/// # async fn example(client: Client) -> Result<()> {
/// let election = Election::new(&client, Path::new("/leaders/shard-3")?);
/// let leader = election.campaign("10.0.0.7:8080").await?;
/// leader.proclaim("10.0.0.7:9090").await?;
///
/// let mut values = pin!(election.observe());
/// let told = values.next().await.expect("it goes on")?;
/// assert_eq!(told.label, "10.0.0.7:9090");
/// leader.resign().await
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    client: Client,
    path: Path,
}

/// The lead. See [`Hold`].
pub type Leader = Hold<Elected>;

/// What a [`Leader`] can do besides.
pub struct Elected {
    line: Line,
}

/// How a candidate stands, as far as his heirs are concerned.
enum Heir {
    /// He is not in the line.
    Unknown,
    /// Whoever leads is not in the line himself any more.
    Orphaned,
    /// These stand between, nearest to the leader first.
    Behind(Vec<Path>),
}

/// Somebody who observes, between two values.
struct Observer {
    client: Client,
    path: Path,
    watch: Option<ClientWatch>,
    /// Who is looked at, if he is known to be the first.
    first: Option<Standing>,
    told: Option<Contender>,
    over: bool,
}

impl Election {
    /// The election at `path`.
    pub fn new(client: &Client, path: Path) -> Self {
        Self { client: client.clone(), path }
    }

    /// Waits for the lead. The value is shown of who waits, too, and is what he proclaims when he leads.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::recipe::mutex::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leader> {
        let line = self.line().labelled(value.into());
        let ticket = line.enter().await?;
        Ok(ticket.hold(Elected { line }))
    }

    /// The lead if nobody has it and nobody waits. Never waits, and leaves nothing if it gets nothing.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_campaign(&self, value: impl Into<Bytes>) -> Result<Option<Leader>> {
        let line = self.line().labelled(value.into());
        let entered = line.try_enter().await?;
        Ok(entered.map(|ticket| ticket.hold(Elected { line })))
    }

    /// Who is the first, with the value that he proclaims: he leads, or is about to.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.candidates().await?.into_iter().next())
    }

    /// All who stand, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn candidates(&self) -> Result<Vec<Contender>> {
        if !mutant::is(Mutant::VanishedIsError) {
            return self.line().standing().await;
        }
        let mut all = Vec::new();
        for one in self.line().standing().await? {
            let gone = || Error::new(ErrorKind::Refused, "reading a candidate").at(&one.path);
            self.client.get(&one.path).await?.ok_or_else(gone)?;
            all.push(one);
        }
        Ok(all)
    }

    /// The leaders and what they proclaim, from the one there is now on, across sessions. While nobody leads
    /// nothing is told. Values that follow each other closely may be told as the last of them. It ends with
    /// an error, when the client is closed or the store refuses.
    pub fn observe(&self) -> impl Stream<Item = Result<Contender>> + Send + use<> {
        let Self { client, path } = self.clone();
        let observer = Observer { client, path, watch: None, first: None, told: None, over: false };
        unfold(observer, |mut observer| async {
            if observer.over {
                return None;
            }
            let told = observer.next().await;
            observer.over = told.is_err();
            Some((told, observer))
        })
    }

    fn line(&self) -> Line {
        let form = Form::alone("election", "latch-").talking();
        Line::new(&self.client, self.path.clone(), form)
    }
}

impl Leader {
    /// Proclaims another value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if the lead was lost: nothing is proclaimed then. Otherwise as every verb of a
    /// [`Client`]; a value of unknown effect may be proclaimed again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has proclaimed it or has not.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<()> {
        let (path, value) = (self.path().clone(), value.into());
        let txn = Txn::new().set(path.clone(), value, Expect::Any);
        match self.stub.session().commit(txn).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Rejected(_) if mutant::is(Mutant::ProclaimsUnguarded) => Ok(()),
            Outcome::Rejected(_) => Err(Error::new(ErrorKind::SessionLost, "proclaiming")
                .at(&path)
                .because("the lead was lost before")),
        }
    }

    /// Gives the lead back: [`Hold::release`].
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.release().await
    }

    /// Gives the lead to the candidate whose node this is: [`Contender::path`] of one of
    /// [`Election::candidates`]. Whoever stands between them is sent behind everybody else, in whatever
    /// order. If the candidate does not stand any more, nothing happens and the lead is returned.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if a program of another kind stands between, which could not be told;
    /// [`ErrorKind::SessionLost`] if the lead was lost before; otherwise as every verb of a [`Client`]. In each case
    /// the lead is given up.
    ///
    /// # Cancel safety
    ///
    /// A dropped call gives up the lead, in favour of the candidate or not.
    pub async fn resign_to(self, candidate: &Path) -> Result<Option<Self>> {
        const AT_ONCE: usize = 40;
        let mut in_doubt = false;
        loop {
            let mut between = match heir(&self.kind.line.standing().await?, self.path(), candidate)
            {
                Heir::Unknown => return Ok(Some(self)),
                Heir::Orphaned if in_doubt => break,
                Heir::Orphaned => return Err(lost(self.path())),
                Heir::Behind(between) => between,
            };
            let strange = between.iter().find(|path| !path.name().starts_with("_c_"));
            if let Some(strange) = strange.filter(|_| !mutant::is(Mutant::StrangerSentBack)) {
                return Err(Error::new(ErrorKind::Refused, "resigning in favour of a candidate")
                    .at(strange)
                    .because("somebody of another kind stands between"));
            }
            // The last ones first, so that nobody but the heir comes to lead.
            let last = between.split_off(between.len().saturating_sub(AT_ONCE));
            let mut txn = self.stub.check(Txn::new());
            if between.is_empty() {
                txn = Txn::new().delete(self.path().clone(), Expect::Any);
            }
            if !mutant::is(Mutant::HeirByHope) {
                txn = last.into_iter().fold(txn, |txn, path| txn.delete(path, Expect::Any));
            }
            match self.stub.session().commit(txn).await {
                Ok(Outcome::Committed(_)) if between.is_empty() => break,
                // Somebody left meanwhile, or there are more.
                Ok(_) => {}
                Err(error)
                    if error.effect() == Effect::Unknown && !mutant::is(Mutant::DoubtIsFailure) =>
                {
                    in_doubt = true;
                }
                Err(error) => return Err(error),
            }
        }
        self.stub.spend();
        Ok(None)
    }
}

/// Who stands between a leader and the candidate that he names. Pure.
fn heir(line: &[Contender], leader: &Path, candidate: &Path) -> Heir {
    let place = |path: &Path| line.iter().position(|one| one.path == *path);
    let Some(from) = place(leader) else { return Heir::Orphaned };
    match place(candidate) {
        Some(to) if to > from => {
            Heir::Behind(line[from + 1..to].iter().map(|one| one.path.clone()).collect())
        }
        _ => Heir::Unknown,
    }
}

fn lost(path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, "resigning").at(path).because("the lead was lost before")
}

impl Observer {
    /// The next value that was not told yet.
    async fn next(&mut self) -> Result<Contender> {
        loop {
            if let Some(mut watch) = self.watch.take() {
                match watch.next().await {
                    Some(Event::Changed(change)) if change.kind == Kind::Updated => {}
                    Some(Event::Ended(why)) => return Err(ended(Some(why))),
                    Some(_) if mutant::is(Mutant::ObserverStopsWithTerm) => pending().await,
                    Some(_) => self.first = None,
                    None => return Err(ended(None)),
                }
            }
            if let Some(found) = self.look().await? {
                let is_news = self
                    .told
                    .as_ref()
                    .is_none_or(|told| (told.token, &told.label) != (found.token, &found.label));
                if is_news {
                    self.told = Some(found.clone());
                    return Ok(found);
                }
            }
        }
    }

    /// Who is the first, if anybody is; and a watch on him, or on the whole line while it is empty.
    async fn look(&mut self) -> Result<Option<Contender>> {
        let Some(first) = self.first().await? else { return Ok(None) };
        let (view, watch) = self.client.watch(Query::node(first.path.clone())).await?;
        // He may have left meanwhile.
        let Some(node) = view.into_node() else { return Ok(None) };
        let found = Contender::of(&first, &node, Some(true));
        (self.first, self.watch) = (Some(first), Some(watch));
        Ok(found)
    }

    async fn first(&mut self) -> Result<Option<Standing>> {
        const SIGHT: usize = 8;
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let line = Query::children(self.path.clone()).names_only();
        let view = self.client.read(line.clone().oldest(SIGHT)).await?;
        if let Some(first) = Queue::of(&view).standing().first() {
            return Ok(Some(first.clone()));
        }
        let (view, watch) = self.client.watch(line).await?;
        let first = Queue::of(&view).standing().first().cloned();
        if first.is_none() {
            self.watch = Some(watch);
        }
        Ok(first)
    }
}

/// Why there is nothing more to observe.
fn ended(why: Option<End>) -> Error {
    match why {
        Some(End::Failed(error)) => (*error).clone(),
        Some(End::SessionOver(loss)) => {
            Error::new(ErrorKind::SessionLost, "observing an election").because(loss.to_string())
        }
        _ => Error::new(ErrorKind::Backend, "observing an election")
            .because("the watch ended untold"),
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for Elected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elected").field("path", self.line.dir()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::order::Queue;
    use crate::store::{Node, Revision, Sequence, SessionId, Stat, Version, View};

    fn path(name: &str) -> Path {
        Path::new(&format!("/d/_c_{name}-latch-")).expect("valid")
    }

    fn line(names: &[&str]) -> Vec<Contender> {
        let node = |(place, name): (u64, &&str)| {
            let (at, owner) = (Revision::new(place), Some(SessionId::new(1)));
            let stat = Stat::new(at, at, Version::new(0), owner);
            Node::new(path(name)).with_sequence(Some(Sequence::new(place))).with_stat(stat)
        };
        let view = View::new(Revision::ZERO, (1..).zip(names).map(node).collect());
        let queue = Queue::of(&view);
        let pairs = queue.standing().iter().zip(&view.nodes);
        pairs.filter_map(|(one, node)| Contender::of(one, node, None)).collect()
    }

    #[test]
    fn those_between_a_leader_and_his_heir_make_room() {
        let told = |leader: &str, heir_of: &str| match heir(
            &line(&["a", "b", "c", "d"]),
            &path(leader),
            &path(heir_of),
        ) {
            Heir::Unknown => "unknown".to_owned(),
            Heir::Orphaned => "orphaned".to_owned(),
            Heir::Behind(between) => {
                format!("behind {:?}", between.iter().map(Path::name).collect::<Vec<_>>())
            }
        };
        assert_eq!(told("a", "b"), "behind []");
        assert_eq!(told("a", "d"), r#"behind ["_c_b-latch-", "_c_c-latch-"]"#);
        assert_eq!(told("a", "x"), "unknown");
        // Nobody is his own heir, nor that of who stands behind.
        assert_eq!(told("a", "a"), "unknown");
        assert_eq!(told("b", "a"), "unknown");
        assert_eq!(told("x", "b"), "orphaned");
    }
}
