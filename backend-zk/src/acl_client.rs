//! [`AclClient`]: reads and sets the access lists of nodes.

use std::sync::Arc;

use futures_util::future::try_join_all;
use synod_core::client::Client;
use synod_core::clock::{self, timeout};
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Outcome, Version};

use crate::acl::Acl;
use crate::acl_calls::{AclCalls, NodeAcl};
use crate::error::Sort;
use crate::server_stats::ZkCalls;

/// The access lists of the nodes of a client on ZooKeeper. Paths are those of the client.
///
/// The list of a *new* node is set when it is created: see
/// [`ZkOptions::acl`](crate::ZkOptions::acl). This is for nodes that exist.
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path;
/// use synod_core::store::Expect;
/// use synod_zk::AclClient;
///
/// # async fn example(client: Client) -> Result<()> {
/// let lists = AclClient::new(&client);
/// let path = path!("/config/limits");
/// if let Some(before) = lists.get(&path).await? {
///     println!("{} in version {}", before.acl, before.version);
///     let acl = "world:read,sasl:ops:all".parse()?;
///     lists.set(&path, &acl, Expect::Version(before.version)).await?.required()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] from every call if the store of the client is not ZooKeeper, and the
/// errors of every call of a [`Client`]. [`ErrorKind::Denied`] names the node and the missing
/// permission.
#[derive(Clone, Debug)]
#[doc(alias = "getACL")]
#[doc(alias = "setACL")]
pub struct AclClient {
    client: Client,
}

/// The maximum number of nodes whose lists are set at the same time.
const AT_ONCE: usize = 64;

impl AclClient {
    /// The access lists of the nodes of this client.
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Reads the latest access list of a node or a container, or of the root; `None` if there is
    /// none. It needs the permission `read` or `admin`.
    ///
    /// # Errors
    ///
    /// Those of the [type](Self).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    #[doc(alias = "get_acl")]
    pub async fn get(&self, path: &Path) -> Result<Option<NodeAcl>> {
        let get = async |calls: Arc<AclCalls>, path: Path| calls.get(&path).await;
        self.on_session("get_acl", path, true, Sort::Read, get).await
    }

    /// Replaces the access list of a node, with an [`Expect::Version`] only if the *list* has this
    /// version. Returns its new version. It needs the permission `admin`.
    ///
    /// The list holds for the node alone, not for the nodes below it. A container gets the list
    /// without the permission `write`, which containers never have.
    ///
    /// # Errors
    ///
    /// Those of the [type](Self). [`ErrorKind::Invalid`] for a list that servers refuse, and for
    /// [`Expect::Absent`]. With [`Expect::Any`] the call is repeated after a lost answer; with a
    /// version the [effect](Error::effect) is then unknown.
    ///
    /// # Cancel safety
    ///
    /// The request of a dropped call completes in the background: the list is set or it is not.
    #[doc(alias = "set_acl")]
    pub async fn set(&self, path: &Path, acl: &Acl, expect: Expect) -> Result<Outcome<Version>> {
        const DOING: &str = "set_acl";
        let invalid = |why: String| Error::new(ErrorKind::Invalid, DOING).at(path).because(why);
        if let Some(fault) = acl.fault() {
            return Err(invalid(fault));
        }
        if expect == Expect::Absent {
            return Err(invalid("a node that is absent has no access list".to_owned()));
        }
        let limit = self.client.session().await?.info().limits.request;
        if acl.size() + path.as_str().len() > limit {
            return Err(Error::new(ErrorKind::TooLarge, DOING).at(path));
        }
        let set = async |calls: Arc<AclCalls>, path: Path| calls.set(&path, acl, expect).await;
        self.on_session(DOING, path, expect == Expect::Any, Sort::Write, set).await
    }

    /// Replaces the access lists of a node and of every node below it, and returns the number of
    /// nodes: zero if there was none. It needs the permissions `admin` and `read` of each.
    ///
    /// It is not atomic. A node that another client creates meanwhile may keep the list that its
    /// client gives it. After an error some lists are set, and a later call sets the rest. The
    /// nodes of the servers below `/zookeeper` keep theirs.
    ///
    /// # Errors
    ///
    /// As [`AclClient::set`], with the path of the first node whose list could not be set.
    ///
    /// # Cancel safety
    ///
    /// A dropped call sets no further lists after the requests in flight.
    #[doc(alias = "setAcl -R")]
    pub async fn set_recursive(&self, path: &Path, acl: &Acl) -> Result<usize> {
        let (mut left, mut count) = (vec![path.clone()], 0);
        while !left.is_empty() {
            let batch = left.split_off(left.len().saturating_sub(AT_ONCE));
            let set = batch.iter().map(|path| self.set_and_list(path, acl));
            for children in try_join_all(set).await?.into_iter().flatten() {
                count += 1;
                left.extend(children);
            }
        }
        Ok(count)
    }

    /// Sets the list of a node, and returns the children; `None` if there is no node.
    async fn set_and_list(&self, path: &Path, acl: &Acl) -> Result<Option<Vec<Path>>> {
        let list = || {
            let list = async |calls: Arc<AclCalls>, path: Path| calls.children(&path).await;
            self.on_session("set_acl", path, true, Sort::Read, list)
        };
        // The present list may permit to read the node, or the new one.
        let before = match list().await {
            Err(error) if error.kind() == ErrorKind::Denied => None,
            listed => Some(listed?),
        };
        if !self.set(path, acl, Expect::Any).await?.is_committed() {
            return Ok(None);
        }
        let children = match before {
            Some(children) => children,
            None => list().await?,
        };
        // By their paths of this client.
        let children = children.into_iter().flatten();
        children.map(|child| Ok(path.join(child.name())?)).collect::<Result<_>>().map(Some)
    }

    /// Calls on the current session, and again if that may help and does no harm.
    async fn on_session<T, F>(
        &self,
        doing: &'static str,
        path: &Path,
        is_repeatable: bool,
        sort: Sort,
        call: impl Fn(Arc<AclCalls>, Path) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (since, limit) = (clock::now(), self.client.timeout());
        let left = || limit.saturating_sub(clock::elapsed(since));
        let mut delays = Retry::contended().delays(self.client.random());
        loop {
            let session = self.client.session().await?;
            let calls = session.info().extension::<ZkCalls>().ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, doing).at(path).because(
                    "only ZooKeeper has access lists of nodes; on etcd use roles, as in \
                     docs/access.md",
                )
            })?;
            let at = session.info().path_in_store(path)?;
            let called =
                timeout(left(), call(calls.acl.clone(), at)).await.unwrap_or_else(|_elapsed| {
                    let late = Error::new(ErrorKind::Unreachable, doing);
                    Err(if sort == Sort::Write { late.with_unknown_effect() } else { late })
                });
            let error = match called {
                Ok(done) => return Ok(done),
                Err(error) => error.at(path),
            };
            let delay = delays.next().unwrap_or_default();
            let is_harmless = is_repeatable || error.effect() == Effect::None;
            if !self.client.is_transient(&error) || !is_harmless || left() <= delay {
                return Err(error);
            }
            clock::sleep(delay).await;
        }
    }
}
