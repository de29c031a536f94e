//! The answers of a follower without its leader prove nothing about a session: L-SES-15.

use std::time::Duration;

use futures_util::future::join_all;

use crate::lives::{beats, is_never_late};
use crate::peer::Peer;
use crate::scene::{create, done, open_at, peer};

/// A follower loses its leader together with a client, and does not notice it for so long that the
/// leader expires the client's session. Meanwhile it answers from its memory.
pub(crate) async fn a_follower_without_its_leader_proves_nothing() {
    join_all([3_000, 5_000].map(async |ttl| {
        let peer = peer(3);
        let store = open_at(&peer, &[1], Duration::from_millis(ttl)).await;
        done(&*store, create("/cut/a", "")).await;
        beats(&peer, 3).await;
        peer.change(|world| world.part(1));
        is_never_late(&peer, &*store).await;
    }))
    .await;
}

/// The last answer of a follower proves nothing that it has not reported to the leader.
pub(crate) async fn a_follower_that_stops_right_after_its_answer_proves_no_more() {
    join_all((0..4).map(async |_| {
        let peer = Peer::start_with(3, Duration::from_millis(20)).expect("there are ports");
        let store = open_at(&peer, &[1], Duration::from_secs(3)).await;
        beats(&peer, 5).await;
        peer.change(|world| {
            world.part(1);
            world.servers[1].down = true;
            world.servers[1].close_all();
        });
        is_never_late(&peer, &*store).await;
    }))
    .await;
}
