//! [`Link`]: a connection to one member.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::proto::{PbMember, PbResponseHeader};
use etcd_client::{
    AlarmAction, AlarmMember, AlarmType, Channel, Client, ClusterClient, ConnectOptions,
    DeleteResponse, Error, GetOptions, GetResponse, KvClient, LeaseClient, MaintenanceClient,
    MemberListResponse, PutOptions, PutResponse, ResponseHeader, StatusResponse, Txn, TxnOp,
    TxnResponse, WatchClient,
};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::time::Instant;
use tonic::Status;

use crate::encryption::Encrypted;
use crate::error::{is_forbidden, is_open_to_all, judge, proxy};
use crate::options::EtcdOptions;
use crate::version::Version;
use crate::wire::{self, Connect, Direct, Numbered, Sockets};

/// The largest answer that is received in one message.
const LARGEST: usize = 64 << 20;
/// A key that no node has.
const UNUSED: &[u8] = b"synod";
/// The maximum number of idle clients that are kept for later calls.
const IDLE: usize = 64;

/// The raft term of the last entry that a member had applied, from the header of an answer. A
/// member's term never decreases, so two equal terms show that it did not change in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The number of the latest connection when the request was sent.
    connection: u64,
    number: u64,
}

/// The report of a member about itself and its cluster.
pub(crate) struct Maintenance {
    pub(crate) status: StatusResponse,
    pub(crate) alarms: Vec<AlarmMember>,
    pub(crate) members: Vec<PbMember>,
    /// `None` if the user may not list the leases.
    pub(crate) leases: Option<u64>,
}

/// A connection to one member.
pub(crate) struct Link {
    kv: KvClient,
    /// Idle clients: cloning one costs more than keeping it.
    idle: Mutex<Vec<KvClient>>,
    pub(crate) lease: LeaseClient,
    pub(crate) watch: WatchClient,
    cluster: ClusterClient,
    maintenance: MaintenanceClient,
    channel: Channel,
    options: ConnectOptions,
    /// A client that also reads from a member without a leader, made when it is first needed.
    local: OnceCell<KvClient>,
    /// The cluster of the peer, when it is known to be a member.
    cluster_id: OfConnection<u64>,
    /// The version of the peer, if it returns one.
    version: OfConnection<Option<Version>>,
    /// The number of the latest connection.
    connection: Arc<AtomicU64>,
    /// The term in the latest answer that had one.
    term: Mutex<Option<Term>>,
    /// Opens the connection.
    opener: Direct,
    /// When the last answer arrived.
    heard: Mutex<Option<Instant>>,
    /// True if it may be dead: a request was not answered in time, and nothing was received since.
    doubted: AtomicBool,
}

impl Link {
    /// A connection to the member at `url`. It is established by the first call on it, which may be
    /// the login.
    pub(crate) async fn open(options: &EtcdOptions, url: &str) -> Result<Self, Error> {
        if options.encryption.is_some() && cfg!(not(feature = "tls")) {
            let why = "this program was built without the feature `tls` of synod";
            return Err(Error::GRpcStatus(Status::unimplemented(why)));
        }
        // No HTTP/2 keep-alive: servers close connections whose keep-alive is faster than theirs,
        // and every call here has its own deadline.
        let way = options.way.clone().unwrap_or_else(|| sockets(options));
        let connection = Arc::<AtomicU64>::default();
        let way: Arc<dyn Connect> = match options.encryption.clone() {
            None => way,
            Some(encryption) => Arc::new(Encrypted { way, encryption }),
        };
        let way = Arc::new(Numbered { way, latest: connection.clone() });
        let opener = Direct::new(url.parse()?, way);
        // The client's own way to connect is made for several members at a time.
        let channel = wire::channel(opener.clone());
        let (client, local) = log_in(&channel, options, url).await?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(LARGEST),
            idle: Mutex::default(),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(LARGEST),
            cluster: client.cluster_client(),
            maintenance: client.maintenance_client(),
            channel,
            options: local,
            local: OnceCell::new(),
            cluster_id: OfConnection::default(),
            version: OfConnection::default(),
            connection,
            term: Mutex::default(),
            opener,
            heard: Mutex::default(),
            doubted: AtomicBool::new(false),
        })
    }

    /// Reads a key, or a range of keys; if `local`, also from a member that has no leader at the
    /// moment.
    pub(crate) async fn get(
        &self,
        key: Vec<u8>,
        options: GetOptions,
        local: bool,
    ) -> Result<GetResponse, Error> {
        if local {
            return self.local().await?.get(key, Some(options.with_serializable())).await;
        }
        let mut kv = self.take();
        let answer = kv.get(key, Some(options)).await;
        self.give_back(kv);
        answer
    }

    /// Reads several ranges at one revision.
    pub(crate) async fn get_all(
        &self,
        gets: impl Iterator<Item = (Vec<u8>, GetOptions)>,
        local: bool,
    ) -> Result<TxnResponse, Error> {
        let fresh = |options: GetOptions| if local { options.with_serializable() } else { options };
        let ops: Vec<TxnOp> =
            gets.map(|(key, options)| TxnOp::get(key, Some(fresh(options)))).collect();
        let request = Txn::new().and_then(ops);
        if local {
            return self.local().await?.txn(request).await;
        }
        self.txn(request).await
    }

    pub(crate) async fn txn(&self, request: Txn) -> Result<TxnResponse, Error> {
        let mut kv = self.take();
        let answer = kv.txn(request).await;
        self.give_back(kv);
        answer
    }

    pub(crate) async fn put(
        &self,
        key: Vec<u8>,
        data: Bytes,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        let mut kv = self.take();
        let answer = kv.put(key, data, Some(options)).await;
        self.give_back(kv);
        answer
    }

    pub(crate) async fn delete(&self, key: Vec<u8>) -> Result<DeleteResponse, Error> {
        let mut kv = self.take();
        let answer = kv.delete(key, None).await;
        self.give_back(kv);
        answer
    }

    /// An idle client, or a new one.
    fn take(&self) -> KvClient {
        self.idle().pop().unwrap_or_else(|| self.kv.clone())
    }

    /// Call this only after an answer: a call that was dropped may have left state in the client.
    fn give_back(&self, kv: KvClient) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(kv);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<KvClient>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn local(&self) -> Result<KvClient, Error> {
        let opening = async || {
            let options = Some(self.options.clone());
            let client = Client::from_channel(self.channel.clone(), options).await?;
            Ok(client.kv_client().max_decoding_message_size(LARGEST))
        };
        self.local.get_or_try_init(opening).await.cloned()
    }

    /// Opens the connection, so that an error or silence before that is known to be one of a
    /// request that was not sent.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        Ok(self.opener.open().await?)
    }

    /// The number of the latest connection: another one may lead to another peer, or to the same
    /// one after a restart.
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }

    /// Fails if the peer is known to be etcd's gRPC proxy; otherwise the id of its cluster, zero if
    /// that is not known.
    ///
    /// The proxy itself keeps leases alive, and answers a request with the answer to an earlier one
    /// (`server/proxy/grpcproxy/lease.go`). So its answers do not prove how long a session is
    /// alive. It is recognised by its answer to a request for the member list, which it generates
    /// itself, without a header (`server/proxy/grpcproxy/cluster.go`). A proxy that forwards this
    /// request is recognised by the ids of its watches.
    pub(crate) async fn direct(&self) -> Result<u64, Error> {
        match self.identify().await {
            Ok(cluster) => Ok(cluster),
            Err(Unidentified::Proxy) => Err(proxy()),
            Err(Unidentified::Unknown(_)) => Ok(0),
        }
    }

    /// The id of the peer's cluster.
    pub(crate) async fn cluster_id(&self) -> Result<u64, Error> {
        self.identify().await.map_err(|error| match error {
            Unidentified::Proxy => proxy(),
            Unidentified::Unknown(error) => error,
        })
    }

    /// A failure is not remembered: the next call asks again.
    async fn identify(&self) -> Result<u64, Unidentified> {
        let asking = async || match self.cluster.clone().member_list().await {
            Ok(list) if is_made_up(&list) => Err(Unidentified::Proxy),
            Ok(list) => Ok(list.header().map_or(0, ResponseHeader::cluster_id)),
            Err(error) => Err(Unidentified::Unknown(error)),
        };
        self.cluster_id.get(&self.connection, asking).await
    }

    /// The members of the cluster as of this call, and its id.
    pub(crate) async fn members(&self) -> Result<(u64, Vec<PbMember>), Error> {
        // A member answers from its own memory, also after it was removed.
        let _current = self.confirm().await?;
        let list = self.cluster.clone().member_list().await?;
        if is_made_up(&list) {
            return Err(proxy());
        }
        let cluster = list.header().map_or(0, ResponseHeader::cluster_id);
        Ok((cluster, list.0.members))
    }

    /// The version of the member; `None` if it does not return one.
    pub(crate) async fn version(&self) -> Result<Option<Version>, Error> {
        let asking = async || match self.maintenance.clone().status().await {
            Ok(status) => Ok(Version::parse(status.version())),
            Err(error) if judge(&error).is_final() => Ok(None),
            Err(error) => Err(error),
        };
        self.version.get(&self.connection, asking).await
    }

    /// The report of the member about itself and its cluster.
    pub(crate) async fn maintenance(&self) -> Result<Maintenance, Error> {
        let mut maintenance = self.maintenance.clone();
        let status = maintenance.status().await?;
        let alarms = maintenance.alarm(AlarmAction::Get, AlarmType::None, None).await?;
        let members = self.cluster.clone().member_list().await?.0.members;
        let leases = match self.lease.clone().leases().await {
            Ok(list) => Some(list.leases().len().try_into().unwrap_or(u64::MAX)),
            Err(error) if judge(&error).is_final() => None,
            Err(error) => return Err(error),
        };
        Ok(Maintenance { status, alarms: alarms.alarms().to_vec(), members, leases })
    }

    /// A header as of a linearizable read: a quorum has confirmed the leader after this call began,
    /// and the member has applied everything that was committed then.
    pub(crate) async fn confirm(&self) -> Result<(Term, PbResponseHeader), Error> {
        let connection = self.connection();
        let options = GetOptions::new().with_count_only();
        let header = match self.get(UNUSED.to_vec(), options, false).await {
            Ok(answer) => answer.0.header.unwrap_or_default(),
            // The answer has no header, but is confirmed like any other read. The list of members
            // is one of the few requests that need no role: since 3.5.30 the status does.
            Err(error) if is_forbidden(&error) => match self.cluster.clone().member_list().await {
                Ok(list) => list.0.header.unwrap_or_default(),
                Err(refused) if judge(&refused).is_final() => return Err(error),
                Err(failed) => return Err(failed),
            },
            Err(error) => return Err(error),
        };
        self.prove();
        Ok((self.set_term(connection, Some(&header)), header))
    }

    /// The term in an earlier answer on the latest connection.
    pub(crate) fn term(&self) -> Option<Term> {
        let term = *self.term.lock().unwrap_or_else(PoisonError::into_inner);
        term.filter(|term| term.connection == self.connection())
    }

    /// Records the term in an answer. `connection` is [`Link::connection`] before the request was
    /// sent.
    pub(crate) fn set_term(&self, connection: u64, header: Option<&PbResponseHeader>) -> Term {
        // The first connection may have been opened for this request.
        let connection = if connection == 0 { self.connection() } else { connection };
        let term = Term { connection, number: header.map_or(0, |header| header.raft_term) };
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(term);
        term
    }

    /// True if anything was received since then.
    pub(crate) fn heard_since(&self, then: Instant) -> bool {
        self.heard().is_some_and(|heard| heard >= then)
    }

    /// Records that an answer arrived.
    pub(crate) fn prove(&self) {
        *self.heard() = Some(Instant::now());
        self.doubted.store(false, Ordering::Relaxed);
    }

    /// True if an answer ever arrived.
    pub(crate) fn is_proven(&self) -> bool {
        self.heard().is_some()
    }

    /// Records that a request sent at `sent` was not answered in time. This is ignored if anything
    /// was received since then.
    pub(crate) fn doubt_since(&self, sent: Instant) {
        if self.heard().is_none_or(|heard| heard < sent) {
            self.doubted.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    fn heard(&self) -> MutexGuard<'_, Option<Instant>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason that the cluster of a peer is not known.
enum Unidentified {
    Proxy,
    Unknown(Error),
}

fn is_made_up(list: &MemberListResponse) -> bool {
    list.header().is_none() || list.members().iter().any(|member| member.id() == 0)
}

/// A property of the peer of one connection.
#[derive(Default)]
struct OfConnection<T>(AsyncMutex<Option<(u64, T)>>);

impl<T: Copy> OfConnection<T> {
    /// The value of the latest connection, requested at most once. Other callers wait for it.
    async fn get<E>(
        &self,
        latest: &AtomicU64,
        asking: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut held = self.0.lock().await;
        let before = latest.load(Ordering::Relaxed);
        if let Some((connection, value)) = *held
            && connection == before
        {
            return Ok(value);
        }
        let value = asking().await?;
        // The first connection may have been opened for this request. A later one may have been
        // opened during it, so the value is requested again.
        let first = before == 0;
        let connection = if first { latest.load(Ordering::Relaxed) } else { before };
        *held = Some((connection, value));
        Ok(value)
    }
}

/// A client that requires members with a leader, and the options for one that does not.
///
/// If authentication was disabled, user and password are neither needed nor harmful: sessions
/// continue, as they do with etcd's own client.
async fn log_in(
    channel: &Channel,
    options: &EtcdOptions,
    url: &str,
) -> Result<(Client, ConnectOptions), Error> {
    let open = async |local: ConnectOptions| {
        let options = local.clone().with_require_leader(true);
        let client = Client::from_channel(channel.clone(), Some(options)).await?;
        Ok((client, local))
    };
    let Some((name, password)) = options.secrets() else {
        return open(ConnectOptions::new()).await;
    };
    let user = ConnectOptions::new().with_user(name, password).with_auto_token_refresh(true);
    match open(user).await {
        Err(error) if is_open_to_all(&error) => {
            tracing::warn!(url, "the member wants no password: authentication is not enabled");
            open(ConnectOptions::new()).await
        }
        opened => opened,
    }
}

fn sockets(options: &EtcdOptions) -> Arc<dyn Connect> {
    let mut http = HttpConnector::new();
    // `Encrypted` adds the encryption.
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(Duration::from_secs(30)));
    http.set_connect_timeout(Some(options.timeout));
    Arc::new(Sockets(http))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("proven", &self.is_proven()).finish_non_exhaustive()
    }
}
