//! Keep-alives that are answered by a leader which does not know that it was deposed.

use std::sync::atomic::{AtomicU64, Ordering};

use synod_core::store::{SessionEnd, Status, Store};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{TTL, is_live, session};

/// Members whose leaders ask their quorum never, always, and only while their clock stands still.
const VERSIONS: [Option<&str>; 8] = [
    None,
    Some("3.4.23"),
    Some("3.4.31"),
    Some("3.4.42"),
    Some("3.5.12"),
    Some("3.5.13"),
    Some("3.5.30"),
    Some("3.6.0"),
];

async fn member(version: Option<&'static str>) -> (Peer, Box<dyn Store>) {
    let peer = Peer::new(1);
    peer.shared.set_member(0, |member| member.version = version);
    let ann = session(&peer).await;
    (peer, ann)
}

/// An answer to a read in the next term.
fn next_term() -> Act {
    Act::edit(|answer| match answer {
        Answer::Range(mut range) => {
            if let Some(header) = &mut range.header {
                header.term += 1;
            }
            Answer::Range(range)
        }
        other => other,
    })
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_counts_only_with_a_read_after_it() {
    for version in VERSIONS {
        let (peer, ann) = member(version).await;
        let opened = Instant::now();
        // The leader answers keep-alives from memory, and cannot confirm a read.
        peer.script(Rule::on(Kind::Range, Act::Ignore).always());
        sleep(TTL / 2).await;
        // The first heartbeat may have been confirmed.
        let until = ann.status().borrow().until().expect("it is not lost yet");
        assert!(until <= opened + TTL, "{version:?}: a keep-alive alone was counted");
        sleep(TTL * 2).await;
        assert_eq!(
            *ann.status().borrow(),
            Status::Lost { reason: SessionEnd::Expired },
            "{version:?}"
        );
        assert!(peer.met(Kind::KeepAlive) > 0, "the lease was kept alive");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_counts_only_with_a_read_in_the_same_term() {
    for version in VERSIONS {
        let (peer, ann) = member(version).await;
        sleep(TTL).await;
        let before = peer.met(Kind::KeepAlive);
        // Between a keep-alive and its read another leader is elected, repeatedly.
        let terms = AtomicU64::new(1);
        let ever_higher = Act::edit(move |answer| match answer {
            Answer::Range(mut range) => {
                if let Some(header) = &mut range.header {
                    header.term += terms.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Range(range)
            }
            other => other,
        });
        peer.script(Rule::on(Kind::Range, ever_higher).always());
        sleep(TTL * 2).await;
        assert_eq!(
            *ann.status().borrow(),
            Status::Lost { reason: SessionEnd::Expired },
            "{version:?}"
        );
        assert!(peer.met(Kind::KeepAlive) > before + 3, "it was kept alive all the time");
    }
}

#[tokio::test(start_paused = true)]
async fn an_election_during_a_heartbeat_suspends_no_session() {
    let (peer, ann) = member(Some("3.5.30")).await;
    sleep(TTL).await;
    let mut status = ann.status();
    for _ in 0..3 {
        let before = peer.met(Kind::KeepAlive);
        peer.script(Rule::on(Kind::Range, next_term()));
        status.mark_unchanged();
        let suspended = status.wait_for(|status| !matches!(status, Status::Live { .. }));
        let suspended = timeout(TTL, suspended).await;
        assert!(suspended.is_err(), "it was kept alive again in the next term");
        assert!(peer.met(Kind::KeepAlive) > before + 2, "heartbeats were sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_one_keep_alive_and_one_read() {
    let (peer, ann) = member(Some("3.5.30")).await;
    sleep(TTL).await;
    let sent = || (peer.met(Kind::KeepAlive), peer.met(Kind::Range));
    let before = sent();
    sleep(TTL * 3).await;
    let after = sent();
    assert!(is_live(&*ann));
    assert!(after.0 > before.0);
    assert_eq!(after.0 - before.0, after.1 - before.1);
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_a_key_that_it_may_not_read() {
    let denied = Refusal::etcd(Code::PermissionDenied, "permission denied");
    let (peer, ann) = member(Some("3.5.30")).await;
    // The read was confirmed before its permission was checked.
    peer.script(Rule::on(Kind::Range, Act::Refuse(denied)).always());
    sleep(TTL * 3).await;
    assert!(is_live(&*ann), "{:?}", ann.status().borrow());
}
