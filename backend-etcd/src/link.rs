//! [`Link`]: a connection to one member.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error, KvClient, LeaseClient, WatchClient};
use tokio::sync::OnceCell;
use tonic::transport::Endpoint;

use crate::options::EtcdOptions;

/// The largest answer that is taken in one piece.
const LARGEST: usize = 64 << 20;

/// A connection to one member. Its parts are cloned for every call.
pub(crate) struct Link {
    pub(crate) kv: KvClient,
    pub(crate) lease: LeaseClient,
    pub(crate) watch: WatchClient,
    channel: Channel,
    options: ConnectOptions,
    /// [`Link::local`], once somebody asked for it.
    local: OnceCell<KvClient>,
    /// Whether it was ever answered on.
    proven: AtomicBool,
}

impl Link {
    /// A connection to the member at `url`. It comes about with the first call on it, which may be
    /// the one that tells who we are.
    pub(crate) async fn open(options: &EtcdOptions, url: &str) -> Result<Self, Error> {
        // No keep-alive of HTTP/2: servers close connections over one that is faster than theirs,
        // and every call here has a time limit of its own.
        let mut endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(options.timeout)
            .tcp_keepalive(Some(Duration::from_secs(30)));
        if let Some(tls) = &options.tls {
            endpoint = tls.configure(endpoint)?;
        }
        // The client's own way to connect is made for many members at a time.
        let channel = Channel::Tonic(endpoint.connect_lazy());
        let mut options = connect_options(options);
        let local = options.clone();
        options = options.with_require_leader(true);
        let client = Client::from_channel(channel.clone(), Some(options)).await?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(LARGEST),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(LARGEST),
            channel,
            options: local,
            local: OnceCell::new(),
            proven: AtomicBool::new(false),
        })
    }

    /// What reads. If it is `local`, also from a member that has no leader just now.
    pub(crate) async fn reader(&self, local: bool) -> Result<KvClient, Error> {
        if local { self.local().await } else { Ok(self.kv.clone()) }
    }

    async fn local(&self) -> Result<KvClient, Error> {
        let opening = async || {
            let options = Some(self.options.clone());
            let client = Client::from_channel(self.channel.clone(), options).await?;
            Ok(client.kv_client().max_decoding_message_size(LARGEST))
        };
        self.local.get_or_try_init(opening).await.cloned()
    }

    /// Somebody answered.
    pub(crate) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }
}

fn connect_options(options: &EtcdOptions) -> ConnectOptions {
    let connect = ConnectOptions::new();
    match options.secrets() {
        Some((name, password)) => connect.with_user(name, password).with_auto_token_refresh(true),
        None => connect,
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("proven", &self.is_proven()).finish_non_exhaustive()
    }
}
