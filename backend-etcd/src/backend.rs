//! [`EtcdBackend`]: opens sessions on an etcd cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::LeaseGrantOptions;
use futures_util::future::try_join;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::random::Random;
use synod_core::store::{Backend, Life, SessionOptions, Store, clamp_ttl};

use crate::endpoints::{Call, Endpoints};
use crate::fetch::number;
use crate::history::History;
use crate::lease;
use crate::link::Link;
use crate::member_list;
use crate::options::EtcdOptions;
use crate::store::EtcdStore;

/// The shortest session that etcd may keep: its lower limit is one and a half election timeouts.
/// And the longest session that is requested.
const TTLS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));

/// An etcd cluster. Clones share its connections.
#[derive(Clone)]
pub struct EtcdBackend {
    endpoints: Arc<Endpoints>,
    random: Random,
}

impl EtcdBackend {
    /// The cluster in `options`. Nothing is sent before the first session is opened.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if there is no member, or one that is
    /// not written as `host` or `host:port`, or [`Tls`](crate::Tls) without a certificate in PEM.
    pub fn new(options: EtcdOptions) -> Result<Self> {
        Self::over(options, Random::from_system())
    }

    /// Like [`Self::new`], with every id and every choice from `random`.
    pub(crate) fn over(options: EtcdOptions, random: Random) -> Result<Self> {
        let endpoints = Arc::new(Endpoints::new(options, &random)?);
        Ok(Self { endpoints, random })
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let wanted = lease::seconds(clamp_ttl(options.ttl, TTLS.0, TTLS.1)?);
        self.endpoints.list().ready().await?;
        // A lease whose grant was not received expires by itself, so each attempt requests a new
        // one.
        let call = Call::read("opening a session", self.endpoints.timeout());
        let granting = |link: Arc<Link>| {
            let id = LeaseGrantOptions::new().with_id(lease::of_session(&self.random));
            async move {
                let sent = clock::now();
                let mut lease = link.lease.clone();
                let granting = lease.grant(wanted, Some(id));
                let connection = link.connection();
                let (_, granted) = try_join(link.direct(), granting).await?;
                link.set_term(connection, granted.0.header.as_ref());
                Ok((sent, granted))
            }
        };
        let (sent, granted) = self.endpoints.call(call, granting).await?;
        let history = History::default();
        history.answered(granted.0.header.as_ref(), 0)?;
        if self.endpoints.list().is_of_ensemble() {
            // Without an answer the list remains as it is.
            let _answered = member_list::read(&self.endpoints, &history).await;
        }
        let ttl = Duration::from_secs(number(granted.ttl()));
        let life = (granted.id(), Life::new(ttl, sent, Duration::ZERO));
        let (endpoints, random) = (self.endpoints.clone(), self.random.clone());
        Ok(Box::new(EtcdStore::start(endpoints, random, life, history)))
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdBackend").field(&self.endpoints).finish()
    }
}
