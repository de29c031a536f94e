//! [`Group`]: the members that are alive now.

use std::fmt;

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Query, View};

use crate::group::changes::GroupReader;
use crate::group::member::{GroupChange, Member};
use crate::keeper::NodeKeeper;
use crate::keeper::node::Occupied;
use crate::layout::group::UNNAMED;

mod changes;
pub(crate) mod member;

#[cfg_attr(not(doctest), doc = include_str!("../docs/group.md"))]
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: Path,
    occupied: Occupied,
}

/// The membership of this program. Dropping this leaves the group in the background.
#[must_use = "dropping this leaves the group"]
pub struct Membership {
    keeper: NodeKeeper,
}

impl Group {
    /// The group at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), path: path.into(), occupied: Occupied::Refuse }
    }

    /// Lets [`join_as`](Self::join_as) replace a member of the same name, such as this program
    /// before its restart.
    pub fn take_over(self) -> Self {
        Self { occupied: Occupied::TakeOver, ..self }
    }

    /// Becomes a member with this data, under a name that no other member has, across sessions,
    /// until it leaves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if it could not join
    /// within the time limit of the client, and any error that the store returns. After an error it
    /// is not a member.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves the group in the background.
    pub async fn join(&self, data: impl Into<Bytes>) -> Result<Membership> {
        let name = format!("{}{UNNAMED}", self.client.random().id());
        self.join_at(&self.path.join(&name)?, data.into()).await
    }

    /// [`Group::join`] under this name.
    ///
    /// # Errors
    ///
    /// As [`Group::join`], [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if there
    /// is a member of that name, and [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid)
    /// if the name is empty or too long.
    ///
    /// # Cancel safety
    ///
    /// As [`Group::join`].
    pub async fn join_as(&self, name: &str, data: impl Into<Bytes>) -> Result<Membership> {
        let name = Name::encode(name)?;
        self.join_at(&self.path.join(name.as_str())?, data.into()).await
    }

    async fn join_at(&self, path: &Path, data: Bytes) -> Result<Membership> {
        let Self { client, occupied, .. } = self;
        let keeper = NodeKeeper::start(client, path, *occupied, data, "group").await?;
        Ok(Membership { keeper })
    }

    /// The current members, in the order of their names.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn members(&self) -> Result<Vec<Member>> {
        Ok(members(self.client.read(self.query()).await?))
    }

    /// The current members, as joined, and then every change. For each name, joins and leaves
    /// alternate. Members that join and leave between two reads are skipped; the latest state is
    /// always reported.
    ///
    /// An outage is not an error: changes during it are reported after it. The stream ends when the
    /// client is closed.
    pub fn changes(&self) -> impl Stream<Item = GroupChange> + Send + use<> {
        GroupReader::new(&self.client, self.query()).changes()
    }

    fn query(&self) -> Query {
        Query::children(&self.path)
    }
}

/// The members in a view: every ephemeral node. Persistent nodes are skipped: they would never
/// leave.
fn members(view: View) -> Vec<Member> {
    view.nodes.into_iter().filter_map(Member::of).collect()
}

impl Membership {
    /// The name of this member, equal to its [`Member::name`].
    pub fn name(&self) -> String {
        member::name_at(self.keeper.path())
    }

    /// The node of this member.
    pub fn path(&self) -> &Path {
        self.keeper.path()
    }

    /// Returns `true` if the store certainly lists this member now. False while its session is not
    /// certain, and between two sessions.
    pub fn is_member(&self) -> bool {
        self.keeper.is_there()
    }

    /// Replaces the data of this member. See [`KeptNode::set`](crate::presence::KeptNode::set).
    ///
    /// # Errors
    ///
    /// As [`KeptNode::set`](crate::presence::KeptNode::set).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the data is stored.
    pub async fn set(&self, data: impl Into<Bytes>) -> Result<()> {
        self.keeper.set(data.into()).await
    }

    /// Leaves the group. When this returns without an error, this client has left the group and
    /// will not appear in it again.
    ///
    /// # Errors
    ///
    /// As [`KeptNode::close`](crate::presence::KeptNode::close).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: this client leaves the group.
    pub async fn leave(self) -> Result<()> {
        self.keeper.close().await
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("keeper", &self.keeper).finish()
    }
}
