//! A session that is known to be the only contender does not list the tickets; any other session
//! does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::{Commit, Expect, Kind, Lifetime, Query, SessionId, Store, Txn};
use synod_recipes::lock::Mutex;
use synod_servers::links::Links;
use synod_servers::verb::Verb;

use super::trips::{asks_for, counted};
use super::{create, done, hears, linked, names, path, refused, server, session};

const LISTED: [Verb; 2] = [Verb::Create, Verb::List];

/// A session whose requests are counted, and a directory.
struct Contender {
    links: Links,
    store: Box<dyn Store>,
    id: SessionId,
    dir: Path,
}

impl Contender {
    /// A contender in a directory that exists and stays.
    async fn at(dir: &str) -> Self {
        let (links, store) = linked().await;
        done(&*store, create(dir, "")).await;
        let id = store.session().id;
        let _before = links.take_requests(id);
        Self { links, store, id, dir: path(dir) }
    }

    /// Creates a ticket, and checks the requests for it. Returns the ticket, and the listing.
    async fn draw(&self, requests: &[Verb]) -> (Path, Vec<String>) {
        let commit = draw(&*self.store, &self.dir).await;
        asks_for(&self.links, self.id, requests).await;
        shown(&commit)
    }

    async fn delete(&self, ticket: &Path) {
        delete(&*self.store, ticket).await;
        asks_for(&self.links, self.id, &[Verb::Delete]).await;
    }

    /// Creates tickets until the session is known to be the only contender, at most this many.
    async fn settle(&self) {
        const MANY: usize = 80;

        for _ in 0..MANY {
            let ticket = shown(&draw(&*self.store, &self.dir).await).0;
            delete(&*self.store, &ticket).await;
            let requests = self.links.take_requests(self.id);
            if !requests.contains(&Verb::List) {
                return;
            }
        }
        panic!("it listings for ever");
    }
}

async fn draw(store: &dyn Store, dir: &Path) -> Commit {
    let look = Query::children(dir).names_only();
    let ticket = dir.join("t-").expect("valid");
    done(store, Txn::new().create_sequential(ticket, "", Lifetime::Session).look(look)).await
}

async fn delete(store: &dyn Store, node: &Path) {
    done(store, Txn::new().delete(node, Expect::Any)).await;
}

fn shown(commit: &Commit) -> (Path, Vec<String>) {
    let view = commit.look.as_ref().expect("it was requests for");
    assert!(
        view.revision >= commit.revision.expect("the answer to one create has it"),
        "it reflects the ticket"
    );
    let names = view.nodes.iter().map(|node| node.path.name().to_owned()).collect();
    let numbers = view.nodes.iter().map(|node| node.sequence);
    assert!(numbers.max() >= Some(commit.results[0].sequence), "its own is seen");
    (commit.results[0].path.clone(), names)
}

/// One request for a lock, one for its end.
pub(super) async fn a_session_that_is_alone_sends_no_listing() {
    let ann = Contender::at("/alone/floor").await;
    let armed = [Verb::ExistsWatch, Verb::Create, Verb::List];
    for requests in [&LISTED[..], &armed, &[Verb::Create], &[Verb::Create], &[Verb::Create]] {
        let (ticket, names) = ann.draw(requests).await;
        assert_eq!(names, [ticket.name()]);
        ann.delete(&ticket).await;
    }
}

pub(super) async fn a_session_that_is_alone_locks_with_one_request() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let (ann, anns) = counted(&links).await;
    let created =
        ann.create(&path("/alone/lock"), "", Lifetime::Persistent).await.expect("answers");
    assert!(created.is_committed());
    let _before = links.take_requests(anns);
    let lock = Mutex::new(&ann, path("/alone/lock"));
    let armed = [Verb::ExistsWatch, Verb::Create, Verb::List];
    for requests in [&LISTED[..], &armed, &[Verb::Create], &[Verb::Create], &[Verb::Create]] {
        let held = lock.lock().await.expect("answers");
        asks_for(&links, anns, requests).await;
        held.release().await.expect("answers");
        asks_for(&links, anns, &[Verb::Delete]).await;
    }
}

/// A contender that alternates with another one never wrongly skips the listing, and sends the
/// extra request once.
pub(super) async fn a_session_that_takes_turns_sends_a_listing() {
    let (ann, bob) = (Contender::at("/alone/turns").await, session().await);
    let armed = [Verb::ExistsWatch, Verb::Create, Verb::List];
    for round in 0..12 {
        let requests = if round == 1 { &armed[..] } else { &LISTED };
        let ticket = ann.draw(requests).await.0;
        ann.delete(&ticket).await;
        let ticket = shown(&draw(&*bob, &ann.dir).await).0;
        delete(&*bob, &ticket).await;
    }
}

/// Events between two tickets of a session that was the only contender so far, each of which
/// requires a listing.
pub(super) async fn a_session_that_may_not_be_alone_sends_a_listing() {
    let bob = session().await;
    let other = |name: &str| path("/alone/doubt").join(name).expect("valid");
    let ann = Contender::at("/alone/doubt").await;
    let looks_late = async |mut others: Vec<&str>| {
        let (ticket, names) = ann.draw(&LISTED).await;
        others.push(ticket.name());
        others.sort_unstable();
        assert_eq!(names, others);
        ann.delete(&ticket).await;
    };

    ann.settle().await;
    // The ticket of another session was created and deleted.
    let ticket = shown(&draw(&*bob, &ann.dir).await).0;
    delete(&*bob, &ticket).await;
    looks_late(vec![]).await;

    ann.settle().await;
    // The ticket of another session remains.
    let ticket = shown(&draw(&*bob, &ann.dir).await).0;
    looks_late(vec![ticket.name()]).await;
    looks_late(vec![ticket.name()]).await;
    delete(&*bob, &ticket).await;

    ann.settle().await;
    // A node without a sequence remains.
    done(&*bob, create("/alone/doubt/plain", "")).await;
    looks_late(vec!["plain"]).await;
    delete(&*bob, &other("plain")).await;

    ann.settle().await;
    // A transaction of the same session created a node there.
    let both = create("/alone/doubt/x", "").create(other("y"), "", Lifetime::Session);
    done(&*ann.store, both).await;
    asks_for(&ann.links, ann.id, &[Verb::Multi]).await;
    looks_late(vec!["x", "y"]).await;
    done(&*bob, Txn::new().delete(other("x"), Expect::Any).delete(other("y"), Expect::Any)).await;

    ann.settle().await;
    // Another ticket of the same session remains.
    let ticket = ann.draw(&[Verb::Create]).await.0;
    looks_late(vec![ticket.name()]).await;
    ann.delete(&ticket).await;

    ann.settle().await;
    // Another session deleted the ticket.
    let ticket = ann.draw(&[Verb::Create]).await.0;
    delete(&*bob, &ticket).await;
    refused(&*ann.store, Txn::new().delete(&ticket, Expect::Any)).await;
    asks_for(&ann.links, ann.id, &[Verb::Delete]).await;
    looks_late(vec![]).await;

    ann.settle().await;
    // The ticket may not have been deleted, and the connection is a new one.
    let ticket = ann.draw(&[Verb::Create]).await.0;
    ann.links.lose_reply(ann.id, Verb::Delete);
    let delete_it = Txn::new().delete(&ticket, Expect::Any);
    assert!(ann.store.commit(delete_it).await.is_err(), "the reply is lost");
    let _sent = names(&*ann.store, "/alone/doubt").await;
    let _before = ann.links.take_requests(ann.id);
    looks_late(vec![]).await;

    ann.settle().await;
    // The connection is a new one, and nothing else happened.
    ann.links.lose_reply(ann.id, Verb::Get);
    let _read = ann.store.read(Query::node(other("nothing")).local()).await.expect("again");
    let _before = ann.links.take_requests(ann.id);
    looks_late(vec![]).await;

    ann.settle().await;
    // The directory was written to.
    done(&*bob, Txn::new().set(&ann.dir, "x", Expect::Any)).await;
    let ticket = shown(&draw(&*ann.store, &ann.dir).await).0;
    asks_for(&ann.links, ann.id, &LISTED).await;
    ann.delete(&ticket).await;
}

/// The next number in the new directory is the one that the session expects, by coincidence.
pub(super) async fn a_directory_that_was_made_again_is_looked_at() {
    let bob = session().await;
    let ann = Contender::at("/alone/again").await;
    for _ in 0..3 {
        ann.settle().await;
        let ticket = ann.draw(&[Verb::Create]).await.0;
        ann.delete(&ticket).await;
        let last: usize = ticket.name()[2..].parse().expect("ten digits");

        delete(&*bob, &ann.dir).await;
        done(&*bob, create("/alone/again", "")).await;
        let mut stands = None;
        for number in 0..=last {
            let commit = done(
                &*bob,
                Txn::new().create_sequential(path("/alone/again/t-"), "", Lifetime::Session),
            )
            .await;
            if number == last {
                stands = Some(commit.results[0].path.clone());
            } else {
                delete(&*bob, &commit.results[0].path).await;
            }
        }

        let stands = stands.expect("it was the last one");
        let (ticket, names) = ann.draw(&LISTED).await;
        assert_eq!(ticket.name()[2..].parse::<usize>().expect("ten digits"), last + 1);
        assert_eq!(names, [stands.name(), ticket.name()]);
        ann.delete(&ticket).await;
        delete(&*bob, &stands).await;
    }
}

/// <https://issues.apache.org/jira/browse/ZOOKEEPER-4466>
pub(super) async fn a_watch_for_good_and_one_for_the_lock_live_on_one_path() {
    let bob = session().await;
    let ann = Contender::at("/alone/watched").await;
    let below = path("/alone/watched/below");
    for (settled, of_node) in [(true, true), (true, false), (false, true), (false, false)].repeat(2)
    {
        // Without this, the session would watch the directory for the lock later.
        if settled {
            ann.settle().await;
        }
        let query = if of_node { Query::node(&ann.dir) } else { Query::children(&ann.dir) };
        let (_view, mut watch) = ann.store.watch(query).await.expect("answers");
        let _before = ann.links.take_requests(ann.id);
        // The session sets no further watch.
        for _ in 0..4 {
            let ticket = shown(&draw(&*ann.store, &ann.dir).await).0;
            delete(&*ann.store, &ticket).await;
        }
        let requests = ann.links.take_requests(ann.id);
        let creates = requests.iter().filter(|verb| **verb == Verb::Create).count();
        let listings = requests.iter().filter(|verb| **verb == Verb::List).count();
        assert_eq!((creates, listings), (4, 4), "{requests:?}");
        assert!(!requests.contains(&Verb::ExistsWatch), "{requests:?}");
        if of_node {
            done(&*bob, Txn::new().set(&ann.dir, "x", Expect::Any)).await;
            hears(&mut watch, "/alone/watched", Kind::Updated).await;
        } else {
            done(&*bob, create("/alone/watched/below", "")).await;
            hears(&mut watch, "/alone/watched/below", Kind::Created).await;
            delete(&*bob, &below).await;
            hears(&mut watch, "/alone/watched/below", Kind::Deleted).await;
        }
        drop(watch);
    }
    ann.settle().await;
    done(&*bob, Txn::new().set(&ann.dir, "x", Expect::Any)).await;
    let ticket = shown(&draw(&*ann.store, &ann.dir).await).0;
    assert!(ann.links.take_requests(ann.id).contains(&Verb::List), "it was reported");
    delete(&*ann.store, &ticket).await;
}

/// Several locks, while a task removes and creates their directories again.
pub(super) async fn locks_exclude_while_their_directories_are_made_again() {
    const ROUNDS: u64 = 150;
    const LOCKS: [&str; 2] = ["/alone/soak/a", "/alone/soak/b"];

    let links = Links::start(&server().addresses()).expect("there are ports");
    let vandal = session().await;
    for lock in LOCKS {
        done(&*vandal, create(lock, "")).await;
        done(&*vandal, create(&lock.replace("soak", "inside"), "0")).await;
    }
    let (turns, remade) = (AtomicU64::new(0), AtomicU64::new(0));
    let clients = join_all((0..3).map(|_| counted(&links))).await;
    for (_, id) in &clients {
        let _before = links.take_requests(*id);
    }
    let works = clients.iter().enumerate().map(async |(who, (client, _))| {
        for round in 0..ROUNDS {
            // Each session is the only contender for some time.
            let at = LOCKS[usize::try_from(round / 10 + who as u64).expect("small") % LOCKS.len()];
            let inside = path(&at.replace("soak", "inside"));
            let held = Mutex::new(client, path(at)).lock().await.expect("answers");
            let seen = client.read(Query::node(&inside)).await.expect("answers").into_node();
            let version = seen.expect("it stays").stat.expect("it has the number").version;
            let write = client.set(&inside, who.to_string(), Expect::Version(version)).await;
            assert!(write.expect("answers").is_committed(), "another holder exists");
            held.release().await.expect("answers");
            turns.fetch_add(1, Ordering::Relaxed);
        }
    });
    let spoil = async {
        let most = 3 * ROUNDS;
        while turns.load(Ordering::Relaxed) < most {
            for lock in LOCKS {
                if make_again(&*vandal, lock).await {
                    remade.fetch_add(1, Ordering::Relaxed);
                }
                // The directories are left unchanged for some turns.
                let rest = turns.load(Ordering::Relaxed) + 12;
                while turns.load(Ordering::Relaxed) < rest.min(most) {
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    let _all = futures_util::future::join(join_all(works), spoil).await;

    assert!(remade.load(Ordering::Relaxed) > 0, "no line was disturbed");
    let mut next = BTreeMap::new();
    for (_, id) in &clients {
        for pair in links.take_requests(*id).windows(2) {
            if pair[0] == Verb::Create {
                *next.entry(pair[1]).or_insert(0) += 1;
            }
        }
    }
    let (listed, omitted) = (next.get(&Verb::List), next.get(&Verb::Sync));
    assert!(listed.is_some() && omitted.is_some(), "some listed, and some omitted: {next:?}");
}

/// Creates a directory again without contenders, with one child less than it ever had: the second
/// contender gets the number that the former only contender expects.
async fn make_again(store: &dyn Store, lock: &str) -> bool {
    let probe = || Txn::new().create_sequential(path(&format!("{lock}/p-")), "", Lifetime::Session);
    let Ok(outcome) = store.commit(probe()).await else { return false };
    let Some(commit) = outcome.ok() else { return false };
    let had = commit.results[0].sequence.expect("it has one").get();
    delete(store, &commit.results[0].path).await;
    let gone = store.commit(Txn::new().delete(path(lock), Expect::Any)).await.expect("answers");
    if gone.rejected().is_some() {
        return false;
    }
    let created = store.commit(create(lock, "")).await.expect("answers").is_committed();
    for _ in 1..had {
        let commit = done(store, probe()).await;
        delete(store, &commit.results[0].path).await;
    }
    created
}
