//! [`Reader`]: answers queries completely, at one revision, and never at an older revision than
//! before.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::{
    PbKeyValue, PbRangeResponse, PbResponseHeader, PbTxnOpResponse, PbTxnResponse,
};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Freshness, Query, View};

use crate::endpoints::{Call, Endpoints};
use crate::error::is_compacted;
use crate::fetch::{self, Get, PAGE};
use crate::history::{self, History, is_before};
use crate::link::Link;
use crate::portions::Portions;
use crate::view_builder::ViewBuilder;

/// The divisor for the number of keys in a request whose answer was too large.
const STEP: i64 = 16;

/// Reads for one session.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) history: History,
    /// The upper limit for one call, and for each further page of its answer.
    pub(crate) limit: Duration,
}

/// One answer of etcd for several ranges.
pub(crate) struct Answer {
    pub(crate) revision: i64,
    pub(crate) ranges: Vec<PbRangeResponse>,
}

/// A query whose first page was read.
pub(crate) struct Begun {
    call: Call,
    gets: Vec<Get>,
    less: i64,
    answer: Answer,
}

impl Begun {
    /// The revision of the view.
    pub(crate) fn revision(&self) -> i64 {
        self.answer.revision
    }
}

impl Reader {
    pub(crate) fn new(endpoints: Arc<Endpoints>, history: History, limit: Duration) -> Self {
        Self { endpoints, history, limit }
    }

    /// Records that the session has seen this revision.
    pub(crate) fn saw(&self, revision: i64) {
        self.history.saw(revision);
    }

    pub(crate) async fn read(&self, query: &Query) -> Result<View> {
        self.read_in(Call::read("read", self.limit), query).await
    }

    /// Reads as a part of a longer call, whose deadline applies.
    pub(crate) async fn read_in(&self, call: Call, query: &Query) -> Result<View> {
        self.finish(query, self.begin_in(call, query, 1).await?).await
    }

    /// Reads the first page: its revision is that of the whole.
    pub(crate) async fn begin(&self, query: &Query) -> Result<Begun> {
        self.begin_in(Call::read("read", self.limit), query, 1).await
    }

    async fn begin_in(&self, call: Call, query: &Query, less: i64) -> Result<Begun> {
        let (gets, mut less) = (fetch::gets(query), less);
        loop {
            match self.first(call, query, &gets, less).await {
                Ok(answer) => return Ok(Begun { call, gets, less, answer }),
                Err(failed) if failed.kind() == ErrorKind::TooLarge && less < PAGE => less *= STEP,
                Err(failed) => return Err(failed.at(&query.path)),
            }
        }
    }

    /// Reads the remaining pages.
    pub(crate) async fn finish(&self, query: &Query, mut begun: Begun) -> Result<View> {
        /// The maximum number of restarts of a listing that takes longer than etcd keeps old
        /// revisions.
        const PATIENCE: usize = 3;

        let mut again = PATIENCE;
        loop {
            let Begun { call, gets, less, answer } = begun;
            match self.complete(call, query, &gets, answer).await {
                Ok(view) => return Ok(view),
                Err(failed) if is_compacted(&failed) && again > 0 => again -= 1,
                Err(failed) => return Err(failed.at(&query.path)),
            }
            begun = self.begin_in(call.prolonged(self.limit), query, less).await?;
        }
    }

    async fn first(&self, call: Call, query: &Query, gets: &[Get], less: i64) -> Result<Answer> {
        let seen = self.history.seen();
        if query.freshness == Freshness::Local {
            let answer = self.ask(call, gets, less, true).await?;
            if !is_before(answer.revision, seen) {
                return Ok(answer);
            }
            // This member lags. A linearizable read does not.
        }
        // A paused member before 3.4.42 may answer the first read with an old state, but not the
        // second.
        for _ in 0..2 {
            let answer = self.ask(call, gets, less, false).await?;
            if !is_before(answer.revision, seen) {
                return Ok(answer);
            }
        }
        Err(history::ended("its revision is lower than before"))
    }

    /// Reads all ranges in one request.
    async fn ask(&self, call: Call, gets: &[Get], less: i64, local: bool) -> Result<Answer> {
        if let [get] = gets {
            let asking = |link: Arc<Link>| {
                let (key, options) = get.options(get.first_page(less));
                async move { link.get(key, options, local).await }
            };
            let range = self.endpoints.call(call, asking).await?.0;
            let revision = self.revision_of(range.header.as_ref())?;
            return Ok(Answer { revision, ranges: vec![range] });
        }
        let asking = |link: Arc<Link>| {
            let gets: Vec<_> = gets.iter().map(|get| get.options(get.first_page(less))).collect();
            async move { link.get_all(gets.into_iter(), local).await }
        };
        let answer = self.endpoints.call(call, asking).await?.0;
        let revision = self.revision_of(answer.header.as_ref())?;
        Ok(Answer { revision, ranges: ranges(answer) })
    }

    /// Confirms by a linearizable read that the store has the history in which the session has seen
    /// this revision.
    pub(crate) async fn confirm_history(&self, call: Call, seen: i64) -> Result<()> {
        let confirming = |link: Arc<Link>| async move { link.confirm().await };
        let (_, mut header) = self.endpoints.call(call, confirming).await?;
        if is_before(header.revision, seen) {
            // As in `first`.
            (_, header) = self.endpoints.call(call, confirming).await?;
        }
        self.history.answered(Some(&header), seen).map(drop)
    }

    /// The revision of an answer of this session's cluster.
    fn revision_of(&self, header: Option<&PbResponseHeader>) -> Result<i64> {
        self.history.same_cluster(header.map_or(0, |header| header.cluster_id))?;
        Ok(revision(header))
    }

    /// The view for an answer, after reading the remaining pages.
    pub(crate) async fn complete(
        &self,
        call: Call,
        query: &Query,
        gets: &[Get],
        answer: Answer,
    ) -> Result<View> {
        let mut builder = ViewBuilder::new(query);
        for (get, range) in gets.iter().zip(answer.ranges) {
            self.rest(call, get, answer.revision, range, &mut builder).await?;
        }
        self.saw(answer.revision);
        Ok(builder.view(answer.revision))
    }

    /// Gathers the whole range, given its first page.
    async fn rest(
        &self,
        call: Call,
        get: &Get,
        revision: i64,
        first: PbRangeResponse,
        builder: &mut ViewBuilder<'_>,
    ) -> Result<()> {
        if !first.more || !get.is_paged() {
            builder.add(first.kvs);
            return Ok(());
        }
        let came = i64::try_from(first.kvs.len()).unwrap_or(i64::MAX);
        let (mut call, mut page) = (call, get.next_page(came, &first.kvs));
        let mut portions = Portions::new(&get.range, &first, page);
        builder.add(first.kvs);
        builder.report(portions.left());
        while let Some(range) = portions.next() {
            let part = get.part(range.clone());
            let asking = |link: Arc<Link>| {
                let (key, options) = part.options(page);
                let options = options.with_revision(revision);
                async move { link.get(key, options, false).await }
            };
            let next = match self.endpoints.call(call, asking).await {
                Ok(next) => next.0,
                // These nodes are larger than the previous ones.
                Err(error) if error.kind() == ErrorKind::TooLarge && page > 1 => {
                    page = (page / STEP).max(1);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // As long as answers arrive, the range is just large.
            call = call.prolonged(self.limit);
            page = get.next_page(page, &next.kvs);
            portions.answered(&next, page);
            builder.add(next.kvs);
            builder.report(portions.left());
        }
        Ok(())
    }
}

/// The revision of an answer.
pub(crate) fn revision(header: Option<&PbResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// The answers for all ranges of a transaction, in order; for a put that returns the previous key,
/// the key after the put, without its value; empty for other operations.
pub(crate) fn ranges(answer: PbTxnResponse) -> Vec<PbRangeResponse> {
    let at = revision(answer.header.as_ref());
    let each = answer.responses.into_iter().map(|op| match op.response {
        Some(PbTxnOpResponse::ResponseRange(range)) => range,
        Some(PbTxnOpResponse::ResponsePut(put)) => PbRangeResponse {
            kvs: put.prev_kv.map(|before| rewritten(before, at)).into_iter().collect(),
            ..PbRangeResponse::default()
        },
        _ => PbRangeResponse::default(),
    });
    each.collect()
}

/// A key after a write, without its value, as the key before it and the revision of the write show
/// it.
pub(crate) fn rewritten(before: PbKeyValue, at: i64) -> PbKeyValue {
    PbKeyValue { mod_revision: at, value: Vec::new(), ..before }
}

/// Marks an error as one of a call that may have had an effect.
pub(crate) fn unsure(error: Error) -> Error {
    error.with_unknown_effect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_written_anew_does_not_show_its_data_of_before() {
        let before = PbKeyValue { value: b"old".to_vec(), version: 3, ..PbKeyValue::default() };
        let now = rewritten(before, 7);
        assert_eq!((now.value, now.mod_revision, now.version), (Vec::new(), 7, 3));
    }
}
