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
use synod_core::store::{Backend, Life, SessionHandover, SessionOptions, Store, clamp_ttl};

use crate::endpoints::{Call, Endpoints};
use crate::fetch::number;
use crate::heartbeat;
use crate::history::History;
use crate::lease;
use crate::link::Link;
use crate::member_list;
use crate::options::EtcdOptions;
use crate::store::{EtcdStore, STORE};

/// The shortest session that etcd may grant (its lower limit is one and a half election timeouts),
/// and the longest session that is requested.
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
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if there is no member, if a member is not
    /// written as `host` or `host:port`, or if [`Tls`](crate::Tls) has no certificate in PEM.
    pub fn new(options: EtcdOptions) -> Result<Self> {
        Self::over(options, Random::from_system())
    }

    /// Like [`Self::new`], but takes every id and every random choice from `random`.
    pub(crate) fn over(options: EtcdOptions, random: Random) -> Result<Self> {
        let endpoints = Arc::new(Endpoints::new(options, &random)?);
        Ok(Self { endpoints, random })
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        if let Some(handover) = &options.resume {
            return self.resume(handover.of_store(STORE)?).await;
        }
        let wanted = lease::seconds(clamp_ttl(options.ttl, TTLS.0, TTLS.1)?);
        self.endpoints.list().ready().await?;
        // A lease whose grant was not received expires, so each attempt requests a new one.
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
        let ttl = Duration::from_secs(number(granted.ttl()));
        Ok(self.start((granted.id(), Life::new(ttl, sent, Duration::ZERO)), history).await)
    }
}

impl EtcdBackend {
    /// Continues a session that was handed over. Its lease keeps its time to live.
    async fn resume(&self, handover: &SessionHandover) -> Result<Box<dyn Store>> {
        self.endpoints.list().ready().await?;
        let (lease, ttl) = (lease::of_id(handover.session()), handover.ttl());
        let seen = i64::try_from(handover.position()).unwrap_or(i64::MAX);
        let history = History::default();
        history.saw(seen);
        let call = Call::read("resuming a session", self.endpoints.timeout());
        let (sent, header) = heartbeat::resume(&self.endpoints, lease, call).await?;
        history.answered(Some(&header), seen)?;
        Ok(self.start((lease, Life::new(ttl, sent, Duration::ZERO)), history).await)
    }

    async fn start(&self, life: (i64, Life<i64>), history: History) -> Box<dyn Store> {
        if self.endpoints.list().is_of_ensemble() {
            // Without an answer the list remains as it is.
            let _answered = member_list::read(&self.endpoints, &history).await;
        }
        let (endpoints, random) = (self.endpoints.clone(), self.random.clone());
        Box::new(EtcdStore::start(endpoints, random, life, history))
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdBackend").field(&self.endpoints).finish()
    }
}
