//! [`GroupReader`]: the changes of a group's members.

use std::collections::{BTreeMap, VecDeque};

use futures_core::Stream;
use futures_util::future::poll_immediate;
use futures_util::stream::unfold;
use synod_core::client::{Client, ClientWatch};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Event, Query, View};

use crate::group::member::{GroupChange, Member};
use crate::support::retry::RetryDelays;

/// The known members of a group, and the changes that are still to be reported.
pub(super) struct GroupReader {
    client: Client,
    query: Query,
    watch: Option<ClientWatch>,
    /// True if the members may have changed since they were read.
    is_stale: bool,
    known: BTreeMap<String, Member>,
    pending: VecDeque<GroupChange>,
    /// The delays between reads that fail, and the kind of the failure that was reported.
    failing: Option<(RetryDelays, Option<ErrorKind>)>,
}

impl GroupReader {
    pub(super) fn new(client: &Client, query: Query) -> Self {
        Self {
            client: client.clone(),
            query,
            watch: None,
            is_stale: true,
            known: BTreeMap::new(),
            pending: VecDeque::new(),
            failing: None,
        }
    }

    /// All changes. The stream ends with the client.
    pub(super) fn changes(self) -> impl Stream<Item = GroupChange> + Send {
        unfold(self, |mut reader| async move {
            let change = Box::pin(reader.next()).await?;
            Some((change, reader))
        })
    }

    async fn next(&mut self) -> Option<GroupChange> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            if self.client.is_closed() {
                return None;
            }
            if !self.is_stale {
                self.wait().await;
                continue;
            }
            match self.read().await {
                Ok(view) => {
                    (self.is_stale, self.failing) = (false, None);
                    self.update(view);
                }
                Err(error) => self.record_failure(error).await,
            }
        }
    }

    /// Waits until the members may have changed.
    async fn wait(&mut self) {
        let Some(watch) = &mut self.watch else { return self.is_stale = true };
        let mut event = watch.next().await;
        // One read shows what several events report.
        while matches!(event, Some(Event::Changed(_) | Event::Resync)) {
            match poll_immediate(watch.next()).await {
                Some(next) => event = next,
                None => break,
            }
        }
        if let Some(Event::Ended(_)) | None = event {
            self.watch = None;
        }
        self.is_stale = true;
    }

    async fn read(&mut self) -> Result<View> {
        if self.watch.is_some() {
            return self.client.read(self.query.clone()).await;
        }
        let (view, watch) = self.client.watch(self.query.clone()).await?;
        self.watch = Some(watch);
        Ok(view)
    }

    async fn record_failure(&mut self, error: Error) {
        let random = self.client.random();
        let (delays, reported) =
            self.failing.get_or_insert_with(|| (RetryDelays::forever(random), None));
        if !error.kind().is_outage() && *reported != Some(error.kind()) {
            *reported = Some(error.kind());
            self.pending.push_back(GroupChange::Failed(error));
            return;
        }
        delays.wait().await;
    }

    fn update(&mut self, view: View) {
        let now = by_name(view);
        self.pending.extend(changes(&self.known, &now));
        self.known = now;
    }
}

fn by_name(view: View) -> BTreeMap<String, Member> {
    let members = view.nodes.into_iter().filter_map(Member::of);
    members.map(|member| (member.name.clone(), member)).collect()
}

/// The changes between two reads: first the members that left, then the members that exist.
fn changes(before: &BTreeMap<String, Member>, now: &BTreeMap<String, Member>) -> Vec<GroupChange> {
    let is_same = |one: &Member, other: &Member| one.since == other.since;
    let left = before.values().filter(|old| now.get(&old.name).is_none_or(|it| !is_same(it, old)));
    let left = left.cloned().map(GroupChange::Left);
    let there = now.values().filter_map(|member| match before.get(&member.name) {
        Some(old) if !is_same(old, member) => Some(GroupChange::Joined(member.clone())),
        Some(old) if old != member => Some(GroupChange::Changed(member.clone())),
        Some(_) => None,
        None => Some(GroupChange::Joined(member.clone())),
    });
    left.chain(there).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use synod_core::store::{Revision, SessionId};

    use super::*;

    fn all(members: &[(&str, u64, &'static str)]) -> BTreeMap<String, Member> {
        let members = members.iter().map(|(name, since, data)| Member {
            name: (*name).to_owned(),
            data: Bytes::from_static(data.as_bytes()),
            since: Revision::new(*since),
            session: SessionId::new(*since),
        });
        members.map(|member| (member.name.clone(), member)).collect()
    }

    #[test]
    fn changes_are_known_by_incarnations_and_not_by_names() {
        let before = all(&[("ann", 1, "a"), ("bob", 2, "b"), ("cid", 3, "c"), ("dan", 4, "d")]);
        let now = all(&[("ann", 1, "a"), ("bob", 9, "b"), ("dan", 4, "new"), ("eve", 10, "e")]);
        let shown: Vec<String> = changes(&before, &now)
            .into_iter()
            .map(|change| match change {
                GroupChange::Joined(it) => format!("+{} {}", it.name, it.since),
                GroupChange::Left(it) => format!("-{} {}", it.name, it.since),
                GroupChange::Changed(it) => format!("={} {:?}", it.name, it.data),
                GroupChange::Failed(error) => error.to_string(),
            })
            .collect();
        assert_eq!(shown, ["-bob 2", "-cid 3", "+bob 9", "=dan b\"new\"", "+eve 10"]);
        assert!(changes(&now, &now).is_empty());
    }
}
