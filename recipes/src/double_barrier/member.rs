//! [`MemberNode`]: the owner of a member's node. Dropping it removes the node.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Expect, Lifetime, OpResult, Outcome, Query, Revision, Sequence, Txn, View,
};

use crate::layout::barrier::MEMBER;
use crate::mutant::mistake;

/// The operation of a member, in errors.
pub(super) const ENTERING: &str = "entering a barrier";

/// The maximum number of members whose removal or giving up is recorded.
pub(super) const MAX_REMEMBERED: usize = 1_000;

/// The text behind [`MEMBER`] and before the number of parties, as in `member-of3-`.
const OF: &str = "of";

/// The ephemeral node of a member.
#[derive(Debug)]
pub(super) struct MemberNode {
    session: Session,
    given_up: Arc<GivenUp>,
    node: OpResult,
    /// True if no request can create the node again.
    settled: bool,
    gone: bool,
}

impl MemberNode {
    /// Creates a member. With `reads`, the same request lists the members after its create, where
    /// the store supports that. Adds the prefix of its name to `own` before the node may exist.
    pub(super) async fn join(
        client: &Client,
        session: &Session,
        dir: &Path,
        parties: NonZeroU32,
        own: &mut Vec<String>,
        reads: bool,
    ) -> Result<(Self, Option<View>)> {
        let path = session.unique(&dir.join(&format!("{MEMBER}{OF}{parties}-"))?)?;
        own.push(path.name().to_owned());
        let joining = Joining { prefix: Some(path.clone()), given_up: client.local() };
        let create = Txn::new().create_sequential(path, "", Lifetime::Session);
        let create = if reads { create.look(names(dir)) } else { create };
        let (outcome, requests) = session.commit_tracked(create).await?;
        let commit = outcome.required()?;
        let node = commit.results.into_iter().next().ok_or_else(|| {
            Error::new(ErrorKind::Backend, ENTERING).because("the store did not report the node")
        })?;
        let (session, given_up) = (session.clone(), joining.done());
        let settled = requests.is_settled();
        Ok((Self { session, given_up, node, settled, gone: false }, commit.look))
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn path(&self) -> &Path {
        &self.node.path
    }

    pub(super) fn name(&self) -> &str {
        self.node.path.name()
    }

    /// Its position in the order of arrival.
    pub(super) fn place(&self) -> Option<Sequence> {
        self.node.sequence
    }

    /// Removes the node. With `read_in`, the same request lists the members in this directory after
    /// the removal, where the store supports that.
    pub(super) async fn leave(&mut self, read_in: Option<&Path>) -> Result<Option<View>> {
        let delete = Txn::new().delete(self.path(), Expect::Any);
        let delete = read_in.into_iter().fold(delete, |delete, dir| delete.look(names(dir)));
        if self.settled
            && let Ok(Outcome::Committed(commit)) = self.session.commit(delete).await
        {
            self.gone = true;
            return Ok(commit.look);
        }
        self.remove().await?;
        Ok(None)
    }

    /// Removes the node in one transaction with `rest`, if that is possible. Otherwise only removes
    /// it.
    pub(super) async fn leave_with(&mut self, rest: Txn) -> Result<()> {
        let delete = rest.delete(self.path(), Expect::Any);
        if self.settled
            && let Ok(Outcome::Committed(_)) = self.session.commit(delete).await
        {
            self.gone = true;
            return Ok(());
        }
        self.remove().await
    }

    async fn remove(&mut self) -> Result<()> {
        // A delayed request may create the node again. Or another client, or an earlier unanswered
        // request, has removed it.
        if !self.settled {
            self.given_up.add(&self.node, false);
        }
        self.session.remove(&self.node).await?;
        self.gone = true;
        Ok(())
    }
}

impl Drop for MemberNode {
    fn drop(&mut self) {
        mistake!(GivenUpMemberStays: return);
        if !self.gone {
            self.given_up.add(&self.node, self.settled);
            self.session.remove_in_background(&self.node);
        }
    }
}

/// A member whose node is being created. If this is dropped, or the create fails, the node may
/// still exist, under a name that begins with this prefix.
struct Joining {
    prefix: Option<Path>,
    given_up: Arc<GivenUp>,
}

impl Joining {
    /// The node is known, and has an owner that removes it.
    fn done(mut self) -> Arc<GivenUp> {
        self.prefix = None;
        self.given_up.clone()
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        mistake!(GivenUpMemberStays: return);
        if let Some(prefix) = self.prefix.take() {
            self.given_up.remember(Former { path: prefix, created: None });
        }
    }
}

/// Returns `true` if a node of this name is a member of this library.
pub(super) fn is_our_name(name: &str) -> bool {
    name.starts_with(MEMBER)
}

/// The number of parties that a member specified. `None` for members of other libraries.
pub(super) fn parties_of(name: &str) -> Option<u32> {
    let (parties, _id) = name.strip_prefix(MEMBER)?.strip_prefix(OF)?.split_once('-')?;
    parties.parse().ok()
}

/// The query for the members.
pub(super) fn names(dir: &Path) -> Query {
    Query::children(dir).names_only()
}

/// The nodes of the members of this client that gave up, at all of its barriers, until they are
/// known to be gone; including nodes that a delayed request may still create. They are identified
/// by names or by prefixes of names. A member that enters again does not count its former nodes.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Mutex<VecDeque<Former>>);

/// A member that gave up.
#[derive(Debug)]
struct Former {
    /// The path of the node, or a prefix of it.
    path: Path,
    /// The revision of its create, if no request can create it again.
    created: Option<Revision>,
}

impl GivenUp {
    /// Adds a node. If it is not settled, a delayed request may create it again after any listing.
    fn add(&self, node: &OpResult, is_settled: bool) {
        let created = node.stat.map(|stat| stat.created).filter(|_| is_settled);
        self.remember(Former { path: node.path.clone(), created });
    }

    fn remember(&self, former: Former) {
        let mut members = self.members();
        members.push_back(former);
        if members.len() > MAX_REMEMBERED {
            members.pop_front();
        }
    }

    /// The names and prefixes of the members that may still be in a directory, given a listing of
    /// it at this revision.
    pub(super) fn among(
        &self,
        dir: &Path,
        listed: impl Fn(&str) -> bool,
        as_of: Revision,
    ) -> BTreeSet<String> {
        let mut members = self.members();
        let is_there = |former: &Former| former.path.parent_str() == Some(dir.as_str());
        members.retain(|former| {
            let may_come = former.created.is_none_or(|created| as_of < created);
            !is_there(former) || listed(former.path.name()) || may_come
        });
        let there = members.iter().filter(|former| is_there(former));
        there.map(|former| former.path.name().to_owned()).collect()
    }

    fn members(&self) -> MutexGuard<'_, VecDeque<Former>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Stat, Version};

    use super::*;

    #[test]
    fn a_listing_settles_members_of_its_own_directory_that_are_not_newer() {
        let given_up = GivenUp::default();
        let node = |path: Path, created| {
            let created = Revision::new(created);
            OpResult::new(path).with_stat(Stat::new(created, created, Version::new(0), None))
        };
        given_up.add(&node(path!("/a/old"), 5), true);
        given_up.add(&node(path!("/a/new"), 9), true);
        given_up.add(&node(path!("/a/late"), 5), false);
        given_up.add(&node(path!("/b/old"), 5), true);
        let among = |dir: &Path, listed: &[&str]| {
            let names = given_up.among(dir, |name| listed.contains(&name), Revision::new(7));
            names.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(among(&path!("/a"), &["old"]), ["late", "new", "old"]);
        assert_eq!(
            among(&path!("/a"), &[]),
            ["late", "new"],
            "a listing that is older, or not the last"
        );
        assert_eq!(among(&path!("/b"), &["old"]), ["old"], "another directory does not count");
        assert_eq!(among(&path!("/b"), &[]), [""; 0]);
    }
}
