//! [`ZkBackend`]: opens sessions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, FutureExt as _, select};
use synod_core::clock::{self, sleep_until, timeout};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    Backend, CurrentServer, Extension, Feature, Heartbeats, Life, Limits, ServerList, SessionEnd,
    SessionHandover, SessionId, SessionInfo, SessionOptions, Store, clamp_ttl,
};

use crate::access_lists::AccessLists;
use crate::acl::Acl;
use crate::acl_calls::AclCalls;
use crate::client::connector::Connector;
use crate::client::encryption::Encryption;
use crate::client::identity::{Identity, UserPassword};
use crate::client::{
    Client, CreateMode, Credentials, OneshotWatcher, StateWatcher, ZkError, with_last_resort,
};
use crate::connection::Connection;
use crate::diagnosis::{Probe, no_server};
use crate::ensemble;
use crate::error::{Sort, Trouble};
use crate::heartbeat;
use crate::options::{DOING, Login, ZkOptions};
use crate::server_stats::ZkCalls;
use crate::session::{Following, STORE, ZkStore};

/// The shortest and the longest TTL that is requested. The servers have their own limits.
const TTLS: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(24 * 24 * 60 * 60));

/// The maximum duration of opening a session.
const PATIENCE: Duration = Duration::from_secs(15);

/// A store on ZooKeeper servers.
#[derive(Clone, Debug)]
pub struct ZkBackend {
    options: Arc<ZkOptions>,
    access: Arc<AccessLists>,
    encryption: Option<Encryption>,
    servers: ServerList,
    probe: Arc<Probe>,
}

/// The result of opening a session.
struct Opened {
    client: Arc<Client>,
    states: StateWatcher,
    life: Life,
    beats: Heartbeats,
    missing_features: Vec<Feature>,
    server: CurrentServer,
    /// The watch of the servers that the ensemble reports.
    watch: Option<OneshotWatcher>,
}

impl ZkBackend {
    /// A store on these servers. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for invalid options, or if neither credentials nor `access` determine
    /// the access rights of new nodes.
    pub fn new(options: ZkOptions) -> Result<Self> {
        let (options, access) = options.checked()?;
        let access = Arc::new(AccessLists::new(access, &options.acls));
        let encryption = options.tls.as_ref().map(Encryption::new).transpose();
        let encryption =
            encryption.map_err(|error| Trouble::Zk(error).translate(DOING, Sort::Read))?;
        let (servers, probe) = (options.server_list(), Arc::default());
        Ok(Self { options: Arc::new(options), access, encryption, servers, probe })
    }

    async fn connect(
        &self,
        ttl: Duration,
        server: CurrentServer,
        resume: Option<Credentials>,
    ) -> Result<Client, ZkError> {
        let (servers, encryption) = (self.servers.clone(), self.encryption.clone());
        let (identity, max_answer) = (self.identity(), self.options.max_answer);
        let more = self.options.identities.iter().cloned();
        let identities = more.map(|(user, password)| UserPassword(user, password)).collect();
        let timeout = ttl;
        let connector = Connector {
            servers,
            identity,
            identities,
            encryption,
            timeout,
            max_answer,
            server,
            resume,
        };
        connector.connect().await
    }

    /// Waits for a session, or returns the reason that there is none within `limit`.
    async fn within<T>(
        &self,
        limit: Duration,
        opening: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T> {
        const DOING: &str = "opening a session";

        let end = clock::now() + limit;
        let servers = self.known_servers();
        let query = || self.probe.why(&servers, self.options.tls.is_some(), limit / 4);
        // Connecting continues while the servers are queried for the reason of the delay.
        let late = async {
            sleep_until(end - limit / 4).await;
            query().await
        };
        let (result, reason) = match select(pin!(timeout(limit, opening)), pin!(late)).await {
            Either::Left((Ok(Ok(opened)), _)) => return Ok(opened),
            Either::Left((result, _)) => (result.ok(), None),
            Either::Right((reason, opening)) => match opening.await {
                Ok(Ok(opened)) => return Ok(opened),
                result => (result.ok(), Some(reason)),
            },
        };
        let error = match result.and_then(Result::err) {
            Some(Refusal::Known(error)) => return Err(error),
            Some(Refusal::Zk(cause @ (ZkError::AuthFailed | ZkError::BadArguments(_)))) => {
                return Err(Trouble::Zk(cause).translate(DOING, Sort::Read));
            }
            Some(Refusal::Zk(ZkError::NoHosts)) => match self.no_server(limit / 4).await {
                Some(reason) => {
                    let error = Error::new(ErrorKind::Unreachable, DOING).because(reason);
                    return Err(error.with_no_server());
                }
                None => Trouble::Zk(ZkError::NoHosts).translate(DOING, Sort::Read),
            },
            Some(Refusal::Zk(cause)) => Trouble::Zk(cause).translate(DOING, Sort::Read),
            None => Error::new(ErrorKind::Unreachable, DOING),
        };
        // The servers' own answers are more precise than the client's error.
        let reason = match reason {
            Some(reason) => reason,
            None => query().await,
        };
        Err(error.because(reason))
    }

    /// Returns the reason if no server accepts connections.
    async fn no_server(&self, limit: Duration) -> Option<String> {
        let (servers, is_encrypted) = (self.known_servers(), self.options.tls.is_some());
        timeout(limit, no_server(&servers, is_encrypted)).await.ok().flatten()
    }

    /// The servers at which a session may be opened.
    fn known_servers(&self) -> Vec<String> {
        with_last_resort(&self.servers.get(), &self.servers)
    }

    fn identity(&self) -> Identity {
        let Some((user, password)) = &self.options.credentials else { return Identity::Nobody };
        let login = UserPassword(user.clone(), password.clone());
        match self.options.login {
            Login::Digest => Identity::Digest(login),
            #[cfg(feature = "sasl")]
            Login::Sasl => Identity::Sasl(login, synod_core::random::Random::from_system()),
            // Unreachable: `checked` has refused this.
            #[cfg(not(feature = "sasl"))]
            Login::Sasl => Identity::Nobody,
        }
    }
}

#[async_trait]
impl Backend for ZkBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let resume = options.resume.as_ref().map(|session| session.of_store(STORE)).transpose()?;
        let ttl = resume.map_or(options.ttl, SessionHandover::ttl);
        let wanted = clamp_ttl(ttl, TTLS.0, TTLS.1)?;
        let limit = wanted.clamp(Duration::from_secs(1), PATIENCE);
        self.servers.ready().await?;
        let Opened { client, states, life, beats, missing_features, server, watch } =
            self.within(limit, self.session(wanted, resume).boxed()).await?;
        let mut limits = Limits::default();
        limits.missing_features = missing_features;
        let id = SessionId::new(client.session_id().cast_unsigned());
        let info = SessionInfo::new(id, life.ttl(), limits).with_server(server);
        let connection =
            Arc::new(Connection::new(client, life, self.access.clone(), &self.options));
        let acl = Arc::new(AclCalls::new(connection.clone()));
        let calls = ZkCalls { acl, encryption: self.encryption.clone() };
        let extension = Extension::new(Arc::new(calls));
        let info = info.with_servers(self.servers.clone()).with_extension(extension);
        let following = Following { watch, is_encrypted: self.encryption.is_some() };
        let listing_cache = self.options.listing_cache;
        Ok(Box::new(ZkStore::start(info, connection, (states, beats), following, listing_cache)))
    }
}

impl ZkBackend {
    /// Opens or continues a session, and waits until its certain time is long enough for the next
    /// heartbeat.
    async fn session(
        &self,
        wanted: Duration,
        resume: Option<&SessionHandover>,
    ) -> Result<Opened, Refusal> {
        let began = clock::now();
        let server = CurrentServer::default();
        let client = match self.connect(wanted, server.clone(), resume.map(credentials)).await {
            Err(ZkError::SessionExpired) if resume.is_some() => {
                return Err(SessionEnd::Expired.error("resuming a session").into());
            }
            connected => Arc::new(connected?),
        };
        let departs = resume.map(|_| Departs(Some(client.clone())));
        let ttl = client.session_timeout();
        let mut beats = Heartbeats::new(heartbeat::gap(self.options.tick, ttl)?);
        let mut states = client.state_watcher();
        // The first connection is not a reconnect.
        let _first = states.state();
        let sent = clock::now();
        let alive = heartbeat::send(&client, self.options.heartbeat);
        let (missing_features, age) = (missing_features(&client), is_too_old(&client));
        let is_encrypted = self.encryption.is_some();
        let servers = self.servers.is_of_ensemble();
        let servers = servers.then(|| ensemble::read(&client, &self.servers, is_encrypted));
        alive.await?;
        let _counted = beats.answered(sent, clock::now());
        let missing_features = missing_features.await?;
        age.await?;
        let watch = match servers {
            Some(servers) => servers.await,
            None => None,
        };
        // The leader counts from the moment at which it created the session. The client does not
        // report which of its attempts that was. A leader restarts the time of a session that is
        // continued, and still led a quorum when it answered the write of `missing_features`, which
        // was sent on that connection after it.
        let life = Life::new(ttl, began, Duration::ZERO);
        // Attempts at silent servers may have taken most of the session's time. Without waiting for
        // a heartbeat here, the session would be lost before one proves that it is alive.
        while life.until().is_none_or(|until| until < clock::now() + ttl / 2) {
            clock::sleep(heartbeat::pause(ttl)).await;
            if let Some(state) = states.changed().now_or_never()
                && state.is_terminated()
            {
                return Err(ZkError::SessionExpired.into());
            }
            let sent = clock::now();
            heartbeat::send(&client, self.options.heartbeat).await?;
            if let Some(counted) = beats.answered(sent, clock::now()) {
                life.renew(counted);
            }
        }
        if let Some(mut departs) = departs {
            departs.0 = None;
        }
        Ok(Opened { client, states, life, beats, missing_features, server, watch })
    }
}

/// The client of a session that is being continued. If that fails, or is dropped, the session must
/// not end, as another attempt may succeed.
struct Departs(Option<Arc<Client>>);

impl Drop for Departs {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            let _credentials = client.depart();
        }
    }
}

/// The credentials of a session that was handed over.
fn credentials(session: &SessionHandover) -> Credentials {
    Credentials {
        id: session.session().get().cast_signed(),
        password: session.secret().to_vec(),
        newest: i64::try_from(session.position()).unwrap_or(i64::MAX),
    }
}

/// The reason that there is no session.
enum Refusal {
    /// The error of the servers or of the client.
    Zk(ZkError),
    /// The reason is known, so the servers need not be queried.
    Known(Error),
}

impl From<ZkError> for Refusal {
    fn from(error: ZkError) -> Self {
        Self::Zk(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}

/// Checks that the servers are not too old. Every `observe` needs persistent watches, which came
/// with ZooKeeper 3.6, as did the multi-read request, which older servers reject explicitly.
fn is_too_old(client: &Client) -> impl Future<Output = Result<(), Refusal>> + use<'_> {
    let mut reader = client.new_multi_reader();
    reader.add_get_data(NOWHERE);
    let answer = reader.commit();
    async move { judge_age(answer.await.map(drop)) }
}

fn judge_age(answer: Result<(), ZkError>) -> Result<(), Refusal> {
    match answer {
        Err(ZkError::Unimplemented) => Err(Error::new(ErrorKind::Unsupported, "opening a session")
            .because("these servers are older than ZooKeeper 3.6, which brought persistent watches")
            .into()),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}

/// A path that no node has.
const NOWHERE: &str = "/synod-nowhere-5f0e9c/x";

/// The features that the servers lack, found by requests that cannot succeed.
fn missing_features(
    client: &Client,
) -> impl Future<Output = Result<Vec<Feature>, ZkError>> + use<'_> {
    let options = CreateMode::Persistent.with_acl(&Acl::open());
    let options = options.with_ttl(Duration::from_secs(1));
    let refused = client.create(NOWHERE, b"", &options);
    async move {
        match refused.await {
            Err(ZkError::Unimplemented) => Ok(vec![Feature::TtlNodes]),
            Ok(_) | Err(ZkError::NoNode | ZkError::NoAuth | ZkError::NodeExists) => Ok(vec![]),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_persistent_watches_are_refused_by_name() {
        let Err(Refusal::Known(error)) = judge_age(Err(ZkError::Unimplemented)) else {
            panic!("it is known why")
        };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("3.6"), "{error}");
        assert!(judge_age(Ok(())).is_ok());
        assert!(matches!(judge_age(Err(ZkError::ConnectionLoss)), Err(Refusal::Zk(_))));
    }
}
