//! [`Servers`]: an ensemble of three servers, or one server, of either kind, and the faults that
//! can be applied to them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, EventType, WatchOptions};
use synod::SessionId;
use synod_conformance::harness::Link;
use synod_servers::clients::entry::{Fact, Kind};
use synod_servers::etcd::{Cluster, Flavour};
use synod_servers::links::Links;
use synod_servers::members::Members;
use synod_servers::peers::{Callers, Peers};
use synod_servers::stall::Stall;
use synod_servers::zookeeper::{Ensemble, TICK};
use tokio::time::timeout;

/// The number of servers, where they have to agree.
pub(crate) const SIZE: usize = 3;

/// The time limit of the report of all leases. A later report is of no use.
const LEASES: Duration = Duration::from_secs(1);

/// Some servers.
#[async_trait]
pub(crate) trait Servers: Send {
    /// The addresses for clients.
    fn addresses(&self) -> Vec<SocketAddr>;
    /// The URL of a store that is reached there.
    fn url(&self, at: &[SocketAddr]) -> String;
    /// Their processes.
    fn processes(&mut self) -> &mut dyn Processes;
    /// Changes the links between this server and the others.
    fn part(&self, server: usize, link: Link);
    /// Ends a session without the knowledge of its client.
    async fn expire(&self, session: u64) -> io::Result<()>;
    /// Every write that was kept, in order.
    async fn facts(&mut self) -> Result<Vec<Fact>, String>;
    /// The sessions that are alive by the answers of the given servers, each with its minimum
    /// remaining time if it is not renewed. Empty where servers do not report it, or give no answer
    /// in time.
    async fn leases(&self, running: &[usize]) -> Vec<(u64, Duration)>;
    /// The version of these servers, by its numbers.
    fn version(&self) -> Result<Vec<u32>, String>;
    /// Compacts the history, if these servers can.
    async fn compact(&mut self) -> Result<(), String>;
}

/// The processes of some servers of either kind.
pub(crate) trait Processes: Send {
    fn kill(&mut self, server: usize) -> io::Result<()>;
    fn restart(&mut self, server: usize) -> io::Result<()>;
    fn pause(&self, server: usize) -> io::Result<()>;
    fn resume(&self, server: usize) -> io::Result<()>;
    /// Stalls the disk of a server until the result is dropped.
    fn stall(&self, server: usize) -> io::Result<Stall>;
    fn leader(&self) -> Option<usize>;
    fn await_ready(&self) -> Result<(), String>;
}

impl<K: synod_servers::members::Kind> Processes for Members<K> {
    fn kill(&mut self, server: usize) -> io::Result<()> {
        Self::kill(self, server)
    }

    fn restart(&mut self, server: usize) -> io::Result<()> {
        Self::restart(self, server)
    }

    fn pause(&self, server: usize) -> io::Result<()> {
        Self::pause(self, server)
    }

    fn resume(&self, server: usize) -> io::Result<()> {
        Self::resume(self, server)
    }

    fn stall(&self, server: usize) -> io::Result<Stall> {
        Self::stall(self, server)
    }

    fn leader(&self) -> Option<usize> {
        Self::leader(self)
    }

    fn await_ready(&self) -> Result<(), String> {
        Self::await_ready(self)
    }
}

/// ZooKeeper servers.
pub(crate) struct ZooKeeper {
    servers: Ensemble,
    peers: Peers,
    /// The proxies for clients, which have the passwords of sessions.
    links: Links,
    /// The servers' tick, if it is not the stock one.
    tick: Option<Duration>,
}

/// The values of ZooKeeper's sample configuration, and the shortest and longest session that follow
/// from them.
const STOCK: &[&str] = &[
    "tickTime=2000",
    "initLimit=10",
    "syncLimit=5",
    "minSessionTimeout=4000",
    "maxSessionTimeout=40000",
];

impl ZooKeeper {
    pub(crate) fn missing() -> Option<String> {
        Ensemble::missing()
    }

    pub(crate) fn start(size: usize) -> Result<Self, String> {
        Self::start_with(size, &[], Some(TICK))
    }

    /// Servers with ZooKeeper's stock settings.
    pub(crate) fn start_stock(size: usize) -> Result<Self, String> {
        Self::start_with(size, STOCK, None)
    }

    fn start_with(size: usize, config: &[&str], tick: Option<Duration>) -> Result<Self, String> {
        let (servers, peers) = Ensemble::start_apart_with(size, config)?;
        let links = Links::start(&servers.addresses()).map_err(|error| error.to_string())?;
        Ok(Self { servers, peers, links, tick })
    }
}

#[async_trait]
impl Servers for ZooKeeper {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.links.addresses().to_vec()
    }

    fn url(&self, at: &[SocketAddr]) -> String {
        let tick = self.tick.map(|tick| format!("&tick={}ms", tick.as_millis()));
        format!("zk://{}?acl=open{}", joined(at), tick.unwrap_or_default())
    }

    fn processes(&mut self) -> &mut dyn Processes {
        &mut self.servers
    }

    fn part(&self, server: usize, link: Link) {
        self.peers.set(server, link);
    }

    async fn expire(&self, session: u64) -> io::Result<()> {
        self.links.expire(SessionId::new(session)).await
    }

    async fn facts(&mut self) -> Result<Vec<Fact>, String> {
        self.servers.facts().map_err(|error| error.to_string())
    }

    async fn leases(&self, _running: &[usize]) -> Vec<(u64, Duration)> {
        Vec::new()
    }

    fn version(&self) -> Result<Vec<u32>, String> {
        let version = self.servers.version().ok_or("ZooKeeper does not report its version")?;
        Ok(numbers(&version))
    }

    async fn compact(&mut self) -> Result<(), String> {
        Err("ZooKeeper keeps no past".to_owned())
    }
}

/// etcd servers.
pub(crate) struct Etcd {
    servers: Cluster,
    callers: Callers,
    names: Vec<String>,
    /// The history that was read before it was compacted.
    facts: Vec<Fact>,
    /// The revision up to which it was read.
    told: i64,
}

impl Etcd {
    pub(crate) fn missing() -> Option<String> {
        Cluster::missing()
    }

    pub(crate) fn start(size: usize) -> Result<Self, String> {
        let mut flavour = Flavour::default();
        // Servers are killed.
        flavour.fsync = true;
        let (servers, callers) = Cluster::start_apart(size, &flavour)?;
        let names = servers.names();
        Ok(Self { servers, callers, names, facts: Vec::new(), told: 0 })
    }

    async fn client(&self) -> Result<Client, etcd_client::Error> {
        let hosts: Vec<_> = self.servers.addresses().iter().map(ToString::to_string).collect();
        Client::connect(hosts, None).await
    }

    /// The remaining time of each lease, in whole seconds that etcd rounds down.
    async fn time_to_live(
        &self,
        running: &[usize],
    ) -> Result<Vec<(u64, Duration)>, etcd_client::Error> {
        let addresses = self.servers.addresses();
        let hosts: Vec<_> = running.iter().map(|server| addresses[*server].to_string()).collect();
        let mut client = Client::connect(hosts, None).await?.lease_client();
        let mut left = Vec::new();
        for lease in client.leases().await?.leases() {
            let answer = client.time_to_live(lease.id(), None).await?;
            let seconds = u64::try_from(answer.ttl()).unwrap_or_default();
            left.push((lease.id().cast_unsigned(), Duration::from_secs(seconds)));
        }
        Ok(left)
    }

    /// Records the changes since the last call.
    async fn catch_up(&mut self) -> Result<i64, etcd_client::Error> {
        let mut client = self.client().await?;
        let now = client.get("x", None).await?;
        let now = now.header().map_or(0, etcd_client::ResponseHeader::revision);
        let all = WatchOptions::new().with_all_keys().with_prev_key();
        let mut watch = client.watch("", Some(all.with_start_revision(self.told + 1))).await?;
        while self.told < now {
            let Some(response) = watch.message().await? else { break };
            for event in response.events() {
                self.told =
                    self.told.max(event.kv().map_or(0, etcd_client::KeyValue::mod_revision));
                self.facts.extend(fact(event));
            }
        }
        Ok(now)
    }
}

/// The numbers of a version such as `3.4.23`.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.trim().parse().ok()).collect()
}

/// The fact in an event of etcd.
fn fact(event: &etcd_client::Event) -> Option<Fact> {
    let (kv, before) = (event.kv()?, event.prev_kv());
    // The key of /a/b/c is /a/b//c.
    let (above, name) = kv.key_str().ok()?.rsplit_once("//")?;
    let (kind, lease) = match event.event_type() {
        EventType::Delete => (Kind::Deleted, before.map_or(0, etcd_client::KeyValue::lease)),
        EventType::Put if kv.version() == 1 => (Kind::Created, kv.lease()),
        EventType::Put => (Kind::Updated, kv.lease()),
    };
    Some(Fact {
        revision: u64::try_from(kv.mod_revision()).ok()?,
        path: format!("{above}/{name}"),
        kind,
        value: kv.value_str().ok().and_then(|text| text.parse().ok()),
        owner: (lease != 0).then_some(lease.cast_unsigned()),
    })
}

#[async_trait]
impl Servers for Etcd {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.addresses()
    }

    fn url(&self, at: &[SocketAddr]) -> String {
        format!("etcd://{}", joined(at))
    }

    fn processes(&mut self) -> &mut dyn Processes {
        &mut self.servers
    }

    fn part(&self, server: usize, link: Link) {
        self.callers.set(server, &self.names, link);
    }

    async fn expire(&self, session: u64) -> io::Result<()> {
        let client = self.client().await.map_err(io::Error::other)?;
        let revoked = client.lease_client().revoke(session.cast_signed()).await;
        revoked.map(drop).map_err(io::Error::other)
    }

    async fn facts(&mut self) -> Result<Vec<Fact>, String> {
        self.catch_up().await.map_err(|error| error.to_string())?;
        Ok(self.facts.clone())
    }

    async fn leases(&self, running: &[usize]) -> Vec<(u64, Duration)> {
        let asked = timeout(LEASES, self.time_to_live(running)).await;
        asked.map(Result::unwrap_or_default).unwrap_or_default()
    }

    fn version(&self) -> Result<Vec<u32>, String> {
        Ok(numbers(&Cluster::version()?))
    }

    async fn compact(&mut self) -> Result<(), String> {
        let compact = async {
            let now = self.catch_up().await?;
            self.client().await?.compact(now, None).await
        };
        compact.await.map(drop).map_err(|error: etcd_client::Error| error.to_string())
    }
}

fn joined(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
