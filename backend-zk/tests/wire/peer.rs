//! [`Peer`]: a simulated ZooKeeper ensemble that listens on loopback and follows a script.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_conformance::harness::Link;
use synod_core::store::SessionId;
use synod_core::task::{Task, spawn};
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::interval;

use crate::connection::serve;
use crate::script::Rule;
use crate::world::World;

/// All peers run here, so that no test's own runtime has a task of theirs.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    built.expect("the operating system lets a runtime start")
});

/// The tick of the servers, by default.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The state that all connections of a peer share.
#[derive(Debug)]
pub(crate) struct Shared {
    world: Mutex<World>,
    changed: watch::Sender<()>,
}

/// Servers over one state. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    _running: Vec<Task>,
}

impl Shared {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn changed(&self) {
        self.changed.send_replace(());
    }
}

impl Peer {
    pub(crate) fn start(servers: usize) -> io::Result<Self> {
        Self::start_with(servers, TICK)
    }

    pub(crate) fn start_with(servers: usize, tick: Duration) -> io::Result<Self> {
        let _entered = RUNTIME.enter();
        let world = Mutex::new(World::new(servers, tick));
        let shared = Arc::new(Shared { world, changed: watch::Sender::new(()) });
        let (mut addresses, mut running) = (Vec::new(), Vec::new());
        for server in 0..servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            running.push(spawn(listen(shared.clone(), server, TcpListener::from_std(listener)?)));
        }
        running.push(spawn(beat(shared.clone(), tick)));
        Ok(Self { shared, addresses, _running: running })
    }

    /// The state of the servers. [`Peer::change`] notifies the tasks that wait for a change of it.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// Changes the state, and notifies connections that wait for a change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let changed = change(&mut self.world());
        self.shared.changed();
        changed
    }

    /// Adds a rule for requests.
    pub(crate) fn when(&self, rule: Rule) {
        self.world().script.add(rule);
    }

    /// Waits until the servers are in this state. It is checked at each request and each change.
    pub(crate) async fn until(&self, mut like: impl FnMut(&mut World) -> bool) {
        let mut changed = self.shared.watch();
        loop {
            changed.mark_unchanged();
            if like(&mut self.world()) {
                return;
            }
            // The sender is part of the state that all connections share.
            let _changed = changed.changed().await.is_ok();
        }
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn options(&self) -> ZkOptions {
        let hosts = self.addresses.iter().map(ToString::to_string);
        let tick = self.world().tick;
        let is_off = std::env::var("SYNOD_LISTING_CACHE").is_ok_and(|value| value == "off");
        ZkOptions::new(hosts).access(Access::Open).tick(tick).listing_cache(!is_off)
    }

    pub(crate) fn backend(&self) -> ZkBackend {
        ZkBackend::new(self.options()).expect("valid")
    }

    pub(crate) fn expire(&self, session: SessionId) {
        self.change(|world| world.end(session.get().cast_signed()));
    }

    pub(crate) fn link(&self, session: SessionId, link: Link) {
        self.change(|world| world.links.insert(session.get().cast_signed(), link));
    }

    /// Stops a server: its connections are closed, and no new one is accepted.
    pub(crate) fn stop(&self, server: usize) {
        self.change(|world| {
            world.servers[server].down = true;
            world.servers[server].close_all();
            world.elect();
        });
    }

    /// Starts a server again; it catches up.
    pub(crate) fn resume(&self, server: usize) {
        self.change(|world| {
            let this = &mut world.servers[server];
            (this.down, this.parted, this.lags) = (false, false, false);
            world.catch_up(server);
            world.elect();
        });
    }
}

async fn listen(shared: Arc<Shared>, server: usize, listener: TcpListener) {
    let mut connections: Vec<Task> = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.retain(|connection| !connection.is_finished());
        connections.push(spawn(serve(shared.clone(), server, stream)));
    }
}

async fn beat(shared: Arc<Shared>, tick: Duration) {
    let mut beats = interval(tick / 2);
    loop {
        beats.tick().await;
        shared.world().beat();
        shared.changed();
    }
}
