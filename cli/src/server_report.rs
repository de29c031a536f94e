//! [`ServerReport`]: the report of a server about itself, in the same form for each kind of store.

#[cfg(any(feature = "zookeeper", feature = "etcd"))]
use synod::Error;
use synod::{Client, Config, Scheme};

#[cfg(any(feature = "zookeeper", feature = "etcd"))]
use crate::failure::sentence;

/// The report of a server about itself. A value is `None` if the store has none, or if it is not
/// known.
#[derive(Debug, Default)]
pub(crate) struct ServerReport {
    pub(crate) version: Option<String>,
    /// For example `leader`.
    pub(crate) role: Option<String>,
    /// The name of the leader, if the server reports it.
    pub(crate) leader: Option<String>,
    /// The number of connections to the server.
    pub(crate) connections: Option<u64>,
    /// The number of leases in the cluster.
    pub(crate) leases: Option<u64>,
    /// The active alarms of the cluster.
    pub(crate) alarms: Option<Vec<Alarm>>,
    /// The reason that nothing is known.
    pub(crate) unknown: Option<String>,
}

/// The name of an active alarm, and that of the member that raised it.
pub(crate) type Alarm = (String, String);

#[cfg(feature = "zookeeper")]
impl ServerReport {
    /// Asks the server of a client: ZooKeeper.
    pub(crate) async fn of_client(client: &Client, scheme: Scheme) -> Option<Self> {
        let is_asked = matches!(scheme, Scheme::ZooKeeper { .. });
        if !is_asked {
            return None;
        }
        Some(of_zookeeper(client).await.unwrap_or_else(|error| unknown(&error)))
    }
}

#[cfg(not(feature = "zookeeper"))]
#[expect(clippy::unused_async, reason = "as that of ZooKeeper")]
impl ServerReport {
    pub(crate) async fn of_client(_client: &Client, _scheme: Scheme) -> Option<Self> {
        None
    }
}

#[cfg(feature = "etcd")]
impl ServerReport {
    /// Asks the only server of a config, without a session: etcd.
    pub(crate) async fn of_config(config: &Config) -> Option<Self> {
        let is_asked = matches!(config.url.scheme(), Scheme::Etcd { .. });
        if !is_asked {
            return None;
        }
        Some(of_etcd(config).await.unwrap_or_else(|error| unknown(&error)))
    }
}

#[cfg(not(feature = "etcd"))]
#[expect(clippy::unused_async, reason = "as that of etcd")]
impl ServerReport {
    pub(crate) async fn of_config(_config: &Config) -> Option<Self> {
        None
    }
}

#[cfg(any(feature = "zookeeper", feature = "etcd"))]
fn unknown(error: &Error) -> ServerReport {
    let why = error.detail().map_or_else(|| sentence(error), str::to_owned);
    ServerReport { unknown: Some(why), ..ServerReport::default() }
}

impl ServerReport {
    /// The version, the role and the number of connections, each as the continuation of a text.
    pub(crate) fn text(&self) -> String {
        let connections = self.connections.map(|count| match count {
            1 => "1 connection".to_owned(),
            _ => format!("{count} connections"),
        });
        let parts = [&self.version, &self.role, &connections].into_iter().flatten();
        let texts: Vec<_> = parts.map(|part| format!(", {}", part.escape_debug())).collect();
        texts.concat()
    }
}

#[cfg(feature = "zookeeper")]
async fn of_zookeeper(client: &Client) -> Result<ServerReport, Error> {
    let stats = synod::zookeeper::ServerStats::of(client).await?;
    Ok(ServerReport {
        version: Some(stats.version),
        role: Some(stats.mode).filter(|mode| !mode.is_empty()),
        connections: stats.connections,
        ..ServerReport::default()
    })
}

#[cfg(feature = "etcd")]
async fn of_etcd(config: &Config) -> Result<ServerReport, Error> {
    let status = config.member_status().await?;
    let role = match (status.is_leader, status.is_learner) {
        (true, _) => "leader",
        (false, true) => "learner",
        (false, false) => "follower",
    };
    let alarms = status.alarms.into_iter();
    let alarms = alarms.map(|alarm| (alarm.name, alarm.member)).collect();
    Ok(ServerReport {
        version: Some(status.version),
        role: Some(role.to_owned()),
        leader: status.leader,
        leases: status.leases,
        alarms: Some(alarms),
        ..ServerReport::default()
    })
}
