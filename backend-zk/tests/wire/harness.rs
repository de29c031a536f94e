//! The conformance suite on the unchanged backend, with the peer: without faults, and with all
//! abilities.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_core::path::Path;
use synod_core::store::{Backend, Change, Kind, Revision, SessionId};

use crate::peer::Peer;
use crate::tree::{Life, Write};

/// A new peer for each case.
#[derive(Debug)]
pub(crate) struct OverPeer(Peer);

impl OverPeer {
    pub(crate) fn start(servers: usize) -> Result<Self, String> {
        Peer::start(servers).map(Self).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Harness for OverPeer {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.backend())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_millis(1_500), Duration::from_secs(10))
            .crowd(3_000)
            .offers(Ability::ALL)
            .lacks(Ability::Openings, "a link exists only once its session does")
            .lacks(Ability::ManyUses, "the scripted servers run on the processors of the case")
            .lacks(Ability::SequenceEnd, "the counter of the scripted server is not brought to the last sequence that the backend gives")
    }

    async fn expire(&self, session: SessionId) {
        self.0.expire(session);
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.0.link(session, link);
    }

    async fn watches(&self) -> usize {
        self.0.world().servers.iter().map(|server| server.watches.count()).sum()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        const LEFT: i32 = 50;

        self.0.change(|world| {
            for server in &mut world.servers {
                let node = server.tree.nodes.get_mut(dir.as_str());
                node.expect("it is there").children_created = i32::MAX - LEFT;
            }
        });
    }

    async fn truth(&self) -> Vec<Change> {
        let world = self.0.world();
        let writes = world
            .log
            .iter()
            .flat_map(|entry| entry.writes.iter().map(move |write| (entry.zxid, write)));
        let changes = writes.filter_map(|(zxid, write)| {
            let (path, kind) = match write {
                Write::Create { life: Life::Container, .. } => return None,
                Write::Create { path, .. } => (path, Kind::Created),
                Write::Set { path, .. } => (path, Kind::Updated),
                Write::Delete { path } => (path, Kind::Deleted),
            };
            let mut change = Change::new(Path::new(path).ok()?, kind);
            change.revision = Some(Revision::new(zxid.cast_unsigned()));
            Some(change)
        });
        changes.collect()
    }
}
