//! Transactions of synod and of others on the same keys of etcd: of etcd's own package for Go, and
//! of etcdctl.

use synod::Path;
use synod::transaction::Transaction;

use crate::peer::Peer;
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 3] = [
    ("a_transaction_is_shared", &[Kind::Etcdctl], |kind, path| {
        Box::pin(a_transaction_is_shared(kind, path))
    }),
    ("a_transfer_of_either_keeps_the_sum", &[Kind::Go], |kind, path| {
        Box::pin(a_transfer_of_either_keeps_the_sum(kind, path))
    }),
    ("a_value_of_either_is_read_by_the_other", &[Kind::Go], |kind, path| {
        Box::pin(a_value_of_either_is_read_by_the_other(kind, path))
    }),
];

/// The initial balance of each account.
const EACH: i64 = 100;
/// The number of times that each side moves 1, to each of two accounts.
const TIMES: i64 = 100;

/// The key of a node on etcd.
fn key(path: &Path) -> String {
    let (parent, name) = path.as_str().rsplit_once('/').expect("absolute");
    format!("{parent}//{name}")
}

fn accounts<const N: usize>(path: &Path, names: [&str; N]) -> [Path; N] {
    names.map(|name| path.join(name).expect("valid"))
}

/// Both take from an account of their own and give to the two others, at the same time. So each
/// transaction of one changes what each of the other has read.
async fn a_transfer_of_either_keeps_the_sum(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::go_stm(&kind.server()).await);
    let [ann, bob, cat, marks] = &accounts(&path, ["ann", "bob", "cat", "marks"]);
    for account in [ann, bob, cat] {
        client.put_value(account, &EACH).await.expect("reachable");
    }
    let ours = Transaction::new(&client, marks).prefetch([ann, bob, cat].map(Path::clone));
    let [a, b, c] = [ann, bob, cat].map(key);

    peer.write_line(&format!("transfer {} {TIMES} {a} {b} {c}", 3 * EACH));
    for made in 0..TIMES {
        let to = if made % 2 == 0 { ann } else { cat };
        transfer(&ours, [ann, bob, cat], bob, to).await;
    }
    peer.says("done").await;

    let mut held = Vec::new();
    for account in [ann, bob, cat] {
        held.push(client.get_value::<i64>(account).await.expect("reachable").expect("there").value);
    }
    // Each gave away 100, and each of the two others got half of that.
    assert_eq!(held, [EACH - TIMES / 2, EACH - TIMES / 2, EACH + TIMES], "each transfer once");
}

/// Moves 1, and checks that it sees a consistent snapshot of all accounts.
async fn transfer(ours: &Transaction, all: [&Path; 3], from: &Path, to: &Path) {
    let moved = ours.run(|run| async move {
        let mut sum = 0;
        for account in all {
            sum += run.get_value::<i64>(account).await?.unwrap_or_default();
        }
        assert_eq!(sum, 3 * EACH, "a run sees one moment");
        let (left, more) = (run.get_value::<i64>(from).await?, run.get_value::<i64>(to).await?);
        run.put_value(from, &(left.unwrap_or_default() - 1))?;
        run.put_value(to, &(more.unwrap_or_default() + 1))?;
        Ok::<_, synod::Error>(())
    });
    moved.await.expect("reachable");
}

async fn a_value_of_either_is_read_by_the_other(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::go_stm(&kind.server()).await);
    let [theirs, mine, marks] = &accounts(&path, ["theirs", "mine", "marks"]);
    let ours = Transaction::new(&client, marks);

    peer.write_line(&format!("put {} 7", key(theirs)));
    peer.says("done").await;
    let read = ours.run(|run| async move {
        let read = run.get_value::<i64>(theirs).await?;
        run.put_value(mine, &8)?;
        Ok::<_, synod::Error>(read)
    });
    assert_eq!(read.await.expect("reachable"), Some(7));
    peer.write_line(&format!("get {}", key(mine)));
    peer.says("8").await;
}

/// A write of etcdctl's, by `put` or by `txn`, to a key that a transaction has read makes it run
/// again; and `txn` compares what a transaction has written.
async fn a_transaction_is_shared(kind: Kind, path: Path) {
    let (client, server) = (kind.client().await, kind.server());
    let [a, b, marks] = ["a", "b", "marks"].map(|name| path.join(name).expect("valid"));
    let (key, ours) = (&format!("{path}//a"), Transaction::new(&client, marks));
    let write = |round: usize, data: &str| {
        if round == 0 {
            return Peer::etcdctl_once(&server, &["put", key, data], "");
        }
        // The conditions, the operations if they hold, and the operations otherwise, each followed
        // by an empty line.
        let txn = format!("value(\"{key}\") = \"0\"\n\nput {key} {data}\n\n\n");
        Peer::etcdctl_once(&server, &["txn"], &txn)
    };
    for round in 0..2 {
        client.put(&a, "0").await.expect("reachable");
        let (a, b, write, mut runs) = (&a, &b, &write, 0);

        let read = ours.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                let read = run.get(a).await?.unwrap_or_default();
                if is_first {
                    write(round, "7");
                }
                run.put(b, read.clone())?;
                Ok::<_, synod::Error>(read)
            }
        });
        let read = read.await.expect("reachable");

        assert_eq!((&read[..], runs), (&b"7"[..], 2), "round {round}");
        // etcdctl finds the values that the transaction has written.
        let found = Peer::etcdctl_once(&server, &["get", &format!("{path}//b")], "");
        assert_eq!(found.lines().last(), Some("7"), "{found}");
    }
    let refused = write(1, "8");
    assert!(refused.starts_with("FAILURE"), "{refused}");
}
