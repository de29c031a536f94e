//! [`Lists`]: the access lists of nodes as texts. Only ZooKeeper has them.

use synod::{Client, Path};

#[cfg(feature = "zookeeper")]
use synod::zookeeper::{Acl, AclClient};
use synod::{ErrorKind, Expect};

use crate::failure::{DENIED, Failure};

/// The access lists of the nodes of a client.
#[cfg(feature = "zookeeper")]
pub(crate) struct Lists(AclClient);

/// The access lists of a store that has none.
#[cfg(not(feature = "zookeeper"))]
pub(crate) struct Lists;

#[cfg(feature = "zookeeper")]
impl Lists {
    pub(crate) fn of(client: &Client) -> Self {
        Self(AclClient::new(client))
    }

    /// The reason that a text is not a list, if it is not.
    pub(crate) fn check(list: &str) -> Result<(), String> {
        list.parse::<Acl>().map(drop).map_err(|error| error.to_string())
    }

    /// The list of a node, and its version.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<(String, u64)>, Failure> {
        let found = self.0.get(path).await?;
        Ok(found.map(|it| (it.acl.to_string(), it.version.get())))
    }

    /// Sets the list of a node. Returns its version.
    pub(crate) async fn set(
        &self,
        path: &Path,
        list: &str,
        expect: Expect,
    ) -> Result<u64, Failure> {
        let set = self.0.set(path, &list.parse()?, expect).await?;
        Ok(Failure::unless_applied(set)?.get())
    }

    /// Sets the lists of a node and of all nodes below it. Returns the number of nodes.
    pub(crate) async fn set_recursive(&self, path: &Path, list: &str) -> Result<usize, Failure> {
        Ok(self.0.set_recursive(path, &list.parse()?).await?)
    }
}

#[cfg(not(feature = "zookeeper"))]
#[expect(clippy::unnecessary_wraps, clippy::unused_async, reason = "as those of ZooKeeper")]
impl Lists {
    pub(crate) fn of(_client: &Client) -> Self {
        Self
    }

    pub(crate) fn check(_list: &str) -> Result<(), String> {
        Ok(())
    }

    fn error() -> Failure {
        let error = synod::Error::new(ErrorKind::Unsupported, "acl");
        error
            .because("only ZooKeeper has access lists of nodes, and it is not in this build")
            .into()
    }

    pub(crate) async fn get(&self, _path: &Path) -> Result<Option<(String, u64)>, Failure> {
        Err(Self::error())
    }

    pub(crate) async fn set(
        &self,
        _path: &Path,
        _list: &str,
        _expect: Expect,
    ) -> Result<u64, Failure> {
        Err(Self::error())
    }

    pub(crate) async fn set_recursive(&self, _path: &Path, _list: &str) -> Result<usize, Failure> {
        Err(Self::error())
    }
}

impl Lists {
    /// Returns `true` if nodes of this store have lists.
    pub(crate) async fn has_any(&self) -> Result<bool, Failure> {
        match self.get(&Path::root()).await {
            Err(Failure::Store(error)) if error.kind() == ErrorKind::Unsupported => Ok(false),
            Err(Failure::Store(error)) if error.kind() == ErrorKind::Denied => Ok(true),
            found => found.map(|_list| true),
        }
    }

    /// The list of a node, in a form that can be set again.
    pub(crate) async fn to_keep(&self, path: &Path) -> Result<Option<String>, Failure> {
        let Some((list, _version)) = self.get(path).await? else { return Ok(None) };
        if let Err(why) = Self::check(&list) {
            // Without the permission to see them, hashes are hidden.
            let text = format!(
                "the access list of {path} cannot be kept: {why}; hashes of passwords are shown \
                 only to clients with the permission admin"
            );
            return Err(Failure::Exit(DENIED, Some(text)));
        }
        Ok(Some(list))
    }
}
