//! [`Endpoint`]: one member, with its connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error_help::{Member, error_text};
use crate::link::Link;
use crate::options::EtcdOptions;
use crate::patience::Patience;

/// One member.
#[derive(Default)]
pub(crate) struct Endpoint {
    pub(super) url: String,
    /// The member is not a host of the options: other members have reported it.
    pub(super) is_reported: bool,
    link: Mutex<Option<Arc<Link>>>,
    /// Held while a link is opened: other calls wait for that link.
    opening: tokio::sync::Mutex<()>,
    pub(super) patience: Patience,
}

impl Endpoint {
    pub(super) fn new(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    pub(super) fn reported(url: String) -> Self {
        Self { is_reported: true, ..Self::new(url) }
    }

    /// The connection. Opens it if there is none, or if it is doubted.
    pub(super) async fn open(
        &self,
        options: &EtcdOptions,
    ) -> Result<Arc<Link>, etcd_client::Error> {
        if let Some(link) = self.held() {
            return Ok(link);
        }
        let _alone = self.opening.lock().await;
        if let Some(link) = self.held() {
            return Ok(link);
        }
        // Boxed: large, and seldom needed.
        let link = Arc::new(Box::pin(Link::open(options, &self.url)).await?);
        *self.lock() = Some(link.clone());
        Ok(link)
    }

    /// The connection, unless it is doubted.
    pub(super) fn held(&self) -> Option<Arc<Link>> {
        self.lock().clone().filter(|link| !link.is_doubted())
    }

    /// Drops the connection, unless it is newer than `link` already.
    pub(crate) fn forget(&self, link: &Arc<Link>) {
        let mut held = self.lock();
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, link)) {
            *held = None;
        }
    }

    /// The text for a person about an error.
    pub(crate) fn error_text(
        &self,
        link: Option<&Arc<Link>>,
        error: &etcd_client::Error,
    ) -> String {
        let proven = link.is_some_and(|link| link.is_proven());
        error_text(error, Member { url: &self.url, proven })
    }

    /// The text for a person about a member that does not answer.
    pub(super) fn silence(&self) -> String {
        let member = Member { url: &self.url, proven: false };
        format!("{} does not answer in time", member.host())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
