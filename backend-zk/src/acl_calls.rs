//! [`AclCalls`]: the requests about access lists, as an extension of a session.

use std::fmt;
use std::sync::Arc;

use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, RejectReason, Rejected, Version};

use crate::acl::Acl;
use crate::client::{ZkError, behind};
use crate::commit::version;
use crate::connection::Connection;
use crate::containers::{is_container, is_guard};
use crate::error::{Sort, Trouble, denied};

/// The requests of one session about access lists. Paths are those of the servers.
pub(crate) struct AclCalls(Arc<Connection>);

/// The access list of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAcl {
    /// The list. For a client without the permission `admin`, servers replace the hashes of
    /// `digest` entries by `x`: such a list cannot be set.
    pub acl: Acl,
    /// The version of the list, which has nothing to do with the version of the data.
    pub version: Version,
}

impl AclCalls {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// The current list; `None` if there is no node.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<NodeAcl>> {
        const DOING: &str = "get_acl";
        let client = self.0.client(DOING)?;
        let list = behind(Some(client.sync("/")), client.get_acl(path.as_str()));
        match self.0.answer(list).await {
            Ok((acl, stat)) => Ok(Some(NodeAcl { acl, version: of_stat(stat.aversion) })),
            Err(Trouble::Zk(ZkError::NoNode)) => Ok(None),
            Err(trouble) => Err(error(trouble, DOING, Sort::Read, path, "read")),
        }
    }

    /// Sets the list. A container never gets the permission to write, by which it is told from
    /// a node.
    pub(crate) async fn set(
        &self,
        path: &Path,
        acl: &Acl,
        expect: Expect,
    ) -> Result<Outcome<Version>> {
        const DOING: &str = "set_acl";
        let client = self.0.client(DOING)?;
        let without = acl.without_writing();
        let acl = if without != *acl && !path.is_root() {
            match self.0.answer(client.get_data(path.as_str())).await {
                Ok((data, stat)) if is_container(&data, &stat) => &without,
                // Who may set the list may be unable to read the node.
                Ok(_) | Err(Trouble::Zk(ZkError::NoNode | ZkError::NoAuth)) => acl,
                Err(trouble) => return Err(trouble.translate(DOING, Sort::Read)),
            }
        } else {
            acl
        };
        let set = client.set_acl(path.as_str(), acl, version(expect));
        let rejected = |reason| Ok(Outcome::Rejected(Rejected::new(0, path.clone(), reason)));
        match self.0.answer(set).await {
            Ok(stat) => Ok(Outcome::Committed(of_stat(stat.aversion))),
            Err(Trouble::Zk(ZkError::NoNode)) => rejected(RejectReason::Missing),
            Err(Trouble::Zk(ZkError::BadVersion)) => rejected(RejectReason::OtherVersion),
            Err(trouble) => Err(error(trouble, DOING, Sort::Write, path, "admin")),
        }
    }

    /// The paths of the children, without those that no path can name: guards, nodes of other
    /// clients with other names, and the servers' own nodes. `None` if there is no node.
    pub(crate) async fn children(&self, path: &Path) -> Result<Option<Vec<Path>>> {
        const DOING: &str = "listing for set_acl";
        let client = self.0.client(DOING)?;
        let names = match self.0.answer(client.get_children(path.as_str())).await {
            Ok((names, _stat)) => names,
            Err(Trouble::Zk(ZkError::NoNode)) => return Ok(None),
            Err(trouble) => return Err(error(trouble, DOING, Sort::Read, path, "read")),
        };
        let is_own = |name: &str| is_guard(name) || (path.is_root() && name == "zookeeper");
        let names = names.iter().filter(|name| !is_own(name));
        let child = |name: &String| match path.join(name) {
            Ok(child) => Some(child),
            Err(why) => {
                tracing::warn!(%path, %why, "a node whose access list cannot be set is left out");
                None
            }
        };
        Ok(Some(names.filter_map(child).collect()))
    }
}

fn of_stat(version: i32) -> Version {
    Version::new(version.cast_unsigned().into())
}

fn error(trouble: Trouble, doing: &'static str, sort: Sort, path: &Path, needs: &str) -> Error {
    match trouble {
        Trouble::Zk(ZkError::NoAuth) => denied(doing, path, needs),
        trouble => trouble.translate(doing, sort),
    }
}

impl fmt::Debug for AclCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AclCalls").finish_non_exhaustive()
    }
}
