//! [`ZkBackend`]: opens sessions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use secrecy::ExposeSecret as _;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    Backend, Gap, Life, Limits, SessionId, SessionInfo, SessionOptions, Store, clamp_ttl,
};
use tokio::time::{Instant, sleep_until, timeout};
use zookeeper_client::{Acls, Client, Connector, CreateMode, Error as ZkError};

use crate::error::{Sort, Trouble};
use crate::options::{Access, Login, ZkOptions};
use crate::probe;
use crate::session::ZkStore;
use crate::wire::Wire;

/// The shortest and the longest session that is asked for. The servers have bounds of their own.
const TTLS: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(24 * 24 * 60 * 60));

/// The longest that opening a session takes.
const PATIENCE: Duration = Duration::from_secs(15);

/// A store on ZooKeeper servers.
#[derive(Clone, Debug)]
pub struct ZkBackend {
    options: Arc<ZkOptions>,
    access: Access,
}

impl ZkBackend {
    /// A store on these servers. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for options that cannot work, and if nobody said who may touch what
    /// is made.
    pub fn new(options: ZkOptions) -> Result<Self> {
        let (options, access) = options.checked()?;
        Ok(Self { options: Arc::new(options), access })
    }

    async fn connect(&self, ttl: Duration) -> Result<Client, ZkError> {
        let hosts = self.options.hosts.join(",");
        let connector = self.connector(ttl);
        match &self.options.tls {
            Some(tls) => tls.connect(connector, &hosts).await,
            None => connector.connect(&hosts).await,
        }
    }

    /// Waits for a session, or tells within `limit` why there is none.
    async fn within<T>(
        &self,
        limit: Duration,
        opening: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T> {
        const DOING: &str = "opening a session";

        let end = Instant::now() + limit;
        let ask = || probe::why(&self.options.hosts, self.options.tls.is_some(), limit / 4);
        // It goes on while the servers are asked why it takes so long.
        let late = async {
            sleep_until(end - limit / 4).await;
            ask().await
        };
        let (said, why) = match select(pin!(timeout(limit, opening)), pin!(late)).await {
            Either::Left((Ok(Ok(opened)), _)) => return Ok(opened),
            Either::Left((said, _)) => (said.ok(), None),
            Either::Right((why, opening)) => match opening.await {
                Ok(Ok(opened)) => return Ok(opened),
                said => (said.ok(), Some(why)),
            },
        };
        let error = match said.and_then(Result::err) {
            Some(said @ (ZkError::AuthFailed | ZkError::BadArguments(_))) => {
                return Err(Trouble::Said(said).translate(DOING, Sort::Read));
            }
            Some(said) => Trouble::Said(said).translate(DOING, Sort::Read),
            None => Error::new(ErrorKind::Unreachable, DOING),
        };
        // Whatever else the crate says, the servers know better.
        let why = match why {
            Some(why) => why,
            None => ask().await,
        };
        Err(error.because(why))
    }

    fn connector(&self, ttl: Duration) -> Connector {
        let connector = Client::connector().with_session_timeout(ttl);
        let Some((user, password)) = &self.options.credentials else { return connector };
        let password = password.expose_secret();
        match self.options.login {
            Login::Digest => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            #[cfg(feature = "sasl")]
            Login::Sasl => connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(
                user.clone(),
                password.to_owned(),
            )),
            // It was refused.
            #[cfg(not(feature = "sasl"))]
            Login::Sasl => connector,
        }
    }
}

#[async_trait]
impl Backend for ZkBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let wanted = clamp_ttl(options.ttl, TTLS.0, TTLS.1)?;
        let limit = wanted.clamp(Duration::from_secs(1), PATIENCE);
        let opening = async {
            let client = self.connect(wanted).await?;
            let sent = Instant::now();
            let alive = client.check_stat("/");
            let gaps = gaps(&client);
            alive.await?;
            let gaps = gaps.await?;
            Ok((client, sent, gaps))
        };
        let (client, sent, gaps) = self.within(limit, opening).await?;
        let mut limits = Limits::default();
        limits.gaps = gaps;
        let id = SessionId::new(client.session_id().0.cast_unsigned());
        let info = SessionInfo::new(id, client.session_timeout(), limits);
        let states = client.state_watcher();
        // A sign of life that a server answered reaches the leader up to half a beat later, and may be
        // lost on the way with that server. No session is shorter than two beats, unless it is so
        // configured: hence the bound.
        let life = Life::new(info.ttl, sent, self.options.tick.min(info.ttl / 4));
        let wire = Arc::new(Wire::new(client, life, self.access, self.options.ports()));
        wire.connected();
        Ok(Box::new(ZkStore::start(info, wire, states)))
    }
}

/// What the servers cannot do. It is asked for where it cannot succeed.
fn gaps(client: &Client) -> impl Future<Output = Result<Vec<Gap>, ZkError>> + use<'_> {
    const NOWHERE: &str = "/synod-nowhere-5f0e9c/x";

    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let options = options.with_ttl(Duration::from_secs(1));
    let refused = client.create(NOWHERE, b"", &options);
    async move {
        match refused.await {
            Err(ZkError::Unimplemented) => Ok(vec![Gap::TtlNodes]),
            Ok(_) | Err(ZkError::NoNode | ZkError::NoAuth | ZkError::NodeExists) => Ok(vec![]),
            Err(said) => Err(said),
        }
    }
}
