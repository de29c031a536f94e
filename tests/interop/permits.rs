//! A semaphore of Curator's, used through a mutex and a semaphore of synod together.
//!
//! Its directory has two subdirectories: a lock, and the leases. A client that wants a permit waits
//! for the lock, and then, with the lock, until there are no more leases than the limit, including
//! its own. So a client that does the same with synod's recipes waits in one queue with Curator's.

use std::num::NonZeroU32;

use synod::lock::{Mutex, Permit, Semaphore};
use synod::{Client, Path};
use tokio::task::spawn_local;

use crate::peer::Peer;
use crate::{Kind, Scene, gets, stand};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 2] = [
    ("a_semaphore_is_shared_in_order", &[Kind::Curator], |kind, path| {
        Box::pin(a_semaphore_is_shared_in_order(kind, path))
    }),
    ("a_holder_that_dies_with_a_permit_frees_it", &[Kind::Curator], |kind, path| {
        Box::pin(a_holder_that_dies_with_a_permit_frees_it(kind, path))
    }),
];

/// The maximum number of holders.
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The two directories.
#[derive(Clone)]
struct Places {
    locks: Path,
    leases: Path,
}

impl Places {
    fn of(path: &Path) -> Self {
        let below = |name| path.join(name).expect("valid");
        Self { locks: below("locks"), leases: below("leases") }
    }
}

/// A permit, with the lock while it is waited for.
async fn permit(client: Client, places: Places) -> Permit {
    let semaphore = Semaphore::new(&client, places.leases, TWO);
    let turn = Mutex::new(&client, places.locks).lock().await.expect("reachable");
    // Without the lock it must not continue to wait.
    let permit = turn.run(semaphore.acquire()).await.expect("no client lost it");
    let permit = permit.expect("reachable");
    turn.release().await.expect("reachable");
    permit
}

/// A Curator process that requests a permit.
async fn asks(kind: Kind, path: &Path) -> Peer {
    let mut peer = Peer::curator(&kind.server()).await;
    peer.write_line(&format!("permit {path} {TWO}"));
    peer
}

async fn a_semaphore_is_shared_in_order(kind: Kind, path: Path) {
    let (client, places) = (kind.client().await, Places::of(&path));
    let ours = permit(client.clone(), places.clone()).await;
    let mut theirs = asks(kind, &path).await;
    theirs.says("in").await;

    // Both are taken. A client of synod waits for one of them, then one of Curator's, then another
    // of synod's.
    let second = spawn_local(permit(client.clone(), places.clone()));
    stand(&client, &places.leases, 3).await;
    let mut third = asks(kind, &path).await;
    stand(&client, &places.locks, 2).await;
    let last = spawn_local(permit(client.clone(), places.clone()));
    stand(&client, &places.locks, 3).await;
    third.keeps_silent().await;
    assert!(!second.is_finished() && !last.is_finished(), "both are taken");

    theirs.write_line("return");
    theirs.says("out").await;
    let second = gets(second).await;
    third.keeps_silent().await;
    assert!(ours.is_held() && second.is_held() && !last.is_finished(), "both are taken again");

    ours.release().await.expect("reachable");
    third.says("in").await;
    stand(&client, &places.leases, 3).await;
    assert!(!last.is_finished(), "one of ours and one of theirs have them");
    third.write_line("return");
    third.says("out").await;
    let last = gets(last).await;
    assert!(second.is_held() && last.is_held());
}

async fn a_holder_that_dies_with_a_permit_frees_it(kind: Kind, path: Path) {
    let (client, places) = (kind.client().await, Places::of(&path));
    let ours = permit(client.clone(), places.clone()).await;
    let mut theirs = asks(kind, &path).await;
    theirs.says("in").await;
    let next = spawn_local(permit(client.clone(), places.clone()));
    stand(&client, &places.leases, 3).await;

    theirs.kill();
    let next = gets(next).await;

    let mut last = asks(kind, &path).await;
    stand(&client, &places.leases, 3).await;
    last.keeps_silent().await;
    assert!(ours.is_held() && next.is_held());
    // All ephemeral nodes of the session are deleted at once.
    client.close().await.expect("reachable");
    last.says("in").await;
}
