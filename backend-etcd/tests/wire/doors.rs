//! Connections that never worked: nothing was sent on them.

use std::time::Duration;

use synod_core::error::{Effect, ErrorKind};
use synod_core::random::Random;
use synod_core::store::Store;
use tokio::time::{Instant, sleep};

use crate::peer::Peer;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::shared::Door;
use crate::world::{create, done, kept, open, session, set};

const DOORS: [Door; 3] = [Door::Drops, Door::Closes, Door::Silent];

/// A session whose connections break, and find these doors afterwards.
async fn behind(doors: &[Door]) -> (Peer, Box<dyn Store>) {
    let peer = Peer::new(doors.len());
    let options = peer.options().timeout(Duration::from_secs(2));
    let backend = peer.network().backend(options, Random::seeded(1)).expect("valid");
    let ann = open(&backend).await.expect("it is opened");
    done(&*ann, create("/n")).await;
    for (member, door) in doors.iter().enumerate() {
        peer.shared.set_member(member, |member| member.door = *door);
    }
    peer.shared.restart(|_| {}).await;
    (peer, ann)
}

#[tokio::test(start_paused = true)]
async fn a_write_on_a_connection_that_never_worked_did_not_happen() {
    for door in DOORS {
        for members in [1, 3] {
            let (peer, ann) = behind(&vec![door; members]).await;
            for _ in 0..2 {
                let error = ann.commit(set("/n", "y")).await.expect_err("no member is reached");
                let said = (error.kind(), error.effect());
                assert_eq!(said, (ErrorKind::Unreachable, Effect::None), "{door:?}: {error}");
            }
            assert_eq!(kept(&peer, "/n").as_deref(), Some(&b"x"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_to_the_member_that_can_be_reached() {
    for door in DOORS {
        for bad in 0..2 {
            let mut doors = [Door::Open; 2];
            doors[bad] = door;
            let (peer, ann) = behind(&doors).await;
            done(&*ann, set("/n", "y")).await;
            assert_eq!(peer.met(Kind::Put), 1, "{door:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_sent_waits_for_its_answer_as_long_as_the_call_may() {
    for members in [1, 3] {
        let peer = Peer::new(members);
        let ann = session(&peer).await;
        let slow = Duration::from_millis(9_500);
        peer.script(Rule::on(Kind::Txn, Act::Slow(slow)));
        let began = Instant::now();
        done(&*ann, create("/n")).await;
        assert_eq!(began.elapsed().as_millis(), slow.as_millis());
        assert_eq!(peer.met(Kind::Txn), 1, "it was sent again");

        // Requests made meanwhile go to another member.
        peer.script(Rule::on(Kind::Txn, Act::Slow(slow)));
        let reading = async {
            sleep(slow / 2).await;
            ann.commit(create("/other")).await.map(|_| Instant::now())
        };
        let (slow, quick) = tokio::join!(ann.commit(create("/slow")), reading);
        let then = quick.expect("it is answered");
        assert!(slow.is_ok() && then < Instant::now(), "{slow:?}");
    }
}
