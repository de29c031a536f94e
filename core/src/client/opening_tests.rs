//! The promises about the first session of a client.

use std::time::Duration;

use futures_util::future::join;

use crate::client::tests::{options, path, states_until_end};
use crate::client::{Client, ClientOptions, ConnectionState};
use crate::clock::{self, sleep};
use crate::error::{Effect, ErrorKind};
use crate::retry::Retry;
use crate::session::script::{Fault, Script, idle};
use crate::store::Lifetime;

const MOMENT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_store_whose_servers_refuse_is_waited_for_only_briefly() {
    let elapsed = async |faults: Vec<Fault>, options: ClientOptions| {
        let script = Script::default();
        script.opens(faults);
        let started = clock::now();
        let error = Client::open(script, options).await.expect_err("no store");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        clock::elapsed(started)
    };
    let refused = || vec![Fault::NoServer; 200];
    let default = options();
    assert_eq!(elapsed(refused(), options()).await, default.refused_timeout);
    assert_eq!(elapsed(vec![Fault::Refused; 200], options()).await, default.connect_timeout);
    // An explicit limit is also used if the connection is refused.
    assert_eq!(elapsed(refused(), options().connect_timeout(LONG)).await, LONG);
    // A server that is silent may be slow.
    let silent = vec![Fault::NoServer, Fault::Refused, Fault::Silence];
    assert_eq!(elapsed(silent, options()).await, default.connect_timeout);

    let script = Script::default();
    script.opens([Fault::NoServer, Fault::NoServer]);
    Client::open(script.clone(), options()).await.expect("it was started meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_calls_does_not_end_the_client() {
    let script = Script::default();
    let client = Client::open(script.clone(), options().retry(Retry::Never)).await.expect("opens");
    script.opens([Fault::Refused, Fault::Denied, Fault::Refused]);
    script.lose(1);

    assert_eq!(client.get(&path("/a")).await.expect("in the next session"), None);
    script.reads([Fault::Refused]);
    let error = client.get(&path("/a")).await.expect_err("it is not repeated");
    assert_eq!((error.kind(), script.count("open")), (ErrorKind::Unreachable, 5));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_is_there_before_its_first_session() {
    use ConnectionState::{Closed, Connected, Connecting, Denied, Reconnected};

    let script = Script::default();
    script.opens([Fault::Refused, Fault::NoServer, Fault::SlowReply(LONG / 10)]);
    let options = || options().lazy(true).timeout(LONG);
    let started = clock::now();
    let client = Client::open(script.clone(), options()).await.expect("at once");
    assert_eq!(clock::elapsed(started), Duration::ZERO);

    let (made, closed) = (client.clone(), client.clone());
    let (states, ()) = join(states_until_end(client.state()), async {
        let a = path("/a");
        let made = made.create(&a, "", Lifetime::Session).await.expect("once there is a session");
        assert!(made.is_committed());
        sleep(MOMENT).await;
        closed.close().await.expect("reachable");
    })
    .await;
    assert_eq!(states, [Connecting, Connected, Closed]);

    // Rejected credentials may be set up later.
    script.opens([Fault::Denied]);
    let client = Client::open(script.clone(), options()).await.expect("at once");
    let mut state = client.state();
    state.wait_for(|state| *state == Denied).await.expect("it is reported");
    state.wait_for(|state| *state == Reconnected).await.expect("it is reported");
    client.close().await.expect("reachable");
    drop(client);

    // A client that never had a session closes at once.
    script.opens(vec![Fault::Silence; 2]);
    let client = Client::open(script.clone(), options()).await.expect("at once");
    let (read, ended) = (path("/a"), clock::now());
    let (read, closed) = join(client.get(&read), client.close()).await;
    assert_eq!(read.expect_err("closed").kind(), ErrorKind::SessionLost);
    closed.expect("there is nothing to close");
    assert_eq!(clock::elapsed(ended), Duration::ZERO);
    drop(Client::open(script.clone(), options()).await.expect("at once"));
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_reports_options_that_the_store_rejects() {
    let script = Script::default();
    script.opens([Fault::Refused, Fault::Invalid]);
    let client = Client::open(script.clone(), options().lazy(true)).await.expect("at once");

    let error = client.get(&path("/a")).await.expect_err("it never has a session");

    assert_eq!((error.kind(), script.count("open")), (ErrorKind::Invalid, 2));
    assert!(client.is_closed() && client.close().await.is_ok());
    let brief = options().lazy(true).timeout(MOMENT);
    script.opens(vec![Fault::Refused; 2]);
    let client = Client::open(script.clone(), brief).await.expect("at once");
    let error = client.get(&path("/a")).await.expect_err("no session in time");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
    drop(client);
    idle().await;
}
