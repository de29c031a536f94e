//! The end of a directory's counter: L-SEQ-7.

use std::time::Duration;

use futures_util::future::join_all;
use synod_recipes::Mutex;
use tokio::time::timeout;

use crate::scene::{LONG, client, create, done, open, path, peer};

/// The server's counter stops at its end, and gives the same number to all later children.
pub(crate) async fn a_lock_whose_numbers_end_is_held_by_one() {
    join_all((0..12).map(async |round| {
        let (left, peer) = (round % 2, peer(1));
        let keep = open(&peer, LONG).await;
        done(&*keep, create("/end/keep", "")).await;
        peer.change(|world| {
            let dir = world.servers[0].tree.nodes.get_mut("/end").expect("it was made");
            dir.births = i32::MAX - left;
        });
        let (ann, bob) = (client(&peer, LONG).await, client(&peer, LONG).await);
        let mut guards = Vec::new();
        for who in [&ann, &bob, &ann, &bob] {
            let mutex = Mutex::new(who, path("/end"));
            let limit = Duration::from_millis(300);
            if let Ok(Ok(guard)) = timeout(limit, mutex.lock()).await {
                guards.push(guard);
            }
        }
        let held = guards.iter().filter(|guard| guard.is_held()).count();
        assert!(held <= 1, "{held} hold it, with {left} numbers left");
    }))
    .await;
}
