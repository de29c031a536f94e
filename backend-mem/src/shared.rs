//! [`Shared`]: the state that all sessions of one store share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use synod_core::store::{Feature, SessionId};
use tokio::sync::Notify;

use crate::link::{Link, Weather};
use crate::world::{Census, World};

/// The state that all sessions of one store share.
pub(crate) struct Shared {
    world: Mutex<World>,
    pub(crate) buffers: Buffers,
    /// The features that its sessions report as missing.
    pub(crate) missing_features: &'static [Feature],
    links: Mutex<BTreeMap<SessionId, Weak<Link>>>,
    /// The state of the link of the next session, which already applies to its opening.
    next_weather: Mutex<Option<Weather>>,
    /// Notified when a session or node may end earlier than before.
    pub(crate) sooner: Notify,
}

/// The buffers of a store for a slow reader or a slow link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Events in one watch.
    pub(crate) events: usize,
    /// Messages for one link that lets nothing through.
    pub(crate) messages: usize,
}

impl Buffers {
    pub(crate) const USUAL: Self = Self { events: 4_096, messages: 4_096 };
    pub(crate) const SMALL: Self = Self { events: 1, messages: 1 };
}

impl Shared {
    pub(crate) fn new(buffers: Buffers, missing_features: &'static [Feature]) -> Self {
        Self {
            world: Mutex::new(World::new()),
            buffers,
            missing_features,
            links: Mutex::default(),
            next_weather: Mutex::default(),
            sooner: Notify::new(),
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remember(&self, id: SessionId, link: &Arc<Link>) {
        let mut links = self.links();
        links.retain(|_, link| link.strong_count() > 0);
        links.insert(id, Arc::downgrade(link));
    }

    pub(crate) fn set_next_weather(&self, weather: Weather) {
        *self.next_weather.lock().unwrap_or_else(PoisonError::into_inner) = Some(weather);
    }

    pub(crate) fn take_next_weather(&self) -> Option<Weather> {
        self.next_weather.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, BTreeMap<SessionId, Weak<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Census { nodes, sessions, watches } = self.world().census();
        f.debug_struct("MemBackend")
            .field("nodes", &nodes)
            .field("sessions", &sessions)
            .field("watches", &watches)
            .finish_non_exhaustive()
    }
}
