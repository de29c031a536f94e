//! Each `mem://` is a store of its own. A program that opens a second one gets a warning: their
//! locks do not exclude each other.
//!
//! This test is alone in its file: the stores without a name are counted in the process.

use crate::logged::Log;

mod logged;

fn warnings(log: &Log) -> usize {
    log.text().matches("do not exclude").count()
}

#[tokio::test(start_paused = true)]
async fn a_second_store_without_a_name_is_warned_of() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let connect = async |url| synod::connect(url).await.expect("memory is always there");

    let first = connect("mem://").await;
    let named = [connect("mem://nameless").await, connect("mem://nameless").await];
    assert_eq!(warnings(&log), 0, "there is one");
    let second = connect("mem://").await;
    assert_eq!(warnings(&log), 1);

    for client in named.into_iter().chain([first, second]) {
        client.close().await.expect("memory answers");
    }
    // The values that the client's task held are dropped with the task.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let _third = connect("mem://").await;
    assert_eq!(warnings(&log), 1, "it is the only one again");
}
