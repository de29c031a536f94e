//! The answers of a client about tickets whose creates were not answered.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use synod_core::error::ErrorKind;
use synod_core::store::{
    Limits, RejectReason, Rejected, Revision, SessionId, SessionInfo, Stat, View, Watch,
};
use tokio::sync::watch;

use super::*;

const TICKET: &str = "/q/7-";

/// A store that answers writes and reads as scripted.
#[derive(Debug)]
struct Scripted {
    info: SessionInfo,
    commits: Mutex<VecDeque<Result<Outcome>>>,
    reads: Mutex<VecDeque<Result<View>>>,
}

#[async_trait]
impl Store for Scripted {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        unreachable!("it draws only")
    }

    async fn read(&self, _query: Query) -> Result<View> {
        self.reads.lock().unwrap().pop_front().expect("a read of the script")
    }

    async fn watch(&self, _query: Query) -> Result<(View, Watch)> {
        unreachable!("it draws only")
    }

    async fn commit(&self, _txn: Txn) -> Result<Outcome> {
        self.commits.lock().unwrap().pop_front().expect("a write of the script")
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn lost() -> Error {
    unsent().with_unknown_effect()
}

fn unsent() -> Error {
    Error::new(ErrorKind::Unreachable, "commit")
}

fn refused() -> Outcome {
    Outcome::Rejected(Rejected::new(0, at(TICKET), RejectReason::Exists))
}

/// The nodes of the directory: a ticket of another client, and possibly the own one.
fn there(own: bool) -> View {
    let revision = Revision::new(3);
    let stat = Stat::new(revision, revision, Version::new(0), None);
    let paths = ["/q/6-1", "/q/7-2"].into_iter().take(1 + usize::from(own));
    let mut view = View::default();
    view.nodes = paths.map(|path| Node::new(at(path)).with_stat(stat)).collect();
    view
}

/// Returns the answer of a client that creates a ticket.
async fn drawn<const W: usize, const R: usize>(
    commits: [Result<Outcome>; W],
    reads: [Result<View>; R],
) -> Result<Answer> {
    let info = SessionInfo::new(SessionId::new(1), Duration::from_secs(1), Limits::default());
    let (commits, reads) = (Mutex::new(commits.into()), Mutex::new(reads.into()));
    let store = Arc::new(Scripted { info, commits, reads });
    let session = Session { p: 1, id: 1, store: store.clone() };
    let answer = session
        .draw(&at(TICKET), || Txn::new().create_sequential(at(TICKET), "7", Lifetime::Session))
        .await;
    assert!(store.commits.lock().unwrap().is_empty(), "it writes no more");
    assert!(store.reads.lock().unwrap().is_empty(), "it reads no more");
    answer
}

fn path_of(answer: Result<Answer>) -> Option<String> {
    answer.expect("it is known").nodes.into_iter().next().map(|node| node.path)
}

#[tokio::test]
async fn a_refused_repetition_is_looked_into() {
    // The first create was applied after the search, and the second was rejected because of it.
    let late = drawn([Err(lost()), Ok(refused())], [Ok(there(false)), Ok(there(true))]).await;
    assert_eq!(path_of(late).as_deref(), Some("/q/7-2"));

    let foreign = drawn([Err(lost()), Ok(refused())], [Ok(there(false)), Ok(there(false))]).await;
    assert_eq!(foreign.expect("it is known").refused.as_deref(), Some("Exists"));

    let blind = drawn([Err(lost()), Ok(refused())], [Ok(there(false)), Err(unsent())]).await;
    assert_eq!(blind.expect_err("nothing was seen").effect(), Effect::Unknown);
}

#[tokio::test]
async fn what_was_lost_stays_unknown_until_it_is_seen() {
    assert_eq!(path_of(drawn([Err(lost())], [Ok(there(true))]).await).as_deref(), Some("/q/7-2"));

    let unread = drawn([Err(lost())], [Err(unsent())]).await;
    assert_eq!(unread.expect_err("nothing was seen").effect(), Effect::Unknown);

    let again = drawn([Err(lost()), Err(unsent())], [Ok(there(false))]).await;
    assert_eq!(again.expect_err("the first one may come").effect(), Effect::Unknown);

    let first = drawn([Err(unsent())], []).await;
    assert_eq!(first.expect_err("it was not sent").effect(), Effect::None);
    let taken = drawn([Ok(refused())], []).await.expect("it is known");
    assert_eq!(taken.refused.as_deref(), Some("Exists"));
}
