//! A server that is restored from a backup.

use std::fs;
use std::process::Command;
use std::time::Duration;

use synod_core::store::{End, Event, Expect, Lifetime, Query, SessionEnd, Status, Txn};
use synod_servers::etcd::Flavour;

use crate::world::{World, create, eventually, next, path};

fn run(command: &mut Command) {
    let done = command.output().expect("etcdctl is installed");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Leases are in a backup, so that keep-alives are answered; and a watch that begins at a later
/// revision than that of the backup is silent.
pub(crate) async fn a_session_of_a_restored_server_is_over() {
    for same_cluster in [true, false] {
        let mut flavour = Flavour::default();
        flavour.fsync = true;
        let mut world = World::new(1, &flavour);
        let members = world.raw().await.member_list().await.expect("answered");
        let peer = members.members()[0].peer_urls()[0].clone();
        let ann = world.session(Duration::from_secs(60)).await;
        create(&*ann, "/n", Lifetime::Persistent).await;

        let backup = world.cluster.home(0).join("backup");
        run(world.cluster.etcdctl().args(["snapshot", "save"]).arg(&backup));
        for _ in 0..50 {
            let set = Txn::new().set(path("/n"), "y", Expect::Any);
            ann.commit(set).await.expect("answered").required().expect("it is there");
        }
        let (view, mut watch) = ann.watch(Query::node(path("/n"))).await.expect("answered");

        world.cluster.kill(0).expect("it runs");
        let data = world.cluster.home(0).join("data");
        fs::remove_dir_all(&data).expect("it is there");
        let mut restore = world.cluster.etcdctl();
        restore.args(["snapshot", "restore"]).arg(&backup).arg("--data-dir").arg(&data);
        if same_cluster {
            // The id of a cluster follows from these.
            let all = format!("n0={peer}");
            restore.args(["--name", "n0", "--initial-cluster", &all]);
            restore.args(["--initial-cluster-token", &all]);
            restore.args(["--initial-advertise-peer-urls", &peer]);
        }
        run(&mut restore);
        world.cluster.restart(0).expect("it can be started");
        world.cluster.await_ready().expect("ready");

        eventually("the session is over", async || ann.status().borrow().is_lost()).await;
        assert_eq!(*ann.status().borrow(), Status::Lost { reason: SessionEnd::Expired });
        let event = next(&mut watch).await;
        assert!(matches!(event, Event::Ended(End::SessionOver(SessionEnd::Expired))), "{event:?}");
        // Tokens are of one history.
        let bob = world.session(Duration::from_secs(60)).await;
        let now = bob.read(Query::node(path("/n"))).await.expect("answered");
        assert!(now.revision < view.revision, "{same_cluster}: {now:?}");
    }
}
