//! Servers that refuse a client for a while.

use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::store::SessionOptions;
use synod_zk::ZkBackend;
use tokio::time::{sleep, timeout};

use crate::protocol::{code, op};
use crate::scene::{LONG, PATIENCE, peer};
use crate::script::{Deed, Rule};

/// One server refuses the credentials for a while: a client continues when they are accepted again.
pub(crate) async fn a_client_outlives_that_it_is_not_accepted_for_a_while() {
    let peer = peer(1);
    let backend = ZkBackend::new(peer.options().credentials("ann", "secret")).expect("valid");
    let options = ClientOptions::default().session(SessionOptions::new(LONG));
    let client = Client::open(backend, options).await.expect("the peer runs");
    let first = client.session().await.expect("it lives").info().id;
    peer.when(Rule::new(Deed::Refuse(code::AUTH_FAILED)).op(op::AUTH).times(2));
    peer.expire(first);
    let again = async {
        loop {
            match client.session().await {
                Ok(session) if session.info().id != first => return,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(PATIENCE, again).await.expect("there is another session");
}
