//! Members that answer a keep-alive without their leader's quorum: before 3.4.31, and 3.5.0 to
//! 3.5.12.

use synod_core::store::{SessionEnd, Status, Store};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{TTL, is_live, session};

const OLD: [&str; 4] = ["3.4.23", "3.4.30", "3.5.0", "3.5.12"];
const NEW: [&str; 4] = ["3.4.31", "3.5.13", "3.5.30", "3.6.0"];

async fn member(version: &'static str) -> (Peer, Box<dyn Store>) {
    let peer = Peer::new(1);
    peer.shared.set_member(0, |member| member.version = Some(version));
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
async fn a_keep_alive_of_an_old_member_counts_only_with_a_read_in_the_same_term() {
    for act in [Act::Ignore, next_term()] {
        for version in OLD {
            let (peer, ann) = member(version).await;
            let opened = Instant::now();
            // The leader answers keep-alives from memory. It cannot confirm a read, or the read
            // shows that there is another leader.
            peer.script(Rule::on(Kind::Range, act.clone()).always());
            sleep(TTL / 2).await;
            // The first heartbeat may have been confirmed.
            let until = ann.status().borrow().until().expect("it is not lost yet");
            assert!(until <= opened + TTL, "{version}, {act:?}: a keep-alive alone was counted");
            sleep(TTL * 2).await;
            let lost = Status::Lost { reason: SessionEnd::Expired };
            assert_eq!(*ann.status().borrow(), lost, "{version}, {act:?}");
            assert!(peer.met(Kind::KeepAlive) > 3, "it was kept alive all the time");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_of_a_newer_member_counts_alone() {
    for version in NEW {
        let (peer, ann) = member(version).await;
        peer.script(Rule::on(Kind::Range, Act::Ignore).always());
        sleep(TTL * 3).await;
        assert!(is_live(&*ann), "{version}: {:?}", ann.status().borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_of_an_old_member_outlives_an_election_and_a_key_that_it_may_not_read() {
    let denied = Refusal::etcd(Code::PermissionDenied, "permission denied");
    for act in [next_term(), Act::Refuse(denied)] {
        let (peer, ann) = member("3.4.23").await;
        sleep(TTL).await;
        match act {
            // The read was confirmed before its permission was checked.
            Act::Refuse(_) => peer.script(Rule::on(Kind::Range, act).always()),
            _ => peer.script(Rule::on(Kind::Range, act)),
        }
        sleep(TTL * 3).await;
        assert!(is_live(&*ann), "{:?}", ann.status().borrow());
    }
}
