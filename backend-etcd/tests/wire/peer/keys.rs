//! [`Keys`]: keys and values at every revision, as etcd keeps them.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use tonic::Code;

use super::message::{
    Compare, CompareResult, CompareTarget, Event, KeyValue, RangeRequest, SortOrder, Target,
};
use super::refusal::Refusal;

/// All commits since the last compaction.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    all: BTreeMap<Vec<u8>, Vec<Version>>,
    log: Vec<Commit>,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
}

#[derive(Clone, Debug)]
struct Version {
    at: i64,
    /// `None` if the key was deleted then.
    kv: Option<KeyValue>,
}

/// The changes of one revision.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) revision: i64,
    pub(crate) events: Vec<Event>,
}

impl Default for Keys {
    fn default() -> Self {
        Self { all: BTreeMap::new(), log: Vec::new(), revision: 1, compacted: 0 }
    }
}

/// The bounds of a range of keys.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn bounds(key: &[u8], end: &[u8]) -> Bounds {
    let from = Bound::Included(key.to_vec());
    match end {
        [] => (from, Bound::Included(key.to_vec())),
        [0] => (from, Bound::Unbounded),
        // An empty range, which the map would reject.
        end if end <= key => (Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())),
        end => (from, Bound::Excluded(end.to_vec())),
    }
}

impl Version {
    fn of(versions: &[Self], at: i64) -> Option<&KeyValue> {
        let behind = versions.partition_point(|version| version.at <= at);
        versions[..behind].last()?.kv.as_ref()
    }
}

impl Keys {
    /// The keys of a range as of a revision.
    fn between(&self, key: &[u8], end: &[u8], at: i64) -> impl Iterator<Item = &KeyValue> {
        let all = self.all.range(bounds(key, end));
        all.filter_map(move |(_, versions)| Version::of(versions, at))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        Version::of(self.all.get(key)?, i64::MAX)
    }

    /// Answers a range as of the revision that it requests, or as of `now`.
    pub(crate) fn range(
        &self,
        request: &RangeRequest,
        now: i64,
    ) -> Result<(Vec<KeyValue>, bool, i64), Refusal> {
        let at = if request.revision > 0 { request.revision } else { now };
        if request.revision > now.max(self.revision) {
            return Err(Refusal::etcd(
                Code::OutOfRange,
                "mvcc: required revision is a future revision",
            ));
        }
        if request.revision > 0 && at < self.compacted {
            return Err(Refusal::compacted());
        }
        let (min, max) = (request.min_create_revision, request.max_create_revision);
        let all = self.between(&request.key, &request.range_end, at);
        let count = self.between(&request.key, &request.range_end, at).count();
        let mut kvs: Vec<&KeyValue> = all
            .filter(|kv| min == 0 || kv.create_revision >= min)
            .filter(|kv| max == 0 || kv.create_revision <= max)
            .collect();
        sort(&mut kvs, request);
        let limit = usize::try_from(request.limit).unwrap_or_default();
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        let shown = |kv: &KeyValue| {
            let value = if request.keys_only { Bytes::new() } else { kv.value.clone() };
            KeyValue { value, ..kv.clone() }
        };
        let kvs =
            if request.count_only { Vec::new() } else { kvs.into_iter().map(shown).collect() };
        Ok((kvs, more, i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// Returns `true` if a condition holds now.
    pub(crate) fn holds(&self, compare: &Compare) -> bool {
        let mut all = self.between(&compare.key, &compare.range_end, i64::MAX).peekable();
        if all.peek().is_none() {
            return compares(compare, &KeyValue::default());
        }
        all.all(|kv| compares(compare, kv))
    }

    /// The commits after a revision, up to another.
    pub(crate) fn since(&self, after: i64, up_to: i64) -> &[Commit] {
        let from = self.log.partition_point(|commit| commit.revision <= after);
        let to = self.log.partition_point(|commit| commit.revision <= up_to);
        &self.log[from..to.max(from)]
    }

    /// Removes the history before a revision.
    pub(crate) fn compact(&mut self, to: i64) {
        self.compacted = self.compacted.max(to.min(self.revision));
    }

    pub(crate) fn write(&mut self) -> Batch<'_> {
        let at = self.revision + 1;
        Batch { keys: self, at, events: Vec::new() }
    }
}

/// The writes of one revision.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) keys: &'a mut Keys,
    at: i64,
    events: Vec<Event>,
}

impl Batch<'_> {
    /// Writes a key. Returns its previous state.
    pub(crate) fn put(&mut self, key: &[u8], value: Bytes, lease: i64) -> Option<KeyValue> {
        let before = self.keys.get(key).cloned();
        let (created, version) = match &before {
            Some(before) => (before.create_revision, before.version + 1),
            None => (self.at, 1),
        };
        let kv = KeyValue {
            key: key.to_vec(),
            create_revision: created,
            mod_revision: self.at,
            version,
            value,
            lease,
        };
        self.add(key, Some(kv.clone()));
        self.events.push(Event { kind: 0, kv: Some(kv) });
        before
    }

    /// Deletes a range of keys. Returns their previous state.
    pub(crate) fn delete(&mut self, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
        let gone: Vec<KeyValue> = self.keys.between(key, end, i64::MAX).cloned().collect();
        for kv in &gone {
            self.add(&kv.key, None);
            let tombstone =
                KeyValue { key: kv.key.clone(), mod_revision: self.at, ..KeyValue::default() };
            self.events.push(Event { kind: 1, kv: Some(tombstone) });
        }
        gone
    }

    /// The revision of reads within this batch.
    pub(crate) fn revision(&self) -> i64 {
        if self.events.is_empty() { self.keys.revision } else { self.at }
    }

    fn add(&mut self, key: &[u8], kv: Option<KeyValue>) {
        let versions = self.keys.all.entry(key.to_vec()).or_default();
        versions.push(Version { at: self.at, kv });
    }

    /// Appends the batch to the history. Returns the revision afterwards.
    pub(crate) fn commit(self) -> i64 {
        if !self.events.is_empty() {
            self.keys.revision = self.at;
            self.keys.log.push(Commit { revision: self.at, events: self.events });
        }
        self.keys.revision
    }
}

fn sort(kvs: &mut [&KeyValue], request: &RangeRequest) {
    let order = SortOrder::try_from(request.sort_order).unwrap_or(SortOrder::None);
    let target = Target::try_from(request.sort_target).unwrap_or(Target::Key);
    if order == SortOrder::None && target == Target::Key {
        return;
    }
    match target {
        Target::Key => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
        Target::Version => kvs.sort_by_key(|kv| kv.version),
        Target::Create => kvs.sort_by_key(|kv| kv.create_revision),
        Target::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        Target::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if order == SortOrder::Descend {
        kvs.reverse();
    }
}

fn compares(compare: &Compare, kv: &KeyValue) -> bool {
    let (found, wanted) = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => (kv.version, compare.version),
        Ok(CompareTarget::Create) => (kv.create_revision, compare.create_revision),
        Ok(CompareTarget::Mod) => (kv.mod_revision, compare.mod_revision),
        Ok(CompareTarget::Lease) => (kv.lease, compare.lease),
        Ok(CompareTarget::Value) | Err(_) => panic!("the backend compares no values: {compare:?}"),
    };
    match CompareResult::try_from(compare.result).expect("one of etcd's comparisons") {
        CompareResult::Equal => found == wanted,
        CompareResult::Greater => found > wanted,
        CompareResult::Less => found < wanted,
        CompareResult::NotEqual => found != wanted,
    }
}
