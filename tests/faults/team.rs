//! [`Team`]: processes that share a recipe, and are killed, paused and cut off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use synod_conformance::harness::Link;
use synod_servers::check::record::Breach;
use synod_servers::clients::client::End;
use synod_servers::clients::deed::{Deed, Part};
use synod_servers::clients::entry::{Entry, Installed, Op, What, now};
use synod_servers::pipe::Lost;
use synod_testkit::history::Value;
use synod_testkit::limit::waits_for;
use tokio::time::{Instant, sleep};

use crate::scene::{Actor, PATIENCE, Scene, TTL, at, eventually, in_time};

/// The work of a process. Another one takes its place when it is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) part: Part,
    /// The first of its items or tasks.
    pub(crate) first: Value,
    /// The number of items or tasks.
    pub(crate) count: u64,
}

/// A process at each post.
pub(crate) struct Team {
    path: String,
    members: Vec<(Post, Arc<Actor>)>,
    bob: Arc<Actor>,
}

impl Team {
    /// A team at this path, and an observer.
    pub(crate) async fn gather(scene: &mut Scene, path: &str, posts: &[Post]) -> Self {
        let bob = scene.client().await;
        let mut team = Self { path: at(path), members: Vec::new(), bob };
        for post in posts {
            let ann = scene.process();
            team.starts(&ann, *post).await;
            team.members.push((*post, ann));
        }
        team
    }

    async fn starts(&self, ann: &Actor, post: Post) {
        let Post { part, first, count } = post;
        let ttl = u64::try_from(TTL.as_millis()).expect("short");
        ann.insists(|| Op::Serve { part, path: self.path.clone(), first, count, ttl }).await;
    }

    /// Kills a process at any moment, and lets another one take its place.
    pub(crate) async fn kills(&mut self, scene: &mut Scene, member: usize) {
        let (post, ann) = self.members[member].clone();
        ann.client.kill().expect("it runs");
        let post = match post.part {
            // Items that it has put are not put again.
            Part::Producer => rest_of(post, begun(scene, &ann)),
            _ => post,
        };
        let heir = scene.process();
        self.starts(&heir, post).await;
        self.members[member] = (post, heir);
    }

    /// Applies one fault after another to random processes, and to servers too if `servers` is
    /// `true`.
    pub(crate) async fn suffers(&mut self, scene: &mut Scene, servers: bool) {
        let random = scene.random.clone();
        let member = index(random.below(self.members.len() as u64));
        let ann = self.members[member].1.clone();
        let lasts = Duration::from_millis(match random.below(4) {
            0 => random.below(200),
            1 | 2 => random.below(1_500),
            _ => 4_500 + random.below(1_500),
        });
        match random.below(if servers { 10 } else { 7 }) {
            0 | 1 => self.kills(scene, member).await,
            2 | 3 => {
                ann.client.stop().expect("it runs");
                sleep(lasts).await;
                ann.client.go_on().expect("it stands still");
            }
            4 | 5 => {
                let link = [Link::Cut, Link::Deaf][index(random.below(2))];
                ann.pipe.set(link);
                note(scene, &ann, &format!("{link:?}"));
                sleep(lasts).await;
                ann.pipe.set(Link::Open);
                note(scene, &ann, "open");
            }
            6 => {
                let lost = [Lost::Reply, Lost::Request][index(random.below(2))];
                ann.pipe.lose(lost, "");
                note(scene, &ann, &format!("lose a {lost:?}"));
                sleep(lasts / 8).await;
            }
            _ => scene.suffers(lasts).await,
        }
    }

    /// Stops a process at such a moment, until another process has its work, which this law
    /// promises. Returns `true` if one had it.
    #[must_use]
    pub(crate) async fn outlasts(
        &self,
        scene: &mut Scene,
        (part, is_caught): (Part, fn(&Deed) -> bool),
        law: &'static str,
    ) -> bool {
        let ann = self.catches(scene, part, is_caught).await;
        let (number, since) = (ann.client.number(), now());
        let work = last(scene, &ann).as_ref().and_then(subject);
        let is_later = |entry: &Entry| entry.p != number && entry.t > since;
        let passes_on = async || {
            let found = scene.book.last(|entry| match &entry.what {
                What::Deed { deed } if is_later(entry) => (subject(deed) == work).then_some(()),
                _ => None,
            });
            found.is_some()
        };
        let what = format!("another {part:?} has {work:?}");
        let is_passed_on = in_time(&what, passes_on).await;
        if !is_passed_on {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
        ann.client.go_on().expect("it stands still");
        is_passed_on
    }

    /// Permanently kills a process in such a state, and lets another one take its place.
    pub(crate) async fn loses(
        &mut self,
        scene: &mut Scene,
        part: Part,
        is_caught: fn(&Deed) -> bool,
    ) {
        let ann = self.catches(scene, part, is_caught).await;
        let place = self.members.iter().position(|(_, other)| Arc::ptr_eq(other, &ann));
        self.kills(scene, place.expect("it is one of them")).await;
    }

    /// A process of this part gets no answers for longer than its session lives.
    pub(crate) async fn hears_nothing(&self, scene: &Scene, part: Part) {
        let ann = self.of(part).next().expect("there is one");
        ann.pipe.set(Link::Deaf);
        note(scene, ann, "Deaf");
        sleep(TTL * 3).await;
        ann.pipe.set(Link::Open);
        note(scene, ann, "open");
    }

    /// Stops a process whose last report satisfies `is_caught`.
    async fn catches(&self, scene: &Scene, part: Part, is_caught: fn(&Deed) -> bool) -> Arc<Actor> {
        waits_for(format_args!("a {part:?} is caught"));
        let end = Instant::now() + PATIENCE;
        loop {
            let is_at = |ann: &Actor| last(scene, ann).is_some_and(|deed| is_caught(&deed));
            if let Some(ann) = self.of(part).find(|ann| is_at(ann)) {
                ann.client.stop().expect("it runs");
                // Its reports before the stop have been read by then.
                sleep(Duration::from_millis(50)).await;
                if is_at(ann) {
                    return ann.clone();
                }
                ann.client.go_on().expect("it stands still");
            }
            assert!(Instant::now() < end, "no {part:?} was caught within {PATIENCE:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns `true` if all processes of this part have done their work.
    fn rests(&self, scene: &Scene, part: Part) -> bool {
        self.of(part).all(|ann| last(scene, ann) == Some(Deed::Rests))
    }

    /// Waits for that, which this law promises.
    pub(crate) async fn await_rest(&self, scene: &mut Scene, part: Part, law: &'static str) {
        let what = format!("each {part:?} is done");
        if !in_time(&what, async || self.rests(scene, part)).await {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
    }

    /// Waits until each process of this part has made such a report.
    pub(crate) async fn await_report(&self, scene: &Scene, part: Part, is_it: fn(&Deed) -> bool) {
        let has_reported = |number: usize| {
            let found = scene.book.last(|entry| match &entry.what {
                What::Deed { deed } if entry.p == number && is_it(deed) => Some(()),
                _ => None,
            });
            found.is_some()
        };
        let what = format!("each {part:?} has reported it");
        let all = async || self.of(part).all(|ann| has_reported(ann.client.number()));
        eventually(&what, all).await;
    }

    /// Waits until the copies of all processes of this part show these processes, which this law
    /// promises.
    pub(crate) async fn await_sight(&self, scene: &mut Scene, part: Part, law: &'static str) {
        let mut who: Vec<Value> = self.of(part).map(|ann| ann.client.number() as Value).collect();
        who.sort_unstable();
        let shown = Deed::Sees { who };
        let what = format!("each {part:?} reports {shown:?}");
        let is_shown = async || self.of(part).all(|ann| last(scene, ann).as_ref() == Some(&shown));
        if !in_time(&what, is_shown).await {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
    }

    /// Waits until each of this number of items is held by a process of this part, which this law
    /// promises.
    pub(crate) async fn await_shares(
        &self,
        scene: &mut Scene,
        part: Part,
        items: u64,
        law: &'static str,
    ) {
        let since = now();
        let numbers: Vec<usize> = self.of(part).map(|ann| ann.client.number()).collect();
        let what = format!("each of {items} items has a {part:?}");
        let is_held = |item: Value| {
            let of_it = |entry: &Entry| match entry.what {
                What::Deed { deed: Deed::Shares { item: of, certain, .. } } => {
                    (of == item && certain > since && numbers.contains(&entry.p)).then_some(())
                }
                _ => None,
            };
            scene.book.last(of_it).is_some()
        };
        if !in_time(&what, async || (0..items).all(is_held)).await {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
    }

    /// Waits until each process of this part is inside once more, which this law promises.
    pub(crate) async fn await_rounds(&self, scene: &mut Scene, part: Part, law: &'static str) {
        let since = now();
        let what = format!("each {part:?} is inside once more");
        let enters = |number: usize| {
            let later = |entry: &Entry| {
                let is_later = entry.p == number && entry.t > since;
                (is_later && matches!(entry.what, What::Deed { deed: Deed::Entered })).then_some(())
            };
            scene.book.last(later).is_some()
        };
        let all_enter = async || self.of(part).all(|ann| enters(ann.client.number()));
        if !in_time(&what, all_enter).await {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
    }

    /// The processes of this part.
    fn of(&self, part: Part) -> impl Iterator<Item = &Arc<Actor>> {
        self.members.iter().filter(move |(post, _)| post.part == part).map(|(_, ann)| ann)
    }

    /// Waits until this directory of the recipe is empty, which this law promises.
    pub(crate) async fn await_empty(&self, scene: &mut Scene, dir: &str, law: &'static str) {
        let list = || Op::List { path: format!("{}/{dir}", self.path), local: false };
        let what = format!("{dir} is empty");
        let is_empty = async || self.bob.insists(list).await.nodes.is_empty();
        if !in_time(&what, is_empty).await {
            scene.breach(Breach::new(law, format!("{what}: not within {PATIENCE:?}")));
        }
    }

    /// All processes leave.
    pub(crate) async fn leaves(&mut self) {
        let left = self.members.drain(..).map(|(post, ann)| async move {
            match ann.call(Op::Close).await {
                End::Ok(_) => {}
                other => panic!("{post:?}: {other:?}"),
            }
        });
        join_all(left).await;
    }

    /// Adds a process.
    pub(crate) async fn joins(&mut self, scene: &mut Scene, post: Post) {
        let ann = scene.process();
        self.starts(&ann, post).await;
        self.members.push((post, ann));
    }
}

/// The posts of `of` processes of one part, each with `count` items or tasks.
pub(crate) fn posts(part: Part, of: usize, first: Value, count: u64) -> Vec<Post> {
    (0..of as u64).map(|place| Post { part, first: first + place * count, count }).collect()
}

/// The rest of a producer's items when it began to put the last of them.
fn rest_of(post: Post, last: Option<Value>) -> Post {
    let next = last.map_or(post.first, |last| last + 1);
    Post { first: next, count: post.first + post.count - next, ..post }
}

/// The last item that it began to put.
fn begun(scene: &Scene, ann: &Actor) -> Option<Value> {
    let number = ann.client.number();
    scene.book.last(|entry| match entry.what {
        What::Deed { deed: Deed::Puts { item } } if entry.p == number => Some(item),
        _ => None,
    })
}

/// The item or the task that it has from now on.
fn subject(deed: &Deed) -> Option<Value> {
    match deed {
        Deed::Holds { item, .. } => Some(*item),
        Deed::Took { item, .. } => *item,
        Deed::Runs { task, .. } => Some(*task),
        _ => None,
    }
}

/// Its last report.
fn last(scene: &Scene, ann: &Actor) -> Option<Deed> {
    let number = ann.client.number();
    scene.book.last(|entry| match &entry.what {
        What::Deed { deed } if entry.p == number => Some(deed.clone()),
        _ => None,
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn note(scene: &Scene, ann: &Actor, what: &str) {
    scene.book.nemesis(format!("{what}, client {}", ann.client.number()), Installed::Installed);
}
