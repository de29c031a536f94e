//! Locks of synod and of other programs on the same path: they exclude each other, in order, and
//! are released when a holder dies. The others are real programs, each a process of its own:
//! Curator and kazoo on ZooKeeper, etcdctl and the package for Go on etcd.

mod discovery;
mod election;
mod group;
mod peer;
mod permits;
mod queue;
mod stm;
mod value;
mod view;

use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use synod::Lifetime;
use synod::lock::{Mutex, MutexGuard, RwLock, inspect, request_release};
use synod::{Client, Path};
use synod_servers::etcd::Cluster;
use synod_servers::required;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::{limited, waits_for};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::{
    PATIENCE, Peer, curator_missing, etcdctl_missing, go_missing, go_required, kazoo_missing,
};

static ZOOKEEPER: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| Ensemble::start(1));
static ETCD: LazyLock<Result<Cluster, String>> = LazyLock::new(|| Cluster::start(1));

/// A server, with functions to start a peer and a client of synod on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Curator,
    Kazoo,
    Etcdctl,
    Go,
}

impl Kind {
    fn missing(self) -> Option<String> {
        match self {
            Self::Curator => curator_missing().or_else(|| ZOOKEEPER.as_ref().err().cloned()),
            Self::Kazoo => kazoo_missing().or_else(|| ZOOKEEPER.as_ref().err().cloned()),
            Self::Etcdctl => etcdctl_missing().or_else(|| ETCD.as_ref().err().cloned()),
            Self::Go => go_missing().or_else(|| ETCD.as_ref().err().cloned()),
        }
    }

    fn server(self) -> String {
        let first = match self {
            Self::Curator | Self::Kazoo => ZOOKEEPER.as_ref().expect("it runs").addresses()[0],
            Self::Etcdctl | Self::Go => ETCD.as_ref().expect("it runs").addresses()[0],
        };
        first.to_string()
    }

    async fn client(self) -> Client {
        let server = self.server();
        // The longest TTL, because peers use the processor for seconds when they start.
        let url = match self {
            Self::Curator | Self::Kazoo => {
                format!("zk://{server}?acl=open&session=20s&tick={}ms", TICK.as_millis())
            }
            Self::Etcdctl | Self::Go => format!("etcd://{server}?session=20s"),
        };
        synod::connect(&url).await.expect("a server runs")
    }

    /// A peer that requests the mutex at `path`.
    async fn asks(self, path: &Path) -> Peer {
        let server = self.server();
        let mut peer = match self {
            Self::Curator => Peer::curator(&server).await,
            Self::Kazoo => Peer::kazoo(&server).await,
            // Its prefix is synod's path followed by a slash. Its lock is that of the package for
            // Go.
            Self::Etcdctl | Self::Go => return Peer::etcdctl(&server, &format!("{path}/")),
        };
        peer.write_line(&format!("mutex {path}"));
        peer
    }

    /// A peer that requests another kind of lock at `path`.
    async fn asks_for(self, what: &str, path: &Path) -> Peer {
        let server = self.server();
        let mut peer = if self == Self::Kazoo {
            Peer::kazoo(&server).await
        } else {
            Peer::curator(&server).await
        };
        peer.write_line(&format!("{what} {path}"));
        peer
    }

    async fn entered(self, peer: &mut Peer) {
        let said = peer.speaks().await;
        assert!(self == Self::Etcdctl || said == "in", "{said}");
    }

    fn release(self, peer: &mut Peer) {
        peer.write_line(if self == Self::Etcdctl { "INT" } else { "release" });
    }

    /// Kills the holder of the lock as if its machine had been switched off.
    fn crash(self, peer: &mut Peer) {
        if self == Self::Etcdctl { peer.write_line("KILL") } else { peer.kill() }
    }
}

/// Waits until this number of contenders is in the wait queue.
async fn stand(client: &Client, path: &Path, count: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        let line = inspect(client, path).await.expect("reachable");
        if line.len() == count {
            return;
        }
        assert!(Instant::now() < end, "{count} should stand in line: {line:?}");
        sleep(TICK / 10).await;
    }
}

fn waiting(client: &Client, path: &Path) -> JoinHandle<MutexGuard> {
    let mutex = Mutex::new(client, path.clone());
    spawn_local(async move { mutex.lock().await.expect("reachable") })
}

async fn gets<T>(waiting: JoinHandle<T>) -> T {
    waits_for("a lock of ours");
    timeout(PATIENCE, waiting).await.expect("in time").expect("no thread panicked")
}

async fn a_mutex_is_shared_in_order(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mutex = Mutex::new(&client, path.clone());
    let held = mutex.lock().await.expect("free");
    let mut theirs = kind.asks(&path).await;
    stand(&client, &path, 2).await;
    let ours = waiting(&client, &path);
    stand(&client, &path, 3).await;
    let mut last = kind.asks(&path).await;
    stand(&client, &path, 4).await;
    theirs.keeps_silent().await;

    held.release().await.expect("reachable");
    kind.entered(&mut theirs).await;
    assert!(mutex.try_lock().await.expect("reachable").is_none(), "they have it");
    last.keeps_silent().await;
    assert!(!ours.is_finished(), "they have it");

    kind.release(&mut theirs);
    let held = gets(ours).await;
    last.keeps_silent().await;
    assert!(held.is_held());
    held.release().await.expect("reachable");
    kind.entered(&mut last).await;
    kind.release(&mut last);
    let _free = gets(waiting(&client, &path)).await;
}

async fn a_holder_that_dies_is_succeeded(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mut theirs = kind.asks(&path).await;
    kind.entered(&mut theirs).await;
    let ours = waiting(&client, &path);
    stand(&client, &path, 2).await;

    kind.crash(&mut theirs);
    let held = gets(ours).await;

    let mut next = kind.asks(&path).await;
    stand(&client, &path, 2).await;
    next.keeps_silent().await;
    assert!(held.is_held());
    // All ephemeral nodes of the session are deleted at once.
    client.close().await.expect("reachable");
    kind.entered(&mut next).await;
}

async fn a_read_write_lock_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let lock = RwLock::new(&client, path.clone());
    let ask = async |what: &str| kind.asks_for(what, &path).await;
    let reading = lock.read().await.expect("free");
    let mut reads = ask("read").await;
    reads.says("in").await;
    let writes = spawn_local({
        let lock = lock.clone();
        async move { lock.write().await.expect("reachable") }
    });
    stand(&client, &path, 3).await;
    let mut late = ask("read").await;
    stand(&client, &path, 4).await;
    late.keeps_silent().await;

    reading.release().await.expect("reachable");
    reads.write_line("release");
    reads.says("out").await;
    let writing = gets(writes).await;
    late.keeps_silent().await;
    writing.release().await.expect("reachable");
    late.says("in").await;
    let other = lock.try_read().await.expect("reachable").expect("readers share");
    let mut writes = ask("write").await;
    stand(&client, &path, 3).await;
    assert!(lock.try_read().await.expect("reachable").is_none(), "a writer waits");
    late.write_line("release");
    writes.keeps_silent().await;
    other.release().await.expect("reachable");
    writes.says("in").await;
    assert!(lock.try_read().await.expect("reachable").is_none(), "they write");
}

/// Curator's downgrade takes a new place, and lets a waiting writer in first (CURATOR-621, not
/// fixed in the version that Debian has); synod's keeps its place.
async fn a_writer_that_downgrades_keeps_its_place(kind: Kind, path: Path) {
    let client = kind.client().await;
    let writing = RwLock::new(&client, path.clone()).write().await.expect("free");
    let mut theirs = Peer::curator(&kind.server()).await;
    theirs.write_line(&format!("write {path}"));
    stand(&client, &path, 2).await;

    let reading = writing.downgrade().await.expect("reachable");

    theirs.keeps_silent().await;
    assert!(reading.is_held());
    reading.release().await.expect("reachable");
    theirs.says("in").await;
}

async fn a_writer_that_dies_is_succeeded(kind: Kind, path: Path) {
    let client = kind.client().await;
    let lock = RwLock::new(&client, path.clone());
    let mut theirs = kind.asks_for("write", &path).await;
    theirs.says("in").await;
    let reads = spawn_local({
        let lock = lock.clone();
        async move { lock.read().await.expect("reachable") }
    });
    stand(&client, &path, 2).await;

    theirs.kill();
    let reading = gets(reads).await;

    let mut next = kind.asks_for("write", &path).await;
    stand(&client, &path, 2).await;
    next.keeps_silent().await;
    assert!(reading.is_held());
    client.close().await.expect("reachable");
    next.says("in").await;
}

async fn a_lock_is_asked_back(kind: Kind, path: Path) {
    let client = kind.client().await;
    let held = Mutex::new(&client, path.clone()).lock().await.expect("free");
    let mut theirs = kind.asks_for("revocable", &path).await;
    stand(&client, &path, 2).await;
    let mut asks = Peer::curator(&kind.server()).await;
    asks.write_line(&format!("ask {}", held.path()));
    timeout(PATIENCE, held.release_requested()).await.expect("in time").expect("it is held");
    assert!(held.is_held(), "the holder decides whether to release it");
    held.release().await.expect("reachable");

    theirs.says("in").await;
    let line = inspect(&client, &path).await.expect("reachable");
    assert!(request_release(&client, &line[0].path).await.expect("reachable"));
    theirs.says("asked").await;
    theirs.write_line("release");
    theirs.says("out").await;
}

/// The time limit of a scene, for slow machines. One that hangs ends together with the process that
/// it waits for.
const LIMIT: Duration = Duration::from_secs(10 * 60);

type Scene = fn(Kind, Path) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn play(name: &str, kind: Kind, scene: Scene) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = Path::new(&format!("/shared/{name}/with-{kind:?}"))?;
    let played = limited(LIMIT, move || {
        runtime.block_on(LocalSet::new().run_until(async {
            if kind == Kind::Kazoo {
                keep_directory(kind, &path).await;
            }
            scene(kind, path).await;
        }));
        runtime.shutdown_background();
    });
    played.map_err(Failed::from)
}

/// Keeps the directory of a path: kazoo fails where the servers collect it between two requests of
/// its `ensure_path`.
async fn keep_directory(kind: Kind, path: &Path) {
    let beside = format!("kept-for-{}", path.name());
    let beside = path.parent().expect("it is below others").join(&beside).expect("valid");
    let client = kind.client().await;
    let kept = client.create(&beside, "", Lifetime::Persistent).await.expect("reachable");
    kept.required().expect("nothing is against it");
    client.close().await.expect("reachable");
}

fn main() -> ExitCode {
    use Kind::{Curator, Etcdctl, Kazoo};
    let scenes: [(&str, &[Kind], Scene); 6] = [
        ("a_mutex_is_shared_in_order", &[Curator, Kazoo, Etcdctl], |kind, path| {
            Box::pin(a_mutex_is_shared_in_order(kind, path))
        }),
        ("a_holder_that_dies_is_succeeded", &[Curator, Kazoo, Etcdctl], |kind, path| {
            Box::pin(a_holder_that_dies_is_succeeded(kind, path))
        }),
        ("a_read_write_lock_is_shared", &[Curator, Kazoo], |kind, path| {
            Box::pin(a_read_write_lock_is_shared(kind, path))
        }),
        ("a_writer_that_downgrades_keeps_its_place", &[Curator], |kind, path| {
            Box::pin(a_writer_that_downgrades_keeps_its_place(kind, path))
        }),
        ("a_writer_that_dies_is_succeeded", &[Curator, Kazoo], |kind, path| {
            Box::pin(a_writer_that_dies_is_succeeded(kind, path))
        }),
        ("a_lock_is_asked_back", &[Curator], |kind, path| {
            Box::pin(a_lock_is_asked_back(kind, path))
        }),
    ];
    let mut trials = Vec::new();
    let others = election::SCENES.into_iter().chain(permits::SCENES).chain(value::SCENES);
    for (name, kinds, scene) in scenes
        .into_iter()
        .chain(others)
        .chain(group::SCENES)
        .chain(discovery::SCENES)
        .chain(queue::SCENES)
        .chain(stm::SCENES)
        .chain(view::SCENES)
    {
        for kind in kinds {
            let full = format!("{name} {kind:?}");
            let trial = Trial::test(full, move || play(name, *kind, scene));
            trials.push(match kind.missing() {
                Some(why) if !required() || (*kind == Kind::Go && !go_required()) => {
                    trial.with_ignored_flag(true).with_kind(why)
                }
                _ => trial,
            });
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
