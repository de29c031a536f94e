//! [`Reader`]: answers queries, whole and at one revision, and never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbKeyValue, PbRangeResponse, PbTxnOpResponse, PbTxnResponse};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Freshness, Query, View};

use crate::endpoints::{Call, Endpoints};
use crate::error::is_compacted;
use crate::fetch::{self, Get, PAGE};
use crate::link::Link;

/// How many times as few keys are asked for as were too many.
const STEP: i64 = 16;

/// Reads for one session.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) endpoints: Arc<Endpoints>,
    /// The highest revision that this session knows of.
    seen: AtomicI64,
    /// How long one call may take.
    pub(crate) limit: Duration,
}

/// One answer of etcd to several ranges.
pub(crate) struct Answer {
    pub(crate) revision: i64,
    pub(crate) ranges: Vec<PbRangeResponse>,
}

impl Reader {
    pub(crate) fn new(endpoints: Arc<Endpoints>, limit: Duration) -> Self {
        Self { endpoints, seen: AtomicI64::new(0), limit }
    }

    /// The session knows of this revision.
    pub(crate) fn saw(&self, revision: i64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }

    pub(crate) async fn read(&self, query: &Query) -> Result<View> {
        self.read_in(Call::read("read", self.limit), query).await
    }

    /// Reads as a part of a longer call, which must come to its end in time.
    pub(crate) async fn read_in(&self, call: Call, query: &Query) -> Result<View> {
        /// A listing that takes longer than etcd remembers is begun again, so many times.
        const PATIENCE: usize = 3;

        let (gets, mut less, mut again) = (fetch::gets(query), 1, PATIENCE);
        loop {
            let failed = match self.whole(call, query, &gets, less).await {
                Ok(view) => return Ok(view),
                Err(failed) => failed,
            };
            if is_compacted(&failed) && again > 0 {
                again -= 1;
            } else if failed.kind() == ErrorKind::TooLarge && less < PAGE {
                less *= STEP;
            } else {
                return Err(failed.at(&query.path));
            }
        }
    }

    async fn whole(&self, call: Call, query: &Query, gets: &[Get], less: i64) -> Result<View> {
        let local = query.freshness == Freshness::Local;
        let mut answer = self.ask(call, gets, less, local).await?;
        if local && answer.revision < self.seen.load(Ordering::Acquire) {
            // This member is behind. Who must agree with the others is not.
            answer = self.ask(call, gets, less, false).await?;
        }
        self.complete(call, query, gets, answer).await
    }

    /// Asks for all ranges at once.
    async fn ask(&self, call: Call, gets: &[Get], less: i64, local: bool) -> Result<Answer> {
        if let [get] = gets {
            let asking = |link: Arc<Link>| {
                let (key, options) = get.options(get.first_page(less));
                async move { link.get(key, options, local).await }
            };
            let range = self.endpoints.call(call, asking).await?.0;
            return Ok(Answer { revision: revision(range.header.as_ref()), ranges: vec![range] });
        }
        let asking = |link: Arc<Link>| {
            let gets: Vec<_> = gets.iter().map(|get| get.options(get.first_page(less))).collect();
            async move { link.get_all(gets.into_iter(), local).await }
        };
        let answer = self.endpoints.call(call, asking).await?.0;
        let revision = revision(answer.header.as_ref());
        Ok(Answer { revision, ranges: ranges(answer) })
    }

    /// The view that an answer is, or begins.
    pub(crate) async fn complete(
        &self,
        call: Call,
        query: &Query,
        gets: &[Get],
        answer: Answer,
    ) -> Result<View> {
        let mut all = Vec::new();
        for (get, range) in gets.iter().zip(answer.ranges) {
            all.push(self.rest(call, get, answer.revision, range).await?);
        }
        self.saw(answer.revision);
        Ok(fetch::view(query, answer.revision, all))
    }

    /// All of a range whose first page is here.
    async fn rest(
        &self,
        call: Call,
        get: &Get,
        revision: i64,
        first: PbRangeResponse,
    ) -> Result<Vec<PbKeyValue>> {
        let mut page = get.next_page(&first.kvs);
        let (mut kvs, mut more) = (first.kvs, first.more && get.is_paged());
        while more {
            let Some(last) = kvs.last() else { break };
            let rest = get.rest(&last.key);
            let asking = |link: Arc<Link>| {
                let (key, options) = rest.options(page);
                let options = options.with_revision(revision);
                async move { link.get(key, options, false).await }
            };
            let next = match self.endpoints.call(call, asking).await {
                Ok(next) => next.0,
                // These are larger than those before them.
                Err(error) if error.kind() == ErrorKind::TooLarge && page > 1 => {
                    page = (page / STEP).max(1);
                    continue;
                }
                Err(error) => return Err(error),
            };
            more = next.more;
            page = get.next_page(&next.kvs);
            kvs.extend(next.kvs);
        }
        Ok(kvs)
    }
}

/// The revision that an answer was given at.
pub(crate) fn revision(header: Option<&etcd_client::proto::PbResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// The answers to all ranges of a transaction, in order; of other operations, empty ones.
pub(crate) fn ranges(answer: PbTxnResponse) -> Vec<PbRangeResponse> {
    let each = answer.responses.into_iter().map(|op| match op.response {
        Some(PbTxnOpResponse::ResponseRange(range)) => range,
        _ => PbRangeResponse::default(),
    });
    each.collect()
}

/// An error that names the call as it looks to whoever made it.
pub(crate) fn unsure(error: Error) -> Error {
    error.with_unknown_effect()
}
